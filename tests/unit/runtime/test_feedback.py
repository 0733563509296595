"""Feedback of people: by whichever way and at whichever time it comes, it is sent once or replaces the earlier one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.core.feedback import decode_call_id
from ragtrace.system.faults import faults
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S, ask, watch

UNKNOWN: Final = f"00-{'ab' * 16}-{'cd' * 8}-01"
"""Id of a call that no process has seen."""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@ragtrace.trace(name="guide")
def ask_for_id(question: str) -> str | None:
    """A call that hands its id out from below its root."""
    return _inside()


@ragtrace.retrieve
def _inside(query: str = "q") -> str | None:
    return ragtrace.call_id()


def human(captured: Captured) -> list[dict[str, Any]]:
    """Attributes of the evaluation events of people."""
    found = [dict(event.log_record.attributes or {}) for event in captured.events]
    return [each for each in found if each.get("ragtrace.evaluator.type") == "human"]


def points(captured: Captured, metric: str) -> list[Any]:
    """Data points of *metric* that people gave."""
    data = captured.metrics().get(metric)
    given = () if data is None else data.data_points
    return [point for point in given if point.attributes.get("ragtrace.evaluator.id") == "human"]


def call_with_id() -> str:
    """Make a call and return its id."""
    token = ask_for_id("where?")
    assert token is not None
    return token


# --- the id of a call ------------------------------------------------------------------------------------------------


def test_the_id_of_a_call_names_its_root_span() -> None:
    """From below a step of the call, too; in the format of traceparent."""
    captured = watch(screen=None)
    token = call_with_id()
    assert ragtrace.flush(WAIT_S)
    (root,) = [span for span in captured.spans if span.parent is None]
    context = root.get_span_context()
    assert context is not None
    assert token == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert decode_call_id(token) is not None


def test_there_is_no_id_outside_a_call_or_before_configure(caplog: pytest.LogCaptureFixture) -> None:
    """None both times; outside a call the log says what to do."""
    assert ask_for_id("where?") is None
    assert "call_id" not in caplog.text
    watch(screen=None)
    assert ragtrace.call_id() is None
    assert "call it inside a function" in caplog.text


# --- sending ---------------------------------------------------------------------------------------------------------


def test_thumbs_up_are_an_event_of_the_call() -> None:
    """Parented to the root span, of a human evaluator, with label and score."""
    captured = watch(screen=None)
    token = call_with_id()
    assert ragtrace.feedback(True, call=token, comment="fine", user="u-1")
    assert ragtrace.flush(WAIT_S)
    (event,) = human(captured)
    score_id = event.pop("ragtrace.eval.score_id")
    assert len(score_id) == 32
    assert event == {
        "gen_ai.evaluation.name": "user_feedback",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "thumbs_up",
        "gen_ai.evaluation.explanation": "fine",
        "ragtrace.evaluator.id": "human",
        "ragtrace.evaluator.type": "human",
        "ragtrace.eval.higher_is_better": True,
        "user.id": "u-1",
    }
    (record,) = [each.log_record for each in captured.events]
    assert record.trace_id is not None
    assert record.span_id is not None
    assert f"{record.trace_id:032x}-{record.span_id:016x}" == token[3:-3]


@pytest.mark.parametrize(
    ("score", "scale", "expected"), [(4, (1, 5), 0.75), (1, (1, 5), 0.0), (0.5, (0.0, 1.0), 0.5), (False, (0, 1), 0.0)]
)
def test_a_score_is_a_share_of_its_scale(score: float, scale: tuple[float, float], expected: float) -> None:
    """Four of one to five stars are three quarters."""
    captured = watch(screen=None)
    assert ragtrace.feedback(score, scale=scale, call=UNKNOWN)
    assert ragtrace.flush(WAIT_S)
    assert [event["gen_ai.evaluation.score.value"] for event in human(captured)] == [expected]


def test_a_correction_needs_no_score() -> None:
    """It has a label, and no invented number."""
    captured = watch(screen=None)
    assert ragtrace.feedback(None, correction="The fee is 30 EUR.", call=UNKNOWN)
    assert ragtrace.flush(WAIT_S)
    (event,) = human(captured)
    assert "gen_ai.evaluation.score.value" not in event
    assert event["gen_ai.evaluation.score.label"] == "corrected"
    assert event["ragtrace.feedback.correction"] == "The fee is 30 EUR."
    assert not points(captured, "ragtrace.eval.score")
    assert [point.value for point in points(captured, "ragtrace.eval.results")] == [1]


def test_feedback_inside_a_call_is_of_that_call() -> None:
    """Without call=."""
    captured = watch(screen=None)

    @ragtrace.trace
    def rated(question: str) -> str | None:
        assert ragtrace.feedback(True)
        return ragtrace.call_id()

    token = rated("where?")
    assert token is not None
    assert ragtrace.flush(WAIT_S)
    (record,) = [each.log_record for each in captured.events]
    assert record.span_id is not None
    assert f"{record.span_id:016x}" in token


def test_feedback_after_a_restart_is_of_the_same_call() -> None:
    """The id holds all that another process needs; trace_id= and span_id= do as well, and mean the same feedback."""
    watch(screen=None)
    token = call_with_id()
    ragtrace.shutdown(WAIT_S)
    captured = watch(screen=None)
    _, trace_id, span_id, _ = token.split("-")
    assert ragtrace.feedback(True, call=token)
    assert ragtrace.feedback(False, trace_id=trace_id, span_id=span_id)
    assert ragtrace.flush(WAIT_S)
    assert len({event["ragtrace.eval.score_id"] for event in human(captured)}) == 1
    assert all(event.log_record.trace_id == int(trace_id, 16) for event in captured.events)


def test_the_same_feedback_twice_is_sent_once() -> None:
    """Another score replaces the first one under its id, and is no further rating in the metrics."""
    captured = watch(screen=None)
    for score in (True, True, False, False, True):
        assert ragtrace.feedback(score, call=UNKNOWN)
    assert ragtrace.flush(WAIT_S)
    events = human(captured)
    assert [event["gen_ai.evaluation.score.value"] for event in events] == [1.0, 0.0, 1.0]
    assert len({event["ragtrace.eval.score_id"] for event in events}) == 1
    assert [point.value for point in points(captured, "ragtrace.eval.results")] == [1]
    assert [point.count for point in points(captured, "ragtrace.eval.score")] == [1]


@pytest.mark.parametrize(
    "other", [{"user": "u-2"}, {"name": "tone"}, {"id": "second"}, {"call": UNKNOWN[:-4] + "0-01"}]
)
def test_feedback_of_another_call_name_user_or_id_stands_beside(other: dict[str, Any]) -> None:
    """Each has an id of its own."""
    captured = watch(screen=None)
    first: dict[str, Any] = {"call": UNKNOWN, "user": "u-1"}
    ragtrace.feedback(True, **first)
    ragtrace.feedback(True, **{**first, **other})
    assert ragtrace.flush(WAIT_S)
    assert len({event["ragtrace.eval.score_id"] for event in human(captured)}) == 2


def test_no_id_of_a_person_or_a_call_is_on_a_metric() -> None:
    """Only name, label and evaluator."""
    captured = watch(screen=None)
    ragtrace.feedback(True, call=UNKNOWN, user="u-1", id="x", comment="c")
    assert ragtrace.flush(WAIT_S)
    (point,) = points(captured, "ragtrace.eval.results")
    assert dict(point.attributes) == {
        "gen_ai.evaluation.name": "user_feedback",
        "gen_ai.evaluation.score.label": "thumbs_up",
        "ragtrace.evaluator.id": "human",
    }


def test_comments_are_redacted() -> None:
    """As queries and answers are; a user id by the function for ids."""
    redact = ragtrace.Redact(patterns=[r"\d{4}"], ids=lambda _: "someone")
    captured = watch(screen=None, redact=redact)
    ragtrace.feedback(None, call=UNKNOWN, comment="PIN 1234", correction="it is 9876", user="u-1")
    assert ragtrace.flush(WAIT_S)
    (event,) = human(captured)
    assert event["gen_ai.evaluation.explanation"] == "PIN [redacted]"
    assert event["ragtrace.feedback.correction"] == "it is [redacted]"
    assert event["user.id"] == "someone"


def test_no_content_keeps_comments_in_the_process(tmp_path: Path) -> None:
    """The score leaves, the texts do not: neither in an event nor in the history."""
    captured = watch(screen=None, capture_content="NO_CONTENT", store=tmp_path / "history.db")
    ragtrace.feedback(False, call=UNKNOWN, comment="secret", correction="secret")
    assert ragtrace.flush(WAIT_S)
    (event,) = human(captured)
    assert "secret" not in repr(event)
    assert b"secret" not in (tmp_path / "history.db").read_bytes()


# --- wrong use -------------------------------------------------------------------------------------------------------


def test_feedback_before_configure_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """It does nothing, and returns False."""
    assert not ragtrace.feedback(True, call=UNKNOWN)
    assert not ragtrace.feedback(True, call=UNKNOWN)
    assert caplog.text.count("not configured in this process") == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"score": 4}, "from 0.0 to 1.0, got 4"),
        ({"score": float("nan")}, "got nan"),
        ({"score": "good"}, "got 'good'"),
        ({"score": None}, "got None without a correction="),
        ({"score": 1, "scale": (5, 1)}, "got (5, 1)"),
        ({"score": 1, "scale": "stars"}, "got 'stars'"),
        ({"name": ""}, "name= must be"),
        ({"call": "01-nonsense"}, "what ragtrace.call_id() returned"),
        ({"call": f"00-{'0' * 32}-{'0' * 16}-01"}, "what ragtrace.call_id() returned"),
        ({"call": None}, "outside a traced call"),
        ({"call": None, "trace_id": "ab" * 16}, "trace_id= and span_id="),
    ],
)
def test_wrong_arguments_are_logged_and_never_raise(
    wrong: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The text comes from a front end as often as from the developer; the log says what is wrong."""
    captured = watch(screen=None)
    given: dict[str, Any] = {"score": True, "call": UNKNOWN, **wrong}
    assert not ragtrace.feedback(given.pop("score"), **given)
    assert said in caplog.text
    assert sum(ragtrace.stats().faults.values()) == 1
    assert ragtrace.flush(WAIT_S)
    assert not human(captured)


