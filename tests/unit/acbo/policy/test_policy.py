"""The policy: its symmetries, its distribution over experiments by enumeration, and its episodes."""

import itertools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from acbo.data import Dataset
from acbo.experiments import Problem, known_graph, problem_of
from acbo.experiments.episode import start_data
from acbo.policy import EpisodeConfig, Outlook, PolicyConfig, PolicyLearning, PolicyNetwork
from acbo.policy.episodes import Case, Steps, new_case, regret_of, run_steps, thompson_shares
from acbo.policy.features import Scale
from acbo.policy.grpo import PolicyUpdate
from acbo.policy.grpo_config import GRPOTrainingConfig, RewardTrainingConfig
from acbo.policy.policy_network import (
    PickNoise,
    choice_of,
    draw_pick_noise,
    entropy,
    log_probability,
    pick,
    policy_metadata,
    save_policy,
)
from acbo.scms.samples import sample_mixed
from acbo.scms.scm import SCM, linear_scm
from acbo.strategies import Policy
from acbo.strategies.trained_policy import load_policy
from acbo.surrogate.weights import load_weights

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = PolicyConfig(width=8, layers=1, surrogate_layers=1, places=4)
SHAPE = EpisodeConfig(observations=6, least=6, trials=3, known=0.0)
WEIGHT = np.array([[0, 0.9, 0.0], [0, 0, -0.8], [0, 0, 0]], np.float32)
PLACES, D = 3, 3


@pytest.fixture(scope="module")
def network() -> PolicyNetwork:
    return PolicyNetwork(TINY, key=jr.key(1))


def padded(size: int) -> tuple[SCM, Problem]:
    weight = np.zeros((size, size), np.float32)
    weight[:3, :3] = WEIGHT
    scm = linear_scm(jnp.asarray(weight), target=2, live=jnp.arange(size) < 3, low=-1.0, high=2.0)
    return scm, problem_of(scm)


@eqx.filter_jit
def outlook_of(policy: Policy, problem: Problem, data: Dataset) -> tuple[Outlook, Scale]:
    return policy.outlook(problem, data, jnp.float32(3))


@pytest.fixture(scope="module")
def told() -> tuple[Problem, Dataset]:
    """Rows of the chain 0 → 1 → 2, and experiments."""
    scm, problem = padded(3)
    return problem, sample_mixed(scm, jr.key(2), 12, 8)


FIELDS = {"effect": (0,), "doubt": (0,), "logits": (0,), "stop": (), "enough": (), "together": (0, 1)}
FIELDS |= {"edges": (0, 1)}
"""Which axes of an outlook's fields run over variables."""


def assert_alike(one: Outlook, other: Outlook, where: np.ndarray) -> None:
    for name, axes in FIELDS.items():
        wanted = np.asarray(getattr(one, name))
        for axis in axes:
            wanted = np.take(wanted, where, axis)
        np.testing.assert_allclose(getattr(other, name), wanted, rtol=1e-3, atol=1e-4, err_msg=name)


def test_permuting_variables_permutes_the_outlook(
    network: PolicyNetwork, told: tuple[Problem, Dataset]
) -> None:
    problem, data = told
    problem = eqx.tree_at(lambda p: p.high, problem, jnp.asarray([2.0, 1.5, 0.0]))
    order = np.array([2, 0, 1])
    moved = jax.tree.map(lambda leaf: leaf, problem)
    for name in ("live", "manipulable", "low", "high", "cost_fixed", "cost_unit", "levels"):
        moved = eqx.tree_at(lambda p, n=name: getattr(p, n), moved, getattr(problem, name)[order])
    known = jax.tree.map(lambda leaf: leaf[order][:, order], problem.knowledge)
    moved = eqx.tree_at(lambda p: (p.target, p.knowledge), moved, (jnp.int32(0), known))
    rows = Dataset(
        data.values[:, order], data.intervened[:, order], data.rows, data.live[order], jnp.int32(0)
    )
    policy = Policy(network)
    one, other = outlook_of(policy, problem, data)[0], outlook_of(policy, moved, rows)[0]
    assert_alike(one, other, order)
    assert float(jnp.std(one.logits[:2])) > 0.01


