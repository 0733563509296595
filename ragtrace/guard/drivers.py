"""Drivers of guarded functions: they run a function as without a guard, and then have its answer checked."""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ragtrace.capture.fields import shape_of
from ragtrace.core.errors import SettingsError
from ragtrace.guard.guarded_call import RETRY, AnswerCheck, GuardRuntime, HeldRecorder, ShadowCheck, ShadowRuntime
from ragtrace.guard.guards import GuardedFunction, find_bound, find_evaluator, guards_of, register
from ragtrace.guard.held_objects import held_stream
from ragtrace.guard.settings import Guard
from ragtrace.guard.streams import HeldStream
from ragtrace.recording.drivers import called_function, driver_of, is_awaitable_generator
from ragtrace.recording.recorder import StepRecorder, StepSpec
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.recording.tag_layers import TagLayer
    from ragtrace.runtime.runtime import Runtime

_COROUTINE: Any = types.CoroutineType
_TEXTS: Final = (str, object, Any)
"""Annotations of a function that may return a text."""
_STREAMS: Final = (Iterator, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)
"""Annotations of a function that returns a stream. Not `Iterable`, as a list is one."""
_FUTURES: Final = (asyncio.Future, Future)


class GuardDriver:
    """Driver of one guarded function.

    Args:
        guard: the guard.
        spec: specification of the function's steps.
        function: the undecorated function.

    Raises:
        SettingsError: the guard cannot hold back what the function returns, or cannot replace it.
    """

    def __init__(self, guard: Guard, spec: StepSpec, function: Any) -> None:
        inner = called_function(function)
        if guard.action != "shadow":
            _check_kind(guard, spec, inner)
        self.function = GuardedFunction(guard, spec.workflow)
        self._spec, self._run = spec, driver_of(function)
        self._shadow: ShadowRuntime | None = None
        self._is_coroutine = inspect.iscoroutinefunction(inner)
        self.run = self._run_shadow if guard.action == "shadow" else self._run_held

    def begin(self, runtime: Runtime | None) -> None:
        """Check that the guard can work, and have every `configure` check it, as long as the function exists.

        Args:
            runtime: the runtime where the function is decorated after `configure`, or None.

        Raises:
            SettingsError: the guard's metric or judge is not configured, a fleet judges the calls, or there are too few
                labels for `max_false_block`.
        """
        if runtime is not None:
            self._check(runtime)
        register(self)

    def _check(self, runtime: Runtime) -> None:
        from ragtrace.guard.shadow_reports import warn_without_shadow_report

        find_evaluator(self.function, runtime.evaluators, fleet=bool(runtime.elsewhere.evaluator))
        warn_without_shadow_report(self.function, runtime.evaluators, runtime.settings.store)
        bound = find_bound(self.function, runtime.calibrations)
        if bound is not None:
            bound.apply()

    def _run_shadow(
        self, runtime: GuardRuntime, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bound: bool
    ) -> Any:
        shadow = self._shadow
        if shadow is None or shadow.runtime is not runtime:  # `configure` was called, or the process forked
            shadow = self._shadow = ShadowRuntime(runtime)
        recorder = StepRecorder(shadow, self._spec, args, kwargs, bound)
        recorder.step.guard = ShadowCheck(self.function, guards_of(runtime))
        return self._run(recorder, wrapped, args, kwargs)

    def _run_held(
        self,
        runtime: GuardRuntime,
        wrapped: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: bool,
        *,
        is_retry: bool = False,
        tags_around: TagLayer | None = None,
    ) -> Any:
        recorder = HeldRecorder(runtime, self._spec, args, kwargs, bound)
        if is_retry:  # of a coroutine that is awaited elsewhere than it was made
            recorder.tags_around = tags_around
        around = recorder.tags_around
        again = None
        if not is_retry:
            again = partial(self._run_held, runtime, wrapped, args, kwargs, bound, is_retry=True, tags_around=around)
        if self._is_coroutine:
            held = self._hold(runtime, recorder, partial(self._run, recorder, wrapped, args, kwargs), again)
            return _named_like(wrapped, held)
        result = self._run(recorder, wrapped, args, kwargs)
        stream = self._held_stream(runtime, recorder, result)
        if stream is not None:
            return stream
        # Of a plain function that calls a coroutine function.
        if type(result) is _COROUTINE and not recorder.step.ended:
            return _named_like(result, self._hold(runtime, recorder, lambda: result, again))
        if is_awaitable_generator(result) and not recorder.step.ended:
            return _named_like(result, _as_generator(self._hold(runtime, recorder, lambda: result, again)))
        if recorder.step.error is not None:  # a future that has failed: there is no answer
            return result
        check = self._answer_check(runtime, recorder, again)
        check.wait()
        result = check.apply(result, result)
        return again() if result is RETRY and again is not None else result

    def _answer_check(
        self, runtime: GuardRuntime, recorder: HeldRecorder, again: Callable[[], Any] | None
    ) -> AnswerCheck:
        recorder.has_returned = True
        return AnswerCheck(self.function, runtime, recorder, is_retry=again is None or not recorder.is_held)

    def _held_stream(self, runtime: GuardRuntime, recorder: HeldRecorder, result: Any) -> Any:
        """Return the recorded stream *result* with its pieces held back, or None for anything else."""
        if self.function.guard.stream is None or recorder.step.ended:
            return None
        try:
            return held_stream(result, lambda: HeldStream(self.function, runtime, recorder, self._spec.select_result))
        except Exception as error:  # an object whose attributes raise
            faults.record("guard", error)
            return None

    async def _hold(
        self,
        runtime: GuardRuntime,
        recorder: HeldRecorder,
        run: Callable[[], Any],
        again: Callable[[], Any] | None,
    ) -> Any:
        result = await run()
        stream = self._held_stream(runtime, recorder, result)
        if stream is not None:
            return stream
        check = self._answer_check(runtime, recorder, again)
        await check.wait_in_task()
        result = check.apply(result, result)
        return await again() if result is RETRY and again is not None else result


