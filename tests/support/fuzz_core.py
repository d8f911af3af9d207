"""Loaders of the core: saved states, the compressed store, checkpoints of a run, arrays on disk, baselines."""

from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import Loader, demand, demand_arrays


def _tree() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    return {
        "a": jnp.arange(40, dtype=jnp.float32).reshape(5, 8),
        "b": np.arange(300, dtype=np.int16),
        "key": jax.random.key(3),
        "n": 7,
        "text": "so",
        "raw": b"bytes" * 30,
        "half": jnp.ones(3, jnp.bfloat16),
    }


def _states(folder: Path) -> list[bytes]:
    from jaxworlds.store import save_state

    made = []
    for codec in ("raw", "zlib", "zstd"):
        save_state(folder / "made.jxw", _tree(), meta={"step": 3, "note": [1.5, "x"]}, codec=codec)
        made.append((folder / "made.jxw").read_bytes())
    return made


def read_state(path: Path) -> None:
    """Load a state into a tree of the same kind, and read its header."""
    from jaxworlds.store import load_state, read_header

    header = read_header(path)
    demand(isinstance(header.meta, dict), "meta is no dict")
    str(header)
    like = _tree()
    found = load_state(path, like)
    for name in ("a", "b", "half"):
        demand(
            found[name].shape == like[name].shape and found[name].dtype == like[name].dtype, f"{name} differs"
        )
    demand(
        type(found["n"]) is int and type(found["text"]) is str and type(found["raw"]) is bytes,
        "leaves differ",
    )


def _objects(folder: Path) -> list[bytes]:
    from jaxworlds.store import CompressedStorage

    made = []
    for codec in ("raw", "zlib", "zstd"):
        storage = CompressedStorage(folder, codec)
        value = {
            "grids": np.arange(400, dtype=np.int8),
            3: (1, 2.5, None),
            "inner": [{"x": b"12"}, np.float32(2), 1 << 70],
        }
        storage.save(value, "episode")
        made.append((folder / "episode.jxw").read_bytes())
    return made


def read_object(path: Path) -> None:
    """Load an object of the compressed store."""
    from jaxworlds.store import CompressedStorage

    CompressedStorage(path.parent).load(path.stem)


def _step(carry: Any, _: Any) -> Any:
    return carry + 1, {"seen": carry}


def _checkpoints(folder: Path) -> list[bytes]:
    from jaxworlds.rollout import Checkpoint, CheckpointFolder, ProgressOfRun

    run = CheckpointFolder(Checkpoint(folder / "run", keep=2))
    carry = {"x": np.arange(6.0), "t": np.int32(4)}
    start = ProgressOfRun(0, 8, 4, 1, ())
    run.save(carry, start, 0, [], {"table": np.arange(3)})
    run.save(carry, start, 4, [{"seen": np.arange(4.0)}], {"table": np.arange(3)})
    return [(folder / "run" / "step-000000000004.jwstate").read_bytes()]


def _records(folder: Path) -> list[bytes]:
    _checkpoints(folder)
    return [(folder / "run" / "records-000000000000-000000000004.jwstate").read_bytes()]


def read_checkpoint(path: Path) -> None:
    """Load the newest state that is whole; where the newest is damaged, that must be the one before it."""
    from jaxworlds.rollout import Checkpoint, CheckpointFolder

    run = CheckpointFolder(Checkpoint(path.parent))
    like = {"x": np.zeros(6), "t": np.int32(0)}
    carry, start, records = run.load(like, {"table": np.arange(3)}, {"seen": np.zeros(())})
    demand(start.step in (0, 4) and carry["x"].shape == (6,), "another step came back")
    # Not finite=True: what was spoiled under checksums that fit may be NaN, as the worlds of a run may.
    demand_arrays([("x", carry["x"])], "f")
    demand(sum(len(part["seen"]) for part in records) == start.step, "records do not fit")


def _arrays(folder: Path) -> list[bytes]:
    from jaxworlds.store import save_array

    made = []
    for array in (np.arange(60, dtype="f4").reshape(20, 3), np.arange(9), np.array(["a", "bcd"])):
        save_array(folder / "made.npy", array)
        made.append((folder / "made.npy").read_bytes())
    return made


def read_array(path: Path) -> None:
    """Map an array, read rows, and verify it."""
    from jaxworlds.store import StoreError, open_array, read_rows

    found = open_array(path)
    demand(found.dtype.kind in "biufcUSMm", f"dtype {found.dtype}")
    demand(found.nbytes <= path.stat().st_size, "more values than bytes")
    if found.ndim and len(found):
        read_rows(path, slice(0, 2))
        found[-1]
    try:
        open_array(path, verify=True)
    except StoreError as error:
        if "checksum" not in str(error):
            raise


def _baselines(folder: Path) -> list[bytes]:
    from jaxworlds.measuring import Baseline

    baseline = Baseline.load(folder / "made.json", key="machine")
    baseline.record("step", {"compiles": 1, "seconds_s": 0.5, "peak_bytes": 1000})
    return [(folder / "made.json").read_bytes()]


def read_baseline(path: Path) -> None:
    """Read baselines and judge figures by them."""
    from jaxworlds.measuring import Baseline

    str(
        Baseline.load(path, key="machine").judge("step", {"compiles": 2, "seconds_s": 0.6, "peak_bytes": 900})
    )


_SEALED = ("bytes", "container", "container", "container")
LOADERS = [
    Loader("core/state", "state.jxw", _states, read_state, _SEALED, weight=5),
    Loader("core/store", "episode.jxw", _objects, read_object, _SEALED, weight=5),
    Loader(
        "core/checkpoint",
        "run/step-000000000004.jwstate",
        _checkpoints,
        read_checkpoint,
        _SEALED,
        ("`table`",),
        3,
    ),
    Loader(
        "core/records",
        "run/records-000000000000-000000000004.jwstate",
        _records,
        read_checkpoint,
        _SEALED,
        weight=2,
    ),
    Loader("core/array", "array.npy", _arrays, read_array, ("bytes", "npy", "npy"), weight=5),
    Loader(
        "core/baselines",
        "baselines.json",
        _baselines,
        read_baseline,
        ("bytes", "json", "json", "text", "encoding"),
        weight=4,
    ),
]
