"""Slices of a NetCDF or Zarr variable: their times, and the file and index of each."""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...fields.epoch import Epoch
from ..files import DatasetError, named_errors
from ..slices import ReadOptions
from .attributes import date_elsewhere, origin_named, since_elsewhere
from .axes import clock_along, is_index, role_of, time_dim, values_of
from .units import decode_times, rounding_of


class NamedDataset(NamedTuple):
    """An open data set, how messages call it, and variables of it that cannot be read, each with the reason."""

    name: str
    data: Any
    refused: Mapping[str, str] = MappingProxyType({})


class SlicePlace(NamedTuple):
    """Where one component of one slice is stored."""

    time: float | None
    source: NamedDataset
    number: int | None
    epoch: Epoch | None = None
    """The date of the first slice, from which `time` counts; None if the file has no date."""


def warn_once(text: str, said: set[str]) -> None:
    """Warn, but only once of components that share their time; `said` holds the warnings so far."""
    if text not in said:
        said.add(text)
        warnings.warn(text, stacklevel=3)


def moments_of(
    sources: list[NamedDataset], name: str, options: ReadOptions, said: set[str]
) -> list[SlicePlace]:
    """All slices of one component, in the order of time if there is one. Warnings in `said` are not repeated."""
    found: list[SlicePlace] = []
    reference: Epoch | str | None = None
    without_units: dict[str, str] = {}
    for source in sources:
        if name not in source.data.variables:
            continue
        variable = source.data.variables[name]
        dim = time_dim(source.data, variable)
        chosen = dim if dim in options.select else None
        count = 1 if dim is None or chosen else variable.sizes[dim]
        numbers: list[int | None] = [None] if dim is None or chosen else list(range(count))
        if dim is None or (chosen and not is_index(options.select[chosen], variable.sizes[chosen])):
            # The one time of a file whose fields have no dimension of time.
            alone = {str(key): one.attrs for key, one in source.data.variables.items() if one.size == 1}
            told, chosen = next((key for key, a in alone.items() if role_of(key, a) == "T"), None), None
        else:
            told = clock_along(source.data, dim)
        if told is None:
            found += [SlicePlace(None, source, number) for number in numbers]
            continue
        what, clock = f"{source.name}: variable {told!r}", source.data.variables[told]
        if told in source.refused and options.times is None and chosen is None:
            raise DatasetError(f"{what}: {source.refused[told]}.")
        try:
            values = np.atleast_1d(values_of(told, clock))
            if chosen is not None:
                values = values[[options.select[chosen]]]
            if values.shape != (count,):
                raise ValueError(f"it has {values.shape} values for {count} slices of {name!r}")
            seconds, since, bare = _seconds_of(values, clock, what, options, said)
        except DatasetError:
            raise
        except ValueError as error:
            # `times=` is the remedy for this error, in the order of the files; a single slice needs no time.
            if options.times is not None or chosen is not None:
                found += [SlicePlace(None, source, number) for number in numbers]
                continue
            raise DatasetError(f"{what}: {error}.") from error
        if bare:
            without_units.setdefault(told, source.name)
        if found and since != reference:
            raise DatasetError(
                f"{what} has {_dates_words(since)}, but that of {found[0].source.name} has {_dates_words(reference)}. "
                "Bring them to one calendar first."
            )
        if isinstance(since, str) and since != reference and options.times is None and "(none)" not in since:
            warn_once(
                f"{what} counts from {since}, a calendar that is not known: times are seconds from the first slice, without "
                "dates. Pass `times=` with dates otherwise.",
                said,
            )
        reference = since
        found += [SlicePlace(float(t), source, number) for t, number in zip(seconds, numbers, strict=True)]
    if without_units and options.times is None and len(found) > 1:
        told, where = next(iter(without_units.items()))
        warn_once(
            f"{where}: variable {told!r} has no units; its values are taken as seconds. Pass `times=` otherwise.",
            said,
        )
    if not found:
        raise DatasetError(f"{sources[0].name}: variable {name!r} has no slice; its time dimension is empty.")
    if all(moment.time is not None for moment in found):
        found.sort(key=lambda moment: moment.time or 0.0)
        if reference is not None:
            start = found[0].time or 0.0
            with named_errors(f"{found[0].source.name}: variable {name!r}", remedy=" Pass `times=`."):
                epoch = reference.later_by(start) if isinstance(reference, Epoch) else None
            # Seconds from 1970 hold microseconds, as dates do, and noise below them.
            found = [m._replace(time=round((m.time or 0.0) - start, 6), epoch=epoch) for m in found]
    return found


