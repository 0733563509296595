"""`ragtrace dataset`: bad calls of a history become test cases."""

from __future__ import annotations

import json
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any, Final

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.cli import main
from ragtrace.core.feedback import Feedback
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import TagValue
from ragtrace.core.types import Document, Evaluation, RagCall, Score, Unscored
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall, QueuedVerdict
from ragtrace.labels.label_store import Label, LabelStore
from ragtrace.offline.call_records import CallFile, CallLine
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.history import GIB

DAY: Final = 86_400.0
ORIGIN: Final = CallOrigin("bot", "1.4.0", "screen@1", ("faithfulness",), "judge@2", ("faithfulness",))


def span(number: int) -> SpanContext:
    return SpanContext(number, number, False, TraceFlags(1))


def call(
    number: int,
    query: str | None,
    score: float | None,
    *,
    days: float = 1.0,
    chunk: str = "14 days",
    **more: Any,
) -> QueuedCall:
    """A call with a score by the screen of 1 minus the judge's score."""
    described = RagCall(query, (Document(chunk, "policy"),), "Within 90 days.", span=span(number))
    result = Unscored("no_claims", "faithfulness", "1") if score is None else Score(score, "faithfulness", "1")
    evaluations = [Evaluation("judge", "2", "llm_judge", {"faithfulness": result})]
    if score is not None:
        screened = Score(1.0 - score, "faithfulness", "1")
        evaluations.append(Evaluation("screen", "1", "deterministic", {"faithfulness": screened}))
    return QueuedCall(replace(described, **more), tuple(evaluations), "sampled", time() - days * DAY)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Eight calls: two duplicates, one without a score, one without a query, one old one."""
    calls = [
        call(1, "How long may I return shoes?", 0.1, days=3, workflow="support"),
        call(2, "how long may I return   SHOES", 0.2, days=2, workflow="support"),
        call(3, "How long may I return shoes?", 0.3, chunk="within 30 days", workflow="support"),
        call(4, "Who wrote to ada@example.org?", 0.4, model="gpt 5"),
        call(5, "What is a refund?", 0.9),
        call(6, "What is a voucher?", None),
        call(7, None, 0.0),
        call(8, "Old question", 0.0, days=20, error="TimeoutError"),
    ]
    path = tmp_path / "history.db"
    fill(path, calls)
    return path


def fill(path: Path, calls: list[Any], *, texts: bool = True) -> None:
    history_file(str(path)).create()
    with closing(HistoryWriter(str(path), ORIGIN, most_bytes=GIB, texts=texts)) as writer:
        assert writer.write(calls) == 0


def made(history: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the cases."""
    out = history.with_name("cases.jsonl")
    out.unlink(missing_ok=True)
    status = main(["dataset", str(history), "--out", str(out), *options])
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return status, [json.loads(line) for line in lines]


def test_bad_calls_become_cases(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the judge's score, newest first, without duplicates; every call that matched is accounted for."""
    status, cases = made(history, "--where", "faithfulness < 0.5", "--last", "7d", "--json")
    assert status == OK
    assert sorted(case["query"] for case in cases) == [
        "How long may I return shoes?",
        "Who wrote to ada@example.org?",
        "how long may I return   SHOES",
    ]
    counts = json.loads(capsys.readouterr().out)
    assert {name: counts[name] for name in ("calls", "matched", "unknown", "duplicates", "no_content", "cases")} == {
        "calls": 7, "matched": 5, "unknown": 1, "duplicates": 1, "no_content": 1, "cases": 3,
    }  # fmt: skip
    [shoes] = [case for case in cases if "SHOES" in case["query"]]
    assert shoes["duplicates"] == 1
    assert shoes["contexts"] == [{"text": "14 days", "id": "policy", "score": None}]
    assert shoes["scores"] == {"faithfulness": {"score": 0.2, "evaluator": "judge@2", "version": "1"}}
    assert shoes["selected_by"] == ["faithfulness"]
    assert (shoes["workflow"], shoes["release"]) == ("support", "1.4.0")
    assert stat.S_IMODE(history.with_name("cases.jsonl").stat().st_mode) == 0o600


def test_the_verdict_of_a_guard_selects(history: Path) -> None:
    """By what it found, and by how it was configured; a call without a guard is neither true nor false."""
    late = GuardVerdict("faithfulness", "replace", "timeout", "released", "", None, 0.4)
    failed = GuardVerdict("faithfulness", "shadow", "fail", "none", "", 0.4, 0.1)
    fill(history, [QueuedVerdict(span(4), failed), QueuedVerdict(span(5), late)])
    for where, query in (
        ("guard = fail and guard.mode = shadow and guard.metric = faithfulness", "Who wrote to ada@example.org?"),
        ("guard != unchecked", "Who wrote to ada@example.org?"),
        ("guard = unchecked", "What is a refund?"),
        ("guard = timeout and guard.action = released and guard.reason = timeout", "What is a refund?"),
    ):
        assert [case["query"] for case in made(history, "--where", where)[1]] == [query], where


def test_the_cases_are_calls_that_ragtrace_score_reads(history: Path) -> None:
    """All of their keys are known."""
    made(history)
    lines = CallFile(history.with_name("cases.jsonl"))
    calls = [line.call for line in lines if isinstance(line, CallLine)]
    assert len(calls) == 6
    assert {call.contexts for call in calls} == {(Document(text, "policy"),) for text in ("14 days", "within 30 days")}
    assert not lines.unread_keys


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("status = error", {8}),
        ("faithfulness.status = not_applicable", {6}),
        ("faithfulness.reason = no_claims", {6}),
        ("faithfulness.evaluator = judge@2 and workflow = support", {2, 3}),
        ("model = 'gpt 5'", {4}),
        ("release = 1.4.0 and service = bot and faithfulness > 0.5", {5}),
        ("label = bad", {5}),
        ("label.hallucinated = good", {6}),
        ("feedback < 0.5", {4}),
    ],
)
def test_calls_are_selected_by_what_is_known_about_them(history: Path, where: str, ids: set[int]) -> None:
    """Status, texts of results, names, human labels and feedback."""
    with closing(LabelStore(str(history))) as store:
        for number, value in ((5, "bad"), (6, "good")):
            identity = number.to_bytes(16, "big") + number.to_bytes(8, "big")
            store.add([Label(identity, "hallucinated", "ada", value, "see policy")])  # type: ignore[arg-type]
    fill(history, [feedback_on(4)])
    _, cases = made(history, "--where", where)
    assert {int(case["id"][3:35], 16) for case in cases} == ids


