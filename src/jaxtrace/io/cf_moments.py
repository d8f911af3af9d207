"""When and where the slices of a NetCDF or Zarr variable are stored: in one file or several, with physical times or without."""

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..fields.epoch import Epoch
from .cf_attributes import date_elsewhere, origin_named, since_elsewhere
from .cf_axes import clock_along, dimension_roles, role_of, values_of
from .cf_units import decode_times, rounding_of
from .opened import Options
from .series import DatasetError


class Source(NamedTuple):
    """An open data set, how messages call it, and variables of it that cannot be read, each with the reason."""

    name: str
    data: Any
    refused: Mapping[str, str] = MappingProxyType({})


class Moment(NamedTuple):
    """Where one component of one slice is stored."""

    time: float | None
    source: Source
    number: int | None
    epoch: Epoch | None = None
    """The date of the first slice, from which `time` counts; None where the file says no date."""


def warn_once(text: str, said: set[str]) -> None:
    """Warn unless this text is among those `said` before: several components share their time."""
    if text not in said:
        said.add(text)
        warnings.warn(text, UserWarning, stacklevel=3)


def moments_of(sources: list[Source], name: str, options: Options, said: set[str]) -> list[Moment]:
    """All slices of one component, in the order of time where there is one. What was `said` is not warned of again."""
    found: list[Moment] = []
    reference: Epoch | str | None = None
    without_units: dict[str, str] = {}
    for source in sources:
        if name not in source.data.variables:
            continue
        variable = source.data.variables[name]
        dim = time_dim(source.data, variable, options)
        numbers: list[int | None] = [None] if dim is None else list(range(variable.sizes[dim]))
        chosen = _selected_time_dim(source.data, variable, options) if dim is None else None
        told = (
            _single_time(source.data)
            if dim is None and chosen is None
            else clock_along(source.data, chosen or str(dim))
        )
        if told is None:
            found += [Moment(None, source, number) for number in numbers]
            continue
        clock = source.data.variables[told]
        if told in source.refused and options.times is None and chosen is None:
            raise DatasetError(f"{source.name}: variable {told!r}: {source.refused[told]}.")
        try:
            values = np.atleast_1d(values_of(told, clock))
            if chosen is not None:
                values = values[[options.select[chosen]]]
            if values.shape != (len(numbers),):
                raise ValueError(f"it has {values.shape} values for {len(numbers)} slices of {name!r}")
            seconds, since, bare = decode_times(values, clock.attrs)
            elsewhere = since_elsewhere(clock.attrs) if bare else None
            if elsewhere is not None:
                seconds, since, bare = decode_times(values, {**clock.attrs, "units": elsewhere[1]})
                warn_once(
                    f"{source.name}: variable {told!r} has no units, but {elsewhere[0]} = {clock.attrs[elsewhere[0]]!r}: it is "
                    f"read as {elsewhere[1]!r}. Set the units so, or pass `times=`.",
                    said,
                )
            elif since is None and not bare and (dated := date_elsewhere(clock.attrs)) is not None:
                seconds, since, bare = decode_times(
                    seconds, {**clock.attrs, "units": f"seconds since {dated[1]}"}
                )
                warn_once(
                    f"{source.name}: variable {told!r} has units {clock.attrs['units']!r} without a date, but {dated[0]} = "
                    f"{clock.attrs[dated[0]]!r}: its times count from {dated[1]}. Set the units so, or pass `times=`.",
                    said,
                )
            elif since is None and options.epoch is None and (named := origin_named(clock.attrs)) is not None:
                warn_once(
                    f"{source.name}: variable {told!r} has no date in its units, but {named} = {str(clock.attrs[named])[:60]!r}: "
                    "that is not read, and times have no dates. Pass `epoch='YYYY-MM-DD'`, the date of time 0, for them.",
                    said,
                )
            _tell_rounding(f"{source.name}: variable {told!r}", clock, seconds, options, said)
        except DatasetError:
            raise
        except ValueError as error:
            if (
                options.times is not None or chosen is not None
            ):  # the remedy of this very error: the caller says when, in the order of the files; one slice needs no time
                found += [Moment(None, source, number) for number in numbers]
                continue
            raise DatasetError(f"{source.name}: variable {told!r}: {error}.") from error
        if bare:
            without_units.setdefault(told, source.name)
        if found and since != reference:
            raise DatasetError(
                f"{source.name}: variable {told!r} has {_dates_words(since)}, but that of {found[0].source.name} has "
                f"{_dates_words(reference)}. Bring them to one calendar first."
            )
        if isinstance(since, str) and since != reference and options.times is None and "(none)" not in since:
            warn_once(
                f"{source.name}: variable {told!r} counts from {since}, a calendar that is not known: times are seconds from "
                "the first slice, without dates. Pass `times=` with dates otherwise.",
                said,
            )
        reference = since
        found += [Moment(float(t), source, number) for t, number in zip(seconds, numbers, strict=True)]
    if without_units and options.times is None and len(found) > 1:
        told, where = next(iter(without_units.items()))
        warn_once(
            f"{where}: variable {told!r} has no units; its values are taken as seconds. Pass `times=` otherwise.",
            said,
        )
    if not found:
        raise DatasetError(
            f"{sources[0].name}: variable {name!r} has no slice; its dimension of time is empty."
        )
    if all(moment.time is not None for moment in found):
        found.sort(key=lambda moment: moment.time or 0.0)
        if reference is not None:
            start = found[0].time or 0.0
            try:
                epoch = reference.later_by(start) if isinstance(reference, Epoch) else None
            except ValueError as error:
                raise DatasetError(
                    f"{found[0].source.name}: variable {name!r}: {error} Pass `times=`."
                ) from error
            # Seconds from 1970 hold microseconds, as dates do, and noise below them.
            times = [round((moment.time or 0.0) - start, 6) for moment in found]
            found = [
                moment._replace(time=time, epoch=epoch) for moment, time in zip(found, times, strict=True)
            ]
    return found


