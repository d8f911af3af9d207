"""The teacher: exact Bayesian posteriors of edges and parent sets, prior knowledge, and measures of quality."""

from .bge import AbstractScore as AbstractScore
from .bge import BGe as BGe
from .gp_score import GaussianProcess as GaussianProcess
from .gp_score import LinearOrSmooth as LinearOrSmooth
from .graph_draws import draw_graphs as draw_graphs
from .knowledge import Knowledge as Knowledge
from .knowledge import no_knowledge as no_knowledge
from .knowledge import prior_knowledge as prior_knowledge
from .metrics import auroc as auroc
from .metrics import brier as brier
from .metrics import edge_mask as edge_mask
from .metrics import expected_calibration_error as expected_calibration_error
from .metrics import f1 as f1
from .metrics import structural_hamming_distance as structural_hamming_distance
from .metrics import total_variation as total_variation
from .nonlinearity import nonlinearity as nonlinearity
from .order_mcmc import OrderSampling as OrderSampling
from .posterior import ParentSets as ParentSets
from .posterior import Posterior as Posterior
from .posterior import edge_posterior as edge_posterior
