"""Event loop that knows the processor time of its longest step, for which all its other tasks wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any


class MeasuringLoop(asyncio.SelectorEventLoop):
    """Event loop that measures its steps."""

    longest = 0.0
    """Processor time of the longest step, in seconds."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        def step() -> None:
            began = thread_time()
            callback(*args)
            self.longest = max(self.longest, thread_time() - began)

        return super().call_soon(step, context=context)


@contextmanager
def measuring_loop() -> Iterator[MeasuringLoop]:
    """Open a loop, without collections of what earlier tests have left, which are no step of the code under test."""
    loop = MeasuringLoop()
    gc.disable()
    try:
        yield loop
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        gc.enable()
        loop.close()
