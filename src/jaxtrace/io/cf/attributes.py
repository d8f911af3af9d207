"""Attributes of variables under the names of the CF conventions, however a file spells them.

One rule for files, Zarr stores and xarray data sets:

- The names `units`, `standard_name`, `positive`, `axis`, `calendar` and `coordinates` are found in any case and with any
  punctuation, `unit` for `units` too.
- Any other name with the word unit in it (`time_units`, `UnitsOfMeasure`) counts where its value is a known unit.
- Attributes that contradict each other are refused where the variable is used.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from .units import known_calendar, parse_speed, parse_unit, time_unit

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
    """A data set with its variables' attributes under their CF names, and why some variables cannot be used, by name.

    What is `given` for a variable counts in place of what it says itself.
    """
    variables, refused = {}, {}
    for key, variable in data.variables.items():
        name = str(key)
        try:
            if given.get(name):
                variable = _replace_attributes(variable, given[name])
            found = _decode(name, variable)
            attributes, reason = cf_attributes(_said_of(found), found.ndim, name)
        except (ValueError, TypeError) as error:
            refused[name] = str(error)[:300]
            variables[name] = variable
            continue
        if found is variable:
            found = variable.copy(deep=False)
        found.attrs = attributes
        variables[name] = found
        if reason:
            refused[name] = reason
    return SimpleNamespace(variables=variables, attrs=dict(getattr(data, "attrs", {}))), refused


def _replace_attributes(variable: Any, given: Mapping[str, Any]) -> Any:
    """A variable with attributes in place of its own, also of those with another spelling of their names."""
    kept = dict(variable.attrs)
    for name, value in given.items():
        groups = [names for names in _SPELLINGS.values() if _bare(name) in names]
        groups += [_FILL] if name in ("_FillValue", "missing_value") else []
        if variable.dtype.kind in "MmO" and name in ("units", "calendar"):
            raise ValueError(
                f"its dates are made already, so that its {name} can no longer be given. Open the data set with "
                "`decode_times=False`"
            )
        for other in [one for one in kept if any(_bare(one) in names for names in groups)]:
            del kept[other]
        kept[name] = value
    found = variable.copy(deep=False)
    found.attrs = kept
    return found


def _bare(name: Any) -> str:
    """A name of an attribute without case and punctuation."""
    return re.sub(r"[^a-z]", "", str(name).lower())


def _said_of(variable: Any) -> dict[Any, Any]:
    """The attributes of a variable; with them the unit and calendar by which xarray made dates of its numbers."""
    if variable.dtype.kind not in "MmO":
        return variable.attrs
    encoding = getattr(variable, "encoding", {})
    used = {word: encoding[word] for word in ("units", "calendar") if isinstance(encoding.get(word), str)}
    return {**used, **variable.attrs}


def cf_attributes(
    attributes: Mapping[Any, Any], dimensions: int, variable: str = "NAME"
) -> tuple[dict[str, Any], str]:
    """Attributes with the CF names added, texts cleaned; and the reason why those of a variable contradict, or ""."""
    found = {str(name): _plain_text(value) for name, value in attributes.items()}
    for wanted in _SPELLINGS:
        if wanted in found and not isinstance(
            found[wanted], str
        ):  # units = 1; nothing else is meant by numbers and lists
            number = _single(found.pop(wanted))
            if isinstance(number, int | float):
                found[wanted] = str(number)
    reasons = []
    for wanted, spellings in _SPELLINGS.items():
        told = {
            name: value
            for name, value in found.items()
            if isinstance(value, str) and value and _bare(name) in spellings
        }
        if wanted == "units" and not told:
            told = {name: value for name, value in found.items() if _says_unit(name, value, dimensions)}
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
    other, date = re.split(r"\s+since\s+", found[1], maxsplit=1, flags=re.I)
    return (found[0], date) if time_unit(other) == unit else None


def origin_named(attributes: Mapping[str, Any]) -> str | None:
    """The attribute of a time that names the date it counts from, in no form that is sure to be understood."""
    for name, value in attributes.items():
        words = (
            "timeorigin",
            "origin",
            "epoch",
            "basedate",
            "basetime",
            "referencedate",
            "referencetime",
            "refdate",
            "reftime",
        )
        if _bare(name) in words and re.search(r"\d", str(value)):
            return name
    return None


def fill_marks(attributes: Mapping[str, Any]) -> dict[str, float]:
    """Attributes that name a missing value, but not as `_FillValue` or `missing_value`, which are applied already."""
    found = {}
    for name, value in attributes.items():
        if name in _UNDECODED or _bare(name) not in _FILL:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if np.isfinite(number):
            found[name] = number
    return found


def numbers_checked(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes whose scale and offset are single numbers: xarray finds out as late as it multiplies with them."""
    checked = dict(attributes)
    for word in ("scale_factor", "add_offset"):
        value = checked.get(word, 1.0)
        value = _single(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
            raise ValueError(f"{word!r} must be a finite number; it is {str(value)[:60]!r}")
        if word in checked:
            checked[word] = float(value)
    return checked


def _decode(name: str, variable: Any) -> Any:
    """A variable of which scale, offset and fill value are applied: they are not where a data set was opened without."""
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
    """Texts as str, also bytes and arrays of one text; other values as they are."""
    inner = _single(value)
    value = inner if isinstance(inner, str | bytes) else value
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value).strip(" \t\r\n\0") if isinstance(value, str) else value


def _single(value: Any) -> Any:
    """The one element of an array or list of one, as a plain number or text where it is one; other values as they are."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    while isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return value


def _says_unit(name: str, value: Any, dimensions: int) -> bool:
    """Whether an attribute with the word unit in its name holds a unit, of time only on what may be a time."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not isinstance(value, str) or not {"unit", "units"} & set(words):
        return False
    known = parse_unit(value) is not None or parse_speed(value) is not None
    return known or (dimensions < 2 and _meaning(value)[0] == "time")


def _meaning(value: str) -> tuple[Any, ...]:
    """What two spellings of one unit have in common; other texts count without case."""
    text = " ".join(value.lower().split())
    for kind, found in (("unit", parse_unit(text)), ("speed", parse_speed(text))):
        if found is not None:
            return (kind, found)
    unit, _, date = text.partition(" since ")
    seconds = time_unit(unit)
    return ("text", text) if seconds is None else ("time", seconds, date)
