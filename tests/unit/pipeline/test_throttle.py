"""How the background works in slices, and begins work outside a task that ends inside one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from time import monotonic, thread_time

import pytest

from ragtrace.pipeline.throttle import LONGEST_PAUSE_SECONDS, SLICE_SECONDS, Throttle, run_inline

LONG: float = 60.0
VARIABLE: ContextVar[str] = ContextVar("variable", default="default")


def _work_for(seconds: float) -> None:
    began = thread_time()
    while thread_time() - began < seconds:
        pass


def _pause(throttle: Throttle) -> float:
    """How long `yield_interpreter` takes after a slice."""
    throttle.begin_slice()
    _work_for(2 * SLICE_SECONDS)
    began = monotonic()
    throttle.yield_interpreter()
    return monotonic() - began


def test_it_sleeps_after_a_slice_when_there_is_little_to_do() -> None:
    """Whoever waits for the interpreter gets it."""
    throttle = Throttle(lambda: False)
    throttle.set_load(1)
    assert _pause(throttle) >= LONGEST_PAUSE_SECONDS


@pytest.mark.timing
def test_it_does_not_sleep_within_a_slice() -> None:
    """Not at every breath."""
    throttle = Throttle(lambda: False)
    throttle.set_load(1)
    throttle.begin_slice()
    tries: list[float] = []
    for _ in range(5):  # the machine may stand still for longer than ten pauses
        began = monotonic()
        for _ in range(10):
            throttle.begin_slice()
            throttle.yield_interpreter()
        tries.append(monotonic() - began)
    assert min(tries) < 10 * LONGEST_PAUSE_SECONDS


@pytest.mark.timing
def test_the_more_waits_the_shorter_it_sleeps() -> None:
    """It must keep up."""
    throttle = Throttle(lambda: False)
    throttle.set_load(10_000)
    assert min(_pause(throttle) for _ in range(5)) < LONGEST_PAUSE_SECONDS


@pytest.mark.timing
def test_it_does_not_sleep_while_somebody_waits_for_the_work() -> None:
    """A flush is over sooner."""
    throttle = Throttle(lambda: True)
    throttle.set_load(1)
    assert min(_pause(throttle) for _ in range(5)) < LONGEST_PAUSE_SECONDS


def test_work_that_does_not_wait_is_done_at_once() -> None:
    """Turns that it gives away included, without any event loop."""
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append(1)

    assert run_inline(work(), Throttle(lambda: True), LONG) is None
    assert done == [1]


def _carried_on(work: Awaitable[None] | None) -> Awaitable[None]:
    assert work is not None
    return work


def test_work_that_waits_is_carried_on_in_a_task() -> None:
    """And gets what it waited for."""
    got: list[str] = []

    async def main() -> None:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            got.append(await answer)
            got.append(await asyncio.wait_for(asyncio.sleep(0, "again"), 1.0))

        rest = _carried_on(run_inline(work(), Throttle(lambda: True), LONG))
        asyncio.get_running_loop().call_soon(answer.set_result, "an answer")
        await rest

    asyncio.run(main())
    assert got == ["an answer", "again"]


def test_work_that_takes_long_is_carried_on_in_a_task() -> None:
    """Other tasks get their turn."""
    turns: list[int] = []

    async def work() -> None:
        for number in range(3):
            turns.append(number)
            await asyncio.sleep(0)

    async def main() -> None:
        rest = _carried_on(run_inline(work(), Throttle(lambda: True), 0.0))
        assert turns == [0]
        await rest

    asyncio.run(main())
    assert turns == [0, 1, 2]


def test_what_is_raised_arrives() -> None:
    """At once or later."""

    async def work(wait: bool) -> None:
        if wait:
            await asyncio.get_running_loop().create_future()
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        run_inline(work(wait=False), Throttle(lambda: True), LONG)


def test_it_stays_in_one_context() -> None:
    """What the work sets before it waits is there afterwards, can be reset, and leaks to nobody."""
    seen: list[str] = []

    async def work() -> None:
        token = VARIABLE.set("mine")
        await asyncio.sleep(0.001)
        seen.append(VARIABLE.get())
        VARIABLE.reset(token)
        seen.append(VARIABLE.get())

    async def main() -> None:
        rest = _carried_on(run_inline(work(), Throttle(lambda: True), LONG))
        assert VARIABLE.get() == "default"
        await rest

    asyncio.run(main())
    assert seen == ["mine", "default"]


def test_a_cancellation_reaches_the_work() -> None:
    """So that it can say what became of it."""
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def main() -> None:
        rest = _carried_on(run_inline(work(), Throttle(lambda: True), LONG))

        async def wait() -> None:
            await rest

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert told == ["cancelled"]
