"""The report of a planned run: choices, reasons and costs."""

import dataclasses
from typing import Any

GB = 1e9


@dataclasses.dataclass(frozen=True)
class Report:
    """The plan of a run and the state of its program. Print it, or hand it to rich."""

    integrator: str
    field: str
    boundary: str
    device: str
    dtype: str
    layout: str
    layout_reason: str
    fused: bool
    step_reason: str
    """Which kernel takes the steps, or why none does."""
    sort_every: int
    particles: int
    batches: int
    batch_size: int
    batch_reason: str
    recorded_times: int
    steps: int
    steps_per_record: tuple[int, int]
    dt: float
    dt_reason: str
    slices_met: int
    chunk: int
    """Recorded times in one compiled program."""
    field_bytes: int
    """Bytes of the field on the device."""
    ring: str | None
    """How a streamed field is cut."""
    particle_bytes: int
    """A bound on what a batch takes on a device besides the field, or the program's own figure where that was needed."""
    record_bytes: int
    """What all recorded times take in host memory."""
    limit_bytes: int
    compiled: bool
    compile_seconds: float | None

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, as they are printed."""
        few, most = self.steps_per_record
        between = f"{few}" if few == most else f"{few} to {most}"
        sorted_in = f", particles sorted in space every {self.sort_every} steps" if self.sort_every else ""
        state = "not yet; the first run does it"
        if self.compiled:
            state = "yes" if self.compile_seconds is None else f"yes, in {self.compile_seconds:.2f} s"
        return [
            ("integrator", self.integrator),
            ("field", f"{self.field}, {self.field_bytes / 1e6:,.1f} MB"),
            ("layout", f"{self.layout}: {self.layout_reason}"),
            ("step", f"{'one kernel' if self.fused else 'XLA'} ({self.step_reason}){sorted_in}"),
            ("boundary", self.boundary),
            ("device", f"{self.device}, {self.dtype}"),
            (
                "particles",
                f"{self.particles:,} in {self.batches} batch(es) of {self.batch_size:,}: {self.batch_reason}",
            ),
            (
                "times",
                f"{self.recorded_times:,} recorded, {between} step(s) between two, {self.steps:,} in all",
            ),
            ("largest step", f"{self.dt:g}: {self.dt_reason}"),
            ("slice times met", f"{self.slices_met}"),
            ("chunk", f"{self.chunk} recorded time(s) in one program"),
            (
                "memory",
                f"{self.particle_bytes / 1e6:,.1f} MB for a batch, limit {self.limit_bytes / GB:,.2f} GB; "
                f"{self.record_bytes / 1e6:,.1f} MB of results on the host",
            ),
            *([("ring", self.ring)] if self.ring else []),
            ("compiled", state),
        ]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows())

    def __rich__(self) -> Any:
        from rich.markup import escape
        from rich.table import Table

        table = Table(show_header=False, box=None)
        for name, value in self.rows():
            table.add_row(f"[bold]{escape(name)}[/bold]", escape(value))
        return table
