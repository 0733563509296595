"""Ledger of RAG calls: exact counts, by outcome, of the calls that were offered to each evaluator.

`offered = sampled_out + scored + partial + failed{reason} + dropped{reason} + handed_over + pending` holds at every
moment, for each evaluator on its own: a call enters with `count_offered` and leaves with one `count_finished`, both
under one lock. A shutdown closes the ledger before the counts are exported for the last time: a call that ends later is
not offered, so that the collector has the same counts as the process.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Final, Literal, NamedTuple, TypeAlias

Outcome: TypeAlias = Literal["sampled_out", "scored", "partial", "failed", "dropped", "handed_over"]
FLEET = "fleet"
"""Evaluator id under which calls passed to a fleet are counted, in place of the id of a judge."""
OFFERED = "offered"
HEAD_DROPPED = "head_dropped"
"""Reason for calls that head sampling dropped."""
_MOST_LEFT_OUT = 10_000
_POLL_SECONDS: Final = 0.001


class LedgerRow(NamedTuple):
    """Number of calls that have the same workflow, evaluator, outcome and reason."""

    evaluator: str
    workflow: str
    outcome: str
    reason: str
    calls: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the calls offered to one evaluator, by outcome: scored, failed, dropped and so on.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> with ragtrace.call("Where is the tower?") as call:
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> tally = ragtrace.stats().evaluators["embedded"]
        >>> tally.offered, tally.settled, tally.pending
        (1, 1, 0)
    """

    offered: int = 0
    sampled_out: Mapping[str, int] = field(default_factory=dict[str, int])
    scored: int = 0
    """Number of calls with a result for every metric: a number, or a reason why the metric does not apply."""
    not_applicable: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of the `scored` calls to which no metric applies, by reason."""
    partial: int = 0
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    handed_over: int = 0
    """Number of calls passed to the queue of a fleet, whose workers judge them and count the outcome."""
    pending: int = 0

    @property
    def settled(self) -> int:
        """Number of offered calls that are no longer pending, whatever their outcome."""
        reasons = (self.sampled_out, self.failed, self.dropped)
        return self.scored + self.partial + self.handed_over + sum(sum(counts.values()) for counts in reasons)


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """Counts of the scores or alerts that were to be delivered to a receiver, by outcome.

    `offered` is the sum of all others.
    """

    offered: int = 0
    posted: int = 0
    repeated: int = 0
    """Number of items that were offered before under the same key, and so are delivered once."""
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of items that the receiver refused, by reason."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of items given up before the receiver accepted them, by reason."""
    pending: int = 0

    def rows(self) -> list[tuple[str, str, int]]:
        """Return the counts as rows of outcome, reason and number. Items whose delivery is pending are left out.

        The counts in the rows never fall, so that counter metrics can report them.
        """
        counts = [("offered", "", self.offered), ("posted", "", self.posted), ("repeated", "", self.repeated)]
        counts += [("failed", reason, count) for reason, count in self.failed.items()]
        return counts + [("dropped", reason, count) for reason, count in self.dropped.items()]


class GuardRow(NamedTuple):
    """Number of answers of one workflow that its guard treated alike."""

    workflow: str
    metric: str
    mode: str
    """Action for which the guard is configured, such as shadow or replace."""
    verdict: str
    action: str
    calls: int


