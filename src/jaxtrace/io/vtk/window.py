"""VTK itself: imported late, without what draws, and made to raise what it would print."""

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from ..files import DatasetError

_one_at_a_time = threading.RLock()


def vtk() -> Any:
    """The parts of VTK that read, write and hold data; nothing that draws."""
    try:
        from vtkmodules import (
            vtkCommonCore,
            vtkCommonDataModel,
            vtkIOXML,
        )
        from vtkmodules.util import numpy_support
    except ImportError as error:
        raise ImportError('VTK files need the package vtk: pip install "jaxworlds[trace]".') from error
    return SimpleNamespace(
        core=vtkCommonCore,
        model=vtkCommonDataModel,
        xml=vtkIOXML,
        numpy=numpy_support,
    )


def lz4() -> Any:
    """VTK's own LZ4, for arrays that are packed with it."""
    try:
        from vtkmodules.vtkIOCore import vtkLZ4DataCompressor
    except ImportError as error:
        raise ImportError(
            'VTK files with LZ4 need the package vtk: pip install "jaxworlds[trace]".'
        ) from error
    return vtkLZ4DataCompressor()


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
    output = window.GetOutput()  # bytes where it quotes some that are no UTF-8
    text = output.decode("utf-8", "replace") if isinstance(output, bytes) else output
    said = [line.strip() for line in text.splitlines() if line.strip()]
    # Some readers only warn where they lost data: "Generic Warning: … Error reading binary data!".
    if any(line.startswith("ERROR") or "Error reading" in line for line in said):
        told = [
            line.partition("): ")[2] or line for line in said if not line.startswith(("ERROR:", "Generic"))
        ]
        raise DatasetError(
            f"{where}: VTK cannot use the file: {'; '.join(told[:2])} The file is damaged or cut off."
        )
