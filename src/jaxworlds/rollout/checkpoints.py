"""Checkpoints of a run: a folder of state files, each whole or absent, with the records they stand on."""

import dataclasses
import hashlib
import os
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._trees import is_key
from ..arguments import short
from ..store import DAMAGED, MisfitError, StoreError, content_hash, load_state, read_header, save_state
from ._host import join, most_urgent

_STATE = "step-*.jwstate"
_PART = re.compile(r"records-[0-9]{12,}-[0-9]{12,}\.jwstate")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often to save: at the start, at the first chunk's end after `every_seconds`, and at the end.

    `keep` older files stay, so that a damaged newest one does not cost the run. `overwrite=True` lets a new run
    start in a folder that holds an old one, which is removed.
    """

    folder: str | Path
    every_seconds: float = 30.0
    keep: int = 2
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike):
            raise TypeError(
                f"`folder` of a checkpoint must be a path; got {short(self.folder)}. Write `Checkpoint('runs/first')`."
            )
        if self.keep < 1:
            raise ValueError(f"`keep` must be at least 1; got {self.keep}. One file is needed to resume.")
        if self.every_seconds < 0:
            raise ValueError(
                f"`every_seconds` must not be negative; got {self.every_seconds}. 0 saves every chunk."
            )


@dataclasses.dataclass(frozen=True)
class ProgressOfRun:
    """Progress and chunk length of a run: what a checkpoint holds besides the carry."""

    step: int
    length: int
    chunk: int
    record_every: int | None
    parts: tuple[str, ...]

    @property
    def finished(self) -> bool:
        return self.step == self.length


class ResumeWarning(UserWarning):
    """The resumed run may not have the bits of the uninterrupted one."""


class CheckpointFolder:
    """The files of one run."""

    def __init__(self, options: Checkpoint | str | Path, devices: int = 1):
        self.options = options if isinstance(options, Checkpoint) else Checkpoint(options)
        self.folder = Path(self.options.folder).expanduser()
        self.devices = self.devices_saved = devices
        self.program: str | None = None
        self.program_saved: str | None = None
        self.parts: tuple[str, ...] = ()
        self.constants: dict[str, str | None] | None = None
        self.saved_at = time.monotonic()
        self.saved_step = 0
        self.added: Mapping[str, Any] = {}

    def begin(self) -> None:
        """Make room for a new run, which must not mix with an old one."""
        used = self._states()
        if used and not self.options.overwrite:
            raise StoreError(
                f"`checkpoint` must be a folder without a run; {self.folder} holds one at {used[0].stem}. "
                "Call `resume` to continue it, pass another folder, or `Checkpoint(folder, overwrite=True)`."
            )
        _meet("looked at the folder")
        if jax.process_index() == 0:
            for file in (*used, *self.folder.glob("records-*.jwstate")):
                file.unlink()

    def due(self) -> bool:
        """Whether the next save is due."""
        return time.monotonic() - self.saved_at >= self.options.every_seconds

    def note_program(self, text: str) -> None:
        """Remember the program; warn if it or the number of devices differs from the checkpoint."""
        self.program = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        changes = []
        if self.devices_saved != self.devices:
            changes.append(
                f"{self.folder} was written on {self.devices_saved} device(s) and goes on with {self.devices}: "
                "floating-point worlds may differ in the last bit from an uninterrupted run."
            )
        if self.program_saved not in (None, self.program):
            changes.append(
                f"the program of this run differs from the one that wrote {self.folder} (another `step` or jax version): "
                "the result may differ from that of an uninterrupted run."
            )
        for text in changes:
            warnings.warn(text, ResumeWarning, stacklevel=4)

    def save(self, carry: Any, start: ProgressOfRun, step: int, unsaved: list[Any], constants: Any) -> None:
        """Write the records since the last checkpoint, then the state that names them: whole or not at all."""
        if jax.process_index() == 0:
            try:
                self._write(carry, start, step, unsaved, constants)
            except OSError as error:
                raise StoreError(
                    f"`checkpoint` must be a folder that can be written; {self.folder} cannot ({error}). "
                    "What was saved before is untouched: free some space and `resume`, or pass another folder."
                ) from error
        _meet("saved")
        self.saved_at, self.saved_step = time.monotonic(), step

    def _write(self, carry: Any, start: ProgressOfRun, step: int, unsaved: list[Any], constants: Any) -> None:
        if unsaved:
            # Named by both ends: a part of another run into this folder must not pass for ours.
            part = f"records-{self.saved_step:012d}-{step:012d}.jwstate"
            save_state(self.folder / part, join(unsaved))
            self.parts = (*self.parts, part)
        meta = {
            **dataclasses.asdict(dataclasses.replace(start, step=step, parts=self.parts)),
            "constants": self._hashes(constants),
            "program": self.program or self.program_saved,
            "devices": self.devices,
        }
        mine = self.folder / f"step-{step:012d}.jwstate"
        save_state(mine, carry, meta=meta)
        # Files of later steps are damaged ones that this run went back behind; they must not crowd out whole ones.
        states = self._states()
        older = [state for state in states if state.name <= mine.name]
        for file in (*older[self.options.keep :], *(state for state in states if state.name > mine.name)):
            file.unlink()

    def load(self, like: Any, constants: Any, record: Any) -> tuple[Any, ProgressOfRun, list[Any]]:
        """The newest state that is whole, with the records that belong to it.

        `record` is the shape of one step's record; `None` leaves the records on disk.
        """
        if jax.process_index() == 0:
            for pattern in (".step-*.tmp", ".records-*.tmp"):
                for leftover in self.folder.glob(pattern):
                    leftover.unlink(missing_ok=True)
        _meet("swept the folder")
        states = self._states()
        if not states:
            raise StoreError(
                f"`checkpoint` must hold a run; {self.folder} has no step-*.jwstate file. Call `run` first."
            )
        troubles: list[_Damaged] = []
        for file in states:
            try:
                found = self._load_one(file, like, constants, record)
            except _Damaged as error:
                troubles.append(error)
                continue
            _warn_of(troubles)
            return found
        last = troubles[-1]
        rescue = self._rescue(states, like, record)
        if rescue is not None and all(_PART.search(str(trouble)) for trouble in troubles):
            raise StoreError(rescue) from last
        _warn_of(troubles[:-1])
        raise StoreError(f"{last} {rescue or ''}".strip()) from last

    def _rescue(self, states: list[Path], like: Any, record: Any) -> str | None:
        """Message if the state is whole but old records are damaged: what is lost, and what to do."""
        if record is None:
            return None
        for file in states:
            try:
                load_state(file, like, added=self.added)
                meta = read_header(file).meta
                parts = [str(part) for part in meta["parts"]]
            except (StoreError, OSError, KeyError, TypeError):
                continue
            lost = {
                part: why for part in parts if (why := _trouble_with(self.folder / part, record, self.added))
            }
            if not lost:
                continue
            numbers = [[int(number) for number in re.findall(r"[0-9]{12,}", part)] for part in lost]
            spans = ", ".join(f"steps {before + 1} to {last}" for before, last in numbers)
            return (
                f"{self.folder}: the records of {spans} are damaged ({next(iter(lost.values()))}). Everything else is whole: "
                f"{file.name} and {len(parts) - len(lost)} of {len(parts)} files of records. If you have a copy of "
                f"{', '.join(lost)}, put it back and go on as before. Without one the run itself is not lost: in Python "
                f"`resume(step, like, {str(self.folder)!r}, keep_records=False)` goes on from step {meta['step']} and leaves old "
                "records on disk, where `jaxworlds.load_state(file, like)` reads each file that is whole. Or begin again in "
                "another folder."
            )
        return None

    def _load_one(
        self, file: Path, like: Any, constants: Any, record: Any
    ) -> tuple[Any, ProgressOfRun, list[Any]]:
        try:
            meta = read_header(file).meta
        except StoreError as error:
            raise _Damaged(str(error)) from error
        names = [f.name for f in dataclasses.fields(ProgressOfRun) if f.name != "parts"]
        if not isinstance(meta, dict) or any(name not in meta for name in (*names, "parts", "constants")):
            raise StoreError(f"{file} is a state but not a checkpoint of a run. Load it with `load_state`.")
        _check_meta(file, meta)
        for name, digest in self._hashes(constants).items():
            if meta["constants"].get(name) != digest:
                raise MisfitError(
                    f"`{name}` must be what the checkpointed run had; its content differs from that in {file}. "
                    f"Pass the same `{name}` to `resume`, or start a new run."
                )
        numbers: dict[str, Any] = {n: meta[n] if meta[n] is None else int(meta[n]) for n in names}
        start = ProgressOfRun(**numbers, parts=tuple(meta["parts"]))
        records: list[Any] = []
        try:
            carry = load_state(file, like, added=self.added)
            if record is not None:
                records = [_load_records(self.folder / part, record, self.added) for part in start.parts]
        except MisfitError:
            raise  # a whole file that does not fit `like` or `step` fits none better if it is older
        except (StoreError, OSError) as error:
            raise _Damaged(f"{file} or its records cannot be read: {error}") from error
        rows = sum(len(jax.tree.leaves(part)[0]) for part in records if jax.tree.leaves(part))
        due = start.step // (start.record_every or 1)
        if start.record_every is not None and jax.tree.leaves(record) and rows != due:
            raise _Damaged(f"the records of {file} hold {rows} steps where {due} are due")
        self.parts, self.program_saved, self.saved_step = start.parts, meta.get("program"), start.step
        self.devices_saved = meta.get("devices")
        return carry, start, records

    def _hashes(self, constants: dict[str, Any]) -> dict[str, str | None]:
        """Hashes of a run's constants, computed once: a bank may be large and checkpoints frequent."""
        if self.constants is None:
            hashes = ((k, content_hash(v) if jax.tree.leaves(v) else None) for k, v in constants.items())
            self.constants = dict(hashes)
        return self.constants

    def _states(self) -> list[Path]:
        return sorted(self.folder.glob(_STATE), reverse=True)


