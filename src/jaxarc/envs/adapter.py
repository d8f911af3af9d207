"""Settings from dictionaries, YAML files and Hydra, and back: each key by its path, none of them ignored."""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._settings import build, hint_of, hints_of, plain
from .config import JaxArcConfig

CONF = Path(__file__).resolve().parent.parent / "conf"
"""The folder of the settings that come with the package, which Hydra knows as `pkg://jaxarc.conf`."""
_NEED = "YAML settings need omegaconf."


def config_from_dict(mapping: Mapping[str, Any]) -> JaxArcConfig:
    """The config that nested mappings describe, by group and key; what is left out keeps its default.

    Unknown keys and values of a wrong type are refused by their path. `reward.extra` lists functions of your own by
    name: `[{"term": "my_package.rewards.tidy", "weight": 0.5}]`. A `visualization` group that describes `debug`, as the
    guide's file does, and not `enabled`, is enabled unless its level is "off".

    >>> config_from_dict({"environment": {"max_episode_steps": 50}}).environment.max_episode_steps
    50
    """
    return build(JaxArcConfig, mapping, "")


def config_to_dict(config: JaxArcConfig) -> dict[str, Any]:
    """All settings as dictionaries, lists and plain values, which YAML and JSON can hold; undone by `config_from_dict`."""
    return plain(config, "")


def config_from_hydra(cfg: Any) -> JaxArcConfig:
    """The config that Hydra composed (an `omegaconf.DictConfig`), interpolations resolved.

    ```python
    with hydra.initialize_config_module("jaxarc.conf", version_base="1.3"):
        config = config_from_hydra(hydra.compose("config", ["visualization=debug_standard"]))
    ```

    In a larger application, pass the part that describes the environment.
    """
    omegaconf = _import("omegaconf", _NEED)
    if not isinstance(cfg, omegaconf.DictConfig):
        raise TypeError(
            f"`cfg` must be an omegaconf.DictConfig; got {type(cfg).__name__}. "
            "Mappings of Python go to `config_from_dict`."
        )
    return config_from_dict(omegaconf.OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True))


def config_from_yaml(
    path: str | Path | None = None, name: str | None = None, overrides: Sequence[str] = ()
) -> JaxArcConfig:
    """The config of a YAML file, or of the file `name` (by default "config") in a folder; without a path, of our own.

    A file in a folder named as a group, such as `conf/visualization/debug_standard.yaml`, describes that group. A file
    with a `defaults` list is composed by Hydra, and then `overrides` may choose files too.

    ```python
    config = config_from_yaml(overrides=["visualization=debug_standard", "environment.max_episode_steps=50"])
    ```
    """
    file = _file(CONF if path is None else Path(path), name)
    if isinstance(overrides, str):
        raise TypeError(
            f"`overrides` must be a list such as ['environment.max_episode_steps=50']; got {overrides!r}."
        )
    for override in overrides:
        _demand_override(override)
    omegaconf = _import("omegaconf", _NEED)
    content = _content(omegaconf, file)
    if not isinstance(content, omegaconf.DictConfig):
        raise TypeError(f"{file}: must hold a mapping of settings; got a {type(content).__name__}.")
    try:
        if "defaults" in content:
            return config_from_hydra(_compose(file, overrides))
        if file.parent.name in hints_of(JaxArcConfig) and not set(content) & set(hints_of(JaxArcConfig)):
            content = omegaconf.OmegaConf.create({file.parent.name: content})
        chosen = omegaconf.OmegaConf.from_dotlist(list(overrides))
        return config_from_hydra(omegaconf.OmegaConf.merge(content, chosen))
    except (TypeError, ValueError, RecursionError, omegaconf.errors.OmegaConfBaseException) as error:
        # One line of an omegaconf error is enough: the others name omegaconf's own classes.
        kind = type(error) if type(error) in (TypeError, ValueError) else ValueError
        raise kind(f"{file}: {(str(error).splitlines() or [''])[0][:600]}") from error


_MOST_SETTINGS = 100_000


def _content(omegaconf: Any, file: Path) -> Any:
    """What a YAML file holds, refused where aliases would make it larger than any settings are."""
    import yaml

    try:
        text = file.read_text(encoding="utf-8")
        if _size(yaml.compose(text, yaml.SafeLoader), {}) > _MOST_SETTINGS:
            raise ValueError(f"it holds more than {_MOST_SETTINGS:,} values")
        return omegaconf.OmegaConf.load(file)
    except (
        yaml.YAMLError,
        ValueError,
        OSError,
        RecursionError,
        omegaconf.errors.OmegaConfBaseException,
    ) as error:
        told = " ".join(str(error).split())[:300]
        raise ValueError(f"{file}: must be YAML in UTF-8; {told}.") from error


def _size(node: Any, known: dict[int, int]) -> int:
    """Values under a node, those behind an alias counted each time they are named; an alias of itself has no end."""
    if id(node) not in known:
        known[id(node)] = _MOST_SETTINGS + 1  # until it is counted: who meets it now is inside of it
        inner = node.value if isinstance(getattr(node, "value", None), list) else []
        parts = [part for item in inner for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def _file(path: Path, name: str | None) -> Path:
    if name is None and path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"`path` must be a YAML file, or a folder if `name` is given; got {str(path)!r}."
        )
    file = path / f"{(name or 'config').removesuffix('.yaml')}.yaml"
    if not file.is_file():
        there = sorted(str(found.relative_to(path).with_suffix("")) for found in path.rglob("*.yaml"))
        raise FileNotFoundError(
            f"`name` must be a file of {path}: {', '.join(there) or 'it has none'}; got {name!r}."
        )
    return file


def _compose(file: Path, overrides: Sequence[str]) -> Any:
    hydra = _import("hydra", f"{file} has a `defaults` list, which Hydra composes.")
    with hydra.initialize_config_dir(str(file.parent.resolve()), version_base="1.3"):
        return hydra.compose(file.stem, list(overrides))


def _import(name: str, need: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{need} Run `pip install 'jaxworlds[arc]'`.") from error


def _demand_override(text: str) -> None:
    """Raise unless `text` is an assignment to a setting that exists; what chooses files is left to Hydra."""
    path, equals, _ = text.lstrip("+~").partition("=")
    if not equals and not text.startswith("~"):
        raise ValueError(
            f"`overrides` must hold assignments such as 'environment.max_episode_steps=50'; got {text!r}."
        )
    if "." not in path:
        return
    kind: Any = JaxArcConfig
    keys = path.split(".")
    for depth, key in enumerate(keys):
        if not dataclasses.is_dataclass(kind):
            return  # inside a value, such as an item of a list
        kind = hint_of(kind, key, ".".join(keys[:depth]))
