"""Whether long runs stay as they began: live arrays, resident memory and compiled programs over a million steps.

    python benchmarks/soak.py [--quick] [--only arc|tracker|surrogate|policy|asking]

Each part works in rounds. After a warm-up it is looked at about two hundred times: how many arrays are alive, how many
objects the collector of Python knows, how many bytes are resident, how many programs were compiled. Ends with 1 if any
of them grew. `--quick` does a thousandth of the work, as the tests do.
"""

import dataclasses
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import harness
from jaxworlds.compiling import CompileWatch
from jaxworlds.memory import process_memory
from jaxworlds.runtime import configure

LOOKS, WARM_ROUNDS = 200, 3
# Resident memory comes and goes with the allocator; a leak goes on. What may remain over the second half of a run: 0.5 % of
# the process or 8 MB, whichever is more (runs that were flat ended between -6 MB and +2 MB on two cores).
LEAST_BYTES, SHARE = 8 * 2**20, 0.005
FEW_OBJECTS = 100  # that caches of Python and JAX may still take in the second half
NAMES = ("done", "live arrays", "Python objects", "resident MB")
ARRAYS, OBJECTS, RESIDENT = 1, 2, 3
Round = Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Part:
    """One kind of long run: `start` gives what does a round of `units`, and `total` units are asked for."""

    name: str
    unit: str
    units: int
    total: int
    start: Callable[[], Round]


