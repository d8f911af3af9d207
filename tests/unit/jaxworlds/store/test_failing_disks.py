"""Disks that fail: full, not writable, or the process killed while it saves. What was there stays whole, and it is said."""

import contextlib
import dataclasses
import functools
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_acbo
import fuzz_arc
import fuzz_trace
import jax.numpy as jnp
import numpy as np
import pytest

from acbo.optimizer.state import Row, read_state, write_state
from acbo.policy.policy_network import save_policy
from acbo.surrogate.weights import save_weights
from jaxarc.tasks import TaskSet, parse_task
from jaxarc.tasks.mapped import write_task_file
from jaxarc.utils.visualization.archive import EpisodeArchive
from jaxtrace.io import load_trajectory, save_trajectory
from jaxworlds import resume, run
from jaxworlds.measuring import Baseline
from jaxworlds.rollout import Checkpoint, CheckpointFolder, ProgressOfRun, ResumeWarning
from jaxworlds.store import CompressedStorage, StoreError, load_state, save_array, save_state

pytestmark = pytest.mark.usefixtures("quick_compile")
NOISE = np.random.default_rng(0).integers(0, 256, 200_000, np.uint8)
LIMIT = 4096


@contextlib.contextmanager
def full_disk(limit: int = LIMIT) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: the real write fails in the middle, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def trajectory(times: int) -> Any:
    found = fuzz_trace._trajectory()
    parts = {
        name: np.repeat(getattr(found, name), times, axis=0)
        for name in ("positions", "alive", "ages", "velocities")
    }
    return dataclasses.replace(found, times=np.arange(4.0 * times), **parts)


def optimization(rows: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "made").write_bytes(fuzz_acbo._optimizations(Path(folder))[0])
        return dataclasses.replace(read_state(path), rows=(Row((1.0, 2.0, 3.5), given=True),) * rows)


@functools.cache
def network(kind: str, width: int) -> Any:
    import jax.random as jr

    if kind == "policy":
        from acbo.policy.policy_network import PolicyConfig, PolicyNetwork

        return PolicyNetwork(PolicyConfig(width=width, layers=1, surrogate_layers=1), key=jr.key(0))
    from acbo.surrogate.layers import NetworkConfig
    from acbo.surrogate.network import Network

    return Network(NetworkConfig(width=width, pair_width=width, layers=1, heads=2), key=jr.key(0))


def tasks(count: int) -> TaskSet:
    return TaskSet.of([parse_task(fuzz_arc._task(k), task_id=f"t{k}") for k in range(count)])


# Writers of a file: the name it gets, and how something of this size (1 is small, 2 is beyond the limit) is written.
WRITERS: dict[str, tuple[str, Callable[[Path, int], Any]]] = {
    "state": ("a.jxw", lambda path, size: save_state(path, {"x": NOISE[: 100_000 * (size - 1) + 100]})),
    "store": (
        "a.jxw",
        lambda path, size: CompressedStorage(path.parent).save(
            {"x": NOISE[: 100_000 * (size - 1) + 100]}, "a"
        ),
    ),
    "array": ("a.npy", lambda path, size: save_array(path, NOISE[: 100_000 * (size - 1) + 100])),
    "task file": ("a.arcbank", lambda path, size: write_task_file(tasks(3 + 200 * (size - 1)), path)),
    "episode": (
        "a.npz",
        lambda path, size: EpisodeArchive(path.parent, compression=False).save("a", fuzz_arc._episode()),
    ),
    "optimization": ("a.acbo", lambda path, size: write_state(path, optimization(1 + 300 * (size - 1)))),
    "trajectory npz": ("a.npz", lambda path, size: save_trajectory(trajectory(1 + 300 * (size - 1)), path)),
    "trajectory netcdf": ("a.nc", lambda path, size: save_trajectory(trajectory(1 + 300 * (size - 1)), path)),
    "trajectory vtp": ("a.vtp", lambda path, size: save_trajectory(trajectory(1 + 300 * (size - 1)), path)),
    "trajectory zarr": (
        "a.zarr",
        lambda path, size: save_trajectory(trajectory(1 + 300 * (size - 1)), path, compress=False),
    ),
    "surrogate": ("a.safetensors", lambda path, size: save_weights(path, network("surrogate", 8 * size))),
    "policy": ("a.safetensors", lambda path, size: save_policy(path, network("policy", 8 * size))),
    "baselines": (
        "a.json",
        lambda path, size: Baseline.load(path, key="m").record(
            "s", {f"n{k}": k for k in range(2 + 500 * (size - 1))}
        ),
    ),
}


