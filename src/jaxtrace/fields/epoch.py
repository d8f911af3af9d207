"""Dates: which moment time 0 is, in a calendar of the CF conventions, and how dates become seconds and back."""

import bisect
import dataclasses
import datetime
import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from jaxworlds.arguments import short

CALENDARS = ("standard", "proleptic_gregorian", "julian", "360_day", "noleap", "all_leap")
"""Calendars whose dates are known; `gregorian`, `365_day` and `366_day` are other names of three of them."""
_OTHER_NAMES = {"": "standard", "gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
CALENDAR_NAMES = (*CALENDARS, *(name for name in _OTHER_NAMES if name))
"""All names that `Epoch` takes."""
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LONG_MONTHS = (31, 29, *_MONTHS[2:])
# Days of each month where every year is alike.
_EVEN = {"360_day": (30,) * 12, "noleap": _MONTHS, "all_leap": _LONG_MONTHS}
# 1970-01-01 of the Gregorian calendar in days from the year 0 of each calendar; years that are alike count from the year 0.
_ZERO = {"proleptic_gregorian": 719_528, "julian": 719_530}
_DATE = re.compile(
    r"^\s*([+-]?\d{1,6})-(\d{1,2})-(\d{1,2})"
    r"(?:(?:T|\s+)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:[.,](\d*))?)?)?)?"
    r"\s*(?:Z|UTC|GMT|([+-])(\d{1,2})(?::?(\d{2}))?)?\s*$",
    re.IGNORECASE,
)
_DAY = 86_400_000_000  # microseconds
_REFORM = -141_427  # 1582-10-15 in days from 1970-01-01: the first day of the Gregorian calendar
REFORM = _REFORM * 86_400.0
"""1582-10-15 in seconds from 1970: from there on the standard calendar is the proleptic Gregorian one."""
_LATEST = 1_000_000  # years
# Steps of a scale of dates, in seconds.
_TICKS = (
    *(0.001, 0.01, 0.1, 0.5),
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * factor * 10**power for power in range(8) for factor in (1, 2, 5)),
)


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The date at time 0; times count from it in seconds.

    `date` is a text such as "2015-11-16 06:00", a `datetime.datetime`, a `numpy.datetime64` or a date of cftime, in UTC
    unless it says otherwise. `calendar` is one of the CF conventions: "standard" (Gregorian, Julian before 1582-10-15),
    "proleptic_gregorian", "julian", "360_day", "noleap" or "all_leap".

        epoch = Epoch("2015-11-16")
        epoch.seconds("2015-11-16 06:00")   # 21600.0
        epoch.text(21600.0)                 # "2015-11-16 06:00"
    """

    date: Any
    """Kept as text, in UTC."""
    calendar: str = "standard"

    def __post_init__(self) -> None:
        object.__setattr__(self, "calendar", checked_calendar(self.calendar))
        object.__setattr__(self, "date", _text_of(_microseconds(self.date, self.calendar), self.calendar))

    @property
    def units(self) -> str:
        """The unit of times as CF writes it, such as "seconds since 2015-11-16 06:00:00"."""
        return f"seconds since {_text_of(self._start, self.calendar, 'second')}"

    @property
    def common(self) -> bool:
        """Whether dates from here on are those of NumPy and `datetime`: not in calendars of climate models."""
        return self.calendar == "proleptic_gregorian" or (
            self.calendar == "standard" and self._start >= _REFORM * _DAY
        )

    def seconds(self, date: Any, name: str = "date") -> float:
        """Seconds from time 0 to a date; `name` is what messages call it."""
        return (_microseconds(date, self.calendar, name) - self._start) / 1e6

    def text(self, time: float) -> str:
        """The date at a time, such as "2015-11-16 06:00"."""
        return self.texts([time])[0]

    def texts(
        self, times: Sequence[float] | Float[np.ndarray, " times"], span: float | None = None
    ) -> list[str]:
        """The dates at some times, all written to the same unit: days, minutes, seconds or a fraction of them.

        Beside a `span` in seconds small units are rounded away: what pictures of it show.
        """
        moments = [self._start + round(float(time) * 1e6) for time in times]
        for size, least in ((60_000_000, 86_400.0), (1_000_000, 100.0)):
            if span is not None and abs(span) >= least:
                moments = [(moment + size // 2) // size * size for moment in moments]
                break
        unit = _unit_of(moments)
        return [_text_of(moment, self.calendar, unit) for moment in moments]

    def dates(self, times: Sequence[float] | Float[np.ndarray, " times"]) -> np.ndarray:
        """The dates at some times as `datetime64[us]`; texts in calendars that NumPy does not have."""
        values = np.asarray(times, np.float64)
        if self.common and (not values.size or self._start + values.min() * 1e6 >= _REFORM * _DAY):
            return np.datetime64(self._start, "us") + np.rint(values * 1e6).astype("timedelta64[us]")
        return np.array(self.texts(values.tolist()), dtype=str)

    def ticks(self, low: float, high: float, most: int = 6) -> list[float]:
        """At most `most` times between `low` and `high` with round dates: whole days, hours, minutes."""
        from_day = self._start % _DAY / 1e6
        for step in _TICKS:
            first = int(np.ceil((low + from_day) / step - 1e-9))
            last = int(np.floor((high + from_day) / step + 1e-9))
            if last - first < most:
                return [number * step - from_day for number in range(first, last + 1)]
        return [low, high]

    def later_by(self, seconds: float) -> "Epoch":
        """The epoch some seconds later; at 1582 or after, both Gregorian calendars are one."""
        if not abs(seconds) * 1e6 < _LATEST * 366 * _DAY:
            raise ValueError(
                f"a date must be within {_LATEST:,} years; got one {seconds:g} s after {self.date}."
            )
        moment = self._start + round(seconds * 1e6)
        calendar = self.calendar
        if calendar == "proleptic_gregorian" and moment >= _REFORM * _DAY:
            calendar = "standard"
        return Epoch(_text_of(moment, calendar), calendar)

    @property
    def _start(self) -> int:
        """Microseconds to the date, from 1970 or from the year 0 of a calendar whose years are alike."""
        return _microseconds(self.date, self.calendar)

    def __str__(self) -> str:
        return self.date if self.common else f"{self.date} ({self.calendar})"


def checked_calendar(calendar: str) -> str:
    """The calendar by its first name in the CF conventions; an unknown one is refused."""
    name = str(calendar).strip().lower()
    name = _OTHER_NAMES.get(name, name)
    if name not in CALENDARS:
        raise ValueError(f"`calendar` must be one of {', '.join(CALENDARS)}; got {short(calendar)}.")
    return name


def as_epoch(value: Any, name: str = "epoch") -> Epoch | None:
    """An epoch from one, from a date, or None."""
    if value is None or isinstance(value, Epoch):
        return value
    if not is_date(value):
        raise TypeError(
            f"`{name}` must be the date at time 0, such as '2015-11-16 06:00', or an Epoch; got {short(value)}."
        )
    calendar = getattr(value, "calendar", None) or "standard"
    return Epoch(_text_of(_microseconds(value, checked_calendar(calendar), name), calendar), calendar)


def epoch_of(field: Any) -> Epoch | None:
    """The date at time 0 of a field or a trajectory, where it has one."""
    found = getattr(field, "epoch", None)
    return found if isinstance(found, Epoch) else None


def without_epoch(field: Any) -> Any:
    """The field that programs are compiled for: they know numbers only, and fields of other dates share them."""
    return field.with_epoch(None) if epoch_of(field) is not None and hasattr(field, "with_epoch") else field


def is_date(value: Any) -> bool:
    """Whether a value is a date: a text, a date of Python, NumPy or cftime."""
    if isinstance(value, str | datetime.date | np.datetime64):
        return True
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.dtype.kind in "MU"
    return _is_cftime(value)


def has_dates(values: Any) -> bool:
    """Whether one date, or a sequence with one among its values, is given in place of numbers."""
    if is_date(values):
        return True
    if isinstance(values, np.ndarray) or hasattr(values, "dtype"):
        try:
            kind = np.dtype(values.dtype).kind
        except TypeError:  # a type that NumPy does not know, such as keys
            return False
        return kind in "MU" or (kind == "O" and any(is_date(one) for one in np.asarray(values).flat))
    return isinstance(values, list | tuple) and any(has_dates(one) for one in values)


def in_seconds(values: Any, epoch: Epoch | None, name: str, remedy: str = "") -> Any:
    """Dates among `values` as seconds from `epoch`; numbers as they are. Without an epoch dates are refused."""
    if not has_dates(values):
        return values
    if epoch is None:
        raise TypeError(
            f"`{name}` must be numbers, since the date of time 0 is not known; got {short(values)}. {remedy or _GIVE_DATE}"
        )
    if is_date(values):
        return epoch.seconds(values, name)
    return [epoch.seconds(one, name) if is_date(one) else float(one) for one in np.asarray(values, object)]


_GIVE_DATE = (
    "Say the date of time 0 where the field is in slices, `field = field.with_epoch('2015-11-16')`, or write "
    "`(date - first) / np.timedelta64(1, 's')`."
)


def first_and_seconds(
    dates: Any, epoch: Epoch | None, name: str
) -> tuple[Epoch, Float[np.ndarray, " times"]]:
    """Seconds from `epoch` to each of some dates; unless it is given, from the first of them."""
    values = np.atleast_1d(np.asarray(dates, object)).reshape(-1)
    start = as_epoch(values[0], name) if epoch is None else epoch
    assert start is not None
    return start, np.asarray(in_seconds(list(values), start, name), np.float64)


def step_seconds(step: Any, epoch: Epoch | None) -> Any:
    """A span of time in seconds, where times count in seconds because they have a date; a number as it is."""
    if epoch is None or not isinstance(step, datetime.timedelta | np.timedelta64):
        return step
    # Months and years have no fixed length: NumPy refuses them.
    return float(np.timedelta64(step) / np.timedelta64(1, "s"))


def seconds_since_zero(date: str, calendar: str) -> float:
    """Seconds to a date as files write it, from 1970, or from the year 0 of a calendar whose years are alike."""
    return _microseconds(date, calendar) / 1e6


def zero_of(calendar: str) -> Epoch:
    """What `seconds_since_zero` counts from."""
    return Epoch(
        "0000-01-01" if calendar in _EVEN else "1969-12-19" if calendar == "julian" else "1970-01-01",
        calendar,
    )


def _is_cftime(value: Any) -> bool:
    return hasattr(value, "calendar") and hasattr(value, "microsecond") and hasattr(value, "dayofwk")


def _microseconds(date: Any, calendar: str, name: str = "date") -> int:
    """Microseconds to a date, from 1970-01-01, or from the year 0 where all years are alike."""
    date = cast(Any, date[()] if isinstance(date, np.ndarray) and date.ndim == 0 else date)
    if _is_cftime(date) and date.calendar and checked_calendar(date.calendar) != calendar:
        raise ValueError(
            f"`{name}` must be in the calendar {calendar!r} of the field; {date} is in {date.calendar!r}. Write it as "
            f"text: '{date}'."
        )
    if isinstance(date, np.datetime64):
        if np.isnat(date):
            raise ValueError(f"`{name}` must be a date; got NaT, which marks a missing one.")
        date = str(date.astype("datetime64[us]"))
    if isinstance(date, datetime.datetime) and date.tzinfo is not None:
        date = date.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(date, datetime.date) or _is_cftime(date):
        parts = [getattr(date, part, 0) for part in _PARTS]  # a day without a time of the day begins at 0:00
        return _microseconds_of_parts(parts, calendar, name, str(date))
    if not isinstance(date, str):
        raise TypeError(f"`{name}` must be a date, such as '2015-11-16 06:00'; got {short(date)}.")
    found = _DATE.match(date)
    if found is None:
        raise ValueError(
            f"`{name}` must be a date such as 2015-11-16, '2015-11-16 06:00' or 2015-11-16T06:00:00Z; got {short(date)}."
        )
    *numbers, fraction, sign, hours, minutes = found.groups()
    ahead = (int(hours or 0) * 60 + int(minutes or 0)) * 60_000_000 * (-1 if sign == "-" else 1)  # of UTC
    parts = [*(int(number or 0) for number in numbers), round(float(f"0.{fraction or 0}") * 1e6)]
    return _microseconds_of_parts(parts, calendar, name, date) - ahead


_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")


def _microseconds_of_parts(fields: Any, calendar: str, name: str, text: str) -> int:
    """Microseconds to a date given by its parts; one that its calendar does not have is refused."""
    year, month, day, hour, minute, second, micro = map(int, fields)
    rule = _rule(calendar, (year, month, day) < (1582, 10, 15))
    starts, at = _month_starts(rule), (year * 12 + month - 1) % _CYCLE
    there = 1 <= month <= 12 and 1 <= day <= starts[at + 1] - starts[at] and abs(year) <= _LATEST
    lost = calendar == "standard" and (1582, 10, 4) < (year, month, day) < (1582, 10, 15)
    if not there or lost:
        raise ValueError(f"`{name}` must be a day of the calendar {calendar!r}; {text[:60]} is not one.")
    if not (
        0 <= hour <= 24 and minute < 60 and second < 61 and (hour < 24 or minute == second == micro == 0)
    ):
        raise ValueError(f"`{name}` must have a time of the day up to 24:00; got {text[:60]}.")
    clock = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
    days = year // _YEARS * starts[-1] + starts[at] + day - 1 - _ZERO.get(rule, 0)
    return days * _DAY + clock


def _rule(calendar: str, early: bool) -> str:
    """The calendar whose years count: the standard one is Julian before 1582-10-15."""
    return calendar if calendar != "standard" else "julian" if early else "proleptic_gregorian"


_YEARS = 400  # after which every calendar begins again
_CYCLE = 12 * _YEARS


@functools.cache
def _month_starts(rule: str) -> list[int]:
    """The day on which each month of 400 years begins, from the year 0 on; the last entry is the day after them."""

    def months(year: int) -> tuple[int, ...]:
        leap = year % 4 == 0 and (rule == "julian" or year % 100 != 0 or year == 0)
        return _EVEN.get(rule, _LONG_MONTHS if leap else _MONTHS)

    lengths = itertools.chain.from_iterable(map(months, range(_YEARS)))
    return list(itertools.accumulate(lengths, initial=0))


def _parts_of(days: int, calendar: str) -> tuple[int, int, int]:
    """Year, month and day by the number of a day."""
    rule = _rule(calendar, days < _REFORM)
    starts = _month_starts(rule)
    cycle, rest = divmod(days + _ZERO.get(rule, 0), starts[-1])
    number = bisect.bisect_right(starts, rest) - 1
    return cycle * _YEARS + number // 12, number % 12 + 1, rest - starts[number] + 1


def _unit_of(moments: list[int]) -> str:
    """The coarsest unit that shows all moments: "day", "minute", "second" or "fraction"."""
    for unit, size in (("day", _DAY), ("minute", 60_000_000), ("second", 1_000_000)):
        if all(moment % size == 0 for moment in moments):
            return unit
    return "fraction"


def _text_of(moment: int, calendar: str, unit: str | None = None) -> str:
    """A moment as text, to a unit, or as far as it needs."""
    days, clock = divmod(moment, _DAY)
    year, month, day = _parts_of(days, calendar)
    text = f"{'-' * (year < 0)}{abs(year):04d}-{month:02d}-{day:02d}"
    unit = _unit_of([moment]) if unit is None else unit
    if unit == "day":
        return text
    seconds, micro = divmod(clock, 1_000_000)
    text += f" {seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if unit == "minute":
        return text
    text += f":{seconds % 60:02d}"
    return text if not micro else f"{text}.{micro:06d}".rstrip("0")