def test_padding_changes_nothing(network: PolicyNetwork, told: tuple[Problem, Dataset]) -> None:
    problem, data = told
    wide = padded(5)[1]
    rows = Dataset(
        jnp.pad(data.values, ((0, 2), (0, 2))),
        jnp.pad(data.intervened, ((0, 2), (0, 2))),
        jnp.pad(data.rows, (0, 2)),
        jnp.pad(data.live, (0, 2)),
        data.target,
    )
    one = outlook_of(Policy(network), problem, data)[0]
    other = outlook_of(Policy(network), wide, rows)[0]
    assert (np.asarray(other.logits)[3:] < -1e8).all()
    assert (np.asarray(other.edges)[3:] == 0).all()
    cut = {name: np.asarray(getattr(other, name))[(slice(3),) * len(axes)] for name, axes in FIELDS.items()}
    assert_alike(one, Outlook(**jax.tree.map(jnp.asarray, cut)), np.arange(3))


def test_maximisation_is_the_mirror_of_minimisation(
    network: PolicyNetwork, told: tuple[Problem, Dataset]
) -> None:
    problem, data = told
    turned = eqx.tree_at(lambda d: d.values, data, data.values.at[:, 2].multiply(-1))
    most = eqx.tree_at(lambda p: p.sign, problem, jnp.float32(-1))
    one, other = (outlook_of(Policy(network), *pair)[0] for pair in ((problem, data), (most, turned)))
    assert_alike(one, other, np.arange(3))


def test_knowledge_of_the_graph_is_taken_as_it_is(
    network: PolicyNetwork, told: tuple[Problem, Dataset]
) -> None:
    problem, data = told
    sure = eqx.tree_at(lambda p: p.knowledge, problem, known_graph(jnp.asarray(WEIGHT != 0)))
    found = outlook_of(Policy(network), sure, data)[0]
    np.testing.assert_array_equal(found.edges, WEIGHT != 0)
    free = np.asarray(outlook_of(Policy(network), problem, data)[0].edges)
    assert (free.diagonal() == 0).all()
    assert (free[~np.eye(3, dtype=bool)] > 0).all()


