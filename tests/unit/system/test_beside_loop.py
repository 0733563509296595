"""`beside_loop`: long texts are read on another thread, so that the other tasks of an event loop go on."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from ragtrace.system.event_loops import beside_loop

LONG, SHORT = 1_000_000, 100
PLACE: ContextVar[str] = ContextVar("place", default="")


def test_only_long_texts_are_read_on_another_thread() -> None:
    """A short one takes less time than the change of threads."""

    async def run() -> tuple[int, int]:
        return await beside_loop(SHORT, threading.get_ident), await beside_loop(LONG, threading.get_ident)

    short, long = asyncio.run(run())
    assert short == threading.get_ident() != long


@pytest.mark.parametrize("chars", [SHORT, LONG])
def test_context_and_errors_are_those_of_the_caller(chars: int) -> None:
    """As if the function were called at once."""

    def fail() -> None:
        raise ValueError(PLACE.get())

    async def run() -> None:
        PLACE.set("here")
        await beside_loop(chars, fail)

    with pytest.raises(ValueError, match="here"):
        asyncio.run(run())


def test_other_tasks_run_meanwhile() -> None:
    """The function waits for one of them."""

    async def run() -> bool:
        told = threading.Event()
        asyncio.get_running_loop().call_soon(told.set)
        return await beside_loop(LONG, lambda: told.wait(30.0))

    assert asyncio.run(run())


def test_at_the_end_of_the_process_texts_are_read_at_once() -> None:
    """When no thread can be started any more."""

    async def run() -> int:
        await beside_loop(LONG, int)
        await asyncio.get_running_loop().shutdown_default_executor()
        return await beside_loop(LONG, threading.get_ident)

    assert asyncio.run(run()) == threading.get_ident()
