"""States, tasks, observations, actions and configs as `jax.export` writes them: registered when the environment is imported."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import jax
from jax import export

from ..tasks.bank import Grid, JaxArcTask, TaskBank
from .adapter import config_from_dict, config_to_dict
from .config import JaxArcConfig
from .episodes import Played
from .history import ActionHistory
from .observations import ArcObservation, Demonstrations
from .state import ArcEnvState
from .structured_actions import BboxAction, MaskAction, PointAction
from .vmap_guard import VmapGuard

CLASSES = (
    *(ActionHistory, ArcEnvState, ArcObservation, Demonstrations, Played),
    *(TaskBank, JaxArcTask, Grid, PointAction, BboxAction, MaskAction),
)
"""The classes of this package among the arguments and results of a reset, a step or a rollout."""


def register() -> None:
    """Register the arguments and results of a reset, a step or a rollout with `jax.export`."""
    known: dict[type, tuple[Callable[[Any], bytes], Callable[[Any], Any]]] = {
        **{kind: _facts_of(kind) for kind in CLASSES},
        VmapGuard: (lambda _: b"", lambda _: None),
        JaxArcConfig: (
            lambda config: json.dumps(config_to_dict(config)).encode(),
            lambda data: config_from_dict(json.loads(data)),
        ),
    }
    for kind, (write, read) in known.items():
        export.register_pytree_node_serialization(
            kind, serialized_name=f"jaxarc.{kind.__name__}", serialize_auxdata=write, deserialize_auxdata=read
        )


def _facts_of(kind: type) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """Two functions that write and read the static fields of a module."""
    fields = [field for field in dataclasses.fields(kind) if field.init]
    names = [field.name for field in fields if field.metadata.get("static", False)]

    def write(aux: Any) -> bytes:
        return json.dumps(list(aux[len(aux) - len(names) :])).encode()  # equinox keeps them last

    def read(data: bytes | bytearray) -> Any:
        values = dict(zip(names, json.loads(data), strict=True))
        bare = object.__new__(kind)
        for field in dataclasses.fields(kind):
            object.__setattr__(bare, field.name, values.get(field.name))
        return jax.tree.structure(bare).node_data()[1]  # pyright: ignore[reportOptionalSubscript]

    return write, read