def _seconds_of(
    values: np.ndarray, clock: Any, what: str, options: ReadOptions, said: set[str]
) -> tuple[Float[np.ndarray, " n"], Epoch | str | None, bool]:
    """The result of `decode_times`, with the date from another attribute if the units have none; warns about doubtful dates."""
    seconds, since, bare = decode_times(values, clock.attrs)
    if bare and (elsewhere := since_elsewhere(clock.attrs)) is not None:
        seconds, since, bare = decode_times(values, {**clock.attrs, "units": elsewhere[1]})
        warn_once(
            f"{what} has no units, but {elsewhere[0]} = {clock.attrs[elsewhere[0]]!r}: it is read as {elsewhere[1]!r}. Set the "
            "units so, or pass `times=`.",
            said,
        )
    elif since is None and not bare and (dated := date_elsewhere(clock.attrs)) is not None:
        seconds, since, bare = decode_times(seconds, {**clock.attrs, "units": f"seconds since {dated[1]}"})
        warn_once(
            f"{what} has units {clock.attrs['units']!r} without a date, but {dated[0]} = {clock.attrs[dated[0]]!r}: its times "
            f"count from {dated[1]}. Set the units so, or pass `times=`.",
            said,
        )
    elif since is None and options.epoch is None and (named := origin_named(clock.attrs)) is not None:
        warn_once(
            f"{what} has no date in its units, but {named} = {str(clock.attrs[named])[:60]!r}: that is not read, and times "
            "have no dates. Pass `epoch='YYYY-MM-DD'`, the date of time 0, for them.",
            said,
        )
    _tell_rounding(what, clock, seconds, options, said)
    return seconds, since, bare


# Steps between slices are known worse than this part of them where times have lost digits.
_LOST = 0.01


def _tell_rounding(
    what: str, clock: Any, seconds: Float[np.ndarray, " n"], options: ReadOptions, said: set[str]
) -> None:
    """Warn of times that float32 rounded. Uneven steps show it: whole numbers stay exact even if large."""
    stored = np.dtype(getattr(clock, "encoding", {}).get("dtype") or clock.dtype)
    if options.times is not None or stored != np.float32 or len(seconds) < 3:
        return
    steps = np.abs(np.diff(seconds))
    rounding = rounding_of(seconds, clock.attrs)
    if rounding > _LOST * steps.min() and np.ptp(steps) > rounding / 2:
        warn_once(
            f"{what} is stored in float32, which knows its times only to {rounding:.3g} s, with steps of "
            f"{np.median(steps):.4g} s. Pass `times=` for exact ones.",
            said,
        )


def _dates_words(since: Epoch | str | None) -> str:
    """The dates of a file, as messages call them."""
    return f"dates of the calendar {since.calendar!r}" if isinstance(since, Epoch) else since or "no dates"


def common_times(
    lists: list[list[SlicePlace] | None], names: tuple[str | None, ...], options: ReadOptions
) -> tuple[list[float | None], list[str], Epoch | None]:
    """The times that all components share, the name of each slice for messages, and the date of the first."""
    known = [(name, moments) for name, moments in zip(names, lists, strict=True) if moments is not None]
    main, first = known[0]
    for name, other in known:
        if [moment.time for moment in other] != [moment.time for moment in first]:
            raise DatasetError(
                f"{other[0].source.name}: variable {name!r} has {len(other)} times, which are not the {len(first)} of "
                f"{main!r} in {first[0].source.name}."
            )
        if other[0].epoch != first[0].epoch and options.times is None:
            raise DatasetError(
                f"{other[0].source.name}: variable {name!r} begins on {other[0].epoch or 'no date'}, but {main!r} in "
                f"{first[0].source.name} on {first[0].epoch or 'no date'}. Components must hold at the same times; pass "
                "`times=` if they do."
            )
    when = [f"{source.name}" if k is None else f"{source.name}[{k}]" for _, source, k, _ in first]
    return [moment.time for moment in first], when, first[0].epoch
