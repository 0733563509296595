"""Claims of calls in a database: one worker has a call, until it confirms, releases, is gone or its time is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry.trace import SpanContext

from ragtrace.core.errors import SettingsError
from ragtrace.fleet.claims import KEPT_SECONDS, Claim, ClaimRequest, SqlClaims, WorkerClaims, claim_id, open_claims
from ragtrace.system.faults import faults
from ragtrace.testing import FakeClock
from tests.support.fleet import claim
from tests.support.postgres import Postgres, postgres_server

CALL = "a" * 32
SPAN = SpanContext(1, 1, is_remote=True)


@pytest.fixture
def clock() -> FakeClock:
    """A clock at the second 1,000,000."""
    return FakeClock(1e6)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for the tests of this file."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def claims(tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[SqlClaims]:
    """Claims in an empty database: a SQLite file, and a real PostgreSQL."""
    url = f"sqlite:///{tmp_path / 'claims.db'}"
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        server.empty()
        url = server.url
    with closing(SqlClaims(url, clock, cleaning=10)) as made:
        yield made


def test_a_claimed_call_is_held(claims: SqlClaims) -> None:
    """Another message does not get it; the same one does, when it is delivered again."""
    assert [claim(claims, CALL, owner, 60) for owner in ("one", "two", "one")] == ["claimed", "held", "claimed"]


def test_a_claim_is_taken_over(claims: SqlClaims) -> None:
    """By a further delivery of the same message only; the earlier one learns that it has lost the call."""
    assert claim(claims, CALL, "one:1") == "claimed"
    assert claim(claims, CALL, "two:1", 60, "two:") == "held"
    assert claims.holds(CALL, "one:1")
    assert claim(claims, CALL, "one:2", 60, "one:") == "claimed"
    assert [claims.holds(CALL, owner) for owner in ("one:1", "one:2")] == [False, True]
    claims.confirm(CALL)
    assert not claims.holds(CALL, "one:2")


def test_a_confirmed_call_is_done_for_everyone(claims: SqlClaims, clock: FakeClock) -> None:
    """Its owner is refused, too, for as long as the call may come again."""
    claim(claims, CALL, "one", 60)
    claims.confirm(CALL)
    clock.advance(KEPT_SECONDS - 1)
    assert [claim(claims, CALL, owner, 60) for owner in ("one", "two")] == ["done", "done"]


def test_several_calls_are_confirmed_at_once(claims: SqlClaims) -> None:
    """All calls of a delivery, and no other."""
    others = "b" * 32, "c" * 32
    for call in (CALL, *others):
        claim(claims, call, "one", 60)
    claims.confirm(CALL, others[0])
    assert [claim(claims, call, "two", 60) for call in (CALL, *others)] == ["done", "done", "held"]


def test_a_released_call_is_free(claims: SqlClaims) -> None:
    """Only its owner can release it, and not after confirming."""
    claim(claims, CALL, "one", 60)
    claims.release(CALL, "two")
    assert claim(claims, CALL, "two", 60) == "held"
    claims.release(CALL, "one")
    assert claim(claims, CALL, "two", 60) == "claimed"
    claims.confirm(CALL)
    claims.release(CALL, "two")
    assert claim(claims, CALL, "three", 60) == "done"


def test_a_claim_expires(claims: SqlClaims, clock: FakeClock) -> None:
    """A worker that neither confirms nor releases loses the call when its time is over."""
    claim(claims, CALL, "one", 60)
    clock.advance(59)
    assert claim(claims, CALL, "two", 60) == "held"
    clock.advance(2)
    assert claim(claims, CALL, "two", 60) == "claimed"


def test_expired_claims_are_deleted(claims: SqlClaims, clock: FakeClock) -> None:
    """The table does not grow with calls that cannot come again."""
    for number in range(9):
        claim(claims, f"{number:032x}", "one", 60)
    clock.advance(61)
    claim(claims, "b" * 32, "one", 60)
    with claims._engine.connect() as connection:
        assert connection.execute(claims._sql.select(claims._sql.func.count()).select_from(claims._table)).scalar() == 1


def test_a_database_that_does_not_answer_is_left_alone_in_time(tmp_path: Path, clock: FakeClock) -> None:
    """Another program has locked the file: the claim fails after the time limit, and the next one succeeds."""
    path = tmp_path / "claims.db"
    with closing(SqlClaims(f"sqlite:///{path}", clock, timeout=1.0)) as claims:
        claim(claims, CALL, "one")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TimeoutError, match="within 1 s"):
                claim(claims, CALL, "one")
        assert claim(claims, CALL, "one") == "claimed"


def test_the_id_of_a_claim_tells_calls_and_evaluators_apart() -> None:
    """The same call and evaluator have the same id in every process."""
    spans = [SpanContext(1, number, is_remote=True) for number in (1, 2)]
    ids = [claim_id(span, evaluator, version) for span in spans for evaluator in "ab" for version in "12"]
    assert len(set(ids)) == 8
    assert claim_id(spans[0], "a", "1") == ids[0]


def test_a_url_that_is_none_is_refused() -> None:
    """The message says what to write and shows no credentials."""
    with pytest.raises(SettingsError, match="redis://") as caught:
        open_claims("me:secret@nowhere")
    assert "secret" not in str(caught.value)


def test_a_missing_driver_is_named() -> None:
    """A database whose driver is not installed is a clear error at the start."""
    with pytest.raises(SettingsError, match="driver of the database"):
        open_claims("oracle://me:secret@host/db")


class AwayStore:
    """A store of claims that does not answer."""

    def claim_all(self, requests: Sequence[ClaimRequest], seconds: float) -> list[Claim]:
        """Fail."""
        raise ConnectionError("away")

    def holds(self, call: str, owner: str) -> bool:
        """Fail."""
        raise ConnectionError("away")

    def confirm(self, *calls: str) -> None:
        """Fail."""
        raise ConnectionError("away")

    def release(self, call: str, owner: str) -> None:
        """Fail."""
        raise ConnectionError("away")


def test_a_store_that_does_not_answer_stops_no_call() -> None:
    """The call is judged without a claim; that is counted, and each failure is a fault."""
    before = faults.counts().get("fleet: store of claims", 0)
    claims = WorkerClaims(AwayStore(), "judge", "1", 60)
    assert claims.claim_all([(SPAN, "message", "")]) == ["unknown"]
    assert claims.holds(SPAN, "message")
    claims.confirm(SPAN)
    claims.release(SPAN, "message")
    assert claims.counts == {"unknown": 1}
    assert faults.counts()["fleet: store of claims"] == before + 4
    faults.clear()


def test_a_worker_counts_its_claims(claims: SqlClaims) -> None:
    """A call that is queued twice is claimed once, and done when the first message is."""
    worker = WorkerClaims(claims, "judge", "1", 60)
    assert worker.claim_all([(SPAN, "one", ""), (None, "other", ""), (SPAN, "two", "")]) == [
        "claimed",
        "unknown",
        "held",
    ]
    worker.confirm(SPAN)
    assert worker.claim_all([(SPAN, "two", "")]) == ["done"]
    assert worker.counts == {"claimed": 1, "held": 1, "done": 1, "unknown": 1}


def test_without_a_store_nothing_is_claimed() -> None:
    """Every call is judged, and nothing is counted."""
    worker = WorkerClaims(None, "judge", "1", 60)
    assert worker.claim_all([(SPAN, "one", "")]) == ["unknown"]
    assert worker.counts == {}