def test_feedback_after_the_shutdown_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """As before configure."""
    watch(screen=None)
    ragtrace.shutdown(WAIT_S)
    assert not ragtrace.feedback(True, call=UNKNOWN)


@needs_fork
def test_a_forked_child_sends_its_own_feedback_only() -> None:
    """Feedback that waits in the parent is the parent's."""
    captured = watch(screen=None)
    assert ragtrace.feedback(True, call=UNKNOWN)
    pid = os.fork()
    if pid == 0:
        ok = ragtrace.feedback(False, call=UNKNOWN, user="child") and ragtrace.flush(WAIT_S)
        mine = [event.get("user.id") for event in human(captured)][-1:]
        os._exit(0 if ok and mine == ["child"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert ragtrace.flush(WAIT_S)
    assert [event.get("user.id") for event in human(captured)] == [None]


# --- the history -----------------------------------------------------------------------------------------------------


def stored(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT score, label, comment, correction, user, identity FROM feedback").fetchall()


@pytest.fixture
def history(tmp_path: Path) -> Callable[[], list[tuple[Any, ...]]]:
    """A configured history; returns its feedback."""
    path = tmp_path / "history.db"
    watch(store=path)
    return lambda: stored(path)


def test_the_history_keeps_the_newest_feedback(history: Callable[[], list[tuple[Any, ...]]]) -> None:
    """One row for each id, of calls that are in the file and of others."""
    token = call_with_id()
    ragtrace.feedback(True, call=token, user="u-1")
    ragtrace.feedback(False, call=token, user="u-1", comment="no", correction="yes")
    ragtrace.feedback(True, call=UNKNOWN)
    assert ragtrace.flush(WAIT_S)
    _, trace_id, span_id, _ = token.split("-")
    assert sorted(history(), key=repr) == sorted(
        [
            (0.0, "thumbs_down", "no", "yes", "u-1", bytes.fromhex(trace_id + span_id)),
            (1.0, "thumbs_up", None, None, None, bytes.fromhex("ab" * 16 + "cd" * 8)),
        ],
        key=repr,
    )


def test_feedback_within_a_request_leaves_the_call_whole(
    history: Callable[[], list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    """The feedback is stored before its call is: the call is stored with its texts all the same."""

    @ragtrace.trace(name="guide")
    def rated(question: str) -> str:
        ragtrace.feedback(True)
        ragtrace.flush(WAIT_S)
        assert len(history()) == 1
        return "an answer"

    rated("where?")
    assert ragtrace.flush(WAIT_S)
    with closing(sqlite3.connect(tmp_path / "history.db")) as database:
        (body,) = database.execute("SELECT body FROM bodies").fetchone()
    assert "an answer" in body


def test_a_history_of_an_older_release_takes_feedback(tmp_path: Path) -> None:
    """The table is added when the file is opened to be written; its version stays, so that older releases read it."""
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path)) as database:
        script = Path(__file__).parents[2] / "files" / "history_version_1.sql"
        database.executescript(script.read_text(encoding="utf-8"))
        version = database.execute("PRAGMA user_version").fetchone()
    watch(store=path)
    ragtrace.feedback(True, call=UNKNOWN)
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    assert len(stored(path)) == 1
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == version
