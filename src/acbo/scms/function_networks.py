"""Function networks: benchmarks in which actions enter at every node of a chain or tree, to be maximized.

Astudillo and Frazier, "Bayesian optimization of function networks" (2021); Sussex et al., "Model-based causal
Bayesian optimization" (2023). Actions lie in [0, 1] and are stretched to each function's usual domain.
"""

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

Actions = Float[Array, " actions"]
Nodes = Float[Array, " nodes"]


@dataclasses.dataclass(frozen=True)
class FunctionNetwork:
    """A network of functions whose last node is the target."""

    name: str
    actions: int
    edges: tuple[tuple[int, int], ...]
    """Node feeds node."""
    inputs: tuple[tuple[int, ...], ...]
    """Actions that each node takes."""
    compute: Callable[[Actions, Nodes], Nodes]
    """Values of the nodes for actions and for what noise adds to each node."""
    optimum: float
    best: tuple[float, ...]
    """Actions that reach the optimum."""
    minimize: bool = False

    @property
    def nodes(self) -> int:
        return len(self.inputs)

    def evaluate(self, actions: Actions, noise: Nodes | None = None) -> Nodes:
        """Values of all nodes; the last is the target. `noise` is added to each before others use it."""
        zero = jnp.zeros(self.nodes, jnp.asarray(actions).dtype)
        return self.compute(actions, zero if noise is None else noise)


def dropwave() -> FunctionNetwork:
    """Two nodes: the distance from the middle, and a ripple of it."""

    def compute(actions: Actions, noise: Nodes) -> Nodes:
        x = 10.24 * actions - 5.12
        square = jnp.sum(x**2)
        # The derivative of a root at zero is infinite, and the optimum lies there.
        radius = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0) + noise[0]
        return jnp.stack([radius, (1 + jnp.cos(12 * radius)) / (2 + 0.5 * radius**2) + noise[1]])

    return FunctionNetwork("Dropwave", 2, ((0, 1),), ((0, 1), ()), compute, 1.0, (0.5, 0.5))


def alpine2(nodes: int = 6) -> FunctionNetwork:
    """A chain: each node multiplies √x sin x of its own action to the one before."""

    def compute(actions: Actions, noise: Nodes) -> Nodes:
        x = 10 * actions
        factor = jnp.sqrt(x) * jnp.sin(x)
        values = [factor[0] + noise[0]]
        for k in range(1, nodes):
            values.append(factor[k] * values[-1] + noise[k])
        return jnp.stack(values)

    # √x sin x is greatest in [0, 10] where tan x = -2x.
    peak, top = 7.917052685, 2.808130979
    chain = tuple((k, k + 1) for k in range(nodes - 1))
    inputs = tuple((k,) for k in range(nodes))
    return FunctionNetwork("Alpine2", nodes, chain, inputs, compute, top**nodes, (peak / 10,) * nodes)


def ackley(actions: int = 6) -> FunctionNetwork:
    """Three nodes: mean square and mean cosine of all actions, and Ackley's function of both."""

    def compute(action: Actions, noise: Nodes) -> Nodes:
        x = 4 * action - 2
        square = jnp.mean(x**2) + noise[0]
        wave = jnp.mean(jnp.cos(2 * jnp.pi * x)) + noise[1]
        # Noise can carry the mean square below zero, and its root has no derivative at zero.
        root = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
        value = 20 * jnp.exp(-0.2 * root) + jnp.exp(wave) - 20 - math.e
        return jnp.stack([square, wave, value + noise[2]])

    every = tuple(range(actions))
    return FunctionNetwork(
        "Ackley", actions, ((0, 2), (1, 2)), (every, every, ()), compute, 0.0, (0.5,) * actions
    )


def rosenbrock(nodes: int = 4) -> FunctionNetwork:
    """A chain: each node subtracts one term of Rosenbrock's valley from the one before."""

    def compute(actions: Actions, noise: Nodes) -> Nodes:
        x = 4 * actions - 2
        terms = 100 * (x[1:] - x[:-1] ** 2) ** 2 + (x[:-1] - 1) ** 2
        return -jnp.cumsum(terms) + jnp.cumsum(noise)

    chain = tuple((k, k + 1) for k in range(nodes - 1))
    inputs = tuple((k, k + 1) for k in range(nodes))
    return FunctionNetwork("Rosenbrock", nodes + 1, chain, inputs, compute, 0.0, (0.75,) * (nodes + 1))


def function_networks() -> tuple[FunctionNetwork, ...]:
    """The four of the literature, in their usual sizes."""
    return dropwave(), alpine2(), ackley(), rosenbrock()
