"""Settings as nested mappings: read with their paths and types, looked up by path, and written back."""

import dataclasses
import difflib
import importlib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from .config import DEBUG_LEVELS, JaxArcConfig, RewardConfig, UnifiedActionConfig, VisualizationConfig


def build(kind: Any, value: Any, path: str) -> Any:
    """An object of a config class from a mapping; nothing at all, as an empty YAML file gives, means the defaults."""
    if isinstance(value, kind):
        return value
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`{path or 'mapping'}` must be a mapping with keys of {', '.join(hints_of(kind))}; got {_describe(value)}."
        )
    given = {key: _read(kind, key, part, path) for key, part in value.items()}
    if kind is VisualizationConfig and "debug" in given:
        given.setdefault("enabled", given["debug"].level != DEBUG_LEVELS[0])
    try:
        return kind(**given)
    except ValueError as error:
        raise ValueError(f"In `{path}`: {error}" if path else str(error)) from error


def _read(kind: Any, key: Any, value: Any, path: str) -> Any:
    hint, place = hint_of(kind, key, path), _join(path, key)
    if value is False and key in ("level", "debug_level"):
        value = "off"  # YAML 1.1 reads an unquoted off as false
    if dataclasses.is_dataclass(hint):
        return build(hint, value, place)
    if (kind, key) == (RewardConfig, "extra"):
        return _terms(value, place)
    if (kind, key) == (UnifiedActionConfig, "extra_operations"):
        if not isinstance(value, list | tuple):
            raise TypeError(f"`{place}` must be a list of functions' names; got {_describe(value)}.")
        return tuple(_function(name, f"{place}[{row}]") for row, name in enumerate(value))
    if not _fits(hint, value):
        demands = list(_type_words(hint))
        near = difflib.get_close_matches(repr(value), demands, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise TypeError(f"`{place}` must be {', or '.join(demands)}; got {_describe(value)}.{meant}")
    return tuple(value) if isinstance(value, list) else value


def _fits(hint: Any, value: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(one, value) for one in inner)
    if origin is typing.Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(inner[0], item) for item in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def _type_words(hint: Any) -> Iterator[str]:
    """Readable names of a type, one for each alternative."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        yield from (name for one in inner for name in _type_words(one))
    elif origin is typing.Literal:
        yield from map(repr, inner)
    elif origin is tuple:
        yield f"a list with each item {' or '.join(_type_words(inner[0]))}"
    else:
        yield {int: "an integer", float: "a number", bool: "true or false", str: "a text"}.get(hint, "null")


def _terms(value: Any, path: str) -> tuple[tuple[Any, float], ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"`{path}` must be a list of {{term: …, weight: …}}; got {_describe(value)}.")
    terms = []
    for row, item in enumerate(value):
        place = f"{path}[{row}]"
        if not isinstance(item, Mapping) or set(item) != {"term", "weight"}:
            raise TypeError(
                f"`{place}` must have the keys term and weight, and no other; got {_describe(item)}."
            )
        if not _fits(float, item["weight"]):
            raise TypeError(f"`{place}.weight` must be a number; got {_describe(item['weight'])}.")
        terms.append((_function(item["term"], f"{place}.term"), float(item["weight"])))
    return tuple(terms)


def _function(name: Any, path: str) -> Any:
    """The function of a dotted name; a function stands for itself."""
    if callable(name):
        return name
    module, _, attribute = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if not module:
        raise TypeError(
            f"`{path}` must be a function's name, such as my_package.rewards.tidy; got {_describe(name)}."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"`{path}` must be a function that can be imported; got {name!r}: {error}."
        ) from error
    if not callable(found):
        raise TypeError(f"`{path}` must name a function; {name} is {_describe(found)}.")
    return found


def hints_of(kind: Any) -> dict[str, Any]:
    """The settings of a config class, with their types."""
    return typing.get_type_hints(kind)


def hint_of(kind: Any, key: Any, path: str) -> Any:
    """The type of a setting; an unknown one is refused, with the setting that was probably meant."""
    hints = hints_of(kind)
    if key in hints:
        return hints[key]
    elsewhere = [full for full in setting_paths(JaxArcConfig, "") if full.rpartition(".")[2] == key]
    near = [_join(path, one) for one in difflib.get_close_matches(str(key), hints, n=1)] or elsewhere[:1]
    meant = f" Did you mean `{near[0]}`?" if near else ""
    where = f"`{path}` has" if path else "The groups are"
    raise ValueError(f"`{_join(path, key)}` is no setting. {where} {', '.join(hints)}.{meant}")


def setting_paths(kind: Any, path: str) -> Iterator[str]:
    """The paths of all settings and groups below `path`."""
    for key, hint in hints_of(kind).items():
        yield _join(path, key)
        if dataclasses.is_dataclass(hint):
            yield from setting_paths(hint, _join(path, key))


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _describe(value: Any) -> str:
    return "null" if value is None else f"{value!r} ({type(value).__name__})"


def plain(value: Any, path: str) -> Any:
    """A config as dictionaries and lists."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name), _join(path, name)) for name in names}
    if path == "reward.extra":
        return [{"term": _name(term, path), "weight": weight} for term, weight in value]
    if path == "action.extra_operations":
        return [_name(function, path) for function in value]
    return list(value) if isinstance(value, tuple) else value


def _name(function: Any, path: str) -> str:
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    try:
        if _function(name, path) is function:
            return name
    except (TypeError, ValueError):
        pass  # not to be found under that name: said below
    raise ValueError(
        f"`{path}` must hold functions that can be imported by name; got {function!r}. "
        "Define it at the top of a module."
    )
