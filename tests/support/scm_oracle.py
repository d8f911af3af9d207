"""Structural causal models in plain NumPy loops, one row and one variable at a time: what the arrays must agree with."""

import itertools
import math

import numpy as np

FUNCTIONS = (math.cos, math.tanh, lambda z: z * z, lambda z: z**3, math.exp)


def causes_first(adjacency: np.ndarray) -> list[int]:
    """Kahn's algorithm."""
    left, order = set(range(len(adjacency))), []
    while left:
        free = [v for v in sorted(left) if not any(adjacency[u, v] for u in left)]
        assert free, "cycle"
        order += free
        left -= set(free)
    return order


def mechanism_value(scm, j: int, x: np.ndarray) -> float:
    m = scm.mechanism
    value = float(m.bias[j])
    for i in range(len(x)):
        if scm.adjacency[i, j]:
            value += float(m.weight[i, j]) * x[i]
    for k in range(m.outer.shape[1]):
        if m.outer[j, k] != 0:
            z = float(m.phase[j, k]) + sum(
                float(m.inner[i, j, k]) * x[i] for i in range(len(x)) if scm.adjacency[i, j]
            )
            code = int(m.activation[j, k])
            if code in (2, 3):
                z = min(max(z, -float(m.reach[j, k])), float(m.reach[j, k]))
            value += float(m.outer[j, k]) * FUNCTIONS[code](z)
    return value


def propagate(scm, noise: np.ndarray, mask=None, value=None, strength=None, shift=None) -> np.ndarray:
    """All variables for given standard noise; interventions are arrays of the shape of `noise`, or None."""
    n, d = noise.shape
    out = np.zeros((n, d))
    for row in range(n):
        for j in causes_first(scm.adjacency):
            if not scm.live[j]:
                continue
            spread = sum(float(scm.noise.spread[i, j]) * out[row, i] for i in range(d) if scm.adjacency[i, j])
            scale = float(scm.noise.scale[j]) * math.sqrt(1 + spread**2)
            own = mechanism_value(scm, j, out[row]) + scale * noise[row, j]
            if mask is not None and mask[row, j]:
                s = 1.0 if strength is None else strength[row, j]
                own = (1 - s) * own + s * value[row, j] + (0.0 if shift is None else shift[row, j])
            out[row, j] = own
    return out


def linear_mean(
    weight: np.ndarray, bias: np.ndarray, target: int, keep: np.ndarray, add: np.ndarray
) -> float:
    """E[target] by solving the linear system x = keep (bias + Wᵀ x) + add."""
    d = len(bias)
    return float(np.linalg.solve(np.eye(d) - keep[:, None] * weight.T, keep * bias + add)[target])


def best_linear(scm, most: int, sign: float) -> tuple[float, tuple[int, ...]]:
    """The least sign × E[target] over all sets up to `most` variables and all corners of their ranges."""
    weight, bias = np.asarray(scm.mechanism.weight, float), np.asarray(scm.mechanism.bias, float)
    d, found = len(bias), []
    can = [v for v in range(d) if scm.manipulable[v]]
    for count in range(most + 1):
        for members in itertools.combinations(can, count):
            for corner in itertools.product(*[(float(scm.low[v]), float(scm.high[v])) for v in members]):
                keep, add = np.ones(d), np.zeros(d)
                keep[list(members)], add[list(members)] = 0, corner
                found.append((sign * linear_mean(weight, bias, int(scm.target), keep, add), members))
    return min(found, key=lambda pair: pair[0])
