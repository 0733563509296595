"""`ragtrace score --format otlp`: a file of spans to a file of scores, one row for each call in the spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from ragtrace.cli import main
from ragtrace.offline import span_file_calls
from ragtrace.offline.call_records import CallLine
from ragtrace.offline.span_file_calls import SpanFileCalls
from ragtrace.span_reading.assembler import CallAssembler
from ragtrace.system.terminal import FAILURE, OK
from tests.support.offline_judge import WordyJudge

RECORDED: Final = Path(__file__).parents[2] / "files" / "recorded"
START_NS: Final = 1_790_000_000_000_000_000


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test in a directory of its own, with a judge that was not asked yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(WordyJudge, "asked", 0)


def _span(number: int, span: int, parent: int | None, **attributes: Any) -> dict[str, Any]:
    """A span record as Phoenix exports it, in trace *number*."""
    return {
        "name": "span",
        "context": {"trace_id": f"{number:032x}", "span_id": f"{span:016x}"},
        "parent_id": None if parent is None else f"{parent:016x}",
        "span_kind": attributes.pop("kind"),
        "start_time": f"2026-11-01T12:00:00.{span:06}+00:00",
        "end_time": f"2026-11-01T12:00:01.{span:06}+00:00",
        "attributes": attributes,
    }


def _call(number: int, answer: str, *, context: str = "It is here.") -> list[dict[str, Any]]:
    """The spans of one call, the children first."""
    documents = [{"document": {"content": context}}]
    found = _span(number, 2, 1, kind="RETRIEVER", **{"input.value": "Where?", "retrieval": {"documents": documents}})
    said = {"input.value": "Where?", "output.value": answer}
    return [found, _span(number, 1, None, kind="CHAIN", **said)]


def _write(*spans: dict[str, Any] | str) -> None:
    lines = (span if isinstance(span, str) else json.dumps(span) for span in spans)
    Path("spans.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _score(*options: str) -> int:
    judge = ["--judge", "tests.support.offline_judge:WordyJudge"]
    return main(["score", "spans.jsonl", "--format", "otlp", "--out", "scores.jsonl", *judge, *options])


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("scores.jsonl").read_text(encoding="utf-8").splitlines()]


def test_each_call_has_a_row_under_the_id_of_its_root(capsys: pytest.CaptureFixture[str]) -> None:
    """Trace id and span id; spans that are no steps, bad lines and spans in no call are counted."""
    other = _span(9, 1, None, kind="EMBEDDING")
    alone = _span(8, 1, None, kind="RETRIEVER", **{"input.value": "Where?"})
    _write(*_call(1, "good 1"), other, "{torn", alone, *_call(2, "invented 2"), '{"resourceLogs": []}')
    assert _score("--json") == FAILURE
    first, second = _rows()
    assert first["id"] == f"{1:032x}-{1:016x}"
    assert [row["line"] for row in (first, second)] == [1, 2]
    assert [row["results"]["faithfulness"]["score"] for row in (first, second)] == [1.0, 0.0]
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["calls"], summary["bad"]) == (2, 1)
    assert summary["spans"] == {
        "spans": 6, "steps": 5, "no_call": 1, "duplicates": 0, "late": 0, "evicted": 0, "incomplete": 0,
        "unfinished": 0, "failed": 0, "other_signals": 1, "unread_attributes": 0,
    }  # fmt: skip
    assert "ragtrace: spans on line 4 skipped: not JSON" in printed.err


def test_every_reason_for_leaving_a_step_out_is_counted() -> None:
    """Also one that is added later: the summary has all that the assembler knows."""
    _write(*_call(1, "good 1"))
    assert SpanFileCalls(Path("spans.jsonl")).span_counts.keys() >= set(CallAssembler.LEFT_OUT)


def test_the_summary_has_the_counts_that_are_not_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    _write(*_call(1, "good 1"), _span(8, 1, None, kind="RETRIEVER", **{"input.value": "Where?"}))
    assert _score() == OK
    assert "spans: 3, 3 of them steps of calls, 1 no call\n" in capsys.readouterr().out


def test_calls_that_were_judged_are_not_judged_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The same command goes on where it was; calls with the same texts cost nothing."""
    _write(*_call(1, "good 1"), *_call(2, "away 2"), *_call(3, "good 1"))
    assert _score() == FAILURE
    assert WordyJudge.asked == 2
    assert "call 2 not judged: unavailable" in capsys.readouterr().err
    assert _score() == FAILURE
    assert WordyJudge.asked == 3
    assert [row["cached"] for row in _rows()] == [False, False, True]


def test_a_file_of_records_cannot_continue_a_run_on_spans(capsys: pytest.CaptureFixture[str]) -> None:
    """The journal says what it is of."""
    _write(*_call(1, "away 1"))
    assert _score() == FAILURE
    assert _score("--format", "calls") != OK
    assert "scores.jsonl.part" in capsys.readouterr().err


def test_documents_without_text_are_never_scored() -> None:
    """The rows say what is missing."""
    bare = _span(1, 2, 1, kind="RETRIEVER", retrieval={"documents": [{"document": {"id": "a"}}]})
    _write(bare, _span(1, 1, None, kind="CHAIN", **{"input.value": "Where?", "output.value": "good"}))
    assert _score() == OK
    assert [row["results"]["faithfulness"].get("reason") for row in _rows()] == ["contexts_without_text"]


def test_a_large_file_is_assembled_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is complete when no span of its trace has come for a while, so that memory is bounded."""
    monkeypatch.setattr(span_file_calls, "_SPANS_PER_TICK", 20)
    monkeypatch.setattr(span_file_calls, "_MOST_SPANS", 1_000)
    spans = [span for number in range(1, 3_001) for span in _call(number, f"good {number}")]
    _write(*spans)
    calls = SpanFileCalls(Path("spans.jsonl"))
    assert sum(isinstance(call, CallLine) for call in calls) == 3_000
    assert calls.span_counts["evicted"] == 0


def test_interleaved_traces_are_kept_apart() -> None:
    """Spans of all calls may come in any order."""
    spans = [span for number in range(1, 200) for span in _call(number, f"good {number}", context=f"Fact {number}.")]
    _write(*spans[::2], *reversed(spans[1::2]))
    found = [call for call in SpanFileCalls(Path("spans.jsonl")) if isinstance(call, CallLine)]
    assert len(found) == 199
    for line in found:
        number = int(str(line.id)[:32], 16)
        contexts = [document.text for document in line.call.contexts or ()]
        assert (line.call.answer, contexts) == (f"good {number}", [f"Fact {number}."])


@pytest.mark.parametrize("name", ["openai_plain-openllmetry-sync", "langchain_lcel-openinference-stream"])
def test_recorded_calls_are_those_that_the_application_logged(name: str) -> None:
    """Query, contexts and answer, in the order of the calls."""
    logged = json.loads((RECORDED / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    lines = [each for each in SpanFileCalls(RECORDED / f"{name}.spans.jsonl.gz") if isinstance(each, CallLine)]
    found = [(line.call.query, [each.text for each in line.call.contexts or ()], line.call.answer) for line in lines]
    assert found == [(call["query"], call["contexts"], call["answer"]) for call in logged]
