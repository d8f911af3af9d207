"""Quality of a surrogate on held-out models: ranking of edges and calibration."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from acbo.data import Dataset, Key
from acbo.inference.metrics import auroc, edge_mask, expected_calibration_error

from .network import Network, Surrogate, fit_calibration
from .trainer import Draw


class HeldOut(eqx.Module):
    """Data of many models, with a leading axis for models, and the truth about them."""

    data: Dataset
    adjacency: Bool[Array, "models d d"]

    @property
    def possible(self) -> Bool[Array, "models d d"]:
        """Pairs of different live variables."""
        return jax.vmap(edge_mask)(self.data.live)


def held_out(draw: Draw, key: Key | None = None, models: int = 200) -> HeldOut:
    """Models drawn with a key of their own, by default one that no training run uses."""
    key = jr.key(20_200) if key is None else key
    data, adjacency = _draw_many(draw, jr.split(key, models))
    return HeldOut(data, adjacency.astype(bool))


@eqx.filter_jit
def _draw_many(draw: Draw, keys: Key) -> tuple[Dataset, Any]:
    return jax.lax.map(draw, keys, batch_size=min(256, keys.shape[0]))


@eqx.filter_jit
def edge_logits(surrogate: Surrogate | Network, data: Dataset, batch: int = 64) -> Float[Array, "models d d"]:
    """Logits for many datasets, at most `batch` at a time."""
    models = data.rows.shape[0]
    # Even parts where they go up: a smaller last part would be a second program.
    parts = -(-models // batch)
    return jax.lax.map(lambda d: surrogate(d).edge_logits, data, batch_size=-(-models // parts))


@dataclasses.dataclass(frozen=True)
class Quality:
    """Figures of one evaluation."""

    auroc: float
    """Over all pairs of all models together."""
    auroc_per_model: float
    """Mean over models."""
    ece: float
    """Expected calibration error."""
    cross_entropy: float
    """Mean over pairs, in nats."""
    models: int

    def __str__(self) -> str:
        return (
            f"AUROC {self.auroc:.4f} ({self.auroc_per_model:.4f} per model), ECE {self.ece:.4f}, "
            f"cross entropy {self.cross_entropy:.4f} on {self.models} models"
        )


def evaluate(surrogate: Surrogate | Network, cases: HeldOut) -> Quality:
    """Judge a surrogate on models it has not seen."""
    found = _figures(edge_logits(surrogate, cases.data), cases)
    return Quality(**{name: float(value) for name, value in found.items()}, models=cases.adjacency.shape[0])


@jax.jit
def _figures(logits: Float[Array, "models d d"], cases: HeldOut) -> dict[str, Float[Array, ""]]:
    truth, possible = cases.adjacency, cases.possible
    edges = jax.nn.sigmoid(logits)
    surprise = jnp.where(possible, jax.nn.softplus(logits) - truth * logits, 0.0)
    # A model without edges ranks none.
    each = jax.vmap(auroc)(edges, truth, possible)
    return {
        "auroc": auroc(edges, truth, possible),
        "auroc_per_model": jnp.nanmean(each),
        "ece": expected_calibration_error(edges, truth, possible),
        "cross_entropy": surprise.sum() / possible.sum(),
    }


def calibrate(network: Network, cases: HeldOut, kind: str = "temperature") -> Surrogate:
    """The network with a calibration fitted to held-out models; other ones than those it is judged on."""
    return Surrogate(
        network, fit_calibration(edge_logits(network, cases.data), cases.adjacency, cases.possible, kind)
    )
