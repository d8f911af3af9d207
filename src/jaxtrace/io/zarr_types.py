"""Types of numbers and fill values as the metadata of Zarr arrays spell them."""

import base64
import binascii
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .zarr_codecs import OBJECTS, NotReadError, plain_dtype

_UNITS = ("s", "ms", "us", "ns", "D", "h", "m")
_OTHER_2 = re.compile(rf"[<>|]([SU]\d{{1,4}}|[mM]8\[({'|'.join(_UNITS)})\])")
_KINDS_3 = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PLAIN: dict[str, tuple[type, ...]] = {
    "b": (bool, int),
    "i": (int,),
    "u": (int,),
    "f": (int, float),
    "c": (int, float, complex),
    "U": (str,),
}


def dtype_2(told: Mapping[str, Any]) -> np.dtype:
    """The type of an array of format 2."""
    text = told.get("dtype")
    if isinstance(text, list):
        raise NotReadError("it holds records of several numbers, which are not read")
    if text == "|O":
        filters = told.get("filters")
        listed = filters if isinstance(filters, list) else []
        names = [str(one.get("id")) for one in listed if isinstance(one, dict)]
        named = next((name for name in names if name in OBJECTS), "an unknown codec")
        raise NotReadError(f"it holds objects packed with {named!r}, which is never run")
    return np.dtype(text) if isinstance(text, str) and _OTHER_2.fullmatch(text) else plain_dtype(text)


def dtype_3(told: Any) -> np.dtype:
    """The type of an array of format 3: a name, or an object with a name and settings."""
    if isinstance(told, str) and _KINDS_3.fullmatch(told):
        return np.dtype(told)
    name, settings = (told.get("name"), told.get("configuration")) if isinstance(told, dict) else (None, None)
    if isinstance(settings, dict):
        length, unit = settings.get("length_bytes"), settings.get("unit")
        if name == "fixed_length_utf32" and type(length) is int and 4 <= length <= 40_000:
            return np.dtype(f"U{length // 4}")
        letter = {"numpy.datetime64": "M", "numpy.timedelta64": "m"}.get(str(name))
        if letter and unit in _UNITS and settings.get("scale_factor") == 1:
            return np.dtype(f"{letter}8[{unit}]")
    if isinstance(told, str | dict):
        raise NotReadError(f"it holds values of the type {str(told)[:80]!r}, which are not read")
    raise ValueError(f"its data type must be a name; it is {str(told)[:80]!r}")


def native(dtype: np.dtype) -> np.dtype:
    """The type with the order of bytes of this machine."""
    return dtype.newbyteorder("=")


def is_nan(value: Any) -> bool:
    """Whether a value is a number that is none."""
    return isinstance(value, np.floating | np.complexfloating) and bool(np.isnan(value))


def fill_value(told: Any, dtype: np.dtype) -> Any:
    """A fill value as JSON spells it, as a value of the array's type."""
    try:
        value = _from_text(told, dtype) if isinstance(told, str | list) or dtype.kind in "SmM" else told
        if isinstance(value, np.generic):
            return value
        if dtype.kind in "iu" and isinstance(value, float) and value.is_integer():
            value = int(value)
        fits = isinstance(value, _PLAIN.get(dtype.kind, ()))
        if not fits or (isinstance(value, bool) and dtype.kind != "b"):
            raise TypeError
        with np.errstate(over="ignore"):
            return np.asarray(value, native(dtype))[()]
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise ValueError(f"its fill value {str(told)[:60]!r} is no {dtype}") from error


def _from_text(told: Any, dtype: np.dtype) -> Any:
    """The value behind a text, a list of two parts, or a number that stands for a date."""
    kind, own = dtype.kind, native(dtype)
    if kind == "f" and isinstance(told, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", told):
        raw = bytes.fromhex(told[2:].zfill(2 * dtype.itemsize))
        return np.frombuffer(raw, dtype.newbyteorder(">"))[0].astype(own)
    if kind == "f" and isinstance(told, str):
        return _WORDS.get(told, told)
    if kind == "c" and isinstance(told, list) and len(told) == 2:
        parts: list[Any] = [_WORDS.get(part, part) if isinstance(part, str) else part for part in told]
        return complex(*parts)
    if kind in "SU" and told in (0, ""):
        return np.zeros((), own)[()]
    if kind == "S" and isinstance(told, str):
        return np.asarray(base64.b64decode(told, validate=True), own)[()]
    if kind in "mM" and told == "NaT":
        return np.datetime64("NaT").astype(own) if kind == "M" else np.timedelta64("NaT").astype(own)
    if kind in "mM" and isinstance(told, int):
        return np.int64(told).view(own)
    return told


def missing_mark(attributes: dict[str, Any], word: str, dtype: np.dtype) -> Any:
    """The attribute that marks missing values, as a value of the array's type, which it then is among the attributes.

    xarray writes that of floating-point numbers in format 3 as eight bytes in base64.
    """
    value = attributes.get(word)
    if value is None or isinstance(value, list | dict):
        return None
    try:
        if isinstance(value, str) and dtype.kind == "f" and value not in _WORDS:
            value = struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        attributes[word] = fill_value(value, dtype)
    except (ValueError, struct.error) as error:
        raise NotReadError(f"its attribute {word!r} is {str(value)[:60]!r}, which is no {dtype}") from error
    return attributes[word]
