"""States on disk: the tasks stay out, come back from the parser, and no others are taken for them."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import jaxarc.envs
import jaxarc.performance
from jaxarc.envs import PointAction, arc_reset, arc_step, batch_reset
from jaxarc.envs.state import state_bytes
from jaxarc.envs.state_files import load_state_efficiently, save_state_efficiently
from jaxarc.tasks import TaskSet, parse_task
from jaxarc.testing import create_test_config
from jaxworlds import store

pytestmark = pytest.mark.usefixtures("quick_compile")

CONFIG = create_test_config(max_episode_steps=20, grid_size=8)


def made_up(seed: int, count: int = 6) -> TaskSet:
    draw = np.random.default_rng(seed)

    def pair() -> dict[str, Any]:
        return {side: draw.integers(0, 10, (8, 8)).tolist() for side in ("input", "output")}

    return TaskSet.of(
        parse_task({"train": [pair(), pair()], "test": [pair()]}, task_id=f"t{i}") for i in range(count)
    )


TASKS, OTHERS = made_up(0), made_up(1)


def played(task_data: Any) -> Any:
    state, _ = arc_reset(jr.key(0), CONFIG, task_data)
    for step in range(3):
        state, *_ = arc_step(state, PointAction(step + 1, step, 2), CONFIG)
    return state


def assert_same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, x.weak_type) == (y.dtype, False)
        np.testing.assert_array_equal(x, y)


def test_the_names_are_where_the_guide_imports_them_from() -> None:
    assert jaxarc.envs.save_state_efficiently is jaxarc.performance.save_state_efficiently
    assert jaxarc.envs.load_state_efficiently is jaxarc.performance.load_state_efficiently


def test_a_state_of_one_task_comes_back(tmp_path: Path) -> None:
    state = played(TASKS.get_task_by_id("t4"))
    save_state_efficiently(state, tmp_path / "state.jxw")
    assert store.read_header(tmp_path / "state.jxw").meta["task_index"] == [4]
    dummy, _ = arc_reset(jr.key(9), CONFIG, TASKS.get_task_by_index(0))  # of another task: it does not matter
    loaded = load_state_efficiently(tmp_path / "state.jxw", TASKS, dummy)
    assert_same(loaded, state)
    assert int(loaded.task_data.task_index) == 4
    action = PointAction(7, 1, 1)
    assert_same(arc_step(loaded, action, CONFIG), arc_step(state, action, CONFIG))


def test_the_file_holds_no_task_and_is_that_much_smaller(tmp_path: Path) -> None:
    for state in (played(TASKS.get_task_by_index(1)), played(TASKS)):
        save_state_efficiently(state, tmp_path / "state.jxw")
        rows = store.read_header(tmp_path / "state.jxw").leaves
        assert sum(row.nbytes for row in rows) == state_bytes(state)
        assert [row.path for row in rows if "task_data" in row.path] == ["['state'].task_data"]
        store.save_state(tmp_path / "whole.jxw", state)
        small, whole = ((tmp_path / name).stat().st_size for name in ("state.jxw", "whole.jxw"))
        assert small < whole  # although a whole state is compressed too
    eqx.tree_serialise_leaves(tmp_path / "guide.eqx", state)  # the guide's way wrote everything
    assert small < whole < (tmp_path / "guide.eqx").stat().st_size


def test_a_batch_on_a_bank_comes_back_with_the_bank_once(tmp_path: Path) -> None:
    states, _ = batch_reset(jr.split(jr.key(1), 3), CONFIG, TASKS)
    assert len(set(states.task_index.tolist())) > 1
    save_state_efficiently(states, tmp_path / "states.jxw")
    dummy, _ = batch_reset(jr.split(jr.key(2), 3), CONFIG, OTHERS)
    loaded = load_state_efficiently(tmp_path / "states.jxw", TASKS, dummy)
    assert_same(loaded, states)
    assert eqx.tree_equal(loaded.task_data, TASKS.bank)
    with pytest.raises(store.MisfitError, match="does not fit"):
        load_state_efficiently(tmp_path / "states.jxw", TASKS, played(TASKS))


def test_tasks_that_differ_between_environments_come_back(tmp_path: Path) -> None:
    rows = [3, 1, 3]
    tasks = jax.tree.map(lambda *x: jnp.stack(x), *(TASKS.get_task_by_index(row) for row in rows))
    states, _ = jax.jit(jax.vmap(arc_reset, in_axes=(0, None, 0)))(jr.split(jr.key(0), 3), CONFIG, tasks)
    save_state_efficiently(states, tmp_path / "states.jxw")
    dummy = jax.eval_shape(lambda: states)
    loaded = load_state_efficiently(tmp_path / "states.jxw", TASKS, dummy)
    assert_same(loaded, states)
    assert loaded.task_data.task_index.tolist() == rows


def test_weights_are_kept(tmp_path: Path) -> None:
    bank = TASKS.bank.with_weights(np.array([0, 0, 1, 0, 0, 3]))
    state = played(bank)
    save_state_efficiently(state, tmp_path / "state.jxw")
    loaded = load_state_efficiently(tmp_path / "state.jxw", TASKS, state)
    assert_same(loaded, state)
    assert loaded.task_data.cumulative.tolist() == [0, 0, 0.25, 0.25, 0.25, 1]


def test_other_tasks_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.jxw"
    one, whole = played(TASKS.get_task_by_index(5)), played(TASKS)
    save_state_efficiently(one, file)
    with pytest.raises(store.StoreError, match="saved with other tasks than `parser` gives: a task"):
        load_state_efficiently(file, OTHERS, one)
    with pytest.raises(store.StoreError, match="belongs to task 5, which `parser` does not have"):
        load_state_efficiently(file, TASKS.subset([0, 1]), one)
    with pytest.raises(TypeError, match="`parser` must have `get_task_by_index`"):
        load_state_efficiently(file, None, one)
    save_state_efficiently(whole, file)
    with pytest.raises(store.StoreError, match="saved with other tasks than `parser` gives: a bank"):
        load_state_efficiently(file, OTHERS, whole)
    with pytest.raises(TypeError, match="`parser` must have a `bank`"):
        load_state_efficiently(file, object(), whole)


def test_a_state_of_another_config_is_refused(tmp_path: Path) -> None:
    state = played(TASKS)
    save_state_efficiently(state, tmp_path / "state.jxw")
    wider = eqx.tree_at(lambda s: s.task_data, state, TASKS.bank)
    object.__setattr__(wider, "canvas_width", 9)
    with pytest.raises(store.StoreError, match=r"of another config than `dummy_state`.*'canvas_width': 8"):
        load_state_efficiently(tmp_path / "state.jxw", TASKS, wider)
    store.save_state(tmp_path / "plain.jxw", {"a": 1})
    with pytest.raises(store.StoreError, match="holds no ARC state"):
        load_state_efficiently(tmp_path / "plain.jxw", TASKS, state)
    with pytest.raises(TypeError, match=r"`state\.task_data` must be a task or a bank; got NoneType"):
        save_state_efficiently(eqx.tree_at(lambda s: s.task_data, state, None), tmp_path / "none.jxw")


def test_parsers_that_only_know_ids_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxarc.tasks.datasets._default", [TASKS])

    class Parser:
        def get_task_by_id(self, task_id: str) -> Any:
            return TASKS.get_task_by_id(task_id)

    state = played(TASKS.get_task_by_index(2))
    save_state_efficiently(state, tmp_path / "state.jxw")
    assert_same(load_state_efficiently(tmp_path / "state.jxw", Parser(), state), state)


def test_the_tasks_of_a_state_can_be_exchanged_by_hand() -> None:
    state = played(TASKS.get_task_by_index(2))
    other = OTHERS.get_task_by_index(2)
    changed = eqx.tree_at(lambda s: s.task_data, state, other)
    assert_same(changed.task_data, other)
    np.testing.assert_array_equal(changed.working_grid, state.working_grid)
    assert float(arc_step(changed, PointAction(0, 0, 0), CONFIG)[4]["similarity"]) != float(state.similarity)
