"""Weights in safetensors: named arrays with settings and metadata, readable anywhere."""

import dataclasses
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from jaxworlds.store import atomic_write

from .layers import NetworkConfig
from .network import Calibration, Network, Surrogate

FORMAT = "acbo-surrogate-1"


def require_safetensors() -> Any:
    """The package that reads and writes weights, or an error that says how to install it."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("Weights need safetensors: pip install 'jaxworlds[causal]'.") from error
    return safetensors.numpy


def named_arrays(surrogate: Any) -> dict[str, Any]:
    """The arrays of a surrogate by their path, such as `network.layers.rows.project.weight`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(surrogate)
    return {".".join(str(part.name) for part in path): leaf for path, leaf in leaves}


def save_weights(
    path: str | Path, surrogate: Surrogate | Network, metadata: Mapping[str, Any] | None = None
) -> Path:
    """Write a surrogate to one file, whole or not at all; `metadata` (texts and numbers) says how it was made."""
    surrogate = Surrogate(surrogate) if isinstance(surrogate, Network) else surrogate
    return write_arrays(path, surrogate, FORMAT, surrogate.network.config, metadata)


def write_arrays(
    path: str | Path, module: Any, format: str, config: Any, metadata: Mapping[str, Any] | None
) -> Path:
    """Write the arrays of a module, its settings and its story to one file, whole or not at all."""
    settings = {name: getattr(config, name) for name in config.__dataclass_fields__}
    header = {
        "format": format,
        "config": json.dumps(settings, default=_plain),
        "metadata": json.dumps(dict(metadata or {}), default=_plain),
    }
    named = named_arrays(eqx.filter(module, eqx.is_array))
    path, arrays = Path(path), {name: np.array(leaf, order="C") for name, leaf in named.items()}
    data = require_safetensors().save(arrays, header)
    with atomic_write(path) as file:
        file.write(data)
    return path


def _plain(value: Any) -> Any:
    """A number of NumPy or JAX as one of Python's."""
    if isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0:
        return value.item()
    raise TypeError(f"`metadata` must hold texts and numbers; got {str(value)[:60]}. Convert it first.")


def load_weights(path: str | Path, precision: str | None = None) -> Surrogate:
    """The surrogate in a file of `save_weights`; `precision` is that of its arithmetic, by default as it was trained."""
    header = read_metadata(path)
    config = config_of(path, NetworkConfig, header, **({} if precision is None else {"precision": precision}))
    # The most variables of the models that a recipe trained on, where the story in the file says so.
    match header["metadata"]:
        case {"options": {"size": int(most)}} if most > 0 and not isinstance(most, bool):
            pass
        case _:
            most = None
    like = eqx.filter_eval_shape(lambda: Surrogate(Network(config, key=jr.key(0)), Calibration(), most))
    return read_arrays(path, like)


def read_arrays(path: str | Path, like: Any) -> Any:
    """A module such as `like`, with the arrays of a file."""
    tools = require_safetensors()
    from safetensors import SafetensorError

    try:
        found = tools.load_file(str(path))
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors: {str(error)[:200]}. Restore it from a copy."
        ) from error
    wanted = named_arrays(like)
    if set(found) != set(wanted):
        missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise ValueError(
            f"{path} does not fit its settings: missing {_short_listing(missing)}, unknown {_short_listing(extra)}. "
            "It was written by another version; train again, or use that version."
        )
    for name, leaf in wanted.items():
        if found[name].shape != leaf.shape:
            raise ValueError(f"{path}: `{name}` must have shape {leaf.shape}; got {found[name].shape}.")
    leaves = [jax.numpy.asarray(found[name], leaf.dtype) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _short_listing(names: list[str]) -> str:
    return (
        ", ".join(name[:60] for name in names[:4]) + (", …" if len(names) > 4 else "") if names else "nothing"
    )


def config_of(path: str | Path, kind: Any, told: Mapping[str, Any], **changed: Any) -> Any:
    """The settings that a file of weights names, refused where its arrays cannot be as many as they ask for."""
    config = told["config"]
    try:
        if not isinstance(config, dict) or any(
            isinstance(n, int) and abs(n) > _LARGEST for n in config.values()
        ):
            raise ValueError(f"they are {str(config)[:120]}")
        for field in dataclasses.fields(kind):
            value, usual = config.get(field.name, field.default), type(field.default)
            if type(value) is not usual and (usual, type(value)) != (float, int):
                raise ValueError(f"`{field.name}` is {str(value)[:60]}")
        for name in ("layers", "surrogate_layers"):
            # Every layer has arrays of its own; to lay out more of them than there are would take for ever.
            if name in config and config[name] > told["arrays"]:
                raise ValueError(f"`{name}` is {config[name]}, and the file holds {told['arrays']} arrays")
        return kind(**config | changed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} must hold the settings of its network; {str(error)[:300]}") from error


_LARGEST = 1 << 20


def read_metadata(path: str | Path, format: str = FORMAT) -> dict[str, Any]:
    """The `format`, `config` and `metadata` of a file of weights, without its arrays."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be an existing file of weights; got {path}.")
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        try:
            whole = json.loads(file.read(min(size, 1 << 24)))
            header = whole["__metadata__"]
            if header.get("format") != format:
                raise ValueError(f"its format is {str(header.get('format'))[:60]!r}, not {format}")
            return {
                "format": header["format"],
                "config": json.loads(header["config"]),
                "metadata": json.loads(header["metadata"]),
                "arrays": len(whole) - 1,
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"{path} must hold weights of the format {format}; its header cannot be used: {reason[:200]}."
            ) from error


def pretrained(name: str = "default", precision: str | None = None) -> Surrogate:
    """A trained surrogate that comes with the package.

    It was trained in bfloat16, which CPUs emulate: there `precision="float32"` is faster, by about a third.
    `read_metadata(pretrained_path(name))` tells the command, the seed and the versions that made it.
    """
    return load_weights(pretrained_path(name), precision)


def pretrained_path(name: str = "default") -> Path:
    """Path of the pretrained weights of this name."""
    return packaged_file("surrogate", "weights", name)


def packaged_file(part: str, kind: str, name: str) -> Path:
    """Path of pretrained weights in a folder of this package; messages call them `kind`."""
    folder = Path(str(resources.files("acbo") / part / "pretrained"))
    path = folder / f"{name}.safetensors"
    if not path.is_file():
        there = ", ".join(sorted(file.stem for file in folder.glob("*.safetensors"))) or "none"
        raise ValueError(f"`name` must be one of the {kind} in the package ({there}); got {name!r}.")
    return path
