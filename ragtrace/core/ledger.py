"""Exact accounting: what became of every call that was offered to an evaluator.

`offered = sampled_out + scored + partial + failed{reason} + dropped{reason} + pending` holds at every moment, for each
evaluator on its own: a call enters with `offer` and leaves with one `settle`, both under one lock.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Outcome: TypeAlias = Literal["sampled_out", "scored", "partial", "failed", "dropped"]
OFFERED = "offered"
HEAD_DROPPED = "head_dropped"
"""Reason of calls that head sampling dropped."""
_MOST_LEFT_OUT = 10_000


class Row(NamedTuple):
    """One line of the books: how many calls of a workflow had this outcome at an evaluator."""

    evaluator: str
    workflow: str
    outcome: str
    reason: str
    calls: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the calls offered to one evaluator."""

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
        """Calls whose fate is known."""
        reasons = (self.sampled_out, self.failed, self.dropped)
        return self.scored + self.partial + sum(sum(counts.values()) for counts in reasons)


@dataclass(frozen=True, slots=True)
class Posted:
    """What became of the scores for a backend's own API; `offered` is the sum of all the others."""

    offered: int = 0
    posted: int = 0
    repeated: int = 0
    """Offered before: posted once."""
    failed: Mapping[str, int] = field(default_factory=dict[str, int])
    """The backend did not take them, by reason."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Never offered to the backend, or not to the end, by reason."""
    pending: int = 0

    def rows(self) -> list[tuple[str, str, int]]:
        """Outcome, reason and count of every line but `pending`, which may fall."""
        counts = [("offered", "", self.offered), ("posted", "", self.posted), ("repeated", "", self.repeated)]
        counts += [("failed", reason, count) for reason, count in self.failed.items()]
        return counts + [("dropped", reason, count) for reason, count in self.dropped.items()]


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of the accounts, of one moment."""

    evaluators: Mapping[str, Tally]
    """By evaluator id."""
    faults: Mapping[str, int]
    """Failures of ragtrace itself by place, since the process started; empty when all is well."""
    sinks: Mapping[str, Posted] = field(default_factory=dict[str, Posted])
    """Of the backends that get scores by their own API, by name."""

    @property
    def offered(self) -> int:
        """Evaluations offered, over all evaluators."""
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
        """Of the scored: those to which no metric applies, by reason."""
        return self._by_reason("not_applicable")

    @property
    def sampled_out(self) -> Mapping[str, int]:
        """Evaluations that policy left out, by reason."""
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


class _Account:
    """The open book of one evaluator and workflow."""

    __slots__ = ("offered", "pending", "settled")

    def __init__(self) -> None:
        self.offered = 0
        self.pending = 0
        self.settled: Counter[tuple[str, str]] = Counter()


class Ledger:
    """The books of all evaluators."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start empty books: after a fork the parent's calls are the parent's, and its lock may be held for ever."""
        # Re-entrant: a stream collected as garbage ends its call wherever this thread happens to be, here included.
        self._lock = threading.RLock()
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._left_out: deque[tuple[tuple[str, ...], str, tuple[Outcome, str]]] = deque()

    def leave_out(
        self, evaluators: tuple[str, ...], workflow: str, outcome: Outcome = "sampled_out", reason: str = HEAD_DROPPED
    ) -> None:
        """A call was offered to all evaluators and came to the same end at once, before anything was kept of it.

        Costs the application an append: it is entered when somebody looks at the books.
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

    def offer(self, evaluator: str, workflow: str) -> None:
        """A call is offered to *evaluator*: it is pending until settled."""
        self.offer_all((evaluator,), workflow)

    def offer_all(self, evaluators: Iterable[str], workflow: str) -> None:
        """A call is offered to each of *evaluators*."""
        with self._lock:
            for evaluator in evaluators:
                account = self._account(evaluator, workflow)
                account.offered += 1
                account.pending += 1

    def settle(self, evaluator: str, workflow: str, outcome: Outcome, reason: str = "", *, calls: int = 1) -> None:
        """One pending call of *evaluator* came to its end, or several *calls* to the same.

        Raises:
            ValueError: if fewer are pending: the books would no longer balance.
        """
        with self._lock:
            account = self._accounts.get((evaluator, workflow))
            if account is None or account.pending < calls:
                raise ValueError(f"evaluator {evaluator!r} has no pending call to settle as {outcome!r}")
            account.pending -= calls
            account.settled[outcome, reason] += calls

    def rows(self) -> list[Row]:
        """Every non-zero line, all of one moment: what the exported counter reads."""
        rows: list[Row] = []
        with self._lock:
            self._enter_left_out()
            for (evaluator, workflow), account in self._accounts.items():
                rows.append(Row(evaluator, workflow, OFFERED, "", account.offered))
                rows += [Row(evaluator, workflow, *key, count) for key, count in account.settled.items()]
        return rows

    def stats(self, faults: Mapping[str, int]) -> Stats:
        """A consistent snapshot."""
        with self._lock:
            self._enter_left_out()
            names = sorted({evaluator for evaluator, _ in self._accounts})
            books = {name: [book for (owner, _), book in self._accounts.items() if owner == name] for name in names}
            return Stats({name: _tally(accounts) for name, accounts in books.items()}, dict(faults))

    def _account(self, evaluator: str, workflow: str) -> _Account:
        key = evaluator, workflow
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
        return account


def _tally(accounts: Iterable[_Account]) -> Tally:
    accounts = list(accounts)
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
