"""Attributes of variables under the names of the CF conventions, however a file spells them.

One rule for files, Zarr stores and xarray data sets:

- The names `units`, `standard_name`, `positive`, `axis`, `calendar` and `coordinates` are found in any case and with any
  punctuation, `unit` for `units` too.
- Any other name with the word unit in it (`time_units`, `UnitsOfMeasure`) counts if its value is a known unit.
- Attributes that contradict each other are refused where the variable is used.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from .units import known_calendar, parse_speed, parse_unit, split_units, time_unit

_SPELLINGS = {
    "units": ("units", "unit", "udunits"),
    "standard_name": ("standardname", "cfstandardname", "stdname"),
    "positive": ("positive",),
    "axis": ("axis", "cartesianaxis"),
    "calendar": ("calendar", "calendartype", "calender"),
    "coordinates": ("coordinates",),
}
_UNDECODED = ("scale_factor", "add_offset", "_FillValue", "missing_value")
_FILL = ("fillvalue", "missingvalue", "nodata", "nodatavalue")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def tidy_data(
    data: Any, given: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> tuple[Any, dict[str, str]]:
    """A data set with attributes under their CF names, and the reason why some of its variables cannot be used, by name.

    Attributes that are `given` for a variable replace its own.
    """
    variables, refused = {}, {}
    for key, variable in data.variables.items():
        name = str(key)
        try:
            if given.get(name):
                variable = _replace_attributes(variable, given[name])
            found = _decode(name, variable)
            # With the unit and calendar by which xarray made dates of its numbers.
            used = getattr(found, "encoding", {}) if found.dtype.kind in "MmO" else {}
            used = {word: used[word] for word in ("units", "calendar") if isinstance(used.get(word), str)}
            attributes, reason = cf_attributes({**used, **found.attrs}, found.ndim, name)
        except (ValueError, TypeError) as error:
            refused[name], variables[name] = str(error)[:300], variable
            continue
        variables[name] = found = found.copy(deep=False)
        found.attrs = attributes
        if reason:
            refused[name] = reason
    return SimpleNamespace(variables=variables, attrs=dict(getattr(data, "attrs", {}))), refused


def _replace_attributes(variable: Any, given: Mapping[str, Any]) -> Any:
    """A variable whose own attributes are replaced, also those with another spelling of the same name."""
    kept = dict(variable.attrs)
    for name, value in given.items():
        if variable.dtype.kind in "MmO" and name in ("units", "calendar"):
            raise ValueError(
                f"its dates are made already, so that its {name} can no longer be given. Open the data set with "
                "`decode_times=False`"
            )
        alike = [spelling for names in _SPELLINGS.values() if _bare(name) in names for spelling in names]
        alike += _FILL if name in ("_FillValue", "missing_value") else ()
        kept = {one: old for one, old in kept.items() if _bare(one) not in alike} | {name: value}
    found = variable.copy(deep=False)
    found.attrs = kept
    return found


def _bare(name: Any) -> str:
    """A name of an attribute without case and punctuation."""
    return re.sub(r"[^a-z]", "", str(name).lower())


def cf_attributes(
    attributes: Mapping[Any, Any], dimensions: int, variable: str = "NAME"
) -> tuple[dict[str, Any], str]:
    """Attributes with the CF names added and texts cleaned; and how they contradict each other, or ""."""
    found = {str(name): _plain_text(value) for name, value in attributes.items()}
    for wanted in _SPELLINGS:
        if not isinstance(found.get(wanted, ""), str):
            # units = 1; nothing else is meant by numbers and lists
            number = _single(found.pop(wanted))
            if isinstance(number, int | float):
                found[wanted] = str(number)
    reasons = []
    for wanted, spellings in _SPELLINGS.items():
        texts = {name: value for name, value in found.items() if isinstance(value, str) and value}
        told = {name: value for name, value in texts.items() if _bare(name) in spellings}
        if wanted == "units" and not told:
            told = {name: value for name, value in texts.items() if _says_unit(name, value, dimensions)}
        if not told:
            continue
        meaning = known_calendar if wanted == "calendar" else _meaning
        if len({meaning(value) for value in told.values()}) > 1:
            listed = " and ".join(f"{name} = {value[:60]!r}" for name, value in told.items())
            reasons.append(
                f"its attributes {listed} contradict each other; say which counts: "
                f"`attributes={{{variable!r}: {{{wanted!r}: {next(iter(told.values()))[:60]!r}}}}}`"
            )
        chosen = told.get(wanted) or next(iter(told.values()))
        found[wanted] = chosen.lower() if wanted == "standard_name" else chosen
    return found, "; ".join(reasons)


def since_elsewhere(attributes: Mapping[str, Any]) -> tuple[str, str] | None:
    """The attribute of a time without units that says "days since 1950-01-01" or the like, if exactly one does."""
    found = {}
    for name, value in attributes.items():
        said = re.search(r"\b([A-Za-z]+\s+since\s+-?\d.*)$", value, re.I) if isinstance(value, str) else None
        if said is not None and time_unit(said[1].split()[0]) is not None:
            found[name] = re.sub(r"[()\[\]{}]", " ", said[1]).strip(" .")
    return next(iter(found.items())) if len(set(found.values())) == 1 else None


def date_elsewhere(attributes: Mapping[str, Any]) -> tuple[str, str] | None:
    """The attribute of a time in "days" that says "days since 1950-01-01" or the like in the same unit, and its date."""
    found = since_elsewhere({name: value for name, value in attributes.items() if name != "units"})
    unit = time_unit(str(attributes.get("units", "")))
    if found is None or unit is None:
        return None
    other, date = split_units(found[1])
    return (found[0], date) if time_unit(other) == unit else None


def origin_named(attributes: Mapping[str, Any]) -> str | None:
    """The attribute of a time that names the date it counts from, in a form that cannot be read reliably."""
    origin = re.compile(r"(time)?origin|epoch|(base|ref|reference)(date|time)")
    dated = (name for name, value in attributes.items() if re.search(r"\d", str(value)))
    return next((name for name in dated if origin.fullmatch(_bare(name))), None)


def fill_marks(attributes: Mapping[str, Any]) -> dict[str, float]:
    """Attributes that name a missing value, but not as `_FillValue` or `missing_value`, which are applied already."""
    found = {}
    for name, value in attributes.items():
        if name not in _UNDECODED and _bare(name) in _FILL:
            with suppress(TypeError, ValueError, OverflowError):
                found[name] = float(value)
    return {name: number for name, number in found.items() if np.isfinite(number)}


def numbers_checked(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes with scale and offset as single numbers, which xarray would check only when it multiplies with them."""
    checked = dict(attributes)
    for word in [word for word in ("scale_factor", "add_offset") if word in checked]:
        value = _single(checked[word])
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
            raise ValueError(f"{word!r} must be a finite number; it is {str(value)[:60]!r}")
        checked[word] = float(value)
    return checked


