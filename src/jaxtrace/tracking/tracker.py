"""The tracker: `create_tracker` binds field, integrator and boundary, `track_particles` moves particles through them."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from jaxworlds.arguments import short
from jaxworlds.batching import world_mesh
from jaxworlds.rollout import Checkpoint

from ..boundaries.base import AbstractBoundary, Unbounded
from ..fields.analytic import try_formula
from ..fields.base import AbstractField
from ..fields.epoch import epoch_of, in_seconds, step_seconds, without_epoch
from ..integrators.base import AbstractIntegrator, AnyKey
from .checks import (
    Positions,
    barred_seeds,
    check_range,
    checked_ids,
    checked_integrator,
    checked_seeds,
    checked_span,
    demand_dimension,
    is_streamed,
    known_span,
    say_once,
    slice_times,
    tell_lost_steps,
    tell_seeds_outside,
    tell_units_on_sphere,
)
from .driver import Job, compiled_simulate, compiled_step, run_job, warm_up
from .plan import TrackerOptions, plan_run
from .reductions import AbstractReduction
from .report import Report
from .results import collect
from .schedule import Schedule, plan_schedule
from .step_lengths import tell_long_steps
from .trajectory import Trajectory

# Particles of a tracker without `batch_size`, where their number is needed before any are given.
_SOME = 1024


def create_tracker(
    integrator_name: str | AbstractIntegrator = "rk4",
    field: Any = None,
    boundary_condition: AbstractBoundary | None = None,
    batch_size: int | None = None,
    record_velocities: bool = False,
    use_jax_jit: bool = True,
    static_compilation: bool = True,
    use_scan_jit: bool = True,
    device_put_inputs: bool = True,
    progress_callback: Callable[[int, int], Any] | None = None,
    *,
    integrator: AbstractIntegrator | None = None,
    seed: int = 0,
    key: AnyKey | None = None,
    mesh: Any = None,
    memory_limit_gb: float | None = None,
    layout: str = "auto",
    checkpoint: Checkpoint | str | Path | None = None,
    reduce: Callable[..., Any] | None = None,
    keep_positions: bool | None = None,
    stop_outside: bool = True,
    land_on_slices: bool = True,
    sort_every: int | None = None,
    fused: bool | None = None,
    **options: Any,
) -> "Tracker":
    """A tracker of particles through `field`.

    - `integrator_name`: "rk4", "euler", "midpoint", "dopri5", "euler_maruyama", "milstein", "inertial", or an integrator
      (also as `integrator=`). `options` are the integrator's, such as `rtol` or `diffusivity`.
    - `boundary_condition`: from `jaxtrace.tracking.boundary`; none by default.
    - `batch_size`: particles that move at the same time; by default all that memory allows.
    - `record_velocities`: also keep the velocity at every recorded time.
    - `progress_callback(done, total)`: called now and then with integration steps; True stops the run.
    - `seed` or `key`: of random walks and inlets.
    - `mesh`: devices to spread particles over: a `jaxworlds.world_mesh`, or how many. Each steps and sorts its own.
    - `memory_limit_gb`: of a device; by default the limit set with `configure`, or all that it has.
    - `layout`: of the slices of a series, see `jaxtrace.fields.moments`; "auto" chooses by a rule for the number of
      particles, "tune" by measuring for a second.
    - `sort_every`: steps from one sorting of the particles in space to the next, 0 for none; chosen by default.
    - `fused`: whether a kernel takes the steps (of RK4, on a GPU or a CPU); by default where one can.
    - `checkpoint`: a folder to save runs to, see `track_particles`.
    - `reduce`: see `jaxtrace.tracking.reductions`; positions are then kept only with `keep_positions=True`.
    - `stop_outside`: whether a particle ends where the field does; else it goes on with the velocity of the nearest place.
    - `land_on_slices`: whether steps end on the slice times of a series, where its derivative jumps.

    `use_jax_jit`, `static_compilation`, `use_scan_jit` and `device_put_inputs` have no effect: every tracker is compiled.
    """
    switches = {
        "use_jax_jit": use_jax_jit,
        "static_compilation": static_compilation,
        "use_scan_jit": use_scan_jit,
        "device_put_inputs": device_put_inputs,
    }
    for name, value in switches.items():
        if not value:
            say_once(f"`{name}=False` has no effect: every tracker is compiled. Leave it out.")
    if field is None:
        raise ValueError("`field` must be given, the velocity that moves the particles; got None.")
    if not isinstance(field, AbstractField) and not is_streamed(field):
        remedy = (
            "The order is create_tracker(integrator, field, boundary)."
            if isinstance(field, str)
            else "Values on nodes make a TimeSeriesField."
            if isinstance(field, np.ndarray | jax.Array | list)
            else "Wrap a function in AnalyticField."
        )
        raise TypeError(f"`field` must be a field of jaxtrace.fields; got {type(field).__name__}. {remedy}")
    boundary = Unbounded() if boundary_condition is None else boundary_condition
    if not isinstance(boundary, AbstractBoundary):
        raise TypeError(
            f"`boundary_condition` must come from jaxtrace.tracking.boundary; got {short(boundary)}. Write "
            "`reflective_boundary([[0, 0], [2, 1]])`, or leave it out."
        )
    demand_dimension(boundary, field.dim)
    if batch_size is not None and batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1; got {batch_size}. Leave it out to have it planned."
        )
    chosen = checked_integrator(integrator_name, integrator, options)
    tell_units_on_sphere(field, chosen)
    amount = getattr(chosen, "diffusivity", None)
    if callable(amount) and not isinstance(amount, AbstractField):
        try_formula(amount, field.dim, "diffusivity")
    return Tracker(
        TrackerOptions(
            field=without_epoch(field),
            integrator=chosen,
            boundary=boundary,
            key=jr.key(seed) if key is None else key,
            batch_size=batch_size,
            record_velocities=record_velocities,
            progress_callback=progress_callback,
            mesh=world_mesh(mesh) if isinstance(mesh, int) else mesh,
            memory_limit_gb=memory_limit_gb,
            layout=layout,
            checkpoint=checkpoint,
            reduce=reduce,
            keep_positions=reduce is None if keep_positions is None else keep_positions,
            stop_outside=stop_outside,
            land_on_slices=land_on_slices,
            sort_every=sort_every,
            fused=fused,
            epoch=epoch_of(field),
        )
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Tracker:
    """Field, integrator and boundary, ready to move particles. Made by `create_tracker`."""

    options: TrackerOptions
    _seen: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """The last run and the programs compiled so far, for `explain`."""

    def track_particles(
        self,
        initial_positions: Positions,
        time_span: Sequence[Any] | np.ndarray,
        n_timesteps: int | None = None,
        dt: Any = None,
        *,
        release_times: Any = None,
        ids: Any = None,
        record_every: int | None = None,
        checkpoint: Checkpoint | str | Path | None = None,
        resume: bool = False,
        progress: bool | None = None,
    ) -> Trajectory:
        """Move particles from `time_span[0]` to `time_span[1]` and record where they are.

        `time_span` rules; a smaller end goes back in time. `n_timesteps` times are recorded, evenly spaced, both ends
        included. `dt` is the largest integration step; steps are shortened to end on recorded times, on slice times of
        the field and on release times. Without `n_timesteps` every step is recorded, or every `record_every`-th;
        without `dt` it is a twentieth of the slices' spacing, or the recorded spacing. Where the field has an `epoch`, spans and
        release times may be dates ("2015-11-16 06:00", `datetime64`, `datetime`), and `dt` a `timedelta`.

        - `release_times`: when each particle begins to move; it rests before.
        - `ids`: names of the particles; 0, 1, ... by default.
        - `checkpoint`: a folder to save to; with `resume=True` a run found there goes on, with the same bits.
        - `progress`: show a bar; by default on a terminal only. Ctrl-C or SIGTERM returns what is recorded so far.
        """
        began = time.perf_counter()
        seeds = checked_seeds(initial_positions, self.options.field.dim)
        names = checked_ids(ids, len(seeds))
        if isinstance(self.options.reduce, AbstractReduction):
            self.options.reduce._check(seeds, self.options.boundary)
        schedule = self.plan(time_span, n_timesteps, dt, len(seeds), record_every, release_times)
        barred = barred_seeds(seeds, self.options.boundary, self.options.field)
        tell_lost_steps(self.options.field, self.options.integrator, seeds, schedule.dt)
        tell_long_steps(self.options.field, self.options.integrator, seeds, schedule)
        job, report = plan_run(self.options, seeds, schedule)
        where = self.options.checkpoint if checkpoint is None else checkpoint
        if resume and where is None:
            raise ValueError("`resume` needs `checkpoint`, the folder of the run that goes on; got None.")
        job = dataclasses.replace(
            job,
            barred=barred,
            checkpoint=Checkpoint(where) if isinstance(where, str | Path) else where,
            resume=resume,
            progress=progress,
            callback=self.options.progress_callback,
        )
        records, batches = run_job(job)
        self._remember(job, report, batches[0].compile_seconds)
        found = collect(job, records, batches, names, began, self.options.epoch)
        tell_seeds_outside(found.outcomes, seeds, self.options.field, barred)
        return found

    def plan(
        self,
        time_span: Sequence[Any] | np.ndarray,
        n_timesteps: int | None = None,
        dt: Any = None,
        particles: int = 1,
        record_every: int | None = None,
        release_times: Any = None,
    ) -> Schedule:
        """The times that `track_particles` would compute at."""
        epoch = self.options.epoch
        if not isinstance(time_span, str):  # one text is no span, which is told next
            time_span = in_seconds(time_span, epoch, "time_span")
        time_span = checked_span(time_span)
        release_times = in_seconds(release_times, epoch, "release_times")
        dt = step_seconds(dt, epoch)
        check_range(self.options.field, time_span, epoch)
        schedule = plan_schedule(
            time_span,
            n_timesteps,
            dt,
            record_every=record_every,
            release_times=release_times,
            particles=particles,
            slice_times=slice_times(self.options.field),
            land_on_slices=self.options.land_on_slices,
            whole_intervals=self.options.integrator.adaptive and isinstance(self.options.boundary, Unbounded),
        )
        if schedule.backward and not self.options.integrator.reversible:
            raise ValueError(
                f"`time_span` must rise for {type(self.options.integrator).__name__}, which cannot go back in time; got "
                f"{schedule.span[0]:g} to {schedule.span[1]:g}."
            )
        return schedule

    def compile(
        self,
        n_particles: int | None = None,
        n_timesteps: int | None = None,
        time_span: Sequence[Any] | np.ndarray | None = None,
        dt: Any = None,
        record_every: int | None = None,
    ) -> Report:
        """Compile the program of a run now, so that `track_particles` with these numbers begins at once.

        The program runs without a step, so what is returned was really compiled. Numbers that are left out are those
        of the last run, else `batch_size` particles and the times of the field.
        """
        job, report = self._sketch(n_particles, n_timesteps, time_span, dt, record_every)
        rollout = warm_up(job)
        self._remember(job, report, rollout.compile_seconds)
        return self.explain(n_particles, n_timesteps, time_span, dt, record_every)

    def explain(
        self,
        n_particles: int | None = None,
        n_timesteps: int | None = None,
        time_span: Sequence[Any] | np.ndarray | None = None,
        dt: Any = None,
        record_every: int | None = None,
    ) -> Report:
        """What a run with these numbers does and needs; left out, the last run or the field decides."""
        given = (n_particles, n_timesteps, time_span, dt, record_every)
        if all(value is None for value in given) and "report" in self._seen:
            return self._seen["report"]
        job, report = self._sketch(*given)
        seconds = self._seen.get(_program_of(job))
        return dataclasses.replace(report, compiled=seconds is not None, compile_seconds=seconds)

    @property
    def compiled(self) -> bool:
        """Whether a program of this tracker is compiled: after `compile`, or after a run."""
        return "report" in self._seen

    @property
    def _compiled_step(self) -> Any:
        """One step of a batch, compiled at the first look; older recipes assert that it is not None."""
        return self._executable("_compiled_step", compiled_step)

    @property
    def _compiled_simulate(self) -> Any:
        """The steps between two recorded times, compiled at the first look."""
        return self._executable("_compiled_simulate", compiled_simulate)

    def _executable(self, name: str, build: Callable[[Job], Any]) -> Any:
        say_once(
            "asserting `_compiled_step` or `_compiled_simulate` is unnecessary: a tracker always runs compiled. "
            "`tracker.compile()` compiles ahead, `tracker.explain()` says what will run.",
            stacklevel=4,
        )
        if name not in self._seen:
            self._seen[name] = build(self._sketch(None, None, None, None, None)[0])
        return self._seen[name]

    def _sketch(
        self,
        n_particles: int | None,
        n_timesteps: int | None,
        time_span: Sequence[Any] | np.ndarray | None,
        dt: Any,
        record_every: int | None,
    ) -> tuple[Job, Report]:
        """A run of particles in the middle of the field, with the last run's numbers where none are given."""
        last: dict[str, Any] = self._seen.get("numbers", {})
        count = n_particles or last.get("particles") or self.options.batch_size or _SOME
        span = time_span if time_span is not None else last.get("span", known_span(self.options.field))
        if n_timesteps is None and dt is None:
            n_timesteps, dt = last.get("times", 2), last.get("dt")
        schedule = self.plan(span, n_timesteps, dt, count, record_every)
        return plan_run(
            self.options, np.zeros((count, self.options.field.dim), jnp.result_type(float)), schedule
        )

    def _remember(self, job: Job, report: Report, seconds: float) -> None:
        """Keep what `explain` says, and the time of the first compilation of each program."""
        seconds = self._seen.setdefault(_program_of(job), seconds)
        schedule = job.schedule
        self._seen["report"] = dataclasses.replace(report, compiled=True, compile_seconds=seconds)
        self._seen["numbers"] = {
            "particles": len(job.seeds),
            "span": schedule.span,
            "times": len(schedule.times),
            "dt": schedule.dt,
        }


def _program_of(job: Job) -> str:
    """What a program depends on, of what changes from run to run of one tracker."""
    chunks = dataclasses.replace(job.chunks, segments=0)
    return f"program {job.batch} {chunks} {job.segment} {getattr(job.motion.field, 'layout', None)}"
