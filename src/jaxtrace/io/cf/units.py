"""Units of coordinates, velocities and times as NetCDF files spell them, and factors between them."""

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...fields.epoch import (
    CALENDAR_NAMES,
    REFORM,
    Epoch,
    checked_calendar,
    is_date,
    seconds_since_zero,
    zero_of,
)

_METRES = {
    **dict.fromkeys(("m", "metre", "meter"), 1.0),
    **dict.fromkeys(("km", "kilometre", "kilometer"), 1e3),
    **dict.fromkeys(("cm", "centimetre", "centimeter"), 1e-2),
    **dict.fromkeys(("mm", "millimetre", "millimeter"), 1e-3),
}
_PASCALS = {"pa": 1.0, "pascal": 1.0, "hpa": 1e2, "mbar": 1e2, "millibar": 1e2, "dbar": 1e4, "bar": 1e5}
_ANGLE = re.compile(r"^(?:(?:decimal[_\s])?deg(?:ree)?s?|°)(?:[_\s]?(east|north|e|n|true))?$")
_LONG = re.compile(r"^\s*(months?|mons?|years?|yrs?|common_years?|decades?|centur(y|ies))\s*$", re.I)
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("ns", "nsec", "nanosecond"), 1e-9),
    **dict.fromkeys(("us", "usec", "microsecond"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millisecond"), 1e-3),
    **dict.fromkeys(("min", "minute"), 60.0),
    **dict.fromkeys(("h", "hr", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), 86400.0),
    "week": 604800.0,
}


class UnitSize(NamedTuple):
    """What a unit measures ("length", "angle", "pressure") and how large it is in metres, degrees or pascal."""

    kind: str
    size: float


METRE = UnitSize("length", 1.0)


def parse_unit(text: Any) -> UnitSize | None:
    """The unit of a coordinate, or None if it is unknown."""
    return _unit_of(str(text or "").strip().lower())


@functools.lru_cache(1024)
def _unit_of(word: str) -> UnitSize | None:
    if _ANGLE.match(word):
        return UnitSize("angle", 1.0)
    for name in (word, word.removesuffix("s")):
        if name in _METRES:
            return UnitSize("length", _METRES[name])
        if name in _PASCALS:
            return UnitSize("pressure", _PASCALS[name])
    return None


def compass_of(text: Any) -> str:
    """ "n" or "e" if a unit is degrees of latitude or longitude by its name, else an empty text."""
    found = _ANGLE.match(str(text or "").strip().lower())
    return (found[1] or "")[:1].strip("t") if found else ""


def parse_speed(text: Any) -> UnitSize | None:
    """The unit of a velocity with its size per second, or None if it is unknown: m/s, m s-1, cm s**-1, hPa/h, knots."""
    words = str(text or "").replace("⁻¹", "-1").replace("−", "-").replace("·", " ")
    return _speed_of(words.strip(" ()[]").lower())


@functools.lru_cache(1024)
def _speed_of(words: str) -> UnitSize | None:
    if words in ("knot", "knots", "kt", "kts"):
        return UnitSize("length", 1852 / 3600)
    found = re.match(r"^([a-z_]+)\s*(?:/|\bper\b)\s*([a-z]+)$", words) or re.match(
        r"^([a-z_]+)[\s.*]*?\s*([a-z]+)\s*(?:\^|\*\*)?\s*\{?-1\}?$", words
    )
    if found is None:
        return None
    unit, seconds = parse_unit(found[1]), time_unit(found[2])
    return None if unit is None or seconds is None else UnitSize(unit.kind, unit.size / seconds)


def time_unit(text: str) -> float | None:
    """Seconds in a unit of time; None for months and years, which have no fixed length, and for anything unknown."""
    word = text.strip().lower()
    return _SECONDS.get(word, _SECONDS.get(word.removesuffix("s")))


def split_units(units: str) -> tuple[str, str]:
    """The unit and the date of "days since 1950-01-01"; no date is an empty text."""
    unit, date, *_ = (*re.split(r"\s+since\s+", units, maxsplit=1, flags=re.IGNORECASE), "")
    return unit, date


def decode_times(
    values: np.ndarray, attributes: Mapping[str, Any]
) -> tuple[Float[np.ndarray, " n"], Epoch | str | None, bool]:
    """Times in seconds, the date they are counted from, and whether the unit was missing.

    Without a date the seconds stand for themselves. Dates in common calendars count from 1970, those in calendars whose
    years are all alike from the year 0, so that files with different dates fit together. A date in a calendar that is
    not known comes back as the text of the file.
    """
    if values.dtype.kind in "MmO":
        return _decode_dates(values.reshape(-1), attributes)
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(f"times of type {values.dtype} cannot be read")
    numbers, units = values.astype(np.float64), str(attributes.get("units", "")).strip()
    if not np.all(np.isfinite(numbers)):
        raise ValueError("times are missing")
    if units in ("", "1"):
        return numbers, None, True
    unit, date = split_units(units)
    seconds, calendar = time_unit(unit), parse_calendar(attributes.get("calendar"))
    if seconds is None and calendar == "360_day" and unit.strip().lower() in ("month", "months"):
        seconds = 30 * 86400.0  # nowhere else have months one length
    if seconds is None:
        why = "are months or years, which have no fixed length" if _LONG.match(unit) else "are not known"
        raise ValueError(f"its units {units[:60]!r} {why}; pass `times=`")
    if not date:
        return numbers * seconds, None, False
    try:
        known = checked_calendar(calendar)
    except ValueError:
        return numbers * seconds, f"{date} ({calendar})", False
    try:
        found = numbers * seconds + seconds_since_zero(date, known)
    except ValueError as error:
        raise ValueError(f"{str(error).replace('`date`', 'the date')[:-1]}; pass `times=`") from error
    return found, _reference(found, known), False


def rounding_of(seconds: Float[np.ndarray, " n"], attributes: Mapping[str, Any]) -> float:
    """To how many seconds times are known that stand in a file in float32, counted as `decode_times` does."""
    unit, date = split_units(str(attributes.get("units", "")).strip())
    size = time_unit(unit) or 1.0
    try:
        calendar = checked_calendar(parse_calendar(attributes.get("calendar")))
        begin = seconds_since_zero(date, calendar) if date else 0.0
    except ValueError:
        return 0.0
    return float(np.spacing(np.float32(np.abs(seconds - begin).max() / size))) * size


def _reference(seconds: Float[np.ndarray, " n"], calendar: str) -> Epoch:
    """What dates of a calendar count from. From 1582 on the Gregorian calendars are one."""
    if calendar == "proleptic_gregorian" and not np.any(seconds < REFORM):
        calendar = "standard"
    return zero_of(calendar)


def _decode_dates(
    values: np.ndarray, attributes: Mapping[str, Any]
) -> tuple[Float[np.ndarray, " n"], Epoch | str | None, bool]:
    """Dates and durations of NumPy, Python or cftime in seconds, as `decode_times` returns them."""
    if np.issubdtype(values.dtype, np.datetime64):
        # xarray took the standard calendar where the file names another one in a spelling of its own.
        said = attributes.get("calendar")
        if said and known_calendar(said) not in ("standard", "proleptic_gregorian"):
            raise ValueError(
                f"its dates were made by the standard calendar, but it says calendar = {str(said)[:60]!r}. Open the data set "
                "with `decode_times=False`, so that this calendar is used"
            )
        seconds = _seconds(values - np.datetime64("1970-01-01"))
        return seconds, _reference(seconds, "proleptic_gregorian"), False
    if np.issubdtype(values.dtype, np.timedelta64):
        return _seconds(values), None, False
    if not values.size:
        return np.zeros(0), None, False
    if not all(is_date(one) and not isinstance(one, str) for one in values):
        raise ValueError(f"times of type {type(values[0]).__name__} cannot be read")
    named = {str(getattr(one, "calendar", "proleptic_gregorian")) for one in values}
    if len(named) > 1:
        raise ValueError(f"times are in several calendars: {', '.join(sorted(named))}")
    zero = zero_of(checked_calendar(named.pop()))
    seconds = np.array([zero.seconds(one) for one in values])
    return seconds, _reference(seconds, zero.calendar), False


def _seconds(values: np.ndarray) -> Float[np.ndarray, " n"]:
    if np.any(np.isnat(values)):
        raise ValueError("times are missing")
    # Nanoseconds reach from 1678 to 2262 only, and NumPy does not say when it leaves them.
    fine = np.datetime_data(values.dtype)[0] in ("ns", "ps", "fs", "as")
    unit, size = ("ns", 1e9) if fine else ("us", 1e6)
    return values.astype(f"timedelta64[{unit}]").astype(np.int64) / size


def known_calendar(text: Any) -> str:
    """The calendar under its first name; unknown ones as `parse_calendar` has them."""
    name = parse_calendar(text)
    try:
        return checked_calendar(name)
    except ValueError:
        return name


def parse_calendar(text: Any) -> str:
    """The calendar under the name the CF conventions give it; unknown ones in lower case as they are."""
    word = re.sub(r"[\s-]+", "_", str(text or "").strip().lower())
    plain = word.replace("_", "").removesuffix("s")
    for name in CALENDAR_NAMES:
        short = name.replace("_", "")
        if plain and plain in (short, short.removesuffix("day")):
            return name
    return word


def speed_factor(speed: UnitSize | None, place: UnitSize | None) -> float:
    """What makes a velocity one in units of its coordinate per second; 1 where either unit is not known.

    A velocity in metres per second stays one on degrees.
    """
    if speed is None or place is None:
        return 1.0
    if speed.kind == place.kind:
        return speed.size / place.size
    if (speed.kind, place.kind) == ("length", "angle"):
        return speed.size
    raise ValueError(
        f"a velocity that measures {speed.kind} per second does not fit a coordinate that measures {place.kind}"
    )