# Steps between slices are known worse than this part of them where times have lost digits.
_LOST = 0.01


def _tell_rounding(
    what: str, clock: Any, seconds: Float[np.ndarray, " n"], options: Options, said: set[str]
) -> None:
    """Warn of times that float32 did not hold. Uneven steps show it: round numbers are exact however large."""
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
    """How messages call the dates of a file."""
    return f"dates of the calendar {since.calendar!r}" if isinstance(since, Epoch) else since or "no dates"


def time_dim(dataset: Any, variable: Any, options: Options) -> str | None:
    """The dimension along which the slices lie, unless one of them was selected."""
    roles = dimension_roles(dataset, tuple(map(str, variable.dims)))
    return next((dim for dim, role in roles.items() if role == "T" and dim not in options.select), None)


def _selected_time_dim(dataset: Any, variable: Any, options: Options) -> str | None:
    """The dimension of time of which one valid index was selected."""
    roles = dimension_roles(dataset, tuple(map(str, variable.dims)))
    dim = next((dim for dim, role in roles.items() if role == "T" and dim in options.select), None)
    if dim is None:
        return None
    index, size = options.select[dim], variable.sizes[dim]
    return dim if isinstance(index, int | np.integer) and -size <= index < size else None


def _single_time(dataset: Any) -> str | None:
    """The variable that says the one time of a file whose fields have no dimension of time."""
    alone = (name for name, variable in dataset.variables.items() if variable.size == 1)
    return next(
        (str(name) for name in alone if role_of(str(name), dataset.variables[name].attrs) == "T"), None
    )


def common_times(
    lists: list[list[Moment] | None], names: tuple[str | None, ...], options: Options
) -> tuple[list[float | None], list[str], Epoch | None]:
    """The times that all components share, what to call each slice, and the date of the first."""
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
