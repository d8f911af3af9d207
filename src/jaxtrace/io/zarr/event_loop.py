"""Results of coroutines for functions that are none, without the change of threads that zarr-python makes for each request."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class _Loop(threading.local):
    """An event loop for each thread, closed with it."""

    loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            self.closer = _Closer(self.loop)
        return self.loop.run_until_complete(coroutine)


class _Closer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def __del__(self) -> None:
        self.loop.close()


_LOOP = _Loop()


def wait_for(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine; in a thread whose event loop is at work, such as a notebook's, through that of zarr-python."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _LOOP.run(coroutine)
    from zarr.core.sync import sync

    return sync(coroutine)
