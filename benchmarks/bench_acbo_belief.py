"""How honest beliefs are: coverage of the 90 % bands, regret, and how often the advice does harm, on held-out problems.

    python benchmarks/bench_acbo_belief.py                  # all; minutes on a GPU, hours on two cores
    python benchmarks/bench_acbo_belief.py --only policy    # or another strategy, by its whole name
    python benchmarks/bench_acbo_belief.py --quick          # tiny sizes: does it run?

Six kinds of problems (linear, polynomial, Fourier, saturating, humped, interacting) and, apart, two with hidden causes. Each
is a random model of 3 to 6 variables with 25 observations and ten experiments that the strategy chooses, on variables that
are standardised by the observations, as `Optimizer` does. The truth is E[target | do], by simulation. A band holds it or
not: at the recommendation, and at one random experiment. Advice does harm where it is truly worse than doing nothing by
more than a tenth of the target's deviation. Results go to results/<device>/acbo-belief.json.
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

import acbo
import harness
from acbo.beliefs import BeliefSettings
from acbo.beliefs.model_effects import single_actions
from acbo.data import Dataset, Key
from acbo.experiments import problem_of
from acbo.experiments.episode import add_row, start_data
from acbo.problem import Problem
from acbo.scms.graphs import topological_order
from acbo.scms.interventions import Intervention, hard
from acbo.scms.mechanisms import SQUARE, TANH
from acbo.scms.samples import draw_noise, propagate
from acbo.scms.scm import SCM, pad
from acbo.scms.true_effects import true_effect
from acbo.strategies import ExpectedImprovement

SIZE, UNITS, SEEN, TRIALS = 8, 8, 25, 10
KINDS = ("linear", "polynomial", "fourier", "saturating", "humped", "interacting")
HIDDEN = ("confounded", "confounded, bent")
HARM = 0.1
"""Deviations of the target by which the truth must be worse than doing nothing to count as harm."""


def draw_problem(key: Array, kind: Array) -> SCM:
    """A random model of a kind, by its place in `KINDS` and `HIDDEN`: one program draws all."""
    key_model, key_form, key_hidden = jr.split(key, 3)

    def drawn(mechanism: str, units: int) -> SCM:
        prior = acbo.scm_prior(mechanisms=mechanism, noises="gaussian", variables=(3, 6))
        return pad(acbo.sample_scm(key_model, prior, SIZE, units), SIZE, UNITS)

    scm = drawn("linear", 0)
    bent = _each_edge(scm, key_form, TANH, jnp.ones(SIZE, bool))
    humped = _each_edge(scm, key_form, SQUARE, jnp.arange(SIZE) == scm.target)
    every = [
        scm,
        drawn("polynomial", UNITS),
        drawn("fourier", UNITS),
        bent,
        humped,
        _interacting(scm, key_form),
        _confounded(scm, key_hidden),
        _confounded(bent, key_hidden),
    ]
    return jax.tree.map(lambda *parts: jnp.stack(parts)[kind], *every)


def _each_edge(scm: SCM, key: Array, activation: int, bent: Array) -> SCM:
    """Every edge into a bent variable becomes one unit: a step of tanh, or a hump that levels off on both sides."""
    m = scm.mechanism
    key_steep, key_centre = jr.split(key)
    steep = jr.uniform(key_steep, (SIZE, SIZE), minval=1.0, maxval=2.5)
    centre = jr.uniform(key_centre, (SIZE, SIZE), minval=-1.0, maxval=1.0)
    inner = jnp.eye(SIZE)[:, None, :] * steep[..., None]  # [cause, effect, unit]: unit k is that of cause k
    humped = activation == SQUARE
    strength = m.weight.T * (0.7 if humped else 1.2)
    return eqx.tree_at(
        lambda s: (
            s.mechanism.weight,
            s.mechanism.inner,
            s.mechanism.phase,
            s.mechanism.outer,
            s.mechanism.activation,
            s.mechanism.reach,
        ),
        scm,
        (
            jnp.where(bent, 0, m.weight),
            jnp.where(bent[None, :, None] & (m.weight != 0)[..., None], inner, 0),
            jnp.where(bent[:, None], -(steep * centre).T, 0),
            jnp.where(bent[:, None], strength, 0),
            jnp.full_like(m.activation, activation),
            jnp.full_like(m.reach, 2.0 if humped else jnp.inf),
        ),
    )


def _interacting(scm: SCM, key: Array) -> SCM:
    """The target is also moved by the product of two of its causes: a quarter of the difference of two squares."""
    m, d = scm.mechanism, SIZE
    goal = scm.target
    causes = scm.adjacency[:, goal]
    ranked = jnp.argsort(~causes, stable=True)
    first, second = ranked[0], ranked[1]
    # Where the target has one cause, another variable that does not follow from it becomes the second.
    place = jnp.argsort(scm.order)
    possible = scm.live & (place < place[goal]) & (jnp.arange(d) != first)
    other = jnp.argmax(possible)
    two = causes.sum() > 1
    second = jnp.where(two, second, other)
    able = two | possible.any()
    strength = jr.uniform(key, (), minval=0.6, maxval=1.2) * jnp.where(able, 1, 0)
    a, b = jnp.eye(d)[first], jnp.eye(d)[second]
    inner = jnp.zeros_like(m.inner).at[:, goal, 0].set(a + b).at[:, goal, 1].set(a - b) * jnp.where(
        able, 1, 0
    )
    outer = jnp.zeros_like(m.outer).at[goal, 0].set(strength / 4).at[goal, 1].set(-strength / 4)
    edges = scm.adjacency.at[second, goal].set(scm.adjacency[second, goal] | able)
    return eqx.tree_at(
        lambda s: (
            s.adjacency,
            s.order,
            s.mechanism.inner,
            s.mechanism.outer,
            s.mechanism.activation,
            s.mechanism.reach,
        ),
        scm,
        (
            edges,
            topological_order(edges, scm.live),
            inner,
            outer,
            jnp.full_like(m.activation, SQUARE),
            jnp.full_like(m.reach, 4.0),
        ),
    )


def _confounded(scm: SCM, key: Array) -> SCM:
    """A hidden variable moves the target and one of its causes, the other way than that cause does."""
    m, goal, last = scm.mechanism, scm.target, SIZE - 1
    knob = jnp.argmax(scm.adjacency[:, goal] & scm.manipulable)
    strength = jr.uniform(key, (2,), minval=0.8, maxval=1.6)
    total = m.weight[knob, goal] + m.outer[goal, knob]
    weight = m.weight.at[last, knob].set(strength[0]).at[last, goal].set(-jnp.sign(total) * strength[1])
    edges = scm.adjacency.at[last, knob].set(True).at[last, goal].set(True)
    live = scm.live.at[last].set(True)
    return eqx.tree_at(
        lambda s: (s.adjacency, s.order, s.live, s.observed, s.noise.scale, s.mechanism.weight),
        scm,
        (
            edges,
            topological_order(edges, live),
            live,
            scm.observed.at[last].set(False),
            scm.noise.scale.at[last].set(1.0),
            weight,
        ),
    )


def standardised(problem: Problem, data: Any) -> tuple[Problem, Any, Array, Array]:
    """Problem and data in units of the observations, and how they are reached."""
    seen = (data.rows & ~data.intervened.any(1))[:, None]
    count = seen.sum()
    centre = jnp.where(seen, data.values, 0).sum(0) / count
    spread = jnp.sqrt(jnp.where(seen, (data.values - centre) ** 2, 0).sum(0) / count)
    spread = jnp.where(spread > 0, spread, 1)
    inside = jnp.where(data.rows[:, None] & data.live, (data.values - centre) / spread, 0)
    ends = [jnp.where(problem.manipulable, (end - centre) / spread, 0) for end in (problem.low, problem.high)]
    problem = eqx.tree_at(lambda p: (p.low, p.high), problem, tuple(ends))
    return problem, eqx.tree_at(lambda d: d.values, data, inside), centre, spread


class Case(eqx.Module):
    """A problem after its experiments, in units of the observations."""

    scm: SCM
    problem: Problem
    data: Dataset
    centre: Float[Array, " d"]
    spread: Float[Array, " d"]
    key: Key

    def outside(self, mask: Array, value: Array) -> Intervention:
        """An action on the model itself."""
        return hard(mask, jnp.where(mask, self.centre + self.spread * value, 0))


def one_case(strategy: Any, kind: Array, trials: int, key: Array) -> Case:
    """Draw a problem and let the strategy make its experiments."""
    key_model, key_noise, key_play, key_side, key_rest = jr.split(key, 5)
    scm = draw_problem(key_model, kind)
    noise = draw_noise(scm, key_noise, SEEN + trials)
    data = start_data(scm, noise, SEEN)
    raw = eqx.tree_at(lambda p: p.sign, problem_of(scm), jnp.where(jr.bernoulli(key_side), 1.0, -1.0))
    problem, data, centre, spread = standardised(raw, data)
    case = Case(scm, problem, data, centre, spread, key_rest)

    def experiment(data: Dataset, turn: tuple[Array, Array, Array]) -> tuple[Dataset, None]:
        step, noise, key = turn
        choice = strategy.choose(problem, data, (trials - step).astype(jnp.float32), key)
        row = propagate(scm, noise[None], case.outside(choice.mask, choice.value))[0]
        grown = add_row(data, (row - centre) / spread, choice.mask)
        return jax.tree.map(lambda new, old: jnp.where(choice.stop, old, new), grown, data), None

    turns = (jnp.arange(trials), noise[SEEN:], jr.split(key_play, trials))
    return eqx.tree_at(lambda c: c.data, case, jax.lax.scan(experiment, data, turns)[0])


def one_verdict(strategy: Any, case: Case) -> dict[str, Array]:
    """Judge what is said after the experiments, by simulation."""
    scm, problem, goal = case.scm, case.problem, case.scm.target
    key_belief, key_advice, key_any = jr.split(case.key, 3)
    belief = strategy.belief(problem, case.data, key_belief)
    advice = strategy.advise(problem, case.data, belief, key_advice)
    which = jr.categorical(key_any, jnp.where(problem.manipulable, 0.0, -jnp.inf))
    mask = jnp.arange(SIZE) == which
    part = jr.uniform(jr.fold_in(key_any, 1))
    value = jnp.where(mask, problem.low * (1 - part) + problem.high * part, 0)
    nothing = jnp.zeros(SIZE, bool)
    masks, values = jnp.stack([advice.mask, mask, nothing]), jnp.stack([advice.value, value, nothing * 0.0])
    found = belief.effects(masks, values)
    low, high = found.quantile(0.05), found.quantile(0.95)

    def truth(samples: int, mask: Array, value: Array) -> Array:
        effect = true_effect(scm, case.outside(mask, value), samples=samples)
        return (effect - case.centre[goal]) / case.spread[goal]

    true = jax.lax.map(lambda pair: truth(4096, *pair), (masks, values))
    # What can be won, from a grid: its optimum is a little short of the true one.
    grid = single_actions(problem, 17)
    every = jax.lax.map(lambda pair: truth(256, *pair), grid)
    able = (problem.manipulable & grid[0]).any(1)
    best = jnp.minimum(jnp.min(jnp.where(able, problem.sign * every, jnp.inf)), problem.sign * true[2])
    held = (low <= true) & (true <= high)
    return {
        "held": held[0],
        "held, random": held[1],
        "width": (high - low)[0],
        "loss": problem.sign * true[0] - best,
        "nothing": problem.sign * true[2] - best,
        "harm": problem.sign * (true[0] - true[2]) > HARM,
        "below": true[0] < low[0],
        "above": true[0] > high[0],
        "idle": ~advice.mask.any(),
    }


@eqx.filter_jit
def play(strategy: Any, kind: Array, trials: int, keys: Array, batch: int | None) -> Case:
    """Many problems of one kind, with their experiments."""
    return jax.lax.map(partial(one_case, strategy, kind, trials), keys, batch_size=batch)


@eqx.filter_jit
def judge(strategy: Any, cases: Case, batch: int | None) -> dict[str, Array]:
    """What is said of many problems, beside the truth."""
    return jax.lax.map(partial(one_verdict, strategy), cases, batch_size=batch)


def strategies() -> dict[str, tuple[Any, int]]:
    """What is measured, with the number of problems of each kind on a CPU; 1,024 on an accelerator."""
    bent = BeliefSettings(mechanism="smooth")
    policy = acbo.pretrained_policy()
    return {
        "policy": (policy, 2000),
        "policy, smooth": (dataclasses.replace(policy, settings=bent), 400),
        "expected improvement, smooth": (ExpectedImprovement(settings=bent), 10),
    }


def measure(report: Any, quick: bool, name: str, strategy: Any, problems: int, seed: int = 2_021) -> None:
    """Coverage and harm of one strategy on every kind."""
    rows: dict[str, Any] = {}
    batch = None if jax.default_backend() == "cpu" else min(problems, 256)
    for place, kind in enumerate((*KINDS, *HIDDEN)):
        keys = jr.split(jr.fold_in(jr.key(seed), place), problems)
        cases = play(strategy, jnp.int32(place), 3 if quick else TRIALS, keys, batch)
        rows[kind] = figures(jax.device_get(judge(strategy, cases, batch)))
        report.add(f"{name}: 90 % bands", rows, NOTE)


def figures(found: dict[str, Any]) -> dict[str, float]:
    """The verdicts on many problems in a row of a table."""
    mean = {name: float(np.mean(values)) for name, values in found.items()}
    return {
        "problems": len(found["held"]),
        "held at the advice": mean["held"],
        "held at random": mean["held, random"],
        "truth below the band": mean["below"],
        "truth above the band": mean["above"],
        "mean width": mean["width"],
        "regret": mean["loss"] / mean["nothing"],
        "harm": mean["harm"],
        "advice is to do nothing": mean["idle"],
    }


NOTE = (
    f"{SEEN} observations and {TRIALS} experiments; widths in deviations of the target; regret is what was left to be won, "
    "as a share of what doing nothing leaves, both summed over problems; hidden causes last"
)


def main() -> None:
    options = harness.parse(__doc__ or "")
    report = harness.PartsReport("acbo-belief", options)
    for name, (strategy, few) in strategies().items():
        if not options.only or options.only == name:
            problems = 2 if options.quick else few if jax.default_backend() == "cpu" else 1024
            measure(report, options.quick, name, strategy, problems)
    report.finish()


if __name__ == "__main__":
    main()