def _decode(name: str, variable: Any) -> Any:
    """A variable with scale, offset and fill value applied, if the data set was opened without applying them."""
    left = [word for word in _UNDECODED if word in variable.attrs]
    if not left or not np.issubdtype(variable.dtype, np.number):
        return variable
    packed = [word for word in left if word in ("scale_factor", "add_offset")]
    if packed and np.issubdtype(variable.dtype, np.floating):
        raise ValueError(
            f"it has `{packed[0]}` among its attributes and floating-point values, so that it may be applied or not. Open the "
            "file with `mask_and_scale=True`, or drop the attribute"
        )
    for word in left:
        marks = np.asarray(variable.attrs[word])
        if marks.dtype.kind not in "iuf" or marks.size != 1:
            raise ValueError(f"`{word}` must be one number; it is {str(variable.attrs[word])[:60]!r}")
    from xarray.conventions import decode_cf_variable

    found = variable.copy(deep=False)
    found.attrs = numbers_checked(variable.attrs)
    return decode_cf_variable(name, found, decode_times=False)


def _plain_text(value: Any) -> Any:
    """Bytes and arrays of one text as str; other values as they are."""
    inner = _single(value)
    value = inner if isinstance(inner, str | bytes) else value
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value).strip(" \t\r\n\0") if isinstance(value, str) else value


def _single(value: Any) -> Any:
    """The element of an array or list of one, as a plain number or text; other values as they are."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    while isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return value


def _says_unit(name: str, value: str, dimensions: int) -> bool:
    """Whether an attribute with the word unit in its name holds a unit. Units of time count only in one dimension."""
    if not {"unit", "units"} & {word.lower() for word in _WORDS.findall(name)}:
        return False
    kind = _meaning(value)[0]
    return kind in ("unit", "speed") or (dimensions < 2 and kind == "time")


def _meaning(value: str) -> tuple[Any, ...]:
    """The meaning of a text, the same for all spellings of a unit; other texts are compared without case."""
    text = " ".join(value.lower().split())
    for kind, found in (("unit", parse_unit(text)), ("speed", parse_speed(text))):
        if found is not None:
            return (kind, found)
    unit, _, date = text.partition(" since ")
    seconds = time_unit(unit)
    return ("text", text) if seconds is None else ("time", seconds, date)
