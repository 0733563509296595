"""End of an event loop: tasks that still wait are cancelled, a few at a time, and clients are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

_LAST_TURNS: Final = 16
_AT_ONCE: Final = 4
"""Tasks cancelled in one turn: a thread that waits for the end must not have to wait for the interpreter as well."""
_CLOSE_SECONDS: Final = 0.5


async def cancel_tasks(tasks: Iterable[asyncio.Task[None]], pause: Callable[[], None]) -> None:
    """Cancel *tasks*, the youngest first, and wait until they have ended.

    Args:
        tasks: oldest first. A younger one may wait for what an older one holds, and must not be let in now.
        pause: called between two turns.
    """
    # A task cancelled before it began could not say what became of its item; one just answered has a way to go.
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)
    ending = [task for task in tasks if not task.done()][::-1]
    for start in range(0, len(ending), _AT_ONCE):
        for task in ending[start : start + _AT_ONCE]:
            task.cancel()
        await asyncio.sleep(0)
        pause()
    await asyncio.gather(*ending, return_exceptions=True)


async def close_within_limit(closing: Coroutine[Any, Any, None]) -> None:
    """Await *closing*, for `_CLOSE_SECONDS` at most."""
    task = asyncio.ensure_future(closing)
    if not (await asyncio.wait({task}, timeout=_CLOSE_SECONDS))[0]:
        task.cancel()
        await asyncio.sleep(0)
