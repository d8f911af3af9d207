"""Beliefs about a problem: causal models drawn from their posterior, corrected by experiments."""

from .belief import AbstractBelief as AbstractBelief
from .belief import Belief as Belief
from .belief import Effects as Effects
from .belief import corrected_belief as corrected_belief
from .model_effects import effect_grid as effect_grid
from .model_effects import effect_of as effect_of
from .model_effects import effects_of as effects_of
from .model_effects import expected_row as expected_row
from .posterior_models import BeliefSettings as BeliefSettings
from .posterior_models import draw_models as draw_models
from .posterior_models import models_of as models_of
from .posterior_models import score_for as score_for
