"""Easy, medium and hard causal models, all of one shape, so that a curriculum over them compiles once."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int32

from acbo.data import Dataset, Key
from acbo.names import place
from acbo.scms.causal_model import CausalModel
from acbo.scms.random_models import SCMPrior, sample_scm, scm_prior
from acbo.scms.samples import sample
from acbo.scms.scm import SCM

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
SIZE = 16
"""Padded size that holds models of every difficulty."""


def difficulty_prior(difficulty: str | Int32[Array, ""]) -> SCMPrior:
    """The models of a difficulty, by name, or by index inside a compiled program.

    - easy: 3 to 5 variables, simple shapes, linear, Gaussian, little noise;
    - medium: 5 to 10 variables, every family, polynomials and tanh networks too, every noise but heteroscedastic;
    - hard: 10 to 16 variables, dense graphs, every mechanism and noise, some variables out of reach.
    """
    if isinstance(difficulty, str):
        return _priors()[place(difficulty, DIFFICULTIES, "difficulty")]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *_priors())
    return jax.tree.map(lambda leaf: leaf[difficulty], stacked)


def _priors() -> tuple[SCMPrior, SCMPrior, SCMPrior]:
    easy = scm_prior(
        ("erdos_renyi", "chain", "fork", "collider"),
        "linear",
        "gaussian",
        variables=(3, 5),
        edges_per_variable=(0.8, 1.2),
        noise_scale=(0.2, 0.5),
    )
    medium = scm_prior(
        mechanisms=("linear", "polynomial", "tanh"),
        noises=("gaussian", "laplace", "uniform"),
        variables=(5, 10),
        edges_per_variable=(1.0, 1.5),
        noise_scale=(0.3, 0.8),
    )
    hard = scm_prior(
        ("erdos_renyi", "scale_free", "two_layer", "mixed"),
        variables=(10, 16),
        edges_per_variable=(1.5, 2.5),
        noise_scale=(0.5, 1.2),
        manipulable=0.7,
    )
    return easy, medium, hard


def generate_scm_for_difficulty(
    difficulty: str, key: Key | None = None, *, size: int = SIZE, units: int = 8
) -> CausalModel:
    """A named random model of the difficulty; without a key, always the same one.

    >>> model = generate_scm_for_difficulty("easy")
    >>> model.target in model.names, len(model.names) <= 5
    (True, True)
    """
    scm = sample_scm(jr.key(0) if key is None else key, difficulty_prior(difficulty), size, units)
    return CausalModel.named(scm)


def collect_observational_data(scm: CausalModel | SCM, rows: int = 100, key: Key | None = None) -> Dataset:
    """Rows of the model without any intervention; without a key, always the same ones."""
    arrays = scm.scm if isinstance(scm, CausalModel) else scm
    return sample(arrays, None, jr.key(1) if key is None else key, rows)
