"""`Guard`: what a guard checks, how long it may take, and what it does with an answer that fails."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from ragtrace.core.errors import SettingsError, spelling_hint
from ragtrace.core.types import Judge, Metric
from ragtrace.evaluation.metric_selection import check_type, metric_name
from ragtrace.guard.outcomes import GuardNotice
from ragtrace.metrics import registry

if TYPE_CHECKING:
    from ragtrace.guard.drivers import GuardDriver
    from ragtrace.recording.recorder import StepSpec

Mode: TypeAlias = Literal["shadow", "annotate", "replace", "retry", "raise"]
"""Action of a guard on answers that fail."""
StreamMode: TypeAlias = Literal["after", "sentence", "all"]
"""When the pieces of a stream leave: before the answer is checked, sentence by sentence, or after the whole answer."""
OnError: TypeAlias = Literal["open", "closed"]
"""What becomes of answers that could not be checked: `open` releases them, `closed` treats them as failed."""
MODES: Final[tuple[str, ...]] = get_args(Mode)
_LONGEST_MS: Final = 60_000


class Guard:
    """Check of every answer of a function before the answer leaves it: `@ragtrace.trace(guard=ragtrace.Guard(...))`.

    The score that the guard reads is the call's score: the call is judged once, always, whatever the sampling rate. A
    guard that cannot find out in time whether an answer is good releases the answer, and counts that.

    Examples:
        >>> guard = ragtrace.Guard(
        ...     "consistency", below=0.5, budget_ms=5000, action="replace", fallback="I do not know."
        ... )
        >>> @ragtrace.retrieve
        ... def search(question: str) -> list[str]:
        ...     return ["The tower is in Paris."]
        >>> @ragtrace.trace(guard=guard)
        ... def ask(question: str) -> str:
        ...     return "The bridge is in Berlin." if search(question) else ""
        >>> ragtrace.configure(exporter="none")
        >>> ask("Where is the tower?")
        'I do not know.'

    Args:
        metric: name of the metric, or the metric, that `configure` has a judge for: "faithfulness", "hallucinated",
            "consistency", one of your own.
        below: an answer fails if its score is below this number. Exactly one of `below`, `above` and `max_false_block`
            must be given.
        above: an answer fails if its score is above this number.
        max_false_block: the bound is taken from human labels: the strictest of which they show, with 95 % confidence,
            that at most this share of the good answers fails, such as 0.02. `configure` reads them from its
            `calibration=`, and refuses to start where there are too few, with the number that is missing.
        judge: the judge that is asked, which must be the `screen=` or the `judge=` of `configure`; None: the one of the
            two that computes the metric.
        budget_ms: most milliseconds that the guard may hold an answer back, waiting in queues included. Then the answer
            leaves unchecked (verdict `timeout`), and is scored in the background as any other. With
            `stream="sentence"` it is for all sentences of one stream together, so that answers of ten sentences and a
            judge that takes 100 ms need 1,000 and some more: the sentences after the budget is spent leave unchecked.
        action: what is done with an answer that fails. "shadow": nothing; the answer has left when it is checked, and
            what the guard would have done is counted. "annotate": the answer leaves with the verdict on its span, and
            `on_fail` is called. "replace": the function returns `fallback` instead. "retry": the function is called
            once more with the same arguments, as a call of its own, whose answer leaves with its verdict. "raise": the
            function raises `ragtrace.types.GuardBlocked`.
        idempotent: whether the function may be called twice for one request, without a second effect on anything;
            "retry" needs True. What the caller waits for then is a second run of the function, and a second check.
        fallback: for "replace": a text, if the function returns a text; else a plain function that takes the
            `GuardNotice` and returns what the guarded function is to return instead.
        stream: when the pieces of a streamed answer leave. "after": as they come; the end of the stream waits for the
            verdict, so that `on_fail` can have a correction sent (with "shadow" and "annotate" only). "sentence": each
            sentence once it has passed, for which it is judged by itself. "all": none before the whole answer has
            passed. None: a function that streams is refused, unless the action is "shadow", which holds no piece back.
        on_error: what becomes of an answer that could not be checked in time, because the judge failed, or because its
            texts give orders to the judge (prompt injection). "open": it leaves. "closed": it is treated as failed, so
            that an outage of the judge, a full queue or a slow model blocks *every* answer of the function. Where
            `fallback` cannot take the answer's place, `ragtrace.types.GuardBlocked` is raised.
        on_fail: plain function that is called with the `GuardNotice` before a failed answer is annotated, replaced or
            blocked, while the caller waits (where it is retried, before the second answer leaves). An exception of it
            is counted and logged, and changes nothing.

    Raises:
        SettingsError: an argument is wrong, or misses its counterpart.
    """

    __slots__ = (
        "__weakref__", "above", "action", "below", "budget_ms", "fallback", "idempotent", "judge", "max_false_block",
        "metric", "on_error", "on_fail",
        "stream",
    )  # fmt: skip

    def __init__(
        self,
        metric: str | Metric,
        *,
        below: float | None = None,
        above: float | None = None,
        max_false_block: float | None = None,
        judge: Judge | None = None,
        budget_ms: float = 400,
        action: Mode = "shadow",
        fallback: str | Callable[[GuardNotice], object] | None = None,
        idempotent: bool = False,
        stream: StreamMode | None = None,
        on_error: OnError = "open",
        on_fail: Callable[[GuardNotice], object] | None = None,
    ) -> None:
        self.metric = metric_name(metric)
        bounds = {"below": below, "above": above, "max_false_block": max_false_block}
        given = [f"{name}={value!r}" for name, value in bounds.items() if value is not None]
        if len(given) != 1:
            raise SettingsError(
                f"a guard needs exactly one of below=, above= and max_false_block=, got {' and '.join(given) or 'none'}"
                "; write for instance ragtrace.Guard('faithfulness', below=0.5)"
            )
        check_type("judge", judge, Judge)
        if action not in MODES:
            raise SettingsError(f"action= of a guard is unknown: {action!r}{spelling_hint(str(action), MODES)}")
        if on_error not in get_args(OnError):
            raise SettingsError(f"on_error= of a guard must be 'open' or 'closed', got {on_error!r}")
        if stream is not None and stream not in get_args(StreamMode):
            raise SettingsError(
                f"stream= of a guard is unknown: {stream!r}{spelling_hint(str(stream), get_args(StreamMode))}"
            )
        if action == "retry" and (idempotent is not True or stream is not None):
            why = "calls the function twice" if idempotent is not True else "cannot take back the pieces of a stream"
            raise SettingsError(
                f"action='retry' of a guard {why}, got idempotent={idempotent!r} and stream={stream!r}; give "
                "idempotent=True where a second call has no effect of its own, and no stream="
            )
        if stream == "after" and action not in ("shadow", "annotate"):
            raise SettingsError(
                f"a guard with stream='after' checks an answer that has left, and cannot {action} it; use "
                "action='annotate' with on_fail=, or stream='sentence' or 'all'"
            )
        if not _is_number(budget_ms) or not 1 <= budget_ms <= _LONGEST_MS:
            raise SettingsError(
                f"budget_ms= of a guard must be from 1 to {_LONGEST_MS} milliseconds, got {budget_ms!r}"
            )
        if max_false_block is None:
            _check_bound(metric, self.metric, "below" if above is None else "above", below if above is None else above)
        elif not _is_number(max_false_block) or not 0 < max_false_block < 1:
            raise SettingsError(
                f"max_false_block= of a guard must be more than 0 and less than 1, got {max_false_block!r}; for 2 % "
                "write 0.02"
            )
        _check_fallback(action, fallback)
        _check_plain("on_fail", on_fail)
        self.max_false_block = max_false_block
        self.below, self.above, self.judge, self.budget_ms = below, above, judge, float(budget_ms)
        self.action: Mode = action
        self.fallback, self.idempotent = fallback, idempotent
        self.stream: StreamMode | None = stream
        self.on_error: OnError = on_error
        self.on_fail = on_fail

    def __repr__(self) -> str:
        if self.max_false_block is not None:
            bound = f"max_false_block={self.max_false_block:g}"
        else:
            bound = f"below={self.below:g}" if self.below is not None else f"above={self.above:g}"
        return f"Guard({self.metric!r}, {bound}, action={self.action!r}, budget_ms={self.budget_ms:g})"

    def set_bound(self, badness: float, *, higher_is_better: bool) -> None:
        """Take a threshold of badness, from 0 (good) to 1 (bad), as the bound on the score.

        Args:
            badness: an answer fails if its badness is above it.
            higher_is_better: whether a high score is a low badness.
        """
        self.below, self.above = (round(1.0 - badness, 9), None) if higher_is_better else (None, badness)

    def driver(self, spec: StepSpec, function: Any) -> GuardDriver:
        """Return the driver of a guarded *function*, which makes steps of the specification *spec*.

        Raises:
            SettingsError: the guard cannot hold back what the function returns, or cannot replace it.
        """
        from ragtrace.guard.drivers import GuardDriver

        return GuardDriver(self, spec, function)

    def fails(self, score: float) -> bool:
        """Return whether an answer with this *score* fails."""
        return score < self.below if self.below is not None else score > cast("float", self.above)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_bound(metric: str | Metric, name: str, side: str, bound: object) -> None:
    if not _is_number(bound):
        raise SettingsError(f"{side}= of a guard must be a number, got {bound!r}")
    known = registry.find(name) if isinstance(metric, str) else metric
    if known is None:  # whether there is such a metric, `configure` finds out
        return
    low, high = known.range
    number = cast("float", bound)
    fails_none = number <= low if side == "below" else number >= high
    fails_all = number > high if side == "below" else number < low
    if fails_none or fails_all:
        raise SettingsError(
            f"{side}={number:g} of the guard on {name!r} fails {'no' if fails_none else 'every'} answer, as scores are "
            f"from {low:g} to {high:g}; give a number between these"
        )


def _check_fallback(action: str, fallback: object) -> None:
    if (action == "replace") != (fallback is not None):
        wanted = "needs fallback=, a text or a function" if action == "replace" else "takes no fallback="
        raise SettingsError(f"action={action!r} of a guard {wanted}; got fallback={fallback!r}")
    if fallback is not None and not isinstance(fallback, str):
        _check_plain("fallback", fallback)


def _check_plain(name: str, function: object) -> None:
    if function is None:
        return
    if not callable(function):
        raise SettingsError(f"{name}= of a guard must be a function, got {type(function).__name__}: {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise SettingsError(
            f"{name}= of a guard must be a plain function, got the coroutine function {function!r}; start a task in it"
        )
