"""Access of a runtime to its spool file: how long it waits for other writers."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.types import RagCall
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.spool import Spool
from ragtrace.fleet.spooling import Spooling
from ragtrace.system.faults import faults
from tests.support.watched import WAIT_S


@pytest.fixture
def path(tmp_path: Path) -> str:
    faults.clear()
    return str(tmp_path / "calls.db")


@pytest.fixture
def scored(path: str) -> Iterator[Spooling]:
    """A claimed call whose scores were sent."""
    spool = Spool(path)
    spool.prepare("spool=")
    span = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(1))
    spool.add([UnscoredCall(RagCall(query="where?", contexts=(), answer="there", span=span), ("judge",))])
    telemetry: Any = None  # only the thread that confirms deliveries uses it
    spooling = Spooling(spool, telemetry)
    with spooling.claim(1) as claimed:
        spooling.mark_sent(claimed[0].number)
    yield spooling
    spooling.close(monotonic() + WAIT_S, delivered=False)


def test_a_deletion_waits_for_another_writer_until_the_deadline(path: str, scored: Spooling) -> None:
    """The other one has the file for half a second."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        letting_go = threading.Timer(0.5, other.execute, ["ROLLBACK"])
        letting_go.start()
        assert scored.deliver_and_delete(lambda: True, monotonic() + WAIT_S)
        letting_go.join()
    assert (Spool(path).contents().calls, faults.counts()) == (0, {})


def test_calls_that_could_not_be_deleted_in_time_are_deleted_later(path: str, scored: Spooling) -> None:
    """The deadline is kept, the failure is counted, and no other process gets the calls meanwhile."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert scored.deliver_and_delete(lambda: True, monotonic())
        assert Spool(path).contents().calls == 1
        other.execute("ROLLBACK")
    assert faults.counts() == {"spool": 1}
    assert Spool(path).claim(1) == []
    assert scored.deliver_and_delete(lambda: True, monotonic() + WAIT_S)
    assert Spool(path).contents().calls == 0
