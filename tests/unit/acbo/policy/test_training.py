"""Training a policy as a world: GRPO finds the answer of a probe, resumes with the same bits, and runs on any devices."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import Array

from acbo.policy import (
    EpisodeConfig,
    PolicyConfig,
    PolicyLearning,
    PolicyNetwork,
    TrainedPolicy,
    train_policy,
)
from acbo.policy.grpo import PolicyState, PolicyUpdate, begin
from acbo.policy.grpo_config import GRPOTrainingConfig, RewardTrainingConfig
from acbo.scms.scm import SCM, linear_scm
from jaxworlds import Checkpoint, Chunk, world_mesh
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = PolicyConfig(width=8, layers=1, surrogate_layers=1, places=3)
UPDATES, CHUNK = 40, 10


class Probe(eqx.Module):
    """Two variables, one cause: the second follows the first, up or down. Without an experiment nobody can tell."""

    noise: jax.Array

    def __call__(self, key: jax.Array, step: jax.Array) -> SCM:
        sign = jr.rademacher(key, (), jnp.float32)
        weight = jnp.zeros((2, 2)).at[0, 1].set(sign)
        return linear_scm(weight, jnp.stack([jnp.float32(1), self.noise]))


PROBE = Probe(jnp.float32(0.1))


def learning(updates: int = UPDATES, imitate: float = 0.0) -> PolicyLearning:
    """GRPO and nothing else: no teacher, no lessons about effects and edges, reward for low regret alone."""
    return PolicyLearning(
        updates=updates,
        models=8,
        imitate=imitate,
        effect_weight=0.0,
        edge_weight=0.0,
        weight_decay=0.0,
        episode=EpisodeConfig(observations=0, least=0, trials=3, known=0.0),
        grpo=GRPOTrainingConfig(group_size=16, num_iterations=1, learning_rate=0.01, entropy_coeff=0.01),
        reward=RewardTrainingConfig(
            optimization_weight=1.0, structure_weight=0.0, parent_weight=0.0, exploration_weight=0.0
        ),
    )


@pytest.fixture(scope="module")
def misled() -> PolicyNetwork:
    """A network that would rather stop than learn anything. Its predictions follow the data alone, and stay so: what
    gives effects is held at zero and without lessons gets no gradient."""
    network = PolicyNetwork(TINY, key=jr.key(0))
    network = eqx.tree_at(lambda n: n.out.bias, network, network.out.bias.at[-2].set(8.0))
    return eqx.tree_at(lambda n: n.out.weight, network, network.out.weight.at[:, : 1 + TINY.places].set(0))


@pytest.fixture(scope="module")
def trained(misled: PolicyNetwork) -> TrainedPolicy:
    return train_policy(PROBE, misled, learning(), chunk=CHUNK)


def assert_same(a: object, b: object, rtol: float = 0, atol: float = 0) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jr.key_data(x), jr.key_data(y)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def test_grpo_alone_finds_the_optimum(trained: TrainedPolicy) -> None:
    """At first nearly all is left to be won; in the end the best end of the range is found, whichever it is."""
    history = trained.history
    assert history is not None
    assert history["regret"][:5].mean() > 0.8
    assert history["experiments"][:5].mean() < 1
    assert history["regret"][-5:].mean() < 0.02
    np.testing.assert_allclose(history["experiments"][-5:], 3, atol=0.05)
    np.testing.assert_allclose(history["first_regret"], 1)
    assert trained.episodes == 8 * 16
    assert trained.episodes_per_second > 0


def test_a_resumed_run_has_the_bits_of_an_unbroken_one(
    trained: TrainedPolicy, misled: PolicyNetwork, tmp_path: Path
) -> None:
    with CompileWatch() as watch:
        stopped = train_policy(
            PROBE,
            misled,
            learning(),
            chunk=CHUNK,
            on_chunk=lambda chunk: chunk.step >= CHUNK,
            checkpoint=Checkpoint(tmp_path, every_seconds=0),
        )
        assert stopped.rollout.outcome == "stopped"
        assert stopped.rollout.step < UPDATES
        resumed = train_policy(PROBE, misled, learning(), checkpoint=tmp_path, resuming=True)
    assert watch["advance"].compiles == 0
    assert resumed.rollout.step == UPDATES
    assert_same(resumed.state, trained.state)
    assert_same(resumed.history, trained.history)
    with pytest.raises(ValueError, match="`resuming` needs `checkpoint`"):
        train_policy(PROBE, misled, learning(), resuming=True)


def test_a_run_of_another_length_and_seed_is_the_same_program(
    trained: TrainedPolicy, misled: PolicyNetwork
) -> None:
    kept = jax.tree.map(np.array, misled)
    with CompileWatch() as watch:
        other = train_policy(PROBE, misled, learning(CHUNK), chunk=CHUNK, key=jr.key(9))
    assert watch["advance"].compiles == 0
    assert_same(misled, kept)
    assert other.history is not None
    assert trained.history is not None
    assert not np.array_equal(other.history["reward"], trained.history["reward"][:CHUNK])


@pytest.mark.devices
def test_devices_agree(misled: PolicyNetwork, devices: list[jax.Device]) -> None:
    """Also where episodes end early, so that devices have different numbers of steps: at first, most do."""
    if len(devices) == 1:
        pytest.skip("needs several devices: JAXWORLDS_TEST_DEVICES=8")
    alone = train_policy(PROBE, misled, learning(CHUNK), chunk=CHUNK)
    spread = train_policy(PROBE, misled, learning(CHUNK), chunk=CHUNK, mesh=world_mesh())
    assert_same(spread.network, alone.network, atol=1e-5)
    assert_same(spread.history, alone.history, rtol=1e-5, atol=1e-5)
    odd = PolicyLearning(models=len(devices) + 1)
    with pytest.raises(ValueError, match=f"multiple of the {len(devices)} devices"):
        train_policy(PROBE, misled, odd, mesh=world_mesh())


TAUGHT = learning(6 * CHUNK, imitate=0.5)


@pytest.fixture(scope="module")
def taught(trained: TrainedPolicy, misled: PolicyNetwork) -> TrainedPolicy:
    """Imitation, and then GRPO in the same program as ever."""
    with CompileWatch() as watch:
        taught = train_policy(PROBE, misled, TAUGHT, chunk=CHUNK)
    assert watch["advance"].compiles == 1
    return taught


def test_imitation_comes_first_and_teaches_to_experiment(taught: TrainedPolicy) -> None:
    """The wish to stop is gone before GRPO begins."""
    history = taught.history
    assert history is not None
    assert history["regret"].shape == (6 * CHUNK,)
    assert history["experiments"][:3].mean() < 1
    assert history["experiments"][3 * CHUNK : 3 * CHUNK + 3].mean() > 2.5
    assert "imitation_loss" not in history


@pytest.mark.parametrize("stops_at", [CHUNK, 4 * CHUNK], ids=["imitation", "grpo"])
def test_either_part_goes_on_from_its_checkpoint(
    stops_at: int, taught: TrainedPolicy, misled: PolicyNetwork, tmp_path: Path
) -> None:
    seen = 0

    def stop(chunk: Chunk) -> bool:
        nonlocal seen
        seen += CHUNK
        return seen == stops_at

    stopped = train_policy(PROBE, misled, TAUGHT, chunk=CHUNK, on_chunk=stop, checkpoint=tmp_path)
    assert stopped.rollout.outcome == "stopped"
    resumed = train_policy(PROBE, misled, TAUGHT, chunk=CHUNK, checkpoint=tmp_path, resuming=True)
    assert_same(resumed.state, taught.state)
    assert_same(resumed.history, taught.history)


def test_imitation_alone_makes_no_other_update(misled: PolicyNetwork) -> None:
    taught = train_policy(PROBE, misled, learning(2, imitate=1.0), chunk=2)
    assert taught.rollout.step == 2
    assert taught.history is not None
    assert taught.history["imitation_loss"].shape == (2,)


def improved(
    network: PolicyNetwork, steps: int = 1, **grpo: float
) -> tuple[PolicyState, dict[str, Array], Any]:
    """A network that played once and learned `steps` times from it; and how to go on with the same episodes."""
    config = learning()
    config = dataclasses.replace(config, grpo=dataclasses.replace(config.grpo, num_iterations=steps, **grpo))
    update = PolicyUpdate(PROBE, jnp.int32(UPDATES), config)
    played = eqx.filter_jit(update.play)(network, jr.split(jr.key(5), config.models), jnp.int32(0))

    @eqx.filter_jit
    def go_on(state: PolicyState) -> tuple[PolicyState, dict[str, Array]]:
        changed, moments, figures = update.improve(state, *played)
        return PolicyState(changed, state.reference, moments, state.step, state.key), figures

    # Some way into the run: the learning rate rises from zero.
    start = eqx.tree_at(lambda state: state.step, begin(network, config, key=jr.key(0)), jnp.int32(10))
    state, figures = go_on(start)
    return state, figures, go_on


def test_iterations_learn_again_from_the_same_episodes(misled: PolicyNetwork) -> None:
    """Two in one update are one and one more, on episodes that the first network played."""
    once, _, go_on = improved(misled)
    twice, _ = go_on(once)
    together, _, _ = improved(misled, 2)
    assert_same(together.network, twice.network, atol=1e-6)
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), once.network, together.network)
    assert max(jax.tree.leaves(moved)) > 1e-3


def test_clipping_stops_what_has_gone_far_enough(misled: PolicyNetwork) -> None:
    """After a step most episodes are as much likelier as they may be, and pull no more."""
    free = improved(misled, 2, clip_ratio=1.0, entropy_coeff=0.0)[1]["gradient_norm"]
    held = improved(misled, 2, clip_ratio=1e-6, entropy_coeff=0.0)[1]["gradient_norm"]
    assert held < 0.5 * free


def test_a_penalty_holds_the_network_near_its_reference(misled: PolicyNetwork) -> None:
    far = improved(misled, 8, kl_penalty_coeff=1e-6)[1]["kl"]
    near = improved(misled, 8, kl_penalty_coeff=100.0)[1]["kl"]
    assert 0 < near < 0.5 * far
