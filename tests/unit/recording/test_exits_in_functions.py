"""Functions of the application that exit or cancel while ragtrace calls them: that goes on, and the call is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import RagtraceError
from ragtrace.system.faults import faults
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S


class OwnExit(BaseException):
    """Exit of the application's own kind."""


EXITS = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), OwnExit()]


def plain(decorate: Callable[[Any], Any]) -> object:
    @decorate
    def ask(question: str) -> str:
        return "It is there."

    return ask("where?")


def generator(decorate: Callable[[Any], Any]) -> object:
    @decorate
    def ask(question: str) -> Iterator[str]:
        yield from ("It is", " there.")

    return list(ask("where?"))


def coroutine(decorate: Callable[[Any], Any]) -> object:
    @decorate
    async def ask(question: str) -> str:
        return "It is there."

    return asyncio.run(ask("where?"))


def async_generator(decorate: Callable[[Any], Any]) -> object:
    @decorate
    async def ask(question: str) -> AsyncIterator[str]:
        yield "It is"
        yield " there."

    async def read() -> list[str]:
        return [piece async for piece in ask("where?")]

    return asyncio.run(read())


@pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("option", ["query", "session", "answer", "sources", "reduce"])
@pytest.mark.parametrize("run", [plain, generator, coroutine, async_generator])
def test_an_exit_goes_on_and_the_call_has_a_span_or_is_said(
    run: Callable[[Callable[[Any], Any]], object], option: str, error: BaseException
) -> None:
    """A call whose function never ran has none."""

    def leave(*_: object) -> Any:
        raise error

    faults.clear()
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=None, sampling=ragtrace.Sampling(rate=1.0))
    options: dict[str, Any] = {option: leave}
    try:
        run(ragtrace.trace(**options))
    except RagtraceError:
        raise
    except BaseException as raised:
        if type(raised) is not type(error):
            raise
    assert ragtrace.flush(WAIT_S)
    assert len(captured.roots()) + faults.counts().get("begin", 0) == 1
