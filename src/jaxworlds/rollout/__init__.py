"""Runs: many worlds, many steps, one compiled program per chunk, with progress, records, checkpoints and resume."""

from ._host import to_host as to_host
from ._results import Chunk as Chunk
from ._results import Outcome as Outcome
from ._results import Rollout as Rollout
from .checkpoints import Checkpoint as Checkpoint
from .checkpoints import CheckpointFolder as CheckpointFolder
from .checkpoints import ProgressOfRun as ProgressOfRun
from .checkpoints import ResumeWarning as ResumeWarning
from .checkpoints import holds_run as holds_run
from .driver import resume as resume
from .driver import run as run
