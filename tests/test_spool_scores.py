"""Scores that wait in the spool for their delivery: the same when they come out, and never judged again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.labels import Claim
from ragtrace.core.score_id import id_of
from ragtrace.core.types import Evaluation, RagCall, Score, Unscored
from ragtrace.history.spool import Spool
from ragtrace.history.spool_codec import encode
from ragtrace.history.spool_records import Claimed, Kept
from ragtrace.history.spool_scores import decode_scores, encode_scores
from ragtrace.pipeline.handover import Handover
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.receipts import CARRIER, Receipts
from ragtrace.testing import FakeClock
from tests.test_receipts import event

CLAIM = Claim("Mars \ud800", 0, 4, "not_found", evidence=(1, 0), score=0.25, unsupported=((1, 2), (3, 4)), quote="M")
FULL = Evaluation(
    "judge",
    "2",
    "llm_judge",
    {
        "faithfulness": Score(
            0.5, "faithfulness", "3", True, "fail", "why \ud800", "judge@2", "strict", 1, 2, 3,
            {"n": 1, "x": 0.5, "flag": True, "names": ("a", "b"), "numbers": (0.5, 1.0)}, (CLAIM,),
        ),
        "answered": Unscored("abstained", "answered", "1", True, "because", "judge@2", "m", 1, 2, 3, {"n": 0}),
    },
    0.25, 1.5, 1, 20, 30, 0.001, None,
)  # fmt: skip
SPAN = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
KEPT = Kept(RagCall(query="where?", contexts=(), answer="there", span=SPAN), ("judge",))


@pytest.fixture
def path(tmp_path: Path) -> str:
    faults.clear()
    return str(tmp_path / "calls.db")


def opened(path: str, **settings: Any) -> Spool:
    spool = Spool(path, **settings)
    spool.prepare("spool=")
    return spool


def scored(path: str, **settings: Any) -> tuple[Spool, Claimed]:
    """A process that has claimed a call and scored it."""
    spool = opened(path, **settings)
    spool.keep([KEPT])
    [claimed] = spool.claim(1)
    assert spool.score(claimed.number, [FULL])
    return spool, claimed


# --- as text ---------------------------------------------------------------------------------------------------------


def test_scores_come_back_as_they_went() -> None:
    """Every field, so that the same event with the same score id goes out."""
    text = encode_scores([FULL])
    assert text.isascii()
    [back] = decode_scores(text)
    assert back == FULL
    for name, result in back.results.items():
        assert id_of(SPAN, name, result, back) == id_of(SPAN, name, FULL.results[name], FULL)


def test_a_field_that_this_version_does_not_know_is_left_out_of_scores() -> None:
    """A later version may have written the file."""
    text = encode_scores([FULL]).replace('"value": 0.5', '"value": 0.5, "mood": "sunny"', 1)
    assert decode_scores(text) == (FULL,)


# --- in the file -----------------------------------------------------------------------------------------------------


def test_a_scored_call_is_nobodys_to_judge(path: str) -> None:
    """As long as its process lives it is that process's; then whoever claims it gets the scores with it."""
    clock = FakeClock(1000.0)
    spool, claimed = scored(path, clock=clock)
    other = Spool(path, clock=clock)
    assert (other.claim(9), claimed.scores) == ([], None)
    clock.advance(61)
    [again] = other.claim(9)
    assert (again.scores, again.sent, again.kept) == ((FULL,), None, KEPT)
    assert spool.contents().scored == 1


def test_a_call_is_scored_once(path: str) -> None:
    """Whoever comes second, or has lost the claim, is told that the call is not theirs."""
    clock = FakeClock(1000.0)
    spool, claimed = scored(path, clock=clock)
    assert spool.score(claimed.number, [FULL]) is False
    clock.advance(61)
    other = Spool(path, clock=clock)
    other.claim(9)
    assert spool.score(claimed.number, [FULL]) is False