TAGGED: Final[dict[int, dict[str, TagValue]]] = {
    11: {"tenant": "acme", "paying": True},
    12: {"tenant": "globex", "paying": True, "mail": "ada@example.org"},
    13: {"tenant": "acme", "paying": False, "seats": 3},
}


@pytest.fixture
def tagged(history: Path) -> Path:
    """The same history with three more calls, which have tags."""
    fill(history, [call(number, f"Question {number}?", 0.5, tags=tags) for number, tags in TAGGED.items()])
    return history


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (("--tag", "tenant=acme"), {11, 13}),
        (("--tag", "tenant=acme", "--tag", "paying=true"), {11}),
        (("--tag", "seats=3", "--where", "tag.paying = false"), {13}),
        (("--where", "tag.tenant != acme"), {12}),
        (("--where", "not tag.seats = 3 or tag.tenant = globex"), {12}),
        (("--tag", "paying=true", "--where", "tag.tenant = globex"), {12}),
    ],
)
def test_calls_are_selected_by_their_tags(tagged: Path, options: tuple[str, ...], ids: set[int]) -> None:
    """Compared as texts; a call without the tag is neither true nor false."""
    _, cases = made(tagged, *options)
    assert {int(case["id"][3:35], 16) for case in cases} == ids
    assert {int(case["id"][3:35], 16): case["tags"] for case in cases} == {number: TAGGED[number] for number in ids}


def test_a_case_keeps_the_tags_of_its_call(tagged: Path) -> None:
    """With their types, and redacted like its other texts; a call without tags has none."""
    _, cases = made(tagged, "--redact", r"\w+@example\.org")
    lines = CallFile(tagged.with_name("cases.jsonl"))
    read = {line.call.query: dict(line.call.tags) for line in lines if isinstance(line, CallLine)}
    assert len(read) == len(cases) == 9
    assert read["Question 13?"] == TAGGED[13]
    assert read["Question 12?"] == {**TAGGED[12], "mail": "[redacted]"}
    assert read["What is a refund?"] == {}
    assert not lines.unread_keys


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--tag", "acme"), "a tag is chosen by name and value, such as tenant=acme, got 'acme'"),
        (("--tag", "1st=acme"), "the name of a tag has a letter"),
        (("--tag", "tenant=acme", "--tag", "tenant=globex"), "--tag names two values of tenant, 'acme' and 'globex'"),
    ],
)
def test_a_wrong_tag_is_an_error_in_words(
    history: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    """With what to write."""
    assert main(["dataset", str(history), "--out", str(history.with_name("cases.jsonl")), *options]) == USAGE
    assert why in " ".join(capsys.readouterr().err.split())


def feedback_on(number: int) -> Feedback:
    return Feedback(
        f"{number:032x}", span(number), "user_feedback", 0.0, "thumbs_down", "wrong", "14 days", None, time() * 10**9
    )  # type: ignore[arg-type]


def test_a_correction_becomes_the_reference(history: Path) -> None:
    """What a person wrote instead of the answer, with the feedback and the labels."""
    fill(history, [feedback_on(4)])
    _, [case] = made(history, "--where", "feedback < 0.5")
    assert case["reference"] == "14 days"
    assert case["feedback"] == [{"name": "user_feedback", "score": 0.0, "label": "thumbs_down", "comment": "wrong"}]


def test_one_case_a_query_and_at_most_so_many(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other contexts make no other case then; what is left out is counted."""
    _, cases = made(history, "--where", "workflow = support", "--one-per-query")
    assert [case["duplicates"] for case in cases] == [2]
    capsys.readouterr()
    _, cases = made(history, "--most", "2")
    assert len(cases) == 2
    assert "beyond --most" in capsys.readouterr().out


def test_more_is_redacted(history: Path) -> None:
    """In addition to what the history has redacted already."""
    _, cases = made(history, "--where", "model = 'gpt 5'", "--redact", r"[\w.]+@[\w.]+")
    assert cases[0]["query"] == "Who wrote to [redacted]?"


def test_a_history_without_texts_has_no_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how many calls matched and that their queries are not stored; no file is written."""
    path = tmp_path / "history.db"
    fill(path, [call(1, "a question", 0.1)], texts=False)
    status, cases = made(path, "--where", "faithfulness < 0.5")
    assert (status, cases) == (FAILURE, [])
    assert "1 of 1 calls matched (without a stored query: 1)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--where", "faithfulness <"], "character 15"),
        (["--where", "fathfulness < 1"], "did you mean 'faithfulness'"),
        (["--redact", "("], "regular expression"),
        (["--last", "yesterday"], "--last"),
    ],
)
def test_wrong_usage_says_what_to_write(
    history: Path, options: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is that of wrong usage, and nothing is written."""
    assert made(history, *options) == (USAGE, [])
    assert why in capsys.readouterr().err