@dataclasses.dataclass(frozen=True)
class Found:
    """What a long run came to: a row of `looks` for each look at the process, with the columns of `look`."""

    part: Part
    looks: np.ndarray
    compiles: int
    report: str
    seconds: float

    def growth(self, column: int) -> tuple[float, float]:
        """How much a column grew for each thousand units, and over the second half of the run, by least squares."""
        half = self.looks[len(self.looks) // 2 :].astype(float)
        done = half[:, 0] - half[0, 0]
        slope = float(np.polyfit(done, half[:, column], 1)[0])
        return 1000 * slope, slope * float(done[-1])

    def growing(self) -> list[str]:
        """What grew, in words; empty where everything was flat."""
        grown = []
        if self.compiles:
            grown.append(f"{self.compiles} programs were compiled after the warm-up: {self.report}")
        before, after = np.split(self.looks, [len(self.looks) // 2])
        # A number of arrays that only wanders comes back to where it was; one that leaks never does.
        leaks = after[:, ARRAYS].min() > before[:, ARRAYS].max()
        for column, grows in ((ARRAYS, leaks), (OBJECTS, self.growth(OBJECTS)[1] > FEW_OBJECTS)):
            if grows:
                first, last = self.looks[[0, -1], column]
                grown.append(f"{NAMES[column]} grew from {first:,} to {last:,}")
        change = self.growth(RESIDENT)[1]
        if change > max(LEAST_BYTES, SHARE * self.looks[0, RESIDENT]):
            grown.append(f"resident memory grew by {change / 2**20:.1f} MB in the second half")
        return grown

    def figures(self) -> dict[str, Any]:
        """The rows of the result file."""
        rows: dict[str, Any] = {}
        for column, scale in ((ARRAYS, 1), (OBJECTS, 1), (RESIDENT, 2**20)):
            values = self.looks[:, column] / scale
            per_thousand, change = (figure / scale for figure in self.growth(column))
            rows[NAMES[column]] = {
                "first": values[0],
                "least": values.min(),
                "most": values.max(),
                "last": values[-1],
                "growth in the second half": change,
                f"growth per 1,000 {self.part.unit}": per_thousand,
            }
        done = int(self.looks[-1, 0])
        flat = "no" if self.growing() else "yes"
        rows["run"] = {self.part.unit: done, "wall_s": self.seconds, "compiles": self.compiles, "flat": flat}
        return rows


def soak(part: Part, total: int, tell: Callable[[int], Any] = lambda done: None) -> Found:
    """Do `total` units of a part, at least four rounds, and look at the process on the way; `tell` hears how far it is."""
    rounds = max(-(-total // part.units), 4)
    looked_at = np.linspace(1, rounds, min(LOOKS, rounds)).round().astype(int)
    looks = np.zeros((len(looked_at), len(NAMES)), np.int64)  # made before, so that looking makes no objects
    work, row = part.start(), 0
    for _ in range(WARM_ROUNDS):
        work()
    began = time.monotonic()
    with CompileWatch() as watch:
        for number in range(1, rounds + 1):
            work()
            if number == looked_at[row]:
                looks[row], row = look(number * part.units), row + 1
                tell(number * part.units)
    return Found(part, looks, watch.compiles, watch.report(), time.monotonic() - began)


def look(done: int) -> tuple[int, int, int, int]:
    """The process now, after a collection: what is only waiting for one is no leak."""
    gc.collect()
    return done, len(jax.live_arrays()), len(gc.get_objects()), process_memory()[0]


# --- the parts ---


def arc(environments: int = 256, steps: int = 100) -> Round:
    """Random play with new episodes, in calls of a hundred steps."""
    from jaxarc.envs import EnvironmentConfig, JaxArcConfig, batch_reset
    from jaxarc.envs.episodes import random_policy, rollout
    from jaxarc.testing import create_mock_task

    config = JaxArcConfig(environment=EnvironmentConfig(max_episode_steps=50, autoreset="task"))
    keys = jr.split(jr.key(0), environments)
    states, seen = batch_reset(keys, config, create_mock_task(5))
    policy, key = random_policy(config), jr.key(1)

    def work() -> None:
        nonlocal states, key
        key, key_now = jr.split(key)
        played = rollout(policy, None, states, seen, key_now, config, steps)
        states = jax.block_until_ready(played.states)

    return work


def tracker(batches: int = 50, batch: int = 32) -> Round:
    """Small batches of particles through a time-dependent grid with walls, each a chunk of its own."""
    import jaxtrace as jt
    from jaxtrace.fields import double_gyre
    from jaxtrace.tracking.boundary import reflective_boundary

    bounds = [[0, 0], [2, 1]]
    nodes = jt.uniform_grid_seeds((33, 17), bounds)
    times = np.linspace(0.0, 10.0, 11, dtype=np.float32)
    flow = jax.vmap(jax.vmap(double_gyre(), (0, None)), (None, 0))
    field = jt.TimeSeriesField(np.asarray(flow(nodes, times)), times, nodes)
    seeds = np.asarray(jt.uniform_grid_seeds((batches, batch), bounds, include_boundaries=False))
    chunks = 0

    def count(done: int, of: int) -> None:
        nonlocal chunks
        chunks += 1

    moving = jt.create_tracker(
        "rk4", field, reflective_boundary(bounds), batch_size=batch, progress_callback=count
    )

    def work() -> None:
        nonlocal chunks
        chunks = 0
        paths = moving.track_particles(seeds, (0.0, 1.0), n_timesteps=6, dt=0.1)
        assert chunks == batches, f"{chunks} chunks, not {batches}"
        assert np.isfinite(paths.positions).all()

    return work


class _TwoWays(eqx.Module):
    """A draw of the smallest problem: A causes B or B causes A, and A was set in half of the rows."""

    strength: jax.Array

    def __call__(self, key: jax.Array) -> Any:
        import acbo

        key_way, key_noise = jr.split(key)
        forward = jr.bernoulli(key_way)
        own_a, own_b = jr.normal(key_noise, (2, 20))
        was_set = jnp.arange(20) >= 10
        a = jnp.where(was_set | forward, own_a, own_b + self.strength * own_a)
        b = jnp.where(forward, a + self.strength * own_b, own_b)
        marks = jnp.stack([was_set, jnp.zeros(20, bool)], axis=1)
        adjacency = jnp.array([[False, True], [False, False]])
        graph = jnp.where(forward, adjacency, adjacency.T)
        return acbo.dataset(jnp.stack([a, b], axis=1), marks, target=1), graph


def surrogate(updates: int = 100) -> Round:
    """A small network trained again and again, in chunks of ten updates."""
    import acbo

    draw = _TwoWays(jnp.float32(0.5))
    network = acbo.NetworkConfig("statistics", pair_width=16, layers=1, rank=2)
    learning = acbo.LearningConfig(updates=updates, batch=16, learning_rate=1e-2, set_weight=0.0)

    def work() -> None:
        trained = acbo.train(draw, network, learning, chunk=10, progress=False)
        assert np.isfinite(trained.history["edge_loss"]).all()

    return work


class _OneCause(eqx.Module):
    """A draw of models of two variables: the second follows the first, up or down."""

    noise: jax.Array

    def __call__(self, key: jax.Array, step: jax.Array) -> Any:
        from acbo.scms.scm import linear_scm

        weight = jnp.zeros((2, 2)).at[0, 1].set(jr.rademacher(key, (), jnp.float32))
        return linear_scm(weight, jnp.stack([jnp.float32(1), self.noise]))


def policy(updates: int = 20) -> Round:
    """A small policy trained by GRPO again and again, in chunks of ten updates."""
    from acbo.policy import EpisodeConfig, PolicyConfig, PolicyLearning, train_policy
    from acbo.policy.grpo_config import GRPOTrainingConfig

    draw = _OneCause(jnp.float32(0.1))
    small = PolicyConfig(width=8, layers=1, surrogate_layers=1, places=3)
    learning = PolicyLearning(
        updates=updates,
        models=4,
        imitate=0.0,
        episode=EpisodeConfig(observations=4, least=4, trials=2, known=0.0),
        grpo=GRPOTrainingConfig(group_size=8, num_iterations=1),
    )

    def work() -> None:
        jax.block_until_ready(train_policy(draw, small, learning, chunk=10, progress=False).state)

    return work


def asking(rounds: int = 10) -> Round:
    """Optimizers with the policy of the package, each asked and told ten times and then asked for advice."""
    import acbo

    plant = acbo.parse_model("""
        feed = N(0, 1); coolant = N(0, 1)
        heat = 1.2*feed - 0.9*coolant + N(0, 0.6)
        impurity = 0.8*heat + N(0, 0.6)
        target impurity
    """)
    ranges = {"feed": (-2, 2), "coolant": (-2, 2), "heat": None, "impurity": None}
    before, number = plant.sample(20, key=0), 0

    def work() -> None:
        nonlocal number
        # A new table each time: pandas notes every view of a table in the table.
        data = acbo.to_frame(before, plant.names)
        optimizer = acbo.Optimizer(ranges, target="impurity", data=data, experiments=rounds)
        for _ in range(rounds):
            number += 1
            todo = optimizer.ask()
            do = todo.iloc[0].drop("cost").dropna().to_dict()
            row = acbo.to_frame(plant.sample(1, key=number, do=do), plant.names)
            optimizer.tell(row.assign(experiment=todo.index))
        optimizer.recommend()

    return work


PARTS = (
    Part("arc", "batched steps", 100, 10**6, arc),
    Part("tracker", "chunks", 50, 10**5, tracker),
    Part("surrogate", "updates", 100, 10**4, surrogate),
    Part("policy", "updates", 20, 10**4, policy),
    Part("asking", "rounds", 10, 10**3, asking),
)


def main() -> int:
    """Run the parts that were asked for; 1 if anything grew."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    options = harness.parse("Whether long runs stay as they began.")
    parts = [part for part in PARTS if options.wants(part.name)]
    if not parts:
        raise SystemExit(f"`--only` must be part of one of {', '.join(p.name for p in PARTS)}.")
    configure()
    report = harness.PartsReport("soak", options)
    grown: dict[str, list[str]] = {}
    for part in parts:
        total = max(part.total // (1000 if options.quick else 1), 4 * part.units)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task(f"{part.name}: {part.unit}", total=total)
            found = soak(part, total, lambda done, task=task: progress.update(task, completed=done))
        report.add(part.name, found.figures(), part.start.__doc__ or "")
        grown[part.name] = found.growing()
        for why in grown[part.name]:
            print(f"{part.name}: {why}", file=sys.stderr)
    report.finish()
    return 1 if any(grown.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
