"""ARC tasks: read from JSON, packed into one bank on the device, augmented there, or mapped from a file."""

import importlib
from typing import TYPE_CHECKING, Any

from .. import _version as _version  # an error with a remedy where another distribution changed this package
from .augment import KEEP_SHAPE as KEEP_SHAPE
from .augment import SYMMETRIES as SYMMETRIES
from .augment import Augmentation as Augmentation
from .augment import augment_bank as augment_bank
from .augment import augment_grid as augment_grid
from .augment import augment_task as augment_task
from .augment import inverse as inverse
from .augment import random_augmentation as random_augmentation
from .augment import random_augmentations as random_augmentations
from .bank import JaxArcTask as JaxArcTask
from .bank import TaskBank as TaskBank
from .bank import as_bank as as_bank
from .datasets import create_jax_task_from_data as create_jax_task_from_data
from .datasets import extract_task_id_from_index as extract_task_id_from_index
from .datasets import load as load
from .datasets import load_1d as load_1d
from .datasets import load_concept as load_concept
from .datasets import load_folder as load_folder
from .datasets import load_mini as load_mini
from .datasets import set_default_tasks as set_default_tasks
from .parser import RawTask as RawTask
from .parser import TaskError as TaskError
from .parser import parse_file as parse_file
from .parser import parse_task as parse_task
from .taskset import TaskSet as TaskSet
from .taskset import concatenate as concatenate

if TYPE_CHECKING:
    from .mapped import MappedTasks as MappedTasks
    from .mapped import open_task_file as open_task_file
    from .mapped import write_task_file as write_task_file

# `mapped` is also run as a command, and Python warns when a package has imported the module it is asked to run.
_MAPPED = ("MappedTasks", "open_task_file", "write_task_file")


def __getattr__(name: str) -> Any:
    if name not in _MAPPED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.mapped"), name)