@pytest.fixture(scope="module")
def outlook() -> Outlook:
    """An outlook of three variables with three places each; the last variable cannot be set."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    logits = numbers(D, PLACES).at[2].set(-1e9)
    return Outlook(
        numbers(D, PLACES), numbers(D, PLACES), logits, numbers() - 1, numbers(), numbers(D, D), numbers(D, D)
    )


def problem_with(most: int) -> Problem:
    return problem_of(padded(3)[0], max_simultaneous=most)


END = D * PLACES
WAYS = {
    1: [(cell,) for cell in range(END + 1)],
    2: [(END, END)]
    + [(cell, END) for cell in range(END)]
    + [(a, b) for a, b in itertools.product(range(END), repeat=2) if a // PLACES != b // PLACES],
}


@pytest.mark.parametrize("most", [1, 2])
def test_probabilities_are_those_of_the_draws_and_sum_to_1(outlook: Outlook, most: int) -> None:
    problem = problem_with(most)
    ways = np.array(WAYS[most], np.int32)
    logs = jax.vmap(lambda picks: log_probability(outlook, problem, picks))(jnp.asarray(ways))
    shares = np.exp(np.asarray(logs, float))
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-5)
    assert (shares[(ways[:, :1] // PLACES == 2).ravel()] == 0).all(), "what cannot be set is never picked"
    count = 4000
    luck = draw_pick_noise(jr.key(0), problem, PLACES, count)
    picks, log = jax.vmap(lambda one: pick(outlook, problem, one))(luck)
    again = jax.vmap(lambda picks: log_probability(outlook, problem, picks))(picks)
    np.testing.assert_allclose(log, again, rtol=1e-6)
    numbers = (ways * (END + 1) ** np.arange(most)).sum(1)
    drawn = (np.asarray(picks) * (END + 1) ** np.arange(most)).sum(1)
    assert np.isin(drawn, numbers).all()
    found = (drawn[:, None] == numbers).mean(0)
    np.testing.assert_allclose(found, shares, atol=4 * 0.5 / np.sqrt(count))


def test_what_was_picked_shifts_what_follows(outlook: Outlook) -> None:
    """The second pick by hand: what is taken is out, `together` is added, and the end means that it is enough."""
    first, second = 1, PLACES + 2
    cells = np.asarray(outlook.logits, float)
    one = np.append(cells.ravel(), outlook.stop)
    two = np.append((cells + np.asarray(outlook.together)[0][:, None])[1:].ravel(), outlook.enough)
    wanted = one[first] - np.log(np.exp(one).sum()) + two[second - PLACES] - np.log(np.exp(two).sum())
    found = log_probability(outlook, problem_with(2), jnp.asarray([first, second], jnp.int32))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_temperature_0_takes_the_likeliest(outlook: Outlook) -> None:
    problem = problem_with(1)
    luck = draw_pick_noise(jr.key(0), problem, PLACES, 20)
    picks, _ = jax.vmap(lambda one: pick(outlook, problem, one, 0.0))(luck)
    best = np.argmax(np.append(np.asarray(outlook.logits).ravel(), outlook.stop))
    assert set(np.asarray(picks).ravel()) == {best}


def test_entropy_is_that_of_the_first_pick(outlook: Outlook) -> None:
    logs = np.array([log_probability(outlook, problem_with(1), jnp.asarray(w, jnp.int32)) for w in WAYS[1]])
    p = np.exp(logs.astype(float))
    np.testing.assert_allclose(entropy(outlook), -(p * np.where(p > 0, logs, 0)).sum(), rtol=1e-4)


def test_ends_are_met_exactly_and_every_part_of_the_range_is_reached(outlook: Outlook) -> None:
    problem = problem_with(2)
    # In float32, low + (high - low) is less than high for these.
    ends = (
        jnp.asarray([-1.600000023841858, -1.600000023841858, 0.0]),
        jnp.asarray([0.699999988079071, 0.699999988079071, 0.0]),
    )
    problem = eqx.tree_at(lambda p: (p.low, p.high), problem, ends)
    low, high = np.asarray(problem.low), np.asarray(problem.high)
    inner = []
    for uniform in (1e-7, 0.25, 0.999999):
        luck = PickNoise(jnp.zeros((2, END + 1)), jnp.full(2, uniform, jnp.float32))
        for a, b in itertools.product(range(PLACES), repeat=2):
            picks = jnp.asarray([a, PLACES + b], jnp.int32)
            made = choice_of(outlook, problem, picks, jnp.float32(0), luck)
            np.testing.assert_array_equal(made.mask, [True, True, False])
            assert not bool(made.stop)
            for variable, cell in ((0, a), (1, b)):
                value = float(made.value[variable])
                if cell in (0, PLACES - 1):
                    assert value == (low if cell == 0 else high)[variable]
                else:
                    inner.append((value - low[variable]) / (high - low)[variable])
    # One slice lies between the ends: it holds all of the range.
    np.testing.assert_allclose(np.unique(np.round(inner, 3)), [0, 0.25, 1], atol=1e-3)
    ended = choice_of(outlook, problem, jnp.asarray([END, END], jnp.int32), jnp.float32(0), luck)
    assert bool(ended.stop)
    assert not ended.mask.any()


@eqx.filter_jit
def played(network: PolicyNetwork, case: Case, key: jax.Array) -> Steps:
    return run_steps(network, case, key, SHAPE)


@pytest.fixture(scope="module")
def case() -> Case:
    return eqx.filter_jit(new_case)(padded(3)[0], jr.key(0), SHAPE, TINY.places)


def with_stop(network: PolicyNetwork, bias: float) -> PolicyNetwork:
    return eqx.tree_at(lambda n: n.out.bias, network, network.out.bias.at[-2].set(bias))


def test_stop_ends_an_episode(network: PolicyNetwork, case: Case) -> None:
    never, at_once = (played(with_stop(network, bias), case, jr.key(3)) for bias in (-50.0, 50.0))
    np.testing.assert_array_equal(never.performed, [True, True, True])
    assert int(never.data.rows.sum()) == 9
    assert never.data.intervened[6:].any(1).all()
    np.testing.assert_array_equal(at_once.performed, [False, False, False])
    np.testing.assert_array_equal(at_once.made, [True, False, False])
    assert int(at_once.data.rows.sum()) == 6
    np.testing.assert_allclose(at_once.log[0], 0, atol=1e-5)
    np.testing.assert_allclose(at_once.novel, 0)


def test_a_group_has_common_noise_and_luck_of_its_own(network: PolicyNetwork, case: Case) -> None:
    one, other = (played(with_stop(network, -50.0), case, jr.key(k)) for k in (3, 4))
    np.testing.assert_array_equal(one.data.values[:6], other.data.values[:6])
    assert not np.array_equal(one.picks, other.picks)

    def noise(steps: Steps) -> np.ndarray:
        x = np.asarray(steps.data.values)
        return np.where(steps.data.intervened, np.nan, x - x @ WEIGHT)

    both = np.isfinite(noise(one)) & np.isfinite(noise(other))
    assert both[6:].any()
    np.testing.assert_allclose(noise(one)[both], noise(other)[both], atol=1e-5)


def test_true_effects_and_regret_of_a_known_chain(case: Case, outlook: Outlook) -> None:
    places = np.array([-1, -0.25, 1.25, 2])
    np.testing.assert_allclose(case.effect[0], 0.9 * -0.8 * places, rtol=1e-5)
    np.testing.assert_allclose(case.effect[1], -0.8 * places, rtol=1e-5)
    np.testing.assert_allclose(case.best, -1.6, rtol=1e-5)
    for right, regret in ((case.effect, 0.0), (-case.effect, 1.5), (jnp.ones((3, 4)), 1.0)):
        held = eqx.tree_at(lambda o: o.effect, outlook, right)
        np.testing.assert_allclose(regret_of(case, held), regret, atol=1e-5)


def update(**options: float) -> PolicyUpdate:
    reward = RewardTrainingConfig(
        optimization_weight=1.0, structure_weight=0.0, parent_weight=0.0, exploration_weight=0.0
    )
    learning = PolicyLearning(models=2, reward=reward, grpo=GRPOTrainingConfig(group_size=8), **options)  # pyright: ignore[reportArgumentType]
    return PolicyUpdate(lambda key, step: padded(3)[0], jnp.int32(1), learning)


def steps_of(regret: np.ndarray, performed: np.ndarray) -> Steps:
    none = jnp.zeros(regret.shape)
    made = np.concatenate([np.ones_like(performed[..., :1]), performed[..., :-1]], -1)
    blank = Steps(*[None] * len(Steps._fields))  # pyright: ignore[reportArgumentType]
    return blank._replace(
        regret=jnp.asarray(regret),
        structure=none,
        parents=none,
        novel=none[..., 1:],
        made=jnp.asarray(made),
        performed=jnp.asarray(performed),
    )


def test_advantages_are_returns_to_go_less_the_groups_mean() -> None:
    rng = np.random.default_rng(0)
    regret = rng.uniform(size=(2, 8, 4)).astype(np.float32)
    regret[1] = regret[1, :1]  # all went alike
    performed = np.ones((2, 8, 3), bool)
    performed[0, 2, 1:] = False  # one ends itself at its second step
    gain, weight = (np.asarray(a) for a in update()._advantages(steps_of(regret, performed)))
    np.testing.assert_allclose((gain * weight).sum(1), 0, atol=1e-4)
    np.testing.assert_allclose(gain[1], 0, atol=1e-5)
    np.testing.assert_array_equal(weight[0, 2], [1, 1, 0])
    to_go = regret[0, :, :-1] - regret[0, :, -1:]
    np.testing.assert_allclose(
        gain[0, :, 0], (to_go[:, 0] - to_go[:, 0].mean()) / to_go[:, 0].std(), rtol=1e-3
    )
    rest = np.delete(to_go[:, 2], 2)
    np.testing.assert_allclose(np.delete(gain[0, :, 2], 2), (rest - rest.mean()) / rest.std(), rtol=1e-3)


def test_only_experiments_that_were_made_cost_their_price() -> None:
    performed = np.ones((1, 8, 3), bool)
    performed[0, 1] = False
    steps = steps_of(np.zeros((1, 8, 4), np.float32), performed)
    rewards = np.asarray(update(price=0.1)._rewards(steps))
    np.testing.assert_allclose(rewards.sum(-1)[0, :3], [-0.3, 0, -0.3], rtol=1e-5)


def test_shares_of_the_teacher_are_a_distribution_over_what_can_be_set() -> None:
    scm, problem = padded(3)
    problem = eqx.tree_at(lambda p: p.knowledge, problem, known_graph(scm.adjacency))
    data = start_data(scm, sample_noise(20), 16)
    shares = np.asarray(eqx.filter_jit(thompson_shares)(problem, data, jr.key(1), TINY.places))
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-5)
    assert (shares[2] == 0).all()
    # Variable 1 at its greatest value is best by far; a line is never best in the middle.
    assert shares[1, 3] > 0.5
    assert (shares[:, 1:3] == 0).all()


def sample_noise(rows: int) -> jax.Array:
    return jr.normal(jr.key(5), (rows, 3))


def test_a_file_gives_the_policy_back_bit_for_bit(network: PolicyNetwork, tmp_path: Path) -> None:
    path = save_policy(tmp_path / "policy.safetensors", Policy(network, 0.5), {"updates": 7})
    loaded = load_policy(path, temperature=0.5)
    assert loaded.temperature == 0.5
    assert jax.tree.structure(loaded.network) == jax.tree.structure(network)
    for a, b in zip(jax.tree.leaves(loaded.network), jax.tree.leaves(network), strict=True):
        np.testing.assert_array_equal(a, b)
    assert policy_metadata(path)["metadata"] == {"updates": 7}
    with pytest.raises(ValueError, match="must hold weights of the format"):
        load_weights(path)


def test_the_strategy_chooses_and_recommends_what_can_be_done(
    network: PolicyNetwork, told: tuple[Problem, Dataset]
) -> None:
    problem, data = told
    policy = Policy(with_stop(network, -50.0))
    choice = eqx.filter_jit(policy.choose)(problem, data, jnp.float32(2), jr.key(0))
    assert list(np.asarray(choice.mask)) in ([True, False, False], [False, True, False])
    advice = eqx.filter_jit(policy.recommend)(problem, data, jr.key(0))
    outlook, scale = outlook_of(policy, problem, data)
    assert not advice.mask[2]
    value = np.asarray(advice.value)[np.asarray(advice.mask)]
    assert ((value >= -1) & (value <= 2)).all()
    best = float(np.asarray(outlook.effect)[:2].min())
    assert best < 0
    # The remaining budget is one of its inputs, so that predictions differ a little.
    np.testing.assert_allclose(advice.mean, scale.centre[2] + scale.spread[2] * best, atol=0.5)


def test_sets_are_recommended_by_models_drawn_from_the_posterior(network: PolicyNetwork) -> None:
    """0 → 2 ← 1, both strong and against each other: the best set holds both, each at its own end."""
    weight = np.zeros((3, 3), np.float32)
    weight[:2, 2] = 1.5, -1.5
    scm = linear_scm(jnp.asarray(weight), target=2, low=-1.0, high=2.0)
    data = sample_mixed(scm, jr.key(2), 40, 20)
    for sign, ends in ((1.0, [-1, 2]), (-1.0, [2, -1])):
        problem = eqx.tree_at(lambda p: p.sign, problem_of(scm, max_simultaneous=2), jnp.float32(sign))
        advice = eqx.filter_jit(Policy(network).recommend)(problem, data, jr.key(0))
        assert list(np.asarray(advice.mask)) == [True, True, False]
        np.testing.assert_allclose(advice.value[:2], ends, atol=0.05)
        assert abs(float(advice.mean) + sign * 4.5) < 1.5