def holds_run(checkpoint: Checkpoint | str | Path) -> bool:
    """Whether a folder holds a run to resume. Several processes ask together and get one answer."""
    return bool(most_urgent(int(bool(CheckpointFolder(checkpoint)._states()))))


def _meet(what: str) -> None:
    """Wait for the other processes of this run: one writes, all read."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"jaxworlds checkpoint: {what}")


def _check_meta(file: Path, meta: dict[str, Any]) -> None:
    """Raise for values that no run writes, and for names of records outside the folder."""
    stride = 1 if meta["record_every"] is None else meta["record_every"]
    counts = (meta["step"], meta["length"], meta["chunk"], stride)
    kinds = (int, np.integer)  # NumPy's were written where a run was given them
    whole = all(isinstance(n, kinds) and type(n) is not bool and 0 <= n < 1 << 62 for n in counts)
    parts = meta["parts"] if isinstance(meta["parts"], list | tuple) else [None]
    named = all(isinstance(part, str) and _PART.fullmatch(part) for part in parts)
    possible = whole and stride >= 1 and meta["step"] <= meta["length"]
    if not (possible and named and isinstance(meta["constants"], dict)):
        shown = f"step {str(meta['step'])[:40]}, {str(parts)[:80]}"
        raise _Damaged(f"{file} holds an impossible progress: {shown}")


def _warn_of(troubles: list["_Damaged"]) -> None:
    """Warn why newer checkpoints were skipped."""
    for trouble in troubles:
        text = f"{str(trouble).removesuffix('.')}; going on from the checkpoint before it."
        warnings.warn(text, ResumeWarning, stacklevel=4)


def _trouble_with(file: Path, record: Any, added: Mapping[str, Any]) -> str | None:
    """The fault of a file of records, or None."""
    try:
        _load_records(file, record, added)
    except (StoreError, OSError) as error:
        return str(error).replace(f" {DAMAGED}", "").removesuffix(".")
    return None


class _Damaged(Exception):
    """This file is damaged; an older one may be whole."""


def _load_records(file: Path, record: Any, added: Mapping[str, Any]) -> Any:
    """One part of the records, checked against the shape of one step's record; `added` holds values for one step."""
    rows = {leaf.shape[0] for leaf in read_header(file).leaves if leaf.shape}

    def like(leaf: Any) -> Any:
        shape = (*rows, *leaf.shape)
        if is_key(leaf):
            return jax.ShapeDtypeStruct(shape, leaf.dtype)
        return np.broadcast_to(np.zeros((), leaf.dtype), shape)

    try:
        wanted = jax.tree.map(like, record)
    except ValueError as error:
        raise StoreError(
            f"{file}: declares {str(rows)[:80]} records, which no array holds ({error})."
        ) from error
    more = {path: np.broadcast_to(value, (*rows, *np.shape(value))) for path, value in added.items()}
    return load_state(file, wanted, added=more)
