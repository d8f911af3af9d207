"""Units of coordinates, velocities and times as NetCDF files spell them, and what turns one into another."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

_METRES = {
    "m": 1.0,
    "metre": 1.0,
    "meter": 1.0,
    "km": 1e3,
    "kilometre": 1e3,
    "kilometer": 1e3,
    **dict.fromkeys(("cm", "centimetre", "centimeter"), 1e-2),
    **dict.fromkeys(("mm", "millimetre", "millimeter"), 1e-3),
}
_PASCALS = {"pa": 1.0, "pascal": 1.0, "hpa": 1e2, "mbar": 1e2, "millibar": 1e2, "dbar": 1e4, "bar": 1e5}
_ANGLE = re.compile(r"^deg(?:ree)?s?(?:[_\s]?(east|north|e|n|true))?$")
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
_DATE = re.compile(
    r"^(-?\d{1,4})-(\d{1,2})-(\d{1,2})(?:[T\s]+(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}(?:\.\d*)?))?)?\s*(Z|UTC|[+-]\d{1,2}(?::?\d{2})?)?$"
)
_MIXED_CALENDARS = ("standard", "gregorian", "")  # Julian before 1582-10-15
_COMMON_CALENDARS = (*_MIXED_CALENDARS, "proleptic_gregorian")
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LONG_MONTHS = (31, 29, *_MONTHS[2:])
# Days of each month where every year is alike.
_EVEN_CALENDARS = {
    "360_day": (30,) * 12,
    "noleap": _MONTHS,
    "365_day": _MONTHS,
    "all_leap": _LONG_MONTHS,
    "366_day": _LONG_MONTHS,
}


class Unit(NamedTuple):
    """What a unit measures ("length", "angle", "pressure") and how large it is in metres, degrees or pascal."""

    kind: str
    size: float


def parse_unit(text: Any) -> Unit | None:
    """The unit of a coordinate, or None where it is not known."""
    word = str(text or "").strip().lower()
    if _ANGLE.match(word):
        return Unit("angle", 1.0)
    for kind, table in (("length", _METRES), ("pressure", _PASCALS)):
        for name in (word, word.removesuffix("s")):
            if name in table:
                return Unit(kind, table[name])
    return None


def compass_of(text: Any) -> str:
    """ "n" or "e" where a unit says that it counts degrees of latitude or longitude, else an empty text."""
    found = _ANGLE.match(str(text or "").strip().lower())
    return (found[1] or "")[:1].strip("t") if found else ""


def parse_speed(text: Any) -> Unit | None:
    """The unit of a velocity, its size per second, or None where it is not known: m/s, m s-1, cm s**-1, hPa/h, knots."""
    words = str(text or "").replace("⁻¹", "-1").replace("−", "-").replace("·", " ").strip(" ()[]").lower()
    if words in ("knot", "knots", "kt", "kts"):
        return Unit("length", 1852 / 3600)
    found = re.match(r"^([a-z_]+)\s*(?:/|\bper\b)\s*([a-z]+)$", words) or re.match(
        r"^([a-z_]+)[\s.*]*?\s*([a-z]+)\s*(?:\^|\*\*)?\s*\{?-1\}?$", words
    )
    if found is None:
        return None
    unit, seconds = parse_unit(found[1]), time_unit(found[2])
    return None if unit is None or seconds is None else Unit(unit.kind, unit.size / seconds)


def time_unit(text: str) -> float | None:
    """Seconds in a unit of time; None for months and years, which have no fixed length, and for anything unknown."""
    word = text.strip().lower()
    return _SECONDS.get(word, _SECONDS.get(word.removesuffix("s")))


def decode_times(
    values: np.ndarray, attributes: Mapping[str, Any]
) -> tuple[Float[np.ndarray, " n"], str | None, bool]:
    """Times in seconds, the date they are counted from as the file writes it, and whether the unit was missing.

    Without a date the seconds stand for themselves. Dates in common calendars count from 1970, those in calendars whose
    years are all alike from the year 0, so that files with different dates fit together.
    """
    if np.issubdtype(values.dtype, np.datetime64):
        return _seconds(values - np.datetime64("1970-01-01")), "1970-01-01", False
    if np.issubdtype(values.dtype, np.timedelta64):
        return _seconds(values), None, False
    if values.dtype == object:  # cftime: dates in a calendar that NumPy does not have
        first = values.reshape(-1)[0]
        return np.array([(one - first).total_seconds() for one in values.reshape(-1)]), str(first), False
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(f"times of type {values.dtype} cannot be read")
    numbers, units = values.astype(np.float64), str(attributes.get("units", "")).strip()
    if not np.all(np.isfinite(numbers)):
        raise ValueError("times are missing")
    if units in ("", "1"):
        return numbers, None, True
    unit, date = (*re.split(r"\s+since\s+", units, maxsplit=1, flags=re.IGNORECASE), "")[:2]
    seconds = time_unit(unit)
    if seconds is None:
        raise ValueError(f"units {units[:60]!r} have no fixed length in seconds; pass `times=`")
    if not date:
        return numbers * seconds, None, False
    calendar = parse_calendar(attributes.get("calendar"))
    if calendar in _COMMON_CALENDARS:
        start = _seconds_of(date, None, mixed=calendar in _MIXED_CALENDARS)
        return numbers * seconds + start, "1970-01-01", False
    if calendar in _EVEN_CALENDARS:
        months = _EVEN_CALENDARS[calendar]
        return numbers * seconds + _seconds_of(date, months), f"0000-01-01 ({sum(months)} days a year)", False
    return numbers * seconds, f"{date} ({calendar})", False


def _seconds(values: np.ndarray) -> Float[np.ndarray, " n"]:
    if np.any(np.isnat(values)):
        raise ValueError("times are missing")
    return values.astype("timedelta64[ns]").astype(np.int64) / 1e9


def parse_calendar(text: Any) -> str:
    """The calendar under the name the CF conventions give it; unknown ones in lower case as they are."""
    word = re.sub(r"[\s-]+", "_", str(text or "").strip().lower())
    plain = word.replace("_", "").removesuffix("s")
    for name in (*_COMMON_CALENDARS, *_EVEN_CALENDARS):
        short = name.replace("_", "")
        if plain and plain in (short, short.removesuffix("day")):
            return name
    return word


def _julian_days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the Julian calendar."""
    early = (14 - month) // 12
    years, months = year + 4800 - early, month + 12 * early - 3
    return day + (153 * months + 2) // 5 + 365 * years + years // 4 - 32083 - 2440588