@dataclass(frozen=True, slots=True)
class GuardTally:
    """Counts of the answers that a guard has seen, by verdict and by action.

    Examples:
        >>> @ragtrace.retrieve
        ... def search(question: str) -> list[str]:
        ...     return ["The tower is in Paris."]
        >>> @ragtrace.trace(guard=ragtrace.Guard("consistency", below=0.5, budget_ms=5000))  # in the shadow
        ... def ask(question: str) -> str:
        ...     return "The bridge is in Berlin." if search(question) else ""
        >>> ragtrace.configure(exporter="none")
        >>> ask("Where is the tower?")
        'The bridge is in Berlin.'
        >>> ragtrace.flush()
        True
        >>> ragtrace.stats().guards["ask"].verdicts
        {'fail': 1}
    """

    calls: int = 0
    """Number of answers; the sum of `verdicts`, and of `actions`."""
    verdicts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of answers by verdict: pass, fail, or why they were not checked (timeout, unscored, circuit_open, error).
    """
    actions: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of answers by action: none, annotated, replaced, retried, raised, released."""
    added_p50_ms: float | None = None
    """Median of the milliseconds for which the latest thousand answers were held back or, in the shadow, would have
    been; None: none was."""
    added_p95_ms: float | None = None
    """95th percentile of the same."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Snapshot of the counts of all calls so far, by evaluator and outcome, and of ragtrace's own failures.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> with ragtrace.call("Where is the tower?") as call:
        ...     call.retrieved(["The tower is in Paris."])
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> stats = ragtrace.stats()
        >>> stats.offered, stats.scored, list(stats.evaluators)
        (1, 1, ['embedded'])
    """

    evaluators: Mapping[str, Tally]
    """Counts of calls, by evaluator id."""
    faults: Mapping[str, int]
    """Numbers of failures of ragtrace itself since the process started, by place; empty: there were none."""
    sinks: Mapping[str, DeliveryCounts] = field(default_factory=dict[str, DeliveryCounts])
    """Counts of scores for the backends with a score API of their own, by name of the backend."""
    guards: Mapping[str, GuardTally] = field(default_factory=dict[str, GuardTally])
    """Counts of answers that a guard has seen, by workflow."""
    after_shutdown: int = 0
    """Number of calls that ended after the shutdown had exported the counts; they are in no other count."""

    @property
    def offered(self) -> int:
        """Number of evaluations offered, in which a call counts once for each evaluator that it was offered to."""
        return sum(tally.offered for tally in self.evaluators.values())

    @property
    def scored(self) -> int:
        """Number of evaluations in which every metric has a score or a reason why it does not apply."""
        return sum(tally.scored for tally in self.evaluators.values())

    @property
    def partial(self) -> int:
        """Number of evaluations in which at least one metric has a score and at least one metric failed."""
        return sum(tally.partial for tally in self.evaluators.values())

    @property
    def handed_over(self) -> int:
        """Number of evaluations that this process handed over to the worker processes of a fleet."""
        return sum(tally.handed_over for tally in self.evaluators.values())

    @property
    def pending(self) -> int:
        """Number of evaluations that have not finished yet."""
        return sum(tally.pending for tally in self.evaluators.values())

    @property
    def not_applicable(self) -> Mapping[str, int]:
        """Number of evaluations without any score because no metric applies to the call, by reason."""
        return self._by_reason("not_applicable")

    @property
    def sampled_out(self) -> Mapping[str, int]:
        """Number of evaluations that were not made because the call was not sampled, by reason."""
        return self._by_reason("sampled_out")

    @property
    def failed(self) -> Mapping[str, int]:
        """Number of evaluations that failed without a single score, by reason."""
        return self._by_reason("failed")

    @property
    def dropped(self) -> Mapping[str, int]:
        """Number of evaluations that were given up, for instance because a queue was full, by reason."""
        return self._by_reason("dropped")

    def _by_reason(self, outcome: str) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for tally in self.evaluators.values():
            total.update(getattr(tally, outcome))
        return dict(total)


@dataclass(slots=True)
class _CallCounts:
    """Counts of the calls of one workflow at one evaluator: offered, pending, and finished by outcome."""

    offered: int = 0
    pending: int = 0
    settled: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])