def content(path: Path) -> Any:
    """The bytes of a file, or those of all files of a folder."""
    if path.is_file():
        return path.read_bytes()
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, name: str) -> None:
    file, write = WRITERS[name]
    path = tmp_path / "run" / file
    write(path, 2)  # whatever is imported or compiled for it is on disk before the disk is full
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    write(path, 1)
    before = content(path)
    limit = LIMIT if name not in ("episode", "trajectory netcdf", "surrogate", "policy") else len(before) // 2
    with full_disk(limit), pytest.raises((OSError, ValueError), match=r"a\."):
        write(path, 2)
    assert content(path) == before
    assert [one.name for one in path.parent.iterdir()] == [file], "nothing is left behind"
    write(path, 2)  # once there is room again
    assert content(path) != before or name == "episode"


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    """A file where the folder should be: no right of a superuser writes through it."""
    file, write = WRITERS[name]
    (tmp_path / "blocked").write_text("a file")
    with pytest.raises((OSError, ValueError), match="blocked"):
        write(tmp_path / "blocked" / file, 1)
    assert (tmp_path / "blocked").read_text() == "a file"


def saved_run(folder: Path, room: int | None = None) -> CheckpointFolder:
    run = CheckpointFolder(Checkpoint(folder, keep=2))
    start = ProgressOfRun(0, 8, 4, 1, ())
    run.save({"x": np.zeros(6)}, start, 0, [], {})
    run.save({"x": np.ones(6)}, start, 4, [{"seen": np.arange(4.0)}], {})
    if room is not None:
        with full_disk(room):
            run.save({"x": NOISE.astype(float)}, start, 8, [{"seen": np.arange(4.0)}], {})
    return run


def load_run(folder: Path) -> Any:
    run = CheckpointFolder(Checkpoint(folder))
    return run.load({"x": np.zeros(6)}, {}, {"seen": np.zeros(())})


def test_a_full_disk_stops_a_run_at_its_last_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"`checkpoint` must be a folder that can be written; .*run cannot .*free some space"
    ):
        saved_run(tmp_path / "run", room=LIMIT)
    carry, start, records = load_run(tmp_path / "run")
    assert (start.step, carry["x"].tolist(), len(records)) == (4, [1.0] * 6, 1)
    assert not list((tmp_path / "run").glob(".*"))


def test_checkpoints_into_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file")
    with pytest.raises(StoreError, match=r"`checkpoint` must be a folder that can be written; .*blocked"):
        saved_run(tmp_path / "blocked")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone records", "foreign"])
