"""VTK itself: imported late, without what draws, and made to raise what it would print."""

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from .series import DatasetError

_one_at_a_time = threading.RLock()


def vtk() -> Any:
    """The parts of VTK that read, write and hold data; nothing that draws."""
    try:
        from vtkmodules import (
            vtkCommonCore,
            vtkCommonDataModel,
            vtkCommonExecutionModel,
            vtkIOLegacy,
            vtkIOXML,
        )
        from vtkmodules.util import numpy_support
    except ImportError as error:
        raise ImportError('VTK files need the package vtk: pip install "jaxworlds[trace]".') from error
    return SimpleNamespace(
        core=vtkCommonCore,
        model=vtkCommonDataModel,
        pipeline=vtkCommonExecutionModel.vtkStreamingDemandDrivenPipeline,
        legacy=vtkIOLegacy,
        xml=vtkIOXML,
        numpy=numpy_support,
    )


@contextlib.contextmanager
def complaints(where: str) -> Iterator[None]:
    """Raise what VTK would print: its readers and writers report errors on the screen and carry on."""
    core = vtk().core
    with _one_at_a_time:  # the window and the verbosity belong to the whole process
        window, before = core.vtkStringOutputWindow(), core.vtkOutputWindow.GetInstance()
        verbosity = core.vtkLogger.GetCurrentVerbosityCutoff()
        core.vtkOutputWindow.SetInstance(window)
        core.vtkLogger.SetStderrVerbosity(core.vtkLogger.VERBOSITY_OFF)
        try:
            yield
        finally:
            core.vtkOutputWindow.SetInstance(before)
            core.vtkLogger.SetStderrVerbosity(verbosity)
    said = [line.strip() for line in window.GetOutput().splitlines() if line.strip()]
    # Some readers only warn where they lost data: "Generic Warning: … Error reading binary data!".
    if any(line.startswith("ERROR") or "Error reading" in line for line in said):
        told = [
            line.partition("): ")[2] or line for line in said if not line.startswith(("ERROR:", "Generic"))
        ]
        raise DatasetError(
            f"{where}: VTK cannot use the file: {'; '.join(told[:2])} The file is damaged or cut off."
        )
