"""The spool file: what goes in comes out, whichever process is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import CitedPart, Turn
from ragtrace.core.types import Document, RagCall, Timing, Usage
from ragtrace.core.unscored_call import UnscoredCall, decode, encode
from ragtrace.fleet.spool import ClaimedCall, Spool
from ragtrace.system.faults import faults
from ragtrace.testing import FakeClock

ROOT = Path(__file__).parents[3]
FULL = RagCall(
    query="where? \ud800",
    contexts=(Document("Paris", id="1", score=0.5, duplicate=True, cut_chars=3), Document("Mars")),
    answer="there",
    reference="here",
    workflow="guide",
    conversation_id="c",
    model="tiny",
    timing=Timing(1.5, first_s=0.5, last_s=1.0, consumer_wait_s=0.1),
    usage=Usage(1, 2),
    error="ValueError",
    streamed=True,
    abandoned=True,
    cut_chars=3,
    span=SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("a", "b")])),
    reference_contexts=(Document("Rome"),),
    turns=(Turn("user", "where?"),),
    runs=("there", "here"),
    parts=(CitedPart("there", ("1",)),),
    tags={"tenant": "acme", "paying": True, "seats": 3},
)


def unscored(number: int, text: str = "there") -> UnscoredCall:
    span = SpanContext(number, number, is_remote=False, trace_flags=TraceFlags(1))
    return UnscoredCall(RagCall(query="where?", contexts=(), answer=text, span=span), ("judge",))


def numbers(claimed: list[ClaimedCall]) -> list[int]:
    return [call.unscored.call.span.trace_id for call in claimed if call.unscored.call.span is not None]


@pytest.fixture
def path(tmp_path: Path) -> str:
    faults.clear()
    return str(tmp_path / "calls.db")


def opened(path: str, **bounds: Any) -> Spool:
    spool = Spool(path, **bounds)
    spool.prepare("spool=")
    return spool


# --- a call as text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        UnscoredCall(FULL, ("embedded", "judge"), "response-1", 0.25),
        UnscoredCall(RagCall(query=None, contexts=None, answer=None), ()),
        UnscoredCall(RagCall(query="", contexts=(), answer=""), ("judge",)),
    ],
    ids=["everything", "nothing", "empty"],
)
def test_a_call_comes_back_as_it_went(call: UnscoredCall) -> None:
    """Every field, None and empty told apart, whatever characters are in it."""
    text = encode(call)
    assert text.isascii()
    back = decode(text)
    assert back == call
    assert back.call.span == call.call.span


def test_the_span_comes_back_with_flags_and_state() -> None:
    """Equality of span contexts looks at less."""
    back = decode(encode(UnscoredCall(FULL, ()))).call.span
    assert back is not None
    assert (back.trace_id, back.span_id, int(back.trace_flags), back.trace_state.to_header()) == (1, 2, 1, "a=b")


def test_a_field_that_this_version_does_not_know_is_left_out() -> None:
    """A later version may have written the file."""
    text = encode(UnscoredCall(FULL, ())).replace('"call": {', '"call": {"mood": "sunny", ', 1)
    assert decode(text).call == FULL


def test_a_call_of_a_version_without_tags_has_none() -> None:
    """An earlier version may have written the file."""
    record = json.loads(encode(UnscoredCall(FULL, ())))
    del record["call"]["tags"]
    assert decode(json.dumps(record)).call == replace(FULL, tags={})


@pytest.mark.parametrize("tags", [None, [], {"tenant": None}, {"tenant": {}}, {"": "acme"}])
def test_a_call_with_damaged_tags_is_unreadable(tags: object) -> None:
    """As one with damaged contexts is: half of its tags would say that it is somebody else's."""
    record = json.loads(encode(UnscoredCall(FULL, ())))
    record["call"]["tags"] = tags
    with pytest.raises(ValueError, match="the tags are"):
        decode(json.dumps(record))


# --- in and out ------------------------------------------------------------------------------------------------------


def test_calls_are_claimed_in_order_and_only_once(path: str) -> None:
    """The second claim gets what the first left."""
    spool = opened(path)
    assert spool.add([unscored(number) for number in (1, 2, 3)]) == [True] * 3
    assert numbers(spool.claim(2)) == [1, 2]
    assert numbers(Spool(path).claim(2)) == [3]
    assert spool.claim(2) == []


def test_what_is_delivered_is_deleted(path: str) -> None:
    """And what is given back is there for the next process."""
    spool = opened(path)
    spool.add([unscored(1), unscored(2)])
    first, _ = spool.claim(2)
    spool.delete([first.number])
    spool.release_claims([])
    assert numbers(Spool(path).claim(5)) == [2]
    assert spool.contents().calls == 1


