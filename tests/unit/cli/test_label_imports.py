"""`ragtrace labels import --from`: scores that people gave in Langfuse, Phoenix and MLflow become labels."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.cli import main
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.labels.label_store import LabelStore
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.history import GIB

TRACE = [f"{number:032x}" for number in range(5)]
SPAN = [f"{number:016x}" for number in range(5)]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Calls in the traces 1, 2 and 3; trace 3 has two of them, with the spans 3 and 4."""
    path = tmp_path / "history.db"
    history_file(str(path)).create()
    found = {"hallucinated": Score(1.0, "hallucinated", "1", higher_is_better=False)}
    calls = [
        QueuedCall(
            RagCall("q", None, "a", span=SpanContext(trace, span, False, TraceFlags(1))),
            (Evaluation("judge", "2", "llm_judge", found),),
            "sampled",
            1.0,
        )
        for trace, span in ((1, 1), (2, 2), (3, 3), (3, 4))
    ]
    with closing(HistoryWriter(str(path), CallOrigin(), most_bytes=GIB, texts=True)) as writer:
        writer.write(calls)
    return path


def imported(
    history: Path, export: object, tool: str, *options: str, capsys: pytest.CaptureFixture[str], suffix: str = ".json"
) -> tuple[int, Any, dict[tuple[str, str], tuple[str, str | None]]]:
    """Exit status, counts (or the error), and the labels by span and reviewer."""
    file = history.with_name(f"export{suffix}")
    file.write_text(export if isinstance(export, str) else json.dumps(export), encoding="utf-8")
    argv = ["labels", "import", str(history), str(file), "--from", tool, "--metric", "hallucinated", "--json", *options]
    status = main(argv)
    said = capsys.readouterr()
    with closing(LabelStore(str(history))) as store:
        labels = {
            (each.identity[16:].hex(), each.reviewer): (each.label, each.comment)
            for each in store.labels("hallucinated")
        }
    return status, json.loads(said.out) if status == OK else said.err, labels


def langfuse(trace: str, value: object, **more: object) -> dict[str, object]:
    """A score as Langfuse's API gives it."""
    return {
        "id": "s", "traceId": trace, "observationId": None, "name": "quality", "value": value, "dataType": "NUMERIC",
        "source": "ANNOTATION", "authorUserId": "ada", "comment": "hm", "timestamp": "2026-01-02T03:04:05.000Z", **more,
    }  # fmt: skip


