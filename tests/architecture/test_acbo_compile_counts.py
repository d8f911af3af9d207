"""One program for every causal model of a bucket: a thousand of mixed size, names, graphs and data, one after another."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

from acbo.data import BUCKETS, Dataset, Key, bucket
from acbo.inference import edge_posterior
from acbo.scms import CausalModel, SCMPrior, linear_gaussian_prior, sample_mixed, sample_scm, scm_prior
from acbo.surrogate import Network, NetworkConfig
from jaxworlds.compiling import CompileWatch, no_recompile

pytestmark = pytest.mark.usefixtures("quick_compile")

ROWS = 12
NETWORK = NetworkConfig("statistics", pair_width=8, layers=1, rank=2)


@jax.jit
def drawn(key: Key, prior: SCMPrior) -> Dataset:
    scm = sample_scm(key, prior, 8, 2)
    return sample_mixed(scm, key, ROWS, 6)


@eqx.filter_jit
def taught(data: Dataset) -> jax.Array:
    return edge_posterior(data, max_parents=2).edges


@eqx.filter_jit
def predicted(network: Network, data: Dataset) -> jax.Array:
    return network(data).edges


def test_a_thousand_models_of_one_bucket_are_one_compilation() -> None:
    jax.clear_caches()
    priors = [
        scm_prior(variables=(3, 8)),
        scm_prior("chain", "tanh", "laplace", variables=(2, 5)),
        linear_gaussian_prior((4, 8)),
    ]
    network = Network(NETWORK, key=jr.key(0))
    sizes, graphs = set(), set()
    with CompileWatch() as watch:
        for number, key in enumerate(jr.split(jr.key(0), 1000)):
            data = drawn(key, priors[number % len(priors)])
            teacher, student = taught(data), predicted(network, data)
            if number % 50 == 0:
                sizes.add(int(data.live.sum()))
                graphs.add(np.asarray(teacher > 0.5).tobytes())
                assert np.isfinite(teacher).all()
                assert np.isfinite(student).all()
    assert {name: watch[name].compiles for name in ("drawn", "taught", "predicted")} == {
        "drawn": 1,
        "taught": 1,
        "predicted": 1,
    }
    assert len(sizes) > 3
    assert len(graphs) > 5


def test_a_bucket_is_a_compilation_and_a_name_is_none() -> None:
    assert BUCKETS == (8, 16, 32, 64)
    network = Network(NETWORK, key=jr.key(0))
    models = [
        CausalModel.named(sample_scm(jr.key(seed), scm_prior(variables=(size, size)), bucket(size), 2))
        for seed, size in enumerate((5, 8, 9, 16))
    ]
    jax.clear_caches()
    with CompileWatch() as watch:
        for model in models:
            predicted(network, model.sample(ROWS))
    assert watch["predicted"].compiles == 2  # for 8 and for 16
    model = models[0]
    first = predicted(network, model.sample(ROWS))
    other = model.rename({name: f"renamed {name}" for name in model.names})
    with no_recompile(allow_eager=True):
        np.testing.assert_array_equal(predicted(network, other.sample(ROWS)), first)