def _named_like(named: Any, coroutine: Any) -> Any:
    """Give *coroutine* the name that "coroutine 'x' was never awaited" and debuggers print."""
    name = getattr(named, "__name__", None)
    if type(name) is str:
        coroutine.__name__, coroutine.__qualname__ = name, getattr(named, "__qualname__", name)
    return coroutine


@types.coroutine
def _as_generator(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Return *coroutine* as the generator-based awaitable that the undecorated function returns."""
    return (yield from coroutine.__await__())


def _check_kind(guard: Guard, spec: StepSpec, function: Any) -> None:
    """Check that *guard* can hold back what *function* is known to return, and that its fallback can replace it.

    Raises:
        SettingsError: it cannot.
    """
    if guard.stream == "sentence" and spec.reduce is not None and spec.select_result is None:
        raise SettingsError(
            f"reduce= of {spec.workflow!r} gives the text of the whole stream, and a guard with stream='sentence' "
            "needs that of single pieces; give answer=, which the guard asks for it, or stream='all' or 'after'"
        )
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    is_awaited = is_generator and bool(function.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)
    returned = [] if is_awaited else _returned_types(function)
    if guard.stream is None and ((is_generator and not is_awaited) or any(map(_is_stream, returned))):
        raise SettingsError(
            f"{spec.workflow!r} streams its answer, and the guard does not say when the pieces may leave; "
            "give stream='after', 'sentence' or 'all', or action='shadow', which holds nothing back"
        )
    for kind in filter(inspect.isclass, returned):
        if issubclass(kind, _FUTURES) or shape_of(kind).is_late:
            raise SettingsError(
                f"{spec.workflow!r} returns a {kind.__name__}, whose text comes after it has returned, and the "
                "guard cannot hold that back; return the text or a generator of it, or give action='shadow', which "
                "holds nothing back"
            )
    if guard.stream is None and isinstance(guard.fallback, str) and returned:
        _check_fallback_text(spec, returned)


def _returned_types(function: Any) -> list[Any]:
    """Return the types that *function* may return by its annotation; empty: it says nothing."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # names that exist for type checkers only: what is returned is seen at run time
        return []
    if "return" not in hints:
        return []
    returned = hints["return"]
    is_union = typing.get_origin(returned) in (typing.Union, types.UnionType)
    found = typing.get_args(returned) if is_union else (returned,)
    return [kind if isinstance(kind, typing.TypeVar) else typing.get_origin(kind) or kind for kind in found]


def _is_stream(kind: Any) -> bool:
    return kind in _STREAMS or (inspect.isclass(kind) and bool(shape_of(kind).stream))


def _check_fallback_text(spec: StepSpec, returned: list[Any]) -> None:
    """Check that the text of `fallback=` can take the place of what a function returns.

    Raises:
        SettingsError: it returns no text.
    """
    if any(each in _TEXTS or isinstance(each, typing.TypeVar) for each in returned):
        return
    raise SettingsError(
        f"fallback= of the guard of {spec.workflow!r} is a text, which cannot replace what the function returns, "
        f"{' or '.join(map(str, returned))}; give a function that takes the notice and returns one"
    )
