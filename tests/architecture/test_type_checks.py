"""Every call of our code is checked against its annotations while the tests run; this proves that the check is on."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from jaxworlds.pictures import mosaic
from jaxworlds.rollout import Checkpoint, run


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        run(lambda c, t: (c, None), jnp.zeros(3), "ten")  # pyright: ignore[reportArgumentType]


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        mosaic(np.zeros((2, 2)))


def test_an_integer_serves_as_a_float() -> None:
    assert Checkpoint("folder", every_seconds=5).every_seconds == 5