def test_a_corrupt_checkpoint_gives_way_to_the_one_before(tmp_path: Path, damage: str) -> None:
    saved_run(tmp_path)
    newest = tmp_path / "step-000000000004.jwstate"
    whole = newest.read_bytes()
    records = tmp_path / "records-000000000000-000000000004.jwstate"
    if damage == "gone records":
        records.unlink()
    else:
        flipped = bytearray(whole)
        flipped[-3] ^= 4
        newest.write_bytes(
            {"cut": whole[:-9], "flipped": bytes(flipped), "empty": b"", "foreign": b"PK\x03\x04 zip"}[damage]
        )
    with pytest.warns(ResumeWarning, match=r"step-000000000004.*going on from the checkpoint before it"):
        carry, start, _ = load_run(tmp_path)
    assert (start.step, carry["x"].tolist()) == (0, [0.0] * 6)
    oldest = tmp_path / "step-000000000000.jwstate"
    oldest.write_bytes(b"")
    with (
        pytest.warns(ResumeWarning),
        pytest.raises(StoreError, match=r"step-000000000000\.jwstate: the file is empty"),
    ):
        load_run(tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_one_bit_in_old_records_names_what_is_lost_and_the_way_on(tmp_path: Path, damage: str) -> None:
    """Every checkpoint stands on them, so that going back to an older one is in vain."""

    def step(x: Any, t: Any) -> tuple[Any, Any]:
        return x + 1, x

    saving = Checkpoint(tmp_path, every_seconds=0)
    run(step, jnp.zeros(3), 40, chunk=10, record_every=5, checkpoint=saving, progress=False)
    name = "records-000000000010-000000000020.jwstate"
    whole = (tmp_path / name).read_bytes()
    if damage == "flipped":
        (tmp_path / name).write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    else:
        (tmp_path / name).unlink()
    with pytest.raises(StoreError, match="the records of steps 11 to 20 are damaged") as caught:
        resume(step, jnp.zeros(3), tmp_path, progress=False)
    said = str(caught.value)
    assert "step-000000000040.jwstate and 3 of 4 files of records" in said
    assert f"a copy of {name}, put it back" in said
    assert f"`resume(step, like, '{tmp_path}', keep_records=False)` goes on from step 40" in said
    # What it says is so.
    on = resume(step, jnp.zeros(3), str(tmp_path), keep_records=False, length=50, progress=False)
    assert (on.step, on.carry.tolist()) == (50, [50.0] * 3)
    other = load_state(tmp_path / "records-000000000020-000000000030.jwstate", np.zeros((2, 3), np.float32))
    assert other[:, 0].tolist() == [24.0, 29.0]
    (tmp_path / name).write_bytes(whole)
    assert resume(step, jnp.zeros(3), tmp_path, progress=False).records.shape[0] == 10


def test_records_outside_of_the_folder_are_not_read(tmp_path: Path) -> None:
    run = saved_run(tmp_path / "run")
    outside = tmp_path / "records-000000000000-000000000004.jwstate"
    outside.write_bytes((tmp_path / "run" / outside.name).read_bytes())
    run.parts = (f"../{outside.name}",)
    run.save({"x": np.ones(6)}, ProgressOfRun(0, 8, 4, 1, ()), 8, [], {})
    with pytest.warns(ResumeWarning, match=r"step-000000000008.*holds an impossible progress"):
        assert load_run(tmp_path / "run")[1].step == 4


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{support!r}, {here!r}]
import xarray  # before the forks, each of which would import it
import test_failing_disks as disks
folder = Path({folder!r})
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
for name in {names!r}:
    file, write = disks.WRITERS[name]
    for moment in ("write", "sync", "rename"):
        path = folder / name.replace(" ", "_") / moment / file
        child = os.fork()
        if not child:
            write(path, 1)
            if moment == "sync": os.fsync = die
            if moment == "rename":
                import jaxworlds.store._folders
                os.replace = jaxworlds.store._folders.exchange = die
            if moment == "write":
                import resource
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel ends the process in the middle of a write
                resource.setrlimit(resource.RLIMIT_FSIZE, (max(path.stat().st_size // 2, 64),) * 2)
            write(path, 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(name, moment, os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.mark.own_process
def test_a_process_killed_while_it_saves_leaves_the_old_file(tmp_path: Path) -> None:
    names = ["state", "optimization", "trajectory npz", "trajectory zarr"]
    here = Path(__file__).resolve().parent
    script = KILLED.format(
        support=str(here.parents[2] / "support"), here=str(here), folder=str(tmp_path), names=names
    )
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
    )
    ends = [line.rsplit(" ", 2) for line in done.stdout.splitlines()]
    assert len(ends) == 3 * len(names), done.stderr[-2000:]
    deaths = (-signal.SIGKILL, -signal.SIGXFSZ)
    for name, moment, code in ends:
        assert int(code) in deaths, (name, moment, code)
        file, write = WRITERS[name]
        write(tmp_path / "fresh" / file, 1)
        found = content(tmp_path / name.replace(" ", "_") / moment / file)
        assert len(found) == len(content(tmp_path / "fresh" / file)), (name, moment)
    whole = load_trajectory(tmp_path / "trajectory_zarr" / "rename" / "a.zarr")
    np.testing.assert_array_equal(whole.positions, trajectory(1).positions)
    found = load_state(tmp_path / "state" / "write" / "a.jxw", {"x": NOISE[:100]})
    np.testing.assert_array_equal(found["x"], NOISE[:100])
