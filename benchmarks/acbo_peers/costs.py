"""What our own parts cost in this process: drawing datasets, training, compiling."""

from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from acbo.data import Dataset
from acbo.guide import (
    convert_to_jax_batch,
    create_adaptive_train_step,
    create_jax_surrogate_train_step,
    create_training_batch,
)
from acbo.guide.configs import SurrogateTrainingConfig
from acbo.inference import BGe, edge_posterior
from acbo.scms import CausalModel, random_interventions, sample, sample_scm, scm_prior
from acbo.surrogate import (
    LearningConfig,
    NetworkConfig,
    Surrogate,
    benchmark_draws,
    held_out,
    train,
    training_draws,
)
from jaxworlds.compiling import CompileWatch
from jaxworlds.measuring import break_even, compare, measure, time_call

Rows = dict[str, dict[str, Any]]
ROWS = 100


@eqx.filter_jit
def drawn(draw: Any, keys: Any) -> Any:
    """Datasets of as many models as there are keys."""
    return jax.vmap(draw)(keys)


def generation(variables: int, batch: int, repeats: int) -> Rows:
    """Datasets per second: model, interventions and rows."""
    draws = {
        "linear Gaussian": benchmark_draws(variables, ROWS, 60),
        "all families, mechanisms, noises": training_draws(variables, ROWS, 60, nonlinear=1.0),
        "what the weights were trained on": training_draws(variables, ROWS, 60),
    }
    rows: Rows = {}
    for name, draw in draws.items():
        found = measure(drawn, draw, jr.split(jr.key(0), batch), items=batch, repeats=repeats)
        rows[name] = {
            "datasets/s": found.rate,
            "datasets/cpu-s": batch / found.cpu_s,
            "median_s": found.median_s,
            "iqr_s": found.iqr_s,
            "compile_s": found.compile_s,
            "compiled": found.compile_origin,
            "samples": len(found.times),
        }
    return rows


def training(batch: int, updates: int, width: int = 64, layers: int = 4) -> Rows:
    """Datasets per second from nothing to the update, in one compiled call."""
    draw = training_draws(10, ROWS, 60)
    rows: Rows = {}
    for encoder in ("axial", "statistics"):
        config = NetworkConfig(encoder=encoder, width=width, pair_width=width, layers=layers)
        learning = LearningConfig(updates=updates, batch=batch)
        # Once to compile, once to measure.
        first, done = (train(draw, config, learning, chunk=updates, progress=False) for _ in range(2))
        rows[encoder] = {
            "datasets/s": done.datasets_per_second,
            "update_s": batch / done.datasets_per_second,
            "compile_s": first.rollout.compile_seconds,
        }
    return rows


def compiled_against_eager(encoder: str, batch: int, rounds: int, width: int = 64, layers: int = 4) -> Rows:
    """The same training step with and without `jax.jit`: seconds, ratio, and the steps after which compiling has paid."""
    cases = held_out(benchmark_draws(10, ROWS, 60), models=batch)
    data = [jax.tree.map(lambda leaf, i=i: leaf[i], cases.data) for i in range(batch)]
    examples = convert_to_jax_batch(create_training_batch(data, max_parent_size=2))
    config = SurrogateTrainingConfig(
        model_hidden_dim=width, model_n_layers=layers, dropout=0.0, encoder=encoder, max_parent_size=2
    )
    quick = create_jax_surrogate_train_step(config=config)
    plain = create_adaptive_train_step(config=config, use_jax_compilation=False)
    state, key = quick.init(jr.key(0)), jr.key(1)
    _, first = time_call(quick, state, examples, key)
    both = compare({"jit": quick, "eager": plain}, state, examples, key, rounds=rounds)
    jit, eager = both["jit"].median_s, both["eager"].median_s
    prepared = first - jit
    found = [step(state, examples, key)[1]["total_loss"] for step in (quick, plain)]
    row = {
        "jit_s": jit,
        "eager_s": eager,
        "eager / jit": both["eager"].ratio,
        "compile_s": prepared,
        "break-even steps": min(float(break_even(prepared, eager, jit)), 1e9),
        "loss differs by": abs(float(found[0]) - float(found[1])),
    }
    return {f"{encoder}, batch {batch}": row}


@eqx.filter_jit
def draw_model(prior: Any, key: Any, size: int) -> Any:
    """A model of the stream."""
    return sample_scm(key, prior, size, 8)


@eqx.filter_jit
def draw_data(scm: Any, key: Any) -> Dataset:
    """Its data: 60 observations and 40 experiments."""
    key_do, key_rows = jr.split(key)
    return sample(scm, random_interventions(key_do, scm, ROWS, observational=60), key_rows, ROWS)


@eqx.filter_jit
def ask_teacher(data: Dataset) -> Any:
    """The exact posterior of the edges."""
    return edge_posterior(data, BGe(scale="data")).edges


@eqx.filter_jit
def ask_surrogate(surrogate: Surrogate, data: Dataset) -> Any:
    """The network's."""
    return surrogate(data).edges


def compiles(surrogate: Surrogate, models: int, sizes: tuple[int, ...] = (8, 16), more: int = 3) -> Rows:
    """Compilations over a stream of models of mixed size, names, graphs and data, bucket after bucket."""
    functions = ("draw_model", "draw_data", "ask_teacher", "ask_surrogate")
    rows: Rows = {}
    for size in sizes:
        # The smallest bucket gets the whole stream; the others show that a bucket costs one program each.
        count = models if size == sizes[0] else more
        with CompileWatch() as watch:
            seen = _stream(surrogate, size, count)
        rows[f"bucket of {size}"] = {
            "models": count,
            "sizes": f"{min(seen)} to {max(seen)}",
            **{name: watch[name].compiles for name in functions},
            "compile_s": watch.compile_seconds,
        }
    return rows


def _stream(surrogate: Surrogate, size: int, count: int) -> set[int]:
    """Draw, name, sample and ask; returns the numbers of variables that were met."""
    prior, rng = scm_prior(variables=(3 if size == 8 else size // 2 + 1, size)), np.random.default_rng(0)
    keys = jr.split(jr.key(size), (count, 2))
    met = set()
    for key_model, key_data in keys:
        scm = draw_model(prior, key_model, size)
        live = int(np.asarray(scm.live).sum())
        model = CausalModel.named(
            scm,
            [
                f"{word}{rng.integers(1000)}_{i}"
                for i, word in zip(range(live), "abcdefghijklmnop", strict=False)
            ],
        )
        data = draw_data(model.scm, key_data)
        jax.block_until_ready((ask_teacher(data), ask_surrogate(surrogate, data)))
        met.add(live)
    return met
