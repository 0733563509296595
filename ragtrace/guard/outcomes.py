"""Outcomes of a guard: verdict and action, the notice that the application gets, and the counts of both."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from ragtrace.core import semconv
from ragtrace.core.errors import RagtraceError
from ragtrace.core.ledger import GuardRow, GuardTally

Verdict: TypeAlias = Literal["pass", "fail", "timeout", "unscored", "circuit_open", "error"]
"""Verdict of a guard on an answer; all but `pass` and `fail` say why the answer was not checked."""
Action: TypeAlias = Literal["none", "annotated", "replaced", "retried", "raised", "released"]
"""Action of a guard on an answer; `released`: the answer left unchecked, or its fallback could not be built."""


class Check(NamedTuple):
    """Result of checking one answer: the verdict, and the score or the reason behind it."""

    verdict: Verdict
    score: float | None = None
    reason: str = ""
    """Reason why the answer was not checked; empty if it was."""


@dataclass(frozen=True, slots=True)
class GuardNotice:
    """Notice of an answer that a guard did not let pass, for the application.

    Examples:
        >>> def sorry(notice: ragtrace.types.GuardNotice) -> str:
        ...     return f"I am not sure ({notice.metric}: {notice.verdict})."
        >>> guard = ragtrace.Guard("consistency", below=0.5, budget_ms=5000, action="replace", fallback=sorry)
        >>> @ragtrace.retrieve
        ... def search(question: str) -> list[str]:
        ...     return ["The tower is in Paris."]
        >>> @ragtrace.trace(guard=guard)
        ... def ask(question: str) -> str:
        ...     return "The bridge is in Berlin." if search(question) else ""
        >>> ragtrace.configure(exporter="none")
        >>> ask("Where is the tower?")
        'I am not sure (consistency: fail).'
    """

    verdict: Verdict
    """`fail`, or why the answer was not checked: timeout, unscored, circuit_open, error."""
    metric: str
    score: float | None
    """Score of the answer, in the metric's range; None: the answer was not checked."""
    below: float | None
    """The answer fails if the score is below this number; None: `above` is set."""
    above: float | None
    reason: str
    """Reason why the answer was not checked, such as `timeout`; empty if it was."""
    workflow: str
    """Name of the guarded function's workflow."""
    trace_id: str
    """Id of the call's trace, 32 hexadecimal digits; empty: the call has none."""
    waited_ms: float
    """Time for which the guard held the answer back, in milliseconds."""


class GuardBlocked(RagtraceError):  # noqa: N818 - it reports what the application asked for, and no error of ragtrace
    """Raised by a guarded function, where its guard has `action="raise"`, in place of an answer that failed.

    Examples:
        >>> @ragtrace.retrieve
        ... def search(question: str) -> list[str]:
        ...     return ["The tower is in Paris."]
        >>> @ragtrace.trace(guard=ragtrace.Guard("consistency", below=0.5, budget_ms=5000, action="raise"))
        ... def ask(question: str) -> str:
        ...     return "The bridge is in Berlin." if search(question) else ""
        >>> ragtrace.configure(exporter="none")
        >>> try:
        ...     ask("Where is the tower?")
        ... except ragtrace.types.GuardBlocked as blocked:
        ...     print(blocked.notice.verdict, blocked.notice.metric, blocked.notice.score < 0.5)
        fail consistency True

    Args:
        notice: what the guard found.
    """

    def __init__(self, notice: GuardNotice) -> None:
        why = notice.reason if notice.score is None else f"{notice.metric} is {notice.score:g}"
        super().__init__(f"the guard of {notice.workflow!r} blocked an answer ({notice.verdict}: {why})")
        self.notice = notice

    def __reduce__(self) -> tuple[type[GuardBlocked], tuple[GuardNotice]]:
        return type(self), (self.notice,)


def outcome_attributes(metric: str, mode: str, verdict: str, action: str, reason: str) -> dict[str, str]:
    """Return the outcome of a guard as attributes for a span or an event."""
    found = {
        semconv.GUARD_METRIC: metric,
        semconv.GUARD_MODE: mode,
        semconv.GUARD_VERDICT: verdict,
        semconv.GUARD_ACTION: action,
    }
    return {**found, semconv.GUARD_REASON: reason} if reason else found


class GuardCounts:
    """Counts of the answers that the guards of a process have seen, by workflow, verdict and action."""

    def __init__(self) -> None:
        # Re-entrant: the garbage collector may end a stream, and so its call, while this thread holds the lock.
        self._lock = threading.RLock()
        self._counts: Counter[tuple[str, str, str, str, str]] = Counter()
        self._added: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=1_000))
        """Seconds that were added to the latest answers, by workflow."""

    def add(
        self, workflow: str, metric: str, mode: str, verdict: Verdict, action: Action, added_s: float | None = None
    ) -> None:
        """Count one answer that was held back for *added_s* seconds; None: for no time that says anything."""
        with self._lock:
            self._counts[workflow, metric, mode, verdict, action] += 1
            if added_s is not None:
                self._added[workflow].append(added_s)

    def rows(self) -> list[GuardRow]:
        """Return the counts as rows, all of the same moment."""
        with self._lock:
            return [GuardRow(*key, calls) for key, calls in self._counts.items()]

    def tallies(self) -> Mapping[str, GuardTally]:
        """Return the counts by workflow."""
        rows = self.rows()
        found: dict[str, GuardTally] = {}
        for workflow in sorted({row.workflow for row in rows}):
            verdicts: Counter[str] = Counter()
            actions: Counter[str] = Counter()
            for row in rows:
                if row.workflow == workflow:
                    verdicts[row.verdict] += row.calls
                    actions[row.action] += row.calls
            with self._lock:
                added = sorted(self._added[workflow])
            p50, p95 = (added[int(share * len(added))] * 1000 if added else None for share in (0.5, 0.95))
            found[workflow] = GuardTally(sum(verdicts.values()), dict(verdicts), dict(actions), p50, p95)
        return found
