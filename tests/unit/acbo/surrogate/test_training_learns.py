"""Training really learns: held-out models, ranked far above chance after seconds."""

import jax
import jax.random as jr
import numpy as np
import pytest
from acbo_linear import LinearModels, auroc

from acbo.surrogate.layers import NetworkConfig
from acbo.surrogate.network import Network
from acbo.surrogate.trainer import LearningConfig, train

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_a_network_learns_which_variable_causes_which() -> None:
    draw = LinearModels(4)
    config = NetworkConfig("statistics", pair_width=32, layers=2)
    learning = LearningConfig(updates=100, batch=32, learning_rate=5e-3)
    trained = train(draw, config, learning, key=jr.key(1))
    data, truth = jax.jit(jax.vmap(draw))(jr.split(jr.key(99), 200))
    predict = jax.jit(jax.vmap(lambda net, d: net(d).edges, in_axes=(None, 0)))
    off = ~np.eye(4, dtype=bool)
    labels = np.asarray(truth)[:, off]
    before = auroc(np.asarray(predict(Network(config, key=jr.key(1)), data))[:, off], labels)
    after = auroc(np.asarray(predict(trained.network, data))[:, off], labels)
    assert after > 0.95
    assert after > before + 0.15
    history = trained.history
    assert history is not None
    assert history["total_loss"].shape == (100,)
    assert history["edge_loss"][-30:].mean() < 0.5 * history["edge_loss"][:10].mean()
    assert history["set_loss"][-30:].mean() < 0.5 * history["set_loss"][:10].mean()
    assert trained.datasets_per_second > 0
    assert trained.rollout.outcome == "finished"
