"""Messages that say what to write instead."""

import numpy as np
import pytest

from jaxtrace import AnalyticField, create_tracker
from jaxtrace.fields import double_gyre


def test_no_seeds_are_told():
    with pytest.raises(
        ValueError, match=r"`initial_positions` must .*one particle at least; got shape \(0, 2\)"
    ):
        create_tracker("rk4", double_gyre()).track_particles(np.zeros((0, 2)), (0.0, 1.0), 2)


def test_numpy_inside_a_formula_is_told():
    with pytest.raises(TypeError, match=r"must compute with jax\.numpy.*`jnp\.sin"):
        AnalyticField(lambda x, t: np.sin(np.asarray(x)), 2)