def test_a_file_that_is_locked_for_too_long_says_neither(path: str) -> None:
    """The scores are noted another time."""
    spool = opened(path)
    spool.keep([KEPT])
    [claimed] = spool.claim(1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert spool.score(claimed.number, [FULL], timeout=0.01) is None
    assert spool.score(claimed.number, [FULL]) is True


def test_what_was_sent_is_not_sent_again_after_an_orderly_end(path: str) -> None:
    """The next process is told which parts of the scores have gone, and it costs none of its tries."""
    spool, claimed = scored(path)
    spool.leave([], {claimed.number: ["a"]}, [], 1.0)
    for _ in range(5):
        other = Spool(path)
        [again] = other.claim(9)
        assert (again.scores, again.sent) == ((FULL,), frozenset({"a"}))
        other.leave([], {again.number: ["a"]}, [], 1.0)
    assert faults.counts() == {}


def test_a_crash_does_not_cost_scores_their_tries(path: str) -> None:
    """They are sent by whoever comes next, however often that is killed."""
    clock = FakeClock(1000.0)
    scored(path, clock=clock)
    for _ in range(5):
        clock.advance(61)
        assert [call.scores for call in Spool(path, clock=clock).claim(9)] == [(FULL,)]
    assert faults.counts() == {}


def test_scores_that_are_refused_again_and_again_are_given_up(path: str) -> None:
    """They would stay in the file for ever; it is counted."""
    spool, claimed = scored(path)
    spool.leave([], {claimed.number: []}, [claimed.number], 1.0)
    for _ in range(5):
        other = Spool(path)
        numbers = [call.number for call in other.claim(9)]
        other.leave([], {}, numbers, 1.0)
    assert faults.counts() == {"spool: given up": 1}
    assert spool.contents().calls == 0


def test_an_orderly_end_gives_everything_back(path: str) -> None:
    """What it has claimed and not scored is there for the next at once, though the process lives on."""
    spool = opened(path)
    spool.keep([KEPT])
    spool.claim(1)
    spool.leave([], {}, [], 1.0)
    assert [call.kept for call in Spool(path).claim(9)] == [KEPT]


def test_calls_that_nobody_waits_for_any_more_are_not_kept(path: str) -> None:
    """The decision falls at the last moment, with all or nothing in the file."""
    spool = opened(path)
    told: list[list[bool]] = []

    def decide(stored: list[bool]) -> bool:
        told.append(stored)
        return False

    assert spool.keep([KEPT], decide=decide) == [False]
    assert (told, spool.contents().calls) == ([[True]], 0)


def test_a_call_that_goes_back_is_as_far_as_it_has_come(path: str) -> None:
    """Unless it is somebody else's by now."""
    clock = FakeClock(1000.0)
    spool = opened(path, clock=clock)
    spool.keep([Kept(KEPT.call, ("judge", "screen"))])
    [claimed] = spool.claim(1)
    spool.put_back({claimed.number: KEPT})
    assert [call.kept.open for call in spool.claim(1)] == [("judge",)]
    clock.advance(61)
    other = Spool(path, clock=clock)
    [theirs] = other.claim(1)
    spool.put_back({claimed.number: Kept(KEPT.call, ())})
    assert other.is_mine(theirs.number)


def test_a_file_of_the_first_version_is_taken_over(path: str) -> None:
    """With the calls in it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(
            "CREATE TABLE calls (number INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT UNIQUE NOT NULL, "
            "body TEXT NOT NULL, owner TEXT, lease REAL NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0);"
            f"PRAGMA application_id = {0x52414754}; PRAGMA user_version = 1;"
        )
        database.execute("INSERT INTO calls (identity, body) VALUES (?, ?)", (KEPT.identity, encode(KEPT)))
    spool = opened(path)
    opened(path)
    [claimed] = spool.claim(9)
    assert (claimed.kept, claimed.scores) == (KEPT, None)
    assert spool.score(claimed.number, [FULL])


# --- on their way ----------------------------------------------------------------------------------------------------


def handed(path: str, receipts: Receipts, *items: Any) -> tuple[Spool, Handover, int]:
    """A call whose scores have been handed over, as these events."""
    spool, claimed = scored(path)
    handover = Handover(spool, receipts)
    handover.hand(claimed.number, SPAN, lambda: [receipts.entered(item, room=True) for item in items])
    return spool, handover, claimed.number


def next_claims(path: str) -> list[Claimed]:
    return Spool(path).claim(9)


def test_what_is_delivered_goes_out_of_the_file_though_the_flush_failed(path: str) -> None:
    """That something else was late does not matter."""
    receipts, item = Receipts(), event((1, 2), "a")
    spool, handover, number = handed(path, receipts, item)
    receipts.sent(receipts.sending([item]), delivered=True)
    handover.settle([number], well=False)
    assert (spool.contents().calls, handover.under_way) == (0, [])


def test_what_still_waits_stays_in_the_file_though_a_flush_went_well(path: str) -> None:
    """It may have begun before."""
    spool, handover, number = handed(path, Receipts(), event((1, 2), "a"))
    handover.settle([number], well=True)
    assert (spool.contents().calls, handover.under_way) == (1, [number])


def test_what_was_never_sent_is_left_to_the_next_process(path: str) -> None:
    """With what was sent of it, or may have been: that is not sent again."""
    receipts, items = Receipts(), [event((1, 2), name) for name in "abc"]
    _, handover, _ = handed(path, receipts, *items)
    receipts.sent(receipts.sending(items[:1]), delivered=True)
    receipts.sending(items[1:2])
    handover.leave(1.0, well=False)
    assert [(call.scores, call.sent) for call in next_claims(path)] == [((FULL,), frozenset("ab"))]
    assert faults.counts() == {"spool: delivery not confirmed": 1}


def test_what_may_have_arrived_is_counted_and_not_sent_again(path: str) -> None:
    """Where all of it is with an exporter that did not come back in time."""
    receipts, item = Receipts(), event((1, 2), "a")
    spool, handover, _ = handed(path, receipts, item)
    receipts.sending([item])
    handover.leave(1.0, well=False)
    assert (spool.contents().calls, faults.counts()) == (0, {"spool: delivery not confirmed": 1})


@pytest.mark.parametrize(("well", "counted"), [(True, {}), (False, {"spool: delivery not confirmed": 1})])
def test_scores_that_go_through_others_providers_are_judged_by_the_flush(
    path: str, well: bool, counted: dict[str, int]
) -> None:
    """Nothing else is known of them, and those providers go on when we have ended."""
    spool, handover, _ = handed(path, Receipts())
    handover.leave(1.0, well=well)
    assert (spool.contents().calls, faults.counts()) == (0, counted)


def test_a_call_that_was_being_handed_over_is_left_with_what_is_known(path: str) -> None:
    """The end came in the middle of it: what had not been handed over is sent by the next process."""
    receipts, item = Receipts(), event((1, 2), "a")
    spool, claimed = scored(path)
    handover = Handover(spool, receipts)

    def send() -> None:
        receipts.entered(item, room=True)
        receipts.sent(receipts.sending([item]), delivered=True)
        handover.leave(1.0, well=True)

    handover.hand(claimed.number, SPAN, send, frozenset({CARRIER}))
    assert [call.sent for call in next_claims(path)] == [frozenset({"a", CARRIER})]