def test_no_use_of_the_file_waits_for_the_disk_while_calls_are_claimed(path: str) -> None:
    """SQLite copies its log into the file, and waits for the disk, when the last connection closes."""
    spool = opened(path)
    spool.add([unscored(1), unscored(2)])
    assert not os.path.exists(f"{path}-wal")
    (first, _) = spool.claim(2)
    spool.count_attempt(first.number)
    opened(path).add([unscored(3)])
    assert os.path.exists(f"{path}-wal")
    spool.release_claims([])
    spool.close()
    assert not os.path.exists(f"{path}-wal")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_end_that(path: str) -> None:
    """The connection that is kept is closed for the fork, and opened again."""
    spool = opened(path)
    spool.add([unscored(1)])
    assert len(spool.claim(1)) == 1
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not os.path.exists(f"{path}-wal")
    spool.renew_leases()
    assert os.path.exists(f"{path}-wal")
    spool.close()


def test_a_file_deleted_while_calls_are_claimed_is_made_anew(path: str) -> None:
    spool = opened(path)
    spool.add([unscored(1)])
    assert numbers(spool.claim(1)) == [1]
    for suffix in ("", "-wal", "-shm"):
        os.unlink(path + suffix)
    spool.add([unscored(2)])
    assert numbers(opened(path).claim(2)) == [2]
    assert faults.counts() == {"spool: deleted": 1}


def test_a_call_is_given_back_only_by_the_process_that_claimed_it(path: str) -> None:
    """Another process may have taken it up after the lease had expired."""
    clock = FakeClock(1000.0)
    sleeper, other = opened(path, clock=clock), Spool(path, clock=clock)
    sleeper.add([unscored(1)])
    [call] = sleeper.claim(1)
    clock.advance(61)
    assert numbers(other.claim(1)) == [1]
    sleeper.release_claims([call.number])
    assert Spool(path, clock=clock).claim(1) == []


def test_a_call_without_a_span_is_not_unscored(path: str) -> None:
    """Its scores would have nowhere to go."""
    assert opened(path).add([UnscoredCall(RagCall(query="q", contexts=None, answer="a"), ("judge",)), unscored(1)]) == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "bounds", [{"most_calls": 2}, {"most_bytes": 2 * len(encode(unscored(1)))}], ids=["calls", "bytes"]
)
def test_what_does_not_fit_is_refused(path: str, bounds: dict[str, int]) -> None:
    """Both bounds hold over all processes, and a small call may still fit where a large one did not."""
    spool = opened(path, **bounds)
    assert spool.add([unscored(1)]) == [True]
    assert Spool(path, **bounds).add([unscored(2), unscored(3)]) == [True, False]
    assert spool.contents().calls == 2


def test_a_call_kept_twice_is_there_once(path: str) -> None:
    """Trace and span id say which call it is."""
    spool = opened(path)
    spool.add([unscored(1)])
    spool.add([unscored(1)])
    assert numbers(spool.claim(5)) == [1]


def test_the_file_is_for_its_owner_alone(path: str) -> None:
    """It holds what users asked."""
    opened(path).add([unscored(1)])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


# --- claims that end -------------------------------------------------------------------------------------------------


def test_a_claim_that_is_not_renewed_ends(path: str) -> None:
    """Whoever slept through its lease finds that the call is no longer its own."""
    clock = FakeClock(1000.0)
    sleeper, other = opened(path, lease=60, clock=clock), Spool(path, lease=60, clock=clock)
    sleeper.add([unscored(1)])
    [mine] = sleeper.claim(1)
    clock.advance(59)
    sleeper.renew_leases()
    clock.advance(59)
    assert other.claim(1) == []
    clock.advance(2)
    assert numbers(other.claim(1)) == [1]
    sleeper.delete([mine.number])
    assert other.contents().calls == 1