def test_langfuse_numbers_by_a_threshold(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Matched by trace id, or by the observation where the trace has several calls; the rest is counted and listed."""
    scores = [
        langfuse(TRACE[1], 0.2),
        langfuse(TRACE[2], 0.9),
        langfuse(TRACE[3], 0.1, observationId=SPAN[4]),
        langfuse(TRACE[3], 0.1),
        langfuse("f" * 32, 0.1),
        langfuse(TRACE[1], 0.1, source="EVAL"),
        langfuse(TRACE[1], 0.1, name="tone"),
    ]
    status, counts, labels = imported(
        history, {"data": scores, "meta": {}}, "langfuse", "--name", "quality", "--bad-below", "0.5", capsys=capsys
    )
    assert status == OK
    assert labels == {
        (SPAN[1], "ada"): ("bad", "hm"), (SPAN[2], "ada"): ("good", "hm"), (SPAN[4], "ada"): ("bad", "hm"),
    }  # fmt: skip
    assert counts == {
        "imported": 3, "unmatched": ["f" * 32], "ambiguous": [TRACE[3]], "other_names": {"tone": 1},
        "other_sources": {"EVAL": 1},
    }  # fmt: skip


def test_langfuse_categories_and_booleans(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number beside a category is no score: only the texts count, also from CSV."""
    scores = [
        langfuse(TRACE[1], 1, dataType="CATEGORICAL", stringValue="Made up"),
        langfuse(TRACE[2], 0, dataType="BOOLEAN"),
    ]
    options = ("--name", "quality", "--bad", "made up", "--good", "false", "--bad-above", "9")
    _, _, labels = imported(history, scores, "langfuse", *options, capsys=capsys)
    assert {span: label for (span, _), (label, _) in labels.items()} == {SPAN[1]: "bad", SPAN[2]: "good"}
    table = f"trace_id,name,value,data_type,string_value,source\n{TRACE[2]},quality,1,CATEGORICAL,made up,ANNOTATION\n"
    _, _, labels = imported(history, table, "langfuse", *options, "--reviewer", "bob", capsys=capsys, suffix=".csv")
    assert labels[SPAN[2], "bob"] == ("bad", None)


def test_phoenix_annotations_of_rest_and_data_frame(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By span id alone; the data frame has flat columns."""
    rest = {
        "data": [
            {
                "id": "U3A=", "name": "hallucinated", "annotator_kind": "HUMAN", "span_id": SPAN[2], "metadata": {},
                "result": {"label": "yes", "score": 1.0, "explanation": "no such fee"}, "identifier": "",
                "source": "APP", "user_id": "VXNlcjox", "created_at": "2026-01-01T00:00:00Z",
                "updated_at": "2026-01-02T00:00:00Z",
            },
            {"name": "hallucinated", "annotator_kind": "LLM", "span_id": SPAN[1], "result": {"label": "yes"}},
            {"name": "hallucinated", "annotator_kind": "HUMAN", "trace_id": TRACE[1], "result": {"label": "no"}},
        ],
        "next_cursor": None,
    }  # fmt: skip
    options = ("--bad", "yes", "--good", "no")
    status, counts, labels = imported(history, rest, "phoenix", *options, capsys=capsys)
    assert status == OK
    assert labels == {(SPAN[2], "VXNlcjox"): ("bad", "no such fee"), (SPAN[1], "phoenix"): ("good", None)}
    assert counts["other_sources"] == {"LLM": 1}
    frame = f"span_id,annotation_name,annotator_kind,result.label,result.score\n{SPAN[3]},hallucinated,HUMAN,,0.0\n"
    _, _, labels = imported(history, frame, "phoenix", "--bad-above", "0.5", capsys=capsys, suffix=".csv")
    assert labels[SPAN[3], "phoenix"] == ("good", None)


def test_mlflow_traces_with_assessments(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Feedback of people; not expectations, and not what was replaced. The latest of a reviewer stands."""

    def assessment(value: object, hour: int, **more: object) -> dict[str, object]:
        return {
            "assessment_name": "hallucinated", "trace_id": "", "feedback": {"value": value}, "valid": True,
            "source": {"source_type": "HUMAN", "source_id": "ada@example.org"}, "rationale": "why",
            "last_update_time": f"2026-01-01T{hour:02}:00:00Z", **more,
        }  # fmt: skip

    expectation = {**assessment(True, 5), "expectation": {"value": "14 days"}}
    del expectation["feedback"]
    given = [assessment(True, 3), assessment(False, 2), assessment(False, 4, valid=False), expectation]
    traces = [{"info": {"trace_id": f"tr-{TRACE[1]}", "assessments": given}, "data": {"spans": []}}]
    text = "".join(json.dumps(trace) + "\n" for trace in [*traces, *traces])
    status, counts, labels = imported(
        history, text, "mlflow", "--bad", "true", "--good", "false", capsys=capsys, suffix=".jsonl"
    )
    assert (status, counts["imported"]) == (OK, 1)
    assert labels == {(SPAN[1], "ada@example.org"): ("bad", "why")}


@pytest.mark.parametrize(
    ("value", "kind", "seen"),
    [(0.3, "NUMERIC", "0.3 (1 times)"), ("odd", "CATEGORICAL", "'odd'"), (1, "BOOLEAN", "true")],
)
def test_what_a_score_means_is_never_guessed(
    history: Path, value: object, kind: str, seen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is imported, and the message lists the values and the options."""
    status, error, labels = imported(
        history, [langfuse(TRACE[1], value, dataType=kind)], "langfuse", "--name", "quality", capsys=capsys
    )
    assert (status, labels) == (USAGE, {})
    assert seen in error
    assert "--bad-below" in error


def test_a_file_of_another_kind_is_told(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, and nothing imported."""
    for export in ('[{"a": 1}]', "[1]", "no json"):
        status, error, labels = imported(history, export, "phoenix", capsys=capsys)
        assert (status, labels) == (USAGE, {}), error
    assert main(["labels", "import", str(history), "none.json", "--from", "mlflow", "--metric", "m"]) == FAILURE
    assert main(["labels", "import", str(history), "none.json", "--from", "mlflow"]) == USAGE


def test_the_terminal_lists_what_did_not_match(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first ten ids, and how many more there are."""
    file = history.with_name("scores.json")
    file.write_text(json.dumps([langfuse(f"{number:032x}", 0.1) for number in range(100, 112)]))
    argv = ["labels", "import", str(history), str(file), "--from", "langfuse", "--metric", "hallucinated"]
    assert main([*argv, "--name", "quality", "--bad-below", "1"]) == OK
    output = capsys.readouterr().out
    assert "0 labels imported of 12 scores" in output
    assert f"12 not in the history: {100:032x}, " in output
    assert "and 2 more" in output
