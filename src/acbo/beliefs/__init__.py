"""Beliefs about a problem: causal models drawn from their posterior, and what they say of interventions."""

from .belief import AbstractBelief as AbstractBelief
from .belief import Belief as Belief
from .belief import Effects as Effects
from .belief import corrected_belief as corrected_belief
from .effects import effect_grid as effect_grid
from .effects import effect_of as effect_of
from .effects import effects_of as effects_of
from .effects import expected_row as expected_row
from .models import draw_models as draw_models
from .models import models_of as models_of
from .models import posterior_models as posterior_models
from .models import score_for as score_for
from .settings import BeliefSettings as BeliefSettings
