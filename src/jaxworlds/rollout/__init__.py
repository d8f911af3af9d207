"""Runs: many worlds, many steps, one compiled program per chunk, with progress, records, checkpoints and resume."""

from ._host import to_host as to_host
from .checkpoints import Checkpoint as Checkpoint
from .checkpoints import CheckpointFolder as CheckpointFolder
from .checkpoints import ProgressOfRun as ProgressOfRun
from .checkpoints import ResumeWarning as ResumeWarning
from .checkpoints import holds_run as holds_run
from .driver import Chunk as Chunk
from .driver import Outcome as Outcome
from .driver import Rollout as Rollout
from .driver import resume as resume
from .driver import run as run
