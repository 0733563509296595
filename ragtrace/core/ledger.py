"""Exact accounting of the outcome of every call that was offered to an evaluator.

`offered = sampled_out + scored + partial + failed{reason} + dropped{reason} + pending` holds at every moment, for each
evaluator on its own: a call enters with `offer_all` and leaves with one `settle`, both under one lock.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Outcome: TypeAlias = Literal["sampled_out", "scored", "partial", "failed", "dropped"]
OFFERED = "offered"
HEAD_DROPPED = "head_dropped"
"""Reason of calls that head sampling dropped."""
_MOST_LEFT_OUT = 10_000


class Row(NamedTuple):
    """Count of the calls of a workflow with one outcome at one evaluator."""

    evaluator: str
    workflow: str
    outcome: str
    reason: str
    calls: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the calls offered to one evaluator, by outcome."""

    offered: int = 0
    sampled_out: Mapping[str, int] = field(default_factory=dict[str, int])
    scored: int = 0
    """Every metric was decided: a number, or a reason why it does not apply."""
    not_applicable: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of the scored: those to which no metric applies, by reason."""
    partial: int = 0
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    pending: int = 0

    @property
    def settled(self) -> int:
        """Number of calls with an outcome."""
        reasons = (self.sampled_out, self.failed, self.dropped)
        return self.scored + self.partial + sum(sum(counts.values()) for counts in reasons)


@dataclass(frozen=True, slots=True)
class Posted:
    """Counts of items offered to a receiver (scores, alerts), by outcome; `offered` is the sum of all others."""

    offered: int = 0
    posted: int = 0
    repeated: int = 0
    """Offered before under the same key: delivered once."""
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Refused by the receiver, by reason."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Given up before the receiver took them, by reason."""
    pending: int = 0

    def rows(self) -> list[tuple[str, str, int]]:
        """Return outcome, reason and count of every count that never falls: all but `pending`."""
        counts = [("offered", "", self.offered), ("posted", "", self.posted), ("repeated", "", self.repeated)]
        counts += [("failed", reason, count) for reason, count in self.failed.items()]
        return counts + [("dropped", reason, count) for reason, count in self.dropped.items()]


@dataclass(frozen=True, slots=True)
class Stats:
    """Snapshot of the outcomes of all calls so far."""

    evaluators: Mapping[str, Tally]
    """By evaluator id."""
    faults: Mapping[str, int]
    """Failures of ragtrace itself by place, since the process started; empty when all is well."""
    sinks: Mapping[str, Posted] = field(default_factory=dict[str, Posted])
    """Of the backends that get scores by their own API, by name."""

    @property
    def offered(self) -> int:
        """Number of evaluations: every call counts once for each evaluator it was offered to."""
        return sum(tally.offered for tally in self.evaluators.values())

    @property
    def scored(self) -> int:
        """Evaluations in which every metric was decided."""
        return sum(tally.scored for tally in self.evaluators.values())

    @property
    def partial(self) -> int:
        """Evaluations in which some metric failed."""
        return sum(tally.partial for tally in self.evaluators.values())

    @property
    def pending(self) -> int:
        """Evaluations not yet decided."""
        return sum(tally.pending for tally in self.evaluators.values())

    @property
    def not_applicable(self) -> Mapping[str, int]:
        """Scored evaluations to which no metric applies, by reason."""
        return self._by_reason("not_applicable")

    @property
    def sampled_out(self) -> Mapping[str, int]:
        """Evaluations that sampling left out, by reason."""
        return self._by_reason("sampled_out")

    @property
    def failed(self) -> Mapping[str, int]:
        """Evaluations without a single score, by reason."""
        return self._by_reason("failed")

    @property
    def dropped(self) -> Mapping[str, int]:
        """Evaluations that were lost, by reason."""
        return self._by_reason("dropped")

    def _by_reason(self, outcome: str) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for tally in self.evaluators.values():
            total.update(getattr(tally, outcome))
        return dict(total)


@dataclass(slots=True)
class _Account:
    """Counts of one evaluator and workflow."""

    offered: int = 0
    pending: int = 0
    settled: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])


class Ledger:
    """Accounts of all evaluators and workflows: every call offered is pending or has one outcome."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start at zero after a fork: the counts are the parent's, and its lock may be held for ever."""
        # Re-entrant: a stream collected as garbage ends its call wherever this thread happens to be, here included.
        self._lock = threading.RLock()
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._left_out: deque[tuple[tuple[str, ...], str, tuple[Outcome, str]]] = deque()

    def leave_out(
        self, evaluators: tuple[str, ...], workflow: str, outcome: Outcome = "sampled_out", reason: str = HEAD_DROPPED
    ) -> None:
        """Count a call that has the same outcome at all *evaluators* and is not processed any further.

        Costs the application an append: it is counted when the ledger is read.
        """
        self._left_out.append((evaluators, workflow, (outcome, reason)))
        if len(self._left_out) >= _MOST_LEFT_OUT:
            with self._lock:
                self._enter_left_out()

    def _enter_left_out(self) -> None:
        while self._left_out:
            evaluators, workflow, end = self._left_out.popleft()
            for evaluator in evaluators:
                account = self._account(evaluator, workflow)
                account.offered += 1
                account.settled[end] += 1

    def offer_all(self, evaluators: Iterable[str], workflow: str) -> None:
        """Count a call as pending at each of *evaluators*."""
        with self._lock:
            for evaluator in evaluators:
                account = self._account(evaluator, workflow)
                account.offered += 1
                account.pending += 1

    def settle(self, evaluator: str, workflow: str, outcome: Outcome, reason: str = "", *, calls: int = 1) -> None:
        """Count a pending call of *evaluator*, or several *calls*, as ended with *outcome*.

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

    def settle_once(self, pending: set[str], evaluator: str, workflow: str, outcome: Outcome, reason: str = "") -> bool:
        """Remove *evaluator* from *pending* and settle its call; return False if another thread removed it before.

        Both happen under the lock. A thread may be stopped for long between them, and a shutdown, which finds no call
        to settle in *pending*, would end with that call pending in the ledger.
        """
        with self._lock:
            try:
                pending.remove(evaluator)
            except KeyError:
                return False
            self.settle(evaluator, workflow, outcome, reason)
            return True

    def rows(self) -> list[Row]:
        """Return every non-zero count, all of one moment."""
        rows: list[Row] = []
        with self._lock:
            self._enter_left_out()
            for (evaluator, workflow), account in self._accounts.items():
                rows.append(Row(evaluator, workflow, OFFERED, "", account.offered))
                rows += [Row(evaluator, workflow, *key, count) for key, count in account.settled.items()]
        return rows

    def stats(self, faults: Mapping[str, int]) -> Stats:
        """Return a consistent snapshot of all counts, with the given counts of *faults*."""
        with self._lock:
            self._enter_left_out()
            names = sorted({evaluator for evaluator, _ in self._accounts})
            books = {name: [book for (owner, _), book in self._accounts.items() if owner == name] for name in names}
            return Stats({name: _tally(accounts) for name, accounts in books.items()}, dict(faults))

    def _account(self, evaluator: str, workflow: str) -> _Account:
        account = self._accounts.get((evaluator, workflow))
        if account is None:
            account = self._accounts[evaluator, workflow] = _Account()
        return account


def _tally(accounts: Sequence[_Account]) -> Tally:
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
        pending=sum(account.pending for account in accounts),
    )