class Ledger:
    """Ledger that counts every RAG call as pending or finished, by evaluator, workflow and outcome."""

    def __init__(self) -> None:
        # Re-entrant: the garbage collector may end a stream's call on this thread while it holds the lock.
        self._lock = threading.RLock()
        self._accounts: dict[tuple[str, str], _CallCounts] = {}
        self._left_out: deque[tuple[tuple[str, ...], str, tuple[Outcome, str]]] = deque()
        self._closed, self._after_shutdown = False, 0

    def close(self, timeout: float) -> bool:
        """Count calls as offered no more, and wait for the pending ones to be counted as finished.

        Called at shutdown, when all calls known to be pending have been settled: a thread of the application may have
        counted a call as offered a moment ago, and not as refused yet.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether no call is pending.
        """
        with self._lock:
            self._add_not_evaluated()
            self._closed = True
        deadline = monotonic() + timeout
        while pending := any(account.pending for account in list(self._accounts.values())):
            if monotonic() > deadline:
                break
            sleep(_POLL_SECONDS)
        return not pending

    def count_not_evaluated(
        self, evaluators: tuple[str, ...], workflow: str, outcome: Outcome = "sampled_out", reason: str = HEAD_DROPPED
    ) -> None:
        """Count a call as not evaluated by any of *evaluators*, for one *reason* such as sampling.

        Costs the application an append: it is counted when the ledger is read.
        """
        self._left_out.append((evaluators, workflow, (outcome, reason)))
        if len(self._left_out) >= _MOST_LEFT_OUT:
            with self._lock:
                self._add_not_evaluated()

    def _add_not_evaluated(self) -> None:
        while self._left_out:
            evaluators, workflow, end = self._left_out.popleft()
            if self._closed:
                self._after_shutdown += 1
                continue
            for evaluator in evaluators:
                account = self._counts_of(evaluator, workflow)
                account.offered += 1
                account.settled[end] += 1

    def count_offered(self, evaluators: Iterable[str], workflow: str) -> bool:
        """Count one call as offered to each of *evaluators*, and as pending there.

        Returns:
            False if the ledger is closed: the call is not offered, and has no outcome.
        """
        with self._lock:
            if self._closed:
                self._after_shutdown += 1
                return False
            for evaluator in evaluators:
                account = self._counts_of(evaluator, workflow)
                account.offered += 1
                account.pending += 1
            return True

    def count_finished(
        self, evaluator: str, workflow: str, outcome: Outcome, reason: str = "", *, calls: int = 1
    ) -> None:
        """Count one or more pending calls of *evaluator* as finished with *outcome*.

        Raises:
            ValueError: fewer calls are pending: the counts would no longer balance.
        """
        with self._lock:
            account = self._accounts.get((evaluator, workflow))
            if account is None or account.pending < calls:
                raise ValueError(
                    f"evaluator {evaluator!r} has no pending call to count as {outcome!r}; please report this"
                )
            account.pending -= calls
            account.settled[outcome, reason] += calls

    def count_finished_once(
        self, pending: set[str], evaluator: str, workflow: str, outcome: Outcome, reason: str = ""
    ) -> bool:
        """Count a pending call as finished at *evaluator*, unless another thread has counted it already.

        Returns whether this thread counted it. *evaluator* is removed from *pending*, the evaluators that have not
        finished the call, and the call is counted. Both happen under the lock. A thread may be stopped for long between
        them, and a shutdown, which finds no call to settle in *pending*, would end with that call pending in the
        ledger.
        """
        with self._lock:
            try:
                pending.remove(evaluator)
            except KeyError:
                return False
            self.count_finished(evaluator, workflow, outcome, reason)
            return True

    def rows(self) -> list[LedgerRow]:
        """Return the counts of calls as rows, one for each evaluator, workflow, outcome and reason.

        All are of the same moment; counts of zero are left out.
        """
        rows: list[LedgerRow] = []
        with self._lock:
            self._add_not_evaluated()
            for (evaluator, workflow), account in self._accounts.items():
                rows.append(LedgerRow(evaluator, workflow, OFFERED, "", account.offered))
                rows += [LedgerRow(evaluator, workflow, *key, count) for key, count in account.settled.items()]
        return rows

    def stats(self, faults: Mapping[str, int]) -> Stats:
        """Return a consistent snapshot of all counts of calls, with *faults*, the failures of ragtrace itself."""
        with self._lock:
            self._add_not_evaluated()
            names = sorted({evaluator for evaluator, _ in self._accounts})
            books = {name: [book for (owner, _), book in self._accounts.items() if owner == name] for name in names}
            tallies = {name: _tally(accounts) for name, accounts in books.items()}
            return Stats(tallies, dict(faults), after_shutdown=self._after_shutdown)

    def _counts_of(self, evaluator: str, workflow: str) -> _CallCounts:
        account = self._accounts.get((evaluator, workflow))
        if account is None:
            account = self._accounts[evaluator, workflow] = _CallCounts()
        return account


def _tally(accounts: Sequence[_CallCounts]) -> Tally:
    settled: Counter[tuple[str, str]] = Counter()
    for account in accounts:
        settled.update(account.settled)

    def reasons(outcome: str) -> dict[str, int]:
        return {reason: count for (kind, reason), count in settled.items() if kind == outcome}

    return Tally(
        offered=sum(account.offered for account in accounts),
        sampled_out=reasons("sampled_out"),
        scored=sum(reasons("scored").values()),
        not_applicable={reason: count for reason, count in reasons("scored").items() if reason},
        partial=sum(reasons("partial").values()),
        failed=reasons("failed"),
        dropped=reasons("dropped"),
        handed_over=sum(reasons("handed_over").values()),
        pending=sum(account.pending for account in accounts),
    )
