"""The accounts: every offered call is in exactly one place, at every moment."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from ragtrace.core.ledger import OFFERED, Ledger, Outcome, Stats, Tally

THREADS, CALLS = 6, 300
ENDINGS: list[tuple[Outcome, str]] = [
    ("scored", ""),
    ("partial", "timeout"),
    ("sampled_out", "not_sampled"),
    ("failed", "unavailable"),
    ("dropped", "queue_full"),
]


def balanced(tally: Tally) -> bool:
    return tally.offered == tally.settled + tally.pending


def test_the_identity_holds_at_every_moment_under_threads() -> None:
    """offered = sampled_out + scored + partial + failed + dropped + pending, whoever looks while others write."""
    ledger = Ledger()
    done = threading.Event()
    unbalanced: list[Stats] = []

    def write(number: int) -> None:
        for call in range(CALLS):
            ledger.count_offered(("screen",), f"workflow {number % 2}")
            ledger.count_finished("screen", f"workflow {number % 2}", *ENDINGS[call % len(ENDINGS)])

    def watch() -> None:
        while not done.is_set():
            stats = ledger.stats({})
            if not all(balanced(tally) for tally in stats.evaluators.values()):
                unbalanced.append(stats)

    watcher = threading.Thread(target=watch)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(THREADS)]
    for thread in (watcher, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    watcher.join()
    share = THREADS * CALLS // len(ENDINGS)
    assert unbalanced == []
    assert ledger.stats({}).evaluators["screen"] == Tally(
        offered=THREADS * CALLS,
        sampled_out={"not_sampled": share},
        scored=share,
        partial=share,
        failed={"unavailable": share},
        dropped={"queue_full": share},
    )


def test_no_thread_finds_a_call_that_is_neither_open_nor_settled() -> None:
    """A thread that reads the accounts while another one settles a call waits until the call is counted."""
    ledger, seen, readers = Ledger(), list[int](), list[threading.Thread]()

    class Open(set[str]):
        def remove(self, evaluator: str) -> None:
            super().remove(evaluator)
            readers.append(threading.Thread(target=lambda: seen.append(ledger.stats({}).pending)))
            readers[0].start()
            readers[0].join(0.05)  # as long as this thread may be stopped here

    ledger.count_offered(["screen"], "ask")
    assert ledger.count_finished_once(Open({"screen"}), "screen", "ask", "scored")
    readers[0].join()
    assert seen == [0]
    assert not ledger.count_finished_once(set(), "screen", "ask", "dropped")


def test_settling_what_was_never_offered_is_an_error_and_opens_no_account() -> None:
    """The books would no longer balance."""
    ledger = Ledger()
    with pytest.raises(ValueError, match=r"'judge' has no pending call to count as 'scored'"):
        ledger.count_finished("judge", "w", "scored")
    assert ledger.stats({}).evaluators == {}
    assert ledger.rows() == []


def test_settling_twice_is_an_error() -> None:
    """One offer, one end."""
    ledger = Ledger()
    ledger.count_offered(("judge",), "w")
    ledger.count_finished("judge", "w", "scored")
    with pytest.raises(ValueError, match="no pending call"):
        ledger.count_finished("judge", "w", "failed", "timeout")
    assert ledger.stats({}).scored == 1


def test_a_pending_call_of_another_evaluator_does_not_settle_this_ones() -> None:
    """Each evaluator, and each workflow, has its own book."""
    ledger = Ledger()
    ledger.count_offered(("screen",), "w")
    with pytest.raises(ValueError, match="no pending call"):
        ledger.count_finished("judge", "w", "scored")
    with pytest.raises(ValueError, match="no pending call"):
        ledger.count_finished("screen", "other", "scored")


def test_the_exported_rows_tell_the_same_as_the_stats() -> None:
    """What the counter exports, summed by outcome, is what `stats` says."""
    ledger = Ledger()
    for number, ending in enumerate(ENDINGS * 3):
        for evaluator in ("screen", "judge"):
            ledger.count_offered((evaluator,), f"w{number % 2}")
            ledger.count_finished(evaluator, f"w{number % 2}", *ending)
    ledger.count_offered(("judge",), "w0")
    summed: Counter[tuple[str, str]] = Counter()
    for row in ledger.rows():
        summed[row.outcome, row.reason] += row.calls
    stats = ledger.stats({})
    assert summed == {
        (OFFERED, ""): stats.offered,
        ("scored", ""): stats.scored,
        ("partial", "timeout"): stats.partial,
        ("sampled_out", "not_sampled"): stats.sampled_out["not_sampled"],
        ("failed", "unavailable"): stats.failed["unavailable"],
        ("dropped", "queue_full"): stats.dropped["queue_full"],
    }
    assert stats.pending == 1
    assert {row.workflow for row in ledger.rows()} == {"w0", "w1"}


def test_the_totals_are_those_of_all_evaluators() -> None:
    """Reasons are summed over evaluators, and faults are passed through."""
    ledger = Ledger()
    for evaluator in ("screen", "judge"):
        ledger.count_offered((evaluator,), "w")
        ledger.count_finished(evaluator, "w", "dropped", "shutdown")
    stats = ledger.stats({"begin": 2})
    assert (stats.offered, stats.dropped, stats.faults) == (2, {"shutdown": 2}, {"begin": 2})


def test_a_snapshot_does_not_change_afterwards() -> None:
    """Stats are of one moment."""
    ledger = Ledger()
    ledger.count_offered(("screen",), "w")
    before = ledger.stats({})
    ledger.count_finished("screen", "w", "failed", "timeout")
    assert (before.pending, before.failed) == (1, {})