def _seconds_of(date: str, months: tuple[int, ...] | None, *, mixed: bool = False) -> float:
    """Seconds from 1970 to a date such as 1948-01-01 0:0:0, or from the year 0 where all years have these `months`.

    With `mixed` dates before 1582-10-15 are those of the Julian calendar, as the standard calendar has them.
    """
    found = _DATE.match(date)
    if found is None:
        raise ValueError(f"the date {date[:60]!r} cannot be read; pass `times=`")
    year, month, day, hour, minute, second, zone = found.groups()
    if months is None:
        days = np.datetime64(f"{int(year):04d}-{int(month):02d}-{int(day):02d}").astype(int)
        if mixed and (int(year), int(month), int(day)) < (1582, 10, 15):
            days = _julian_days(int(year), int(month), int(day))
    elif 1 <= int(month) <= 12 and 1 <= int(day) <= months[int(month) - 1]:
        days = int(year) * sum(months) + sum(months[: int(month) - 1]) + int(day) - 1
    else:
        raise ValueError(f"the date {date[:60]!r} is not in a calendar of {sum(months)} days; pass `times=`")
    offset = 0.0
    if zone and zone not in ("Z", "UTC"):
        digits = zone[1:].replace(":", "")
        hours, minutes = (int(digits), 0) if len(digits) < 3 else (int(digits[:-2]), int(digits[-2:]))
        offset = (hours * 3600 + minutes * 60) * (-1.0 if zone[0] == "-" else 1.0)
    clock = int(hour or 0) * 3600 + int(minute or 0) * 60 + float(second or 0)
    return float(days) * 86400.0 + clock - offset


def speed_factor(speed: Unit | None, place: Unit | None) -> float:
    """What makes a velocity one in units of its coordinate per second; 1 where either unit is not known.

    Metres per second on degrees give degrees of latitude on a sphere with a radius of one metre.
    """
    if speed is None or place is None:
        return 1.0
    if speed.kind == place.kind:
        return speed.size / place.size
    if (speed.kind, place.kind) == ("length", "angle"):
        return speed.size * 180 / np.pi
    raise ValueError(
        f"a velocity that measures {speed.kind} per second does not fit a coordinate that measures {place.kind}"
    )