CLAIM_AND_WAIT = """
import sys
from ragtrace.fleet.spool import Spool
print(len(Spool(sys.argv[1]).claim(int(sys.argv[2]))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claimer(path: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has claimed two calls and does nothing with them."""
    opened(path).add([unscored(number) for number in range(1, 5)])
    command = [sys.executable, "-c", CLAIM_AND_WAIT, path, "2"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "2"
        yield process
        process.kill()


def test_the_claim_of_a_living_process_holds(path: str, claimer: subprocess.Popen[str]) -> None:
    """The others go to whoever asks."""
    assert numbers(Spool(path).claim(10)) == [3, 4]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere the claims of a dead process only expire")
def test_the_claim_of_a_killed_process_ends_with_it(path: str, claimer: subprocess.Popen[str]) -> None:
    """At once: nobody waits for its lease."""
    claimer.send_signal(signal.SIGKILL)
    claimer.wait(10)
    assert numbers(Spool(path).claim(10)) == [1, 2, 3, 4]


def crash_while_scoring(path: str, clock: FakeClock) -> None:
    """A process that begins to score every call it can claim, and is gone."""
    crashing = Spool(path, lease=60, clock=clock)
    for call in crashing.claim(9):
        crashing.count_attempt(call.number)


def test_a_call_behind_five_crashes_is_tried_at_growing_intervals(path: str) -> None:
    """A judge's library that crashes on it must not crash each process to come at its start; then it is given up."""
    clock = FakeClock(1000.0)
    opened(path).add([unscored(1)])
    tried_at: list[float] = []
    while Spool(path).contents().calls:
        spool = Spool(path, lease=60, clock=clock)
        for call in spool.claim(1):
            spool.count_attempt(call.number)
            tried_at.append(clock())
        clock.advance(61 if len(tried_at) < 6 else 601)
    intervals = [int(later - earlier) for earlier, later in pairwise(tried_at)]
    assert len(tried_at) == 16
    assert intervals[:4] == [61] * 4
    assert intervals[4:] == sorted(intervals[4:])
    assert tried_at[-1] - tried_at[0] > 86_400
    assert faults.counts() == {"spool: given up": 1}


def test_undelivered_scores_count_as_a_try(path: str) -> None:
    """The call is there for the next process at once, but not for ever."""
    spool = opened(path)
    spool.add([unscored(1)])
    for _ in range(5):
        [call] = spool.claim(1)
        spool.count_attempt(call.number)
        spool.release_claims([])
    assert spool.claim(1) == []
    assert spool.contents().calls == 1


def test_a_call_that_only_waited_at_crashes_counts_no_try(path: str) -> None:
    """Nor does one that was given back in order, however often."""
    clock = FakeClock(1000.0)
    opened(path).add([unscored(1)])
    for _ in range(20):
        assert numbers(Spool(path, lease=60, clock=clock).claim(1)) == [1]
        clock.advance(61)
        leaving = Spool(path, lease=60, clock=clock)
        [call] = leaving.claim(1)
        leaving.count_attempt(call.number)
        leaving.release_claims([call.number])
    assert faults.counts() == {}


def test_calls_that_may_have_caused_two_crashes_are_tried_one_by_one(path: str) -> None:
    """After all others: none of them is given up for what another one did."""
    clock = FakeClock(1000.0)
    opened(path).add([unscored(number) for number in range(1, 4)])
    for _ in range(2):
        crashing = Spool(path, lease=60, clock=clock)
        for call in crashing.claim(9):
            crashing.count_attempt(call.number)
        clock.advance(61)
    spool = Spool(path, lease=60, clock=clock)
    spool.add([unscored(4)])
    [other] = spool.claim(9)
    assert numbers([other]) == [4]
    for number in range(1, 4):
        [alone] = spool.claim(9)
        assert (numbers([alone]), spool.claim(9)) == ([number], [])
        spool.clear_suspicion(alone.number)
        spool.delete([alone.number])
    assert faults.counts() == {}


# --- files that cannot be used ---------------------------------------------------------------------------------------


def _no_directory(path: str) -> str:
    return f"{path}/no/such/directory.db"


def _directory(path: str) -> str:
    return os.path.dirname(path)


def _damaged(path: str) -> str:
    Path(path).write_bytes(b"this is no database " * 100)
    return path


def _foreign(path: str) -> str:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    return path


def _later(path: str) -> str:
    opened(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    return path


@pytest.mark.parametrize("make", [_no_directory, _directory, _damaged, _foreign, _later])
def test_a_file_that_cannot_be_used_is_refused(path: str, make: Any) -> None:
    """With the path and where it came from; another program's database is left alone."""
    bad = make(path)
    with pytest.raises(SettingsError, match=r"spool.*RAGTRACE_SPOOL") as caught:
        Spool(bad).prepare("RAGTRACE_SPOOL")
    assert repr(bad) in str(caught.value)


def test_a_line_that_nobody_can_read_is_counted_and_goes(path: str) -> None:
    """The calls beside it are claimed."""
    spool = opened(path)
    spool.add([unscored(1), unscored(2)])
    with sqlite3.connect(path) as database:
        database.execute("UPDATE calls SET body = '{}' WHERE number = 1")
    database.close()
    assert numbers(spool.claim(5)) == [2]
    assert faults.counts() == {"spool: unreadable call": 1}
    assert spool.contents().calls == 1


# --- files of earlier releases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_earlier_release_is_read(path: str, version: int) -> None:
    """With every call in it: waiting, being scored at a kill, or scored and not known to be delivered."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript((Path(__file__).parents[2] / "files" / f"spool_version_{version}.sql").read_text())
    spool = opened(path)
    assert spool.add([unscored(9)]) == [True]
    claimed = spool.claim(9)
    assert sorted(numbers(claimed)) == [1, 2, 3, 9]
    first = next(call.unscored for call in claimed if numbers([call]) == [1])
    assert (first.call.query, first.pending_evaluators, first.probability, first.response_id) == (
        "question 1?", ("judge",), 0.25, "response-1",
    )  # fmt: skip
    spool.count_attempt(claimed[0].number)
    spool.delete([call.number for call in claimed])
    assert spool.contents().calls == 0
