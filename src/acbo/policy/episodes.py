"""Groups of episodes on the same causal model, with common random numbers, in one program; and the models for training."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int32

from acbo._limits import require_all_at_least, require_between
from acbo.beliefs.model_effects import effects_of, simulated_rows
from acbo.beliefs.posterior_models import BeliefSettings, draw_models
from acbo.data import Dataset, Key
from acbo.experiments.episode import add_row, perform, start_data
from acbo.inference.knowledge import Knowledge
from acbo.inference.metrics import edge_mask
from acbo.problem import Problem, known_graph, problem_of
from acbo.scms.interventions import hard
from acbo.scms.random_models import SCMPrior, sample_scm, scm_prior
from acbo.scms.samples import draw_noise, propagate
from acbo.scms.scm import SCM
from jaxworlds.static import config

from .features import PolicyInput, known_edges, orient_target, policy_input
from .policy_network import Outlook, PickNoise, PolicyNetwork, choice_of, draw_pick_noise, pick, place_middles

CHANGES = (0, 500, 1500)
"""Updates at which the shares of `curriculum_ratios` change."""


def curriculum_ratios(step: int) -> tuple[float, float, float]:
    """Shares of easy, medium and hard problems at a step of training.

    >>> curriculum_ratios(0), curriculum_ratios(700), curriculum_ratios(5000)
    ((0.8, 0.2, 0.0), (0.5, 0.4, 0.1), (0.3, 0.4, 0.3))
    """
    if step < 500:
        return (0.8, 0.2, 0.0)
    return (0.5, 0.4, 0.1) if step < 1500 else (0.3, 0.4, 0.3)


class Curriculum(eqx.Module):
    """Random models of at most `size` variables; the shares of easy, medium and hard ones follow the update."""

    priors: SCMPrior
    shares: Array
    size: int = eqx.field(static=True)
    units: int = eqx.field(static=True)

    def __init__(self, size: int = 10, units: int = 8) -> None:
        easy = scm_prior(mechanisms="linear", noises="gaussian", variables=(2, min(5, size)))
        medium = scm_prior(mechanisms="linear", variables=(3, size))
        hard = scm_prior(
            variables=(3, size), edges_per_variable=(1.0, 2.5), manipulable=0.8, bias=(-0.5, 0.5)
        )
        self.priors = jax.tree.map(lambda *leaves: jnp.stack(leaves), easy, medium, hard)
        self.shares = jnp.asarray([curriculum_ratios(step) for step in CHANGES])
        self.size, self.units = size, units

    def __call__(self, key: Key, step: Array) -> SCM:
        """A model for this update."""
        key_kind, key_scm = jr.split(key)
        row = jnp.sum(step >= jnp.asarray(CHANGES)) - 1
        kind = jnp.sum(jr.uniform(key_kind) > jnp.cumsum(self.shares[row])[:-1])
        prior = jax.tree.map(lambda leaf: leaf[kind], self.priors)
        return sample_scm(key_scm, prior, self.size, self.units)


@config
class EpisodeConfig:
    """The shape of an episode.

    - `observations`: rows before the first experiment; half of the episodes have fewer, down to `least`.
    - `trials`: experiments. `max_simultaneous`: most variables that one sets.
    - `known`: share of episodes in which the graph is known.
    - `draws`: rows behind every true effect of a nonlinear model.
    """

    observations: int = 50
    least: int = 10
    trials: int = 10
    max_simultaneous: int = 1
    known: float = 0.1
    draws: int = 64

    def __post_init__(self) -> None:
        require_between("least", self.least, 0, self.observations, "`observations` is the most.")
        require_all_at_least(self, 1, "trials", "max_simultaneous", "draws")
        require_between("known", self.known, 0, 1)


class Case(eqx.Module):
    """A causal model to be optimized, with its true effects."""

    scm: SCM
    problem: Problem
    noise: Float[Array, "rows d"]
    """Of all rows: the observations and the experiments to come."""
    observations: Int32[Array, ""]
    effect: Float[Array, "d places"]
    """True expected target under each variable at each place, less that of doing nothing."""
    best: Float[Array, ""]
    """The least of them, or 0."""


class Steps(NamedTuple):
    """Record of one episode for the update; the leading axis is time."""

    policy_input: PolicyInput
    spread: Float[Array, " trials"]
    """Standard deviation of the target, in which effects are predicted."""
    picks: Int32[Array, "trials most"]
    log: Float[Array, " trials"]
    """Log probability of the picks when they were made."""
    novel: Float[Array, " trials"]
    """True if the experiment set a variable that none before had."""
    made: Bool[Array, " trials"]
    """True if the episode had not been ended before."""
    performed: Bool[Array, " trials"]
    """True if it was not ended now either: an experiment was made."""
    regret: Float[Array, " more"]
    """Regret of the recommendation before the first experiment and after each."""
    structure: Float[Array, " more"]
    """Mean log probability that the surrogate gave the true edges."""
    parents: Float[Array, " more"]
    """The same of the edges into the target alone."""
    data: Dataset
    """All rows in the end."""


def new_case(scm: SCM, key: Key, shape: EpisodeConfig, places: int) -> Case:
    """The model with its true effects on the grid of places, and the noise of all rows."""
    key_noise, key_count, key_few, key_known = jr.split(key, 4)
    rows = shape.observations + shape.trials
    few = jr.randint(key_count, (), shape.least, shape.observations + 1)
    fewer = jr.bernoulli(key_few, 0.5)
    knows = jr.bernoulli(key_known, shape.known)
    whole = known_graph(scm.adjacency)
    knowledge = Knowledge(whole.required & knows, whole.forbidden & knows, whole.log_odds)
    problem = problem_of(scm, knowledge=knowledge, max_simultaneous=shape.max_simultaneous)
    effect = true_effects(scm, problem, places, shape.draws)
    return Case(
        scm=scm,
        problem=problem,
        noise=draw_noise(scm, key_noise, rows),
        observations=jnp.where(fewer, few, shape.observations).astype(jnp.int32),
        effect=effect,
        best=jnp.minimum(jnp.min(jnp.where(problem.manipulable[:, None], effect, 0)), 0),
    )


def true_effects(scm: SCM, problem: Problem, places: int, draws: int = 64) -> Float[Array, "d places"]:
    """Expected target under each variable at the middle of each place, less that of doing nothing."""
    d = scm.size
    part = place_middles(places).astype(scm.low.dtype)
    value = scm.low[:, None] * (1 - part) + scm.high[:, None] * part
    mask = jnp.concatenate([jnp.zeros((1, d), bool), jnp.repeat(jnp.eye(d, dtype=bool), places, axis=0)])
    value = jnp.where(mask, jnp.concatenate([jnp.zeros(1), value.ravel()])[:, None], 0)
    if not scm.mechanism.units:
        found = propagate(scm, jnp.zeros((mask.shape[0], d), value.dtype), hard(mask, value))[:, scm.target]
    else:
        found = simulated_rows(scm, mask, value, draws)[..., scm.target].mean(1)
    found = problem.sign * found
    return (found[1:] - found[0]).reshape(d, places)


def regret_of(case: Case, outlook: Outlook) -> Float[Array, ""]:
    """Normalised regret of what the outlook recommends, judged on the grid of places."""
    held = jnp.where(case.problem.manipulable[:, None], outlook.effect, jnp.inf).ravel()
    chosen = jnp.argmin(held)
    true = jnp.where(held[chosen] < 0, case.effect.ravel()[chosen], 0)
    return (true - case.best) / jnp.maximum(-case.best, 1e-3)


def run_steps(
    network: PolicyNetwork, case: Case, key: Key, shape: EpisodeConfig, temperature: float | Array = 1.0
) -> Steps:
    """One episode of the policy on one case."""
    start = start_data(case.scm, case.noise, case.observations)
    problem, scm = case.problem, case.scm
    possible = edge_mask(scm.live)
    into = possible & (jnp.arange(scm.size) == scm.target)

    def step(
        carry: tuple[Dataset, Array], turn: tuple[Array, Array, PickNoise]
    ) -> tuple[tuple[Dataset, Array], tuple]:
        data, going = carry
        number, noise, pick_noise = turn
        turned = orient_target(problem, data)
        known, scale = policy_input(problem, turned, (shape.trials - number).astype(noise.dtype))
        logits = network.edge_logits(known, turned)
        edges = known_edges(problem, logits)
        outlook = network(known, edges, problem, data.target)
        right = jax.nn.log_sigmoid(jnp.where(scm.adjacency, logits, -logits))
        structure, parents = (
            jnp.sum(jnp.where(mask, right, 0)) / jnp.maximum(mask.sum(), 1) for mask in (possible, into)
        )
        picks, log = pick(outlook, problem, pick_noise, temperature)
        choice = choice_of(outlook, problem, picks, log, pick_noise)
        novel = jnp.any(choice.mask & ~data.intervened.any(0)).astype(noise.dtype)
        made = going
        going = going & ~choice.stop & (number < shape.trials)
        grown = add_row(data, perform(scm, choice, noise), choice.mask)
        data = jax.tree.map(lambda new, old: jnp.where(going, new, old), grown, data)
        spread = scale.spread[data.target]
        found = (known, spread, picks, log, novel * going, made, going)
        return (data, going), (found, (regret_of(case, outlook), structure, parents))

    # One turn more than experiments: its look is the last, and its experiment is not made.
    turns = shape.trials + 1
    # Each experiment's noise stands at the end of the table, whatever the number of observations.
    noise = jnp.pad(case.noise[shape.observations :], ((0, 1), (0, 0)))
    pick_noise = draw_pick_noise(key, problem, network.config.places, turns)
    (data, _), (found, judged) = jax.lax.scan(
        step, (start, jnp.asarray(True)), (jnp.arange(turns), noise, pick_noise)
    )
    return Steps._make((*jax.tree.map(lambda a: a[:-1], found), *judged, data))


def thompson_shares(
    problem: Problem, data: Dataset, key: Key, places: int, models: int = 32
) -> Float[Array, "d places"]:
    """Labels for imitation: the distribution of Thompson's experiments on single variables, over models drawn
    from the exact posterior, at the middles of the places.
    """
    d = problem.size
    drawn = draw_models(problem, data, key, BeliefSettings(models=models))
    part = place_middles(places).astype(problem.low.dtype)
    value = problem.low[:, None] * (1 - part) + problem.high[:, None] * part
    mask = jnp.repeat(jnp.eye(d, dtype=bool), places, axis=0)
    losses = problem.sign * effects_of(drawn, mask, jnp.where(mask, value.reshape(-1, 1), 0))
    losses = jnp.where(jnp.repeat(problem.manipulable, places), losses, jnp.inf)
    best = jax.nn.one_hot(jnp.argmin(losses, axis=1), d * places, dtype=value.dtype)
    return best.mean(0).reshape(d, places)
