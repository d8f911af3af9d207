"""The guide's checks of a training setup; each returns its findings."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from jaxworlds.measuring import time_call

from .losses import kl_divergence_loss_jax
from .parent_set_model import create_test_batch, create_test_model
from .train_steps import create_adaptive_train_step, create_jax_surrogate_train_step


@dataclasses.dataclass(frozen=True)
class FallbackReport:
    """Difference between the uncompiled and the compiled step."""

    largest_difference: float
    """Largest absolute difference in parameters and metrics after one update."""
    compiled_loss: float
    uncompiled_loss: float

    @property
    def agree(self) -> bool:
        """True if both computed the same numbers, to 1e-6."""
        return self.largest_difference <= 1e-6


def validate_fallback_behavior() -> FallbackReport:
    """Make one update compiled and one uncompiled, from the same state, and compare all numbers."""
    model, params = create_test_model()
    batch = create_test_batch()
    results = []
    for compiled in (True, False):
        step = create_adaptive_train_step(model, use_jax_compilation=compiled)
        results.append(step(params, step.optimizer.init(params), batch, jr.key(0)))
    (params_a, _, metrics_a), (params_b, _, metrics_b) = results
    gaps = jax.tree.map(
        lambda a, b: np.abs(np.asarray(a) - np.asarray(b)).max(), (params_a, metrics_a), (params_b, metrics_b)
    )
    return FallbackReport(
        largest_difference=float(max(jax.tree.leaves(gaps))),
        compiled_loss=float(metrics_a["total_loss"]),
        uncompiled_loss=float(metrics_b["total_loss"]),
    )


def test_loss_function_compilation(
    loss_fn: Callable[..., Any] = kl_divergence_loss_jax,  # noqa: PT028 - no test of ours, see below
) -> float:
    """Compile a loss alone and return its value for four sets; a loss that is not finite raises."""
    logits, probs = jnp.array([0.5, -1.0, 2.0, 0.0]), jnp.array([0.2, 0.0, 0.7, 0.1])
    value = float(jax.jit(lambda a, b: loss_fn(a, b, None))(logits, probs))
    if not np.isfinite(value):
        raise ValueError(f"`loss_fn` must be finite for expert probabilities of 0; got {value}.")
    return value


def test_model_forward_compilation(
    model: Any = None,  # noqa: PT028
    params: Any = None,  # noqa: PT028
) -> dict[str, Any]:
    """Compile a model's forward pass and return its prediction for a test problem."""
    if model is None:
        model, params = create_test_model()
    data = create_test_batch(1).observational_data[0, :, :3]
    found = jax.jit(lambda params, data: model.apply(params, data, ("A", "B", "Y"), "Y"))(params, data)
    if "parent_set_logits" not in found:
        raise ValueError(f"`model.apply` must return `parent_set_logits`; got {sorted(found)}.")
    return found


def test_performance_regression(max_compiles: int = 1) -> dict[str, float]:  # noqa: PT028
    """Check what does not depend on the machine: one compilation serves all batches of a size.

    Returns the seconds of the first call and of a later one. The guide's gates compare a compilation with a run, so
    a slower compiler passes them more easily; keep wall time in `jaxworlds.measuring.Baseline` instead.
    """
    from jaxworlds.compiling import CompileWatch

    model, params = create_test_model()
    step = create_jax_surrogate_train_step(model)
    batches = [create_test_batch(seed=seed) for seed in range(3)]
    opt_state, key = step.optimizer.init(params), jr.key(0)
    with CompileWatch() as watch:
        seconds = [time_call(step, params, opt_state, batch, key)[1] for batch in batches]
    compiles = watch["surrogate_update"].compiles
    if compiles > max_compiles:
        raise RuntimeError(f"`step` must compile {max_compiles} time; it compiled {compiles} times.")
    return {"first_call_s": seconds[0], "later_call_s": min(seconds[1:]), "compiles": compiles}


# Named as the guide names them, and no tests of ours: pytest must not collect them where they are imported.
for _function in (
    test_loss_function_compilation,
    test_model_forward_compilation,
    test_performance_regression,
):
    _function.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]
