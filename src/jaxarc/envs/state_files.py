"""States on disk without their tasks: a file holds the data of the episode and a fingerprint of its tasks."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from jaxworlds import store

from ..tasks.bank import JaxArcTask, TaskBank
from ..tasks.datasets import extract_task_id_from_index
from ..tasks.parser import PathLike
from .state import ArcEnvState, copy_tasks, join_tasks


def save_state_efficiently(state: ArcEnvState, path: PathLike) -> None:
    """Write a state, of one environment or a batch, without its tasks.

    The file keeps `task_index` and a fingerprint of the tasks, so that `load_state_efficiently` finds them again and
    nothing else in their place. Sampling weights of a bank (`with_weights`) are kept too, unless all are equal.
    """
    tasks = state.task_data
    if not isinstance(tasks, JaxArcTask | TaskBank):
        raise TypeError(
            f"`state.task_data` must be a task or a bank; got {type(tasks).__name__}. "
            "Save the state as `arc_reset` and `arc_step` return it."
        )
    single = isinstance(tasks, JaxArcTask)
    # One task may stand once for each environment; of a bank it is of use to people who read the header.
    index = np.ravel(tasks.task_index) if single else np.unique(state.task_index)
    meta = {
        "tasks": "task" if single else "bank",
        "task_index": index.tolist(),
        "shape": list((tasks.task_index if single else tasks.offset).shape),
        "fingerprint": _fingerprint(tasks),
        "weighted": _weights(tasks) is not None,
        "statics": _statics(state),
    }
    store.save_state(path, {"state": join_tasks(state, None), "weights": _weights(tasks)}, meta=meta)


def load_state_efficiently(path: PathLike, parser: Any, dummy_state: ArcEnvState) -> ArcEnvState:
    """Read a state that `save_state_efficiently` wrote, and give it its tasks again.

    `parser` is the set of tasks that the state came from (`jaxarc.tasks.load(...)`, a subset, a mapped file), the bank
    or the task itself, or anything with `get_task_by_index` or `get_task_by_id`, and `bank` where the state held one.
    `dummy_state` is any state of the same config and batch size; its own tasks do not matter. Other tasks than the
    state had are refused (`StoreError`), whatever their names.

    ```python
    save_state_efficiently(state, "state.jxw")
    state = load_state_efficiently("state.jxw", tasks, arc_reset(key, config, tasks)[0])
    ```
    """
    meta = store.read_header(path).meta
    if not isinstance(meta, dict) or "fingerprint" not in meta:
        raise store.StoreError(
            f"{path}: the file holds no ARC state. Write it with `save_state_efficiently(state, path)`."
        )
    _check_meta(path, meta)
    tasks = _rebuilt(path, parser, meta)
    found = _fingerprint(tasks)
    if found != meta["fingerprint"]:
        raise store.StoreError(
            f"{path}: the state was saved with other tasks than `parser` gives: a {meta['tasks']} with fingerprint "
            f"{meta['fingerprint'][:12]}, and here it is {found[:12]}. Pass the set of tasks of that run: the same "
            "data, subset, order and canvas."
        )
    statics = _statics(dummy_state)
    if statics != meta["statics"]:
        raise store.StoreError(
            f"{path}: the file is of another config than `dummy_state`: it has {str(meta['statics'])[:200]}, and the state has "
            f"{statics}. Make `dummy_state` with the config of that run."
        )
    like = {"state": join_tasks(dummy_state, None), "weights": tasks.cumulative if meta["weighted"] else None}
    loaded = store.load_state(path, like)
    if meta["weighted"]:
        tasks = eqx.tree_at(lambda bank: bank.cumulative, tasks, loaded["weights"])
    return join_tasks(loaded["state"], copy_tasks(tasks))


def _check_meta(path: PathLike, meta: dict[str, Any]) -> None:
    """Refuse facts that `save_state_efficiently` does not write."""
    shape, index = meta.get("shape"), meta.get("task_index")
    counts = [*shape, *index] if isinstance(shape, list) and isinstance(index, list) else [None]
    sound = all(type(n) is int and 0 <= n < 1 << 31 for n in counts) and len(str(shape)) < 80
    single = meta.get("tasks") == "task"
    if not (
        sound
        and (single or meta.get("tasks") == "bank")
        and isinstance(meta["fingerprint"], str)
        and isinstance(meta.get("weighted"), bool)
        and isinstance(meta.get("statics"), dict)
        and (not single or (len(index or ()) == math.prod(shape or ())))
        and math.prod(shape or ()) < _MOST
    ):
        raise store.StoreError(f"{path}: what the file says of its tasks is malformed. Save the state again.")


_MOST = 10**8  # environments: more than any device holds


def _statics(state: ArcEnvState) -> dict[str, Any]:
    """What a state is but does not hold in arrays."""
    return {"canvas_width": state.canvas_width, "selection_format": state.action_history.format}


def _weights(tasks: JaxArcTask | TaskBank) -> Float32[Array, "*b tasks"] | None:
    """The sampling weights of a bank as it holds them; None if all are equal, as they are in a new one."""
    if isinstance(tasks, JaxArcTask):
        return None
    even = (np.arange(1, len(tasks) + 1) / len(tasks)).astype(np.float32)
    same = np.array_equal(tasks.cumulative, np.broadcast_to(even, tasks.cumulative.shape))
    return None if same else tasks.cumulative


def _fingerprint(tasks: Any) -> str:
    """Hash of the tasks, whatever their sampling weights."""
    if isinstance(tasks, TaskBank):
        tasks = eqx.tree_at(lambda bank: bank.cumulative, tasks, jnp.zeros_like(tasks.cumulative))
    return store.content_hash(tasks)


def _rebuilt(path: PathLike, parser: Any, meta: dict[str, Any]) -> Any:
    """The tasks of a saved state from the parser, once for all environments or once for each, as they were."""
    shape = tuple(meta["shape"])
    if meta["tasks"] == "bank":
        bank = parser if isinstance(parser, TaskBank) else getattr(parser, "bank", None)
        bank = bank() if callable(bank) and not isinstance(bank, TaskBank) else bank
        if not isinstance(bank, TaskBank):
            raise TypeError(
                f"`parser` must have a `bank`, since the state in {path} was made with one; "
                f"got {type(parser).__name__}. Pass the set of tasks, such as `jaxarc.tasks.load('arc-agi-1')`."
            )
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape)), bank)
    indices = meta["task_index"]
    known = {index: _task(path, parser, index) for index in dict.fromkeys(indices)}
    if not shape:
        return known[indices[0]]
    own = [known[index] for index in indices]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves).reshape(*shape, *leaves[0].shape), *own)


def _task(path: PathLike, parser: Any, index: int) -> JaxArcTask:
    if isinstance(parser, JaxArcTask):
        return parser
    try:
        if hasattr(parser, "get_task_by_index"):
            return parser.get_task_by_index(index)
        if hasattr(parser, "get_task_by_id"):
            return parser.get_task_by_id(extract_task_id_from_index(index))
    except (ValueError, LookupError) as error:
        raise store.StoreError(
            f"{path}: the state belongs to task {index}, which `parser` does not have ({error}). "
            "Pass the set of tasks of that run."
        ) from error
    raise TypeError(
        f"`parser` must have `get_task_by_index` or `get_task_by_id`; got {type(parser).__name__}. "
        "Pass the set of tasks, such as `jaxarc.tasks.load('arc-agi-1')`."
    )
