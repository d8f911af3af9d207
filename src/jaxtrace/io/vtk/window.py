"""VTK itself: imported late, without what draws, and made to raise what it would print."""

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from ..files import named_errors, naming_package
from .child import Complaints, FileError

_one_at_a_time = threading.RLock()


def vtk() -> Any:
    """The parts of VTK that write, unpack and hold data; nothing that draws."""
    with naming_package("Writing VTK files, and reading those with LZ4, needs the package vtk"):
        from vtkmodules import vtkCommonCore, vtkCommonDataModel, vtkIOCore, vtkIOXML
        from vtkmodules.util import numpy_support
    return SimpleNamespace(
        core=vtkCommonCore, model=vtkCommonDataModel, io=vtkIOCore, xml=vtkIOXML, numpy=numpy_support
    )


@contextlib.contextmanager
def complaints(where: str) -> Iterator[None]:
    """Raise what VTK would print: it reports errors on the screen and carries on."""
    core = vtk().core
    with _one_at_a_time:  # the window and the verbosity belong to the whole process
        before, verbosity = core.vtkOutputWindow.GetInstance(), core.vtkLogger.GetCurrentVerbosityCutoff()
        told = Complaints()
        try:
            yield
        finally:
            core.vtkOutputWindow.SetInstance(before)
            core.vtkLogger.SetStderrVerbosity(verbosity)
    with named_errors(f"{where}: VTK cannot use the file", FileError, " The file is damaged or cut off."):
        told.check()
