"""Training as a world: it learns, it resumes with the same bits, and it is the same on any number of devices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from acbo_linear import LinearModels

from acbo.data import Dataset
from acbo.surrogate.layers import NetworkConfig
from acbo.surrogate.network import Network
from acbo.surrogate.trainer import Learning, LearningConfig, Update, train
from acbo.train_loop import descent, learning_rate_at, make_optimizer
from jaxworlds import Checkpoint, world_mesh
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = NetworkConfig("statistics", pair_width=8, layers=1, rank=2)
QUICK = LearningConfig(updates=6, batch=8, learning_rate=3e-3, set_weight=0.0)


class Scaled(eqx.Module):
    """Models with an array inside, as a distribution of models with settings on the device has."""

    scale: jax.Array

    def __call__(self, key: jax.Array) -> tuple[Dataset, jax.Array]:
        data, adjacency = LinearModels(4, observed=20, experiments=10)(key)
        return eqx.tree_at(lambda d: d.values, data, data.values * self.scale), adjacency


DRAW = Scaled(jnp.float32(2.0))


def half(data: Dataset) -> jax.Array:
    """A teacher who knows nothing."""
    return jnp.full((data.size, data.size), 0.5)


def assert_same(a: object, b: object, **tolerance: float) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jr.key_data(x), jr.key_data(y)
        np.testing.assert_allclose(x, y, **({"rtol": 0} | tolerance))


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(tmp_path) -> None:
    whole = train(DRAW, TINY, QUICK, chunk=2)
    stopped = train(
        DRAW,
        TINY,
        QUICK,
        chunk=2,
        on_chunk=lambda chunk: chunk.step >= 2,
        checkpoint=Checkpoint(tmp_path, every_seconds=0),
    )
    assert stopped.rollout.outcome == "stopped"
    assert stopped.rollout.step < 6
    resumed = train(DRAW, TINY, QUICK, checkpoint=tmp_path, resuming=True)
    assert resumed.rollout.step == 6
    assert_same(resumed.state, whole.state, atol=0)
    assert_same(resumed.history, whole.history, atol=0)
    with pytest.raises(ValueError, match="`resuming` needs `checkpoint`"):
        train(DRAW, TINY, QUICK, resuming=True)


@pytest.mark.devices
def test_devices_agree_and_send_gradients_only(devices: list[jax.Device]) -> None:
    alone = train(DRAW, TINY, QUICK, chunk=2)
    spread = train(DRAW, TINY, QUICK, chunk=2, mesh=world_mesh())
    assert_same(spread.network, alone.network, atol=1e-5)
    assert_same(spread.history, alone.history, atol=1e-5)
    if len(devices) > 1:
        with pytest.raises(ValueError, match=f"multiple of the {len(devices)} devices"):
            train(DRAW, TINY, LearningConfig(batch=len(devices) + 1), mesh=world_mesh())
        step = Update(DRAW, None, jnp.int32(6), QUICK, world_mesh())
        text = jax.jit(lambda state: step(state)[0]).lower(alone.state).compile().as_text()
        for word in ("all-gather", "all-to-all", "collective-permute"):
            assert word not in text


def test_parts_of_a_batch_add_up_to_the_batch() -> None:
    whole = train(DRAW, TINY, QUICK, chunk=2)
    parts = train(
        DRAW,
        TINY,
        LearningConfig(updates=6, batch=8, accumulate=4, learning_rate=3e-3, set_weight=0.0),
        chunk=2,
    )
    assert_same(parts.network, whole.network, atol=2e-5)
    with pytest.raises(ValueError, match="multiple of `accumulate`"):
        LearningConfig(batch=8, accumulate=3)


def test_runs_of_other_lengths_and_seeds_are_the_same_program() -> None:
    train(DRAW, TINY, QUICK, chunk=2)
    with CompileWatch() as watch:
        train(
            DRAW,
            TINY,
            LearningConfig(updates=4, batch=8, learning_rate=3e-3, set_weight=0.0),
            chunk=2,
            key=jr.key(5),
        )
    assert watch["advance"].compiles == 0


def test_a_teachers_labels_take_the_place_of_the_truth() -> None:
    learning = LearningConfig(updates=60, batch=16, learning_rate=1e-2, set_weight=0.0)
    taught = train(DRAW, TINY, learning, teach=half)
    data, _ = LinearModels(4).one(3)
    edges = np.asarray(jax.jit(lambda net, data: net(data).edges)(taught.network, data))[
        ~np.eye(4, dtype=bool)
    ]
    np.testing.assert_allclose(edges, 0.5, atol=0.05)
    assert taught.history is not None
    assert set(taught.history) == {"edge_loss", "total_loss", "gradient_norm", "learning_rate"}


def test_the_learning_rate_rises_and_falls_as_promised() -> None:
    """Ledger 1.2: warm-up over min(1000, 10 %), then a cosine; 1 % to 100 % to 1 %."""
    import optax

    for total in (100, 20_000):
        schedule = optax.warmup_cosine_decay_schedule(1e-5, 1e-3, min(1000, total // 10), total, 1e-5)
        for step in (0, 1, total // 20, total // 10, total // 2, total - 1, total):
            np.testing.assert_allclose(
                learning_rate_at(step, total, 1e-3), schedule(step), rtol=2e-3, atol=1e-9
            )


def test_the_guides_optimizer_and_the_worlds_make_the_same_update() -> None:
    optimizer, rule = make_optimizer(1e-2, 40), descent()
    assert make_optimizer(1e-2, 40) is optimizer
    one = other = {"a": jnp.array([1.0, -2.0]), "b": jnp.ones((2, 2))}
    moments, raw = optimizer.init(one), rule.init(other)
    for number in range(6):
        gradient = jax.tree.map(lambda leaf, n=number: 3 * jnp.sin(n + leaf), one)
        change, moments = optimizer.update(gradient, moments, one)
        bare, raw = rule.update(gradient, raw, other)
        one = jax.tree.map(jnp.add, one, change)
        rate = learning_rate_at(number, 40, 1e-2)
        other = jax.tree.map(lambda p, u, rate=rate: p - rate * u, other, bare)
    assert_same(one, other, atol=1e-6)
    assert float(jnp.abs(one["a"] - jnp.array([1.0, -2.0])).max()) > 1e-3


def test_dropout_and_half_precision_train_too() -> None:
    half = NetworkConfig("statistics", pair_width=8, layers=2, rank=2, dropout=0.2, precision="bfloat16")
    trained = train(DRAW, half, LearningConfig(updates=3, batch=4))
    assert trained.history is not None
    assert np.isfinite(trained.history["total_loss"]).all()
    assert {leaf.dtype for leaf in jax.tree.leaves(trained.network)} == {jnp.dtype("float32")}


def test_a_given_network_is_trained_on_and_left_alone() -> None:
    start = Network(TINY, key=jr.key(4))
    kept = jax.tree.map(np.array, start)
    trained = train(DRAW, start, QUICK, chunk=2)
    assert_same(start, kept, atol=0)
    assert any(
        np.abs(a - b).max() > 1e-4
        for a, b in zip(jax.tree.leaves(trained.network), jax.tree.leaves(start), strict=True)
    )
    assert isinstance(trained.state, Learning)
