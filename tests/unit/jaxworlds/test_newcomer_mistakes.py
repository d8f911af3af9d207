"""What newcomers get wrong, and what they are told: each message names the argument, the demand, the value and a remedy.

Each system has a process of its own without the type checks of the tests, since that is how people meet these messages.
"""

import json
import subprocess
import sys

import pytest

SETUP = {
    "jaxworlds": """
import jax, jax.numpy as jnp
from jaxworlds import BucketedBatches, CompressedStorage, chunked_map, compare, find_leaks, measure, plan_batch_size, profile
from jaxworlds import run, save_state, tap
worlds = jnp.zeros(4)
step = lambda x, t: (x + 1, None)
""",
    "jaxarc": """
import equinox as eqx, jax, jaxarc.tasks
from jaxarc.envs import EnvironmentConfig, JaxArcConfig, MaskAction, PointAction, RewardConfig, UnifiedActionConfig
from jaxarc.envs import arc_reset, arc_step, batch_reset
from jaxarc.envs.episodes import random_actions, random_policy, rollout, score_submissions
from jaxarc.envs.rewards import weighted_sum
from jaxarc.tasks import create_jax_task_from_data, random_augmentation, random_augmentations
from jaxarc.utils.visualization import record_episode
data = {"train": [{"input": [[1]], "output": [[2]]}], "test": []}
task, config = create_jax_task_from_data(data, 0), JaxArcConfig()
tasks = jaxarc.tasks.TaskSet.of([jaxarc.tasks.parse_task(data, task_id="one")])
scored = jaxarc.tasks.TaskSet.of([jaxarc.tasks.parse_task(data | {"test": data["train"]}, task_id="one")])
key, keys = jax.random.key(0), jax.random.split(jax.random.key(0))
states = batch_reset(keys, config, task)[0]
""",
    "jaxtrace": """
import jax.numpy as jnp, numpy as np, jaxtrace as jt
from jaxtrace.fields import AnalyticField, double_gyre
from jaxtrace.tracking.boundary import reflective_boundary
from jaxtrace.visualization import plot_paths
field = double_gyre()
tracker = jt.create_tracker("rk4", field)
track = lambda seeds=((0.5, 0.5),), span=(0.0, 1.0), n=3, dt=0.5: tracker.track_particles(seeds, span, n, dt)
""",
    "acbo": """
import acbo, jax, numpy as np, pandas as pd
model = acbo.parse_model("A = N(0, 1); B = A + N(0, 1); C = N(0, 1); target B")
frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)), columns=["A", "B", "C"])
""",
}
SAID = {
    "jaxworlds": {
        "run(worlds, step, 10)": "`step` must be a function; got Array",
        "run(lambda x: (x, None), worlds, 10)": "`step` must be callable as step(carry, t); too many positional",
        "run(step, worlds, 10, mesh=4)": "`mesh` must be a mesh of devices; got 4. Write `world_mesh(4)`.",
        "save_state({'a': worlds}, 'a.state')": "got dict. The order is save_state(path, tree).",
        "run(step, worlds, jnp.int32(5))": "2**31 - 1; got Array(5, dtype=int32).",
        "find_leaks(3)": "`fn` must be a function; got 3.",
        "compare([step], worlds)": "Pass `{'name': fn, ...}`.",
        "plan_batch_size(step, lambda n: (worlds, n), limit='8GB')": "must be a number of bytes; got '8GB'. Write 8 * 10**9",
        "measure(3)": "`fn` must be a function; got 3.",
        "run(step, {'f': jnp.sin}, 4)": "`carry['f']` must be an array; got <PjitFunction",
        "run(step, worlds, 4, chunk=2.0)": "`chunk` must be a whole number; got 2.0.",
        "run(step, worlds, 4, record_every='2')": "`record_every` must be a whole number; got '2'.",
        "run(step, worlds, 4, checkpoint=3)": "`folder` of a checkpoint must be a path; got 3. Write `Checkpoint('runs/first')`.",
        "run(step, worlds, 4, observe=3)": "`observe` must be a function; got 3.",
        "tap(worlds, 'worlds', print)": "`name` must be a string; got Array",
        "tap('worlds', worlds, 3)": "`sink` must be a function; got 3.",
        "CompressedStorage('a').save('key', {'a': 1})": "`key` must be a string; got {'a': 1}. The order is save(obj, key)",
        "compare({'a': 3})": "`alternatives['a']` must be a function; got 3.",
        "profile(3)": "`fn` must be a function; got 3.",
        "BucketedBatches(step, 64)": "`sizes` must be several sizes; got 64. Write `sizes=(64,)`.",
        "chunked_map(worlds, step, 2)": "The order is chunked_map(fn, xs, batch_size).",
        "chunked_map(step, worlds, 2.0)": "`batch_size` must be a whole number; got 2.0.",
    },
    "jaxarc": {
        "arc_reset(0, config, task)": "`key` must be a random key of JAX; got 0. Write `jax.random.key(0)`.",
        "batch_reset(64, config, task)": "`keys` must be a random key of JAX; got 64.",
        "JaxArcConfig(max_episode_steps=5)": "Write `environment=EnvironmentConfig(max_episode_steps=...)`.",
        "EnvironmentConfig(max_steps=5)": "Did you mean `max_attempts` or `max_episode_steps`?",
        "JaxArcConfig(environment={'solve': 'all'})": "must be of the class EnvironmentConfig; got a dict.",
        "JaxArcConfig(UnifiedActionConfig())": "Write `environment=EnvironmentConfig(...)`.",
        "PointAction('fill', 0, 0)": "`operation` must hold integers; got 'fill'.",
        "rollout(None, None, None, None, jax.random.key(0), config, 5)": "`policy` must be a function; got None.",
        "rollout(random_policy(config), None, config, None, jax.random.key(0), config, 5)": "`states` must come from batch_reset",
        "jaxarc.tasks.load(3)": "`name_or_path` must be a name or a path; got 3. Write `load('arc-agi-1')`.",
        "tasks['ones']": "Did you mean 'one'?",
        "tasks[3]": "`index` must be from 0 to 0",
        "tasks[0:1]": "got slice(0, 1, None). Ids go to `index_of`, several tasks to `subset`.",
        "tasks.id_of(0.9)": "`index` must be a whole number; got 0.9.",
        "tasks.subset([0.9])": "`index` must be a whole number; got 0.9.",
        "random_augmentation(key, tasks)": "got TaskSet. For all tasks of a set use `random_augmentations(key, tasks.bank)`.",
        "random_augmentation(0)": "`key` must be a random key of JAX; got 0.",
        "random_augmentations(key, 'arc')": "`task_data` must be a JaxArcTask, a TaskBank or a set of tasks; got str.",
        "weighted_sum((lambda _: None, 1.0))(None)": "A reward term must give one number; '<lambda>' gave None.",
        "weighted_sum((lambda _: keys, 1.0))(None)": "'<lambda>' gave an array of shape (2,).",
        "RewardConfig(extra=len)": "got <built-in function len>. Write `extra=((function, 0.5),)`.",
        "MaskAction(0, [[0.2, 0.1]])": "`selection` must hold booleans or integers; got float32.",
        "MaskAction([0, 1], [[[True]]] * 3)": "got bool of shape (3, 1, 1) with operations of shape (2,).",
        "arc_step(PointAction(0, 0, 0), states, config)": "`state` must come from a reset or a step; got PointAction.",
        "arc_reset(key, config, task, task_index=[0, 0])": "must be a single one; got the shape (2,). Use `batch_reset`",
        "arc_reset(keys, config, task)": "`key` must be a single one; got the shape (2,).",
        "rollout(random_policy(config), None, states, None, 0, config, 5)": "`key` must be a random key of JAX; got 0.",
        "rollout(random_policy(config), None, states, None, key, config, -1)": "whole number of at least 0; got -1.",
        "rollout(eqx.nn.Linear(1, 1, key=key), None, states, None, key, config, 1)": "Pass what has arrays as `params`",
        "random_actions(0, config)": "`key` must be a random key of JAX; got 0.",
        "record_episode(states, [], config)": "`start` must be one environment; got a batch of shape (2,).",
        "score_submissions(scored, {'one': [[[1], [1], [1]]]})": "got 3. Attempts at one output are a list of grids.",
    },
    "jaxtrace": {
        "jt.create_tracker(field, 'rk4')": "The order is create_tracker(integrator, field, boundary).",
        "jt.create_tracker('rk4', np.zeros((3, 3)))": "Values on nodes make a TimeSeriesField.",
        "jt.create_tracker('rk4', field, 'reflective')": "got 'reflective'. Write `reflective_boundary(",
        "jt.create_tracker('rk4', field, reflective_boundary([[0] * 3, [1] * 3]))": "2 dimensions of the field; got a box of 3",
        "track([0.5, 0.25])": "For one particle write [[0.5, 0.25]].",
        "track(np.zeros((2, 9)))": "got (2, 9). Transpose it.",
        "track([['a', 'b']])": "`initial_positions` must be numbers",
        "track(span=10)": "`time_span` must be two finite times, (begin, end); got 10.",
        "track(span='0 10')": "`time_span` must be two finite times, (begin, end); got '0 10'.",
        "track(n=3.5)": "`n_timesteps` must be a whole number",
        "track(dt='0.1')": "`dt` must be positive, the largest step; got '0.1'.",
        "reflective_boundary([[0, 2], [0, 1]])": "Write [[x_low, y_low], [x_high, y_high]].",
        "plot_paths(np.zeros((2, 2, 2)))": "`trajectory` must be what track_particles returned; got ndarray.",
        "AnalyticField(lambda x: x, dim=2)": "`function` must be callable as function(x, t)",
        "AnalyticField(lambda x, t: x[:, 0], dim=2)": "x one point of shape (2,) and not many",
    },
    "acbo": {
        "acbo.sample_mixed(model, 0, 9, 5)": "got CausalModel. Pass `model.scm`.",
        "acbo.sample_mixed(model.scm, 'zero', 9, 5)": "`key` must be a random key of JAX; got 'zero'.",
        "acbo.sample_mixed(model.scm, 0, 9, 10)": "`observational` must be from 0 to the 9 rows; got 10.",
        "acbo.sample_mixed(model.scm, 0, 9.0, 5)": "`rows` must be a whole number, how many to draw; got 9.0.",
        "model.sample(jax.random.key(0), 9)": "`rows` must be a whole number",
        "model.effect({'A': 'low'})": "`do` must hold numbers by name; got 'low' for 'A'.",
        "acbo.edge_posterior(frame)": "got DataFrame. Write `data, names = acbo.from_frame(frame, target=...)` first.",
        "acbo.edge_posterior(acbo.from_frame(frame, target='B'))": "Take it apart: `data, names = acbo.from_frame(...)`.",
        "acbo.edge_posterior(frame.to_numpy())": "`acbo.dataset(values, intervened, target=0)` makes one of arrays.",
        "acbo.pretrained()(frame)": "`data` must be a Dataset; got DataFrame.",
        "acbo.from_frame(frame.to_numpy(), target='B')": "`frame` must be a data frame; got ndarray.",
        "acbo.likely_edges(np.full((3, 3), 0.5), ('A', 'B'))": "`names` must name all variables of the data",
        "acbo.parse_model('X = N(0, 1); Y = sine(X) + N(0, 1)')": "and not 'sine'; got 'sine(X) + N(0, 1)'. Did you mean 'sin'?",
    },
}
LOOP = """
import json, sys
for code in json.loads(sys.argv[1]):
    try:
        said = f"no error: {eval(code)}"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said))
"""


@pytest.mark.own_process
@pytest.mark.parametrize("system", SAID)
def test_mistakes_are_told_in_words(system: str) -> None:
    wanted = SAID[system]
    command = [sys.executable, "-c", SETUP[system] + LOOP, json.dumps(list(wanted))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = {
        code: message
        for code, demand, message in zip(wanted, wanted.values(), said, strict=True)
        if demand not in message or not message.startswith(("TypeError", "ValueError", "IndexError"))
    }
    assert not wrong


def test_a_result_without_its_number_is_noted() -> None:
    import acbo

    variables = {"dose": (0.0, 10.0), "pain": None}
    optimizer = acbo.Optimizer(variables, target="pain", experiments=3, strategy="random")
    asked = optimizer.ask()
    dose = float(asked["dose"].iloc[0])
    with pytest.warns(UserWarning, match="tell it with `experiment=0`; the experiment is still pending"):
        optimizer.tell({"dose": dose, "pain": 1.0})
    optimizer.tell({"dose": dose + 0.5, "pain": 1.0})  # an observation, and nobody is in doubt
    optimizer.tell({"dose": dose, "pain": 1.0, "experiment": 0})
    assert not len(optimizer.pending())
