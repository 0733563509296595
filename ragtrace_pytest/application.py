"""Application under test of the pytest plugin: a function that is called with queries and recorded by ragtrace."""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.feedback import encode_call_id
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.offline.case_run import Case

if TYPE_CHECKING:
    from ragtrace.block import CallBlock

_FLUSH_S: Final = 60.0
_CALLS_AT_ONCE: Final = 500
"""Number of calls of the application before the run waits until all are recorded, below the queue's capacity."""


class _CallCollector:
    """Stand-in for a judge, which stores each RAG call by call id and gives no labels."""

    id, version = "collector", "1"
    type: EvaluatorType = "deterministic"

    def __init__(self) -> None:
        self.calls: dict[str, RagCall] = {}

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* is `consistency`, for which the collector receives every call."""
        return metric.name == "consistency"

    async def judge(self, call: RagCall) -> Judgement:
        """Store *call* under its call id."""
        if call.span is not None:
            self.calls[encode_call_id(call.span)] = call
        return Judgement()


class RecordedApplication:
    """Application under test: a function that is called with each query, and recorded as a RAG call.

    Args:
        spec: path of the function, as `module:function`. It is imported when it has to answer first.
        workers: number of calls of the application at the same time.
    """

    def __init__(self, spec: str, workers: int = 1) -> None:
        self._spec, self._workers = spec, workers

    @property
    def spec(self) -> str:
        """Path of the application's function, as `module:function`."""
        return self._spec

    @cached_property
    def _function(self) -> Callable[..., object]:
        return self._load(self._spec)

    @cached_property
    def _takes_contexts(self) -> bool:
        return "contexts" in _parameters(self._function)[1:]

    @staticmethod
    def _load(spec: str) -> Callable[..., object]:
        module, _, path = spec.partition(":")
        found: object
        try:
            found = import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingsError(
                f"no function at {spec!r} ({error}); write --ragtrace-app module:function, importable from here"
            ) from None
        if not callable(found):
            raise SettingsError(f"{spec} is no function, got {type(found).__name__}")
        return found

    def answer(self, cases: Sequence[Case]) -> tuple[Mapping[int, RagCall], Mapping[int, str]]:
        """Call the application with the query of each test case.

        Returns:
            The recorded calls, and the traceback of each exception that the application raised, both by line.

        Raises:
            SettingsError: there is no such function, or the application configures ragtrace itself while it answers, so
                that its calls are lost.
        """
        _ = self._function  # imported before ragtrace is configured, as the module may configure it, too
        collector, ids, errors = _CallCollector(), dict[int, str](), dict[int, str]()
        with _without_settings():
            # Nothing of a test run may reach a backend, a history or a spool that the environment names.
            ragtrace.configure(
                exporter="none",
                screen=collector,
                metrics="consistency",
                telemetry=ragtrace.TelemetryOptions(set_global=False),
                enabled=True,
            )
        try:
            for first in range(0, len(cases), _CALLS_AT_ONCE):
                self._answer_some(cases[first : first + _CALLS_AT_ONCE], ids, errors)
                ragtrace.flush(_FLUSH_S)
        finally:
            ragtrace.shutdown()
        lost = [line for line in ids if ids[line] not in collector.calls and line not in errors]
        if lost:
            raise SettingsError(
                f"{len(lost)} calls of {self._spec} were not recorded, the first one on line {min(lost)}; the "
                "application must not call ragtrace.configure or ragtrace.shutdown while it answers: let it do so when "
                "its module is imported"
            )
        by_line = {case.line: case for case in cases}
        # The reference is about the question, so it holds for the new answer, too.
        return {
            line: replace(
                collector.calls[call], reference=by_line[line].call.reference, workflow=by_line[line].call.workflow
            )
            for line, call in ids.items()
            if line not in errors
        }, errors

    def _answer_some(self, cases: Sequence[Case], ids: dict[int, str], errors: dict[int, str]) -> None:
        if inspect.iscoroutinefunction(self._function) or inspect.isasyncgenfunction(self._function):
            asyncio.run(self._answer_all_async(cases, ids, errors))
        elif self._workers == 1:  # on the main thread, as some applications need that thread
            for case in cases:
                self._answer_one(case, ids, errors)
        else:
            with ThreadPoolExecutor(self._workers) as pool:
                for done in [pool.submit(self._answer_one, case, ids, errors) for case in cases]:
                    done.result()

    def _answer_one(self, case: Case, ids: dict[int, str], errors: dict[int, str]) -> None:
        with _recorded(case, ids, errors) as block:
            named = self._named_arguments(case, block)
            block.answered(_read_fully(self._function(case.call.query, **named)))

    async def _answer_all_async(self, cases: Sequence[Case], ids: dict[int, str], errors: dict[int, str]) -> None:
        places = asyncio.Semaphore(self._workers)

        async def answer_one(case: Case) -> None:
            async with places:
                with _recorded(case, ids, errors) as block:
                    found: Any = self._function(case.call.query, **self._named_arguments(case, block))
                    if inspect.isasyncgen(found):
                        block.answered(_join_chunks([piece async for piece in found]))
                    else:
                        block.answered(await cast("Awaitable[object]", found))

        await asyncio.gather(*map(answer_one, cases))

    def _named_arguments(self, case: Case, block: CallBlock) -> dict[str, object]:
        """Return the stored contexts as a keyword argument, or {} for an application that retrieves its own."""
        if not self._takes_contexts:
            return {}
        if case.call.contexts is not None:
            block.retrieved(case.call.contexts)
        return {"contexts": [document.text for document in case.call.contexts or ()]}


@contextmanager
def _recorded(case: Case, ids: dict[int, str], errors: dict[int, str]) -> Generator[CallBlock, None, None]:
    """Record a `with` block as the RAG call of the test case *case*, and store any exception instead of raising it."""
    try:
        with ragtrace.call(case.call.query, name="case") as block:
            ids[case.line] = ragtrace.call_id() or ""
            yield block
    except Exception:
        errors[case.line] = traceback.format_exc()


@contextmanager
def _without_settings() -> Generator[None, None, None]:
    """Hide ragtrace's environment variables while ragtrace is configured for the run."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith("RAGTRACE_")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _parameters(function: Callable[..., object]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a callable written in C may have no signature
        return []


def _read_fully(found: object) -> object:
    """Return the application's result, with a generator read to its end."""
    return _join_chunks(list(cast("Iterator[object]", found))) if inspect.isgenerator(found) else found


def _join_chunks(pieces: Sequence[object]) -> object:
    """Join the chunks of a stream to a text, or return the last chunk if not all of them are texts."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(pieces) else pieces[-1]
