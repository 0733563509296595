"""Files of labels with the columns of other tools: named, matched by trace, and never guessed."""

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
LANGFUSE = (
    *("--column", "trace_id=traceId", "--column", "span_id=observationId", "--column", "label=stringValue"),
    *("--column", "reviewer=authorUserId", "--where", "source=ANNOTATION", "--where", "name=quality"),
    *("--label", "made up=bad", "--label", "factual=good"),
)
PHOENIX = (
    *("--column", "label=result.label", "--column", "comment=result.explanation", "--column", "reviewer=identifier"),
    *("--where", "annotator_kind=HUMAN", "--label", "yes=bad", "--label", "no=good"),
)


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
    history: Path, export: object, *options: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, Any, dict[tuple[str, str], tuple[str, str | None]]]:
    """Exit status, counts (or the error), and the labels by span and reviewer."""
    file = history.with_name("export.csv" if isinstance(export, str) else "export.jsonl")
    lines = export if isinstance(export, list) else []
    file.write_text(export if isinstance(export, str) else "".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    status = main(["labels", "import", str(history), str(file), "--metric", "hallucinated", "--json", *options])
    said = capsys.readouterr()
    with closing(LabelStore(str(history))) as store:
        labels = {
            (each.identity[16:].hex(), each.reviewer): (each.label, each.comment)
            for each in store.labels("hallucinated")
        }
    return status, json.loads(said.out) if status == OK else said.err, labels


def langfuse(trace: str, text: str, **more: object) -> dict[str, object]:
    """A score as Langfuse's API gives it."""
    return {
        "id": "s", "traceId": trace, "observationId": None, "name": "quality", "value": 1, "stringValue": text,
        "dataType": "CATEGORICAL", "source": "ANNOTATION", "authorUserId": "ada", "comment": "hm", **more,
    }  # fmt: skip


def test_columns_of_langfuse_are_named(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Matched by trace id, or by the observation where a trace has several calls; other sources and names are left."""
    scores = [
        langfuse(TRACE[1], "Made up"),
        langfuse(TRACE[2], "factual"),
        langfuse(TRACE[3], "made up", observationId=SPAN[4]),
        langfuse("f" * 32, "made up"),
        langfuse(TRACE[1], "", comment="no category"),
        langfuse(TRACE[1], "factual", source="EVAL"),
        langfuse(TRACE[1], "rude", name="tone"),
    ]
    status, counts, labels = imported(history, scores, *LANGFUSE, capsys=capsys)
    assert status == OK
    assert labels == {
        (SPAN[1], "ada"): ("bad", "hm"), (SPAN[2], "ada"): ("good", "hm"), (SPAN[4], "ada"): ("bad", "hm"),
    }  # fmt: skip
    assert counts == {"imported": 3, "without_label": 1, "unwanted": 2, "unknown_calls": 1}


def test_columns_of_phoenix_are_named(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By span id alone; keys within an object in JSON Lines, and columns with the same names in the data frame."""
    annotation = {"span_id": SPAN[2], "annotator_kind": "HUMAN", "identifier": "bob"}
    lines = [
        {**annotation, "result": {"label": "yes", "score": 1.0, "explanation": "no such fee"}},
        {**annotation, "span_id": SPAN[1], "annotator_kind": "LLM", "result": {"label": "yes"}},
    ]
    _, counts, labels = imported(history, lines, *PHOENIX, capsys=capsys)
    assert labels == {(SPAN[2], "bob"): ("bad", "no such fee")}
    assert counts["unwanted"] == 1
    frame = f"span_id,annotator_kind,identifier,result.label,result.explanation\n{SPAN[3]},HUMAN,eve,no,\n"
    _, _, labels = imported(history, frame, *PHOENIX, capsys=capsys)
    assert labels[SPAN[3], "eve"] == ("good", None)


def test_numbers_and_truth_values_are_texts(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A label may be a number, true or false; a trace id may stand behind a prefix; the reviewer may be an option."""
    lines = [{"trace_id": f"tr-{TRACE[1]}", "label": True}, {"trace_id": TRACE[2].upper(), "label": 0}]
    options = ("--label", "true=bad", "--label", "0=good", "--reviewer", "ada")
    _, _, labels = imported(history, lines, *options, capsys=capsys)
    assert labels == {(SPAN[1], "ada"): ("bad", None), (SPAN[2], "ada"): ("good", None)}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"trace_id": TRACE[2], "label": 0.3}, "got '0.3'; say what it means: --label '0.3'=bad"),
        ({"trace_id": TRACE[2], "label": "odd"}, "got 'odd'; say what it means"),
        ({"trace_id": TRACE[3], "label": "bad"}, "has several calls; name the column of the call's span id"),
        ({"trace_id": "17", "label": "bad"}, "trace_id must end with 32 hexadecimal digits, got '17'"),
        ({"traceId": TRACE[2], "label": "bad"}, "name the column of the trace ids: --column trace_id=NAME"),
    ],
)
def test_nothing_is_guessed(
    history: Path, line: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is imported, and the message names the line, what was seen and the option that explains it."""
    right = {"trace_id": TRACE[1], "label": "bad"}
    status, error, labels = imported(history, [right, line], "--reviewer", "ada", capsys=capsys)
    assert (status, labels) == (FAILURE, {})
    assert "line 2" in error
    assert said in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--column", "trace=traceId"), "--column names one of call, trace_id"),
        (("--label", "yes=wrong"), "--label says which of bad, good, unsure a text means, got yes=wrong"),
    ],
)
def test_wrong_names_are_wrong_usage(
    history: Path, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message lists the right ones."""
    status, error, _ = imported(history, [], *options, capsys=capsys)
    assert status == USAGE
    assert said in error


def test_a_json_document_is_told_from_json_lines(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An export that is one JSON document over many lines is refused, and so is a list."""
    file = history.with_name("scores.json")
    for text in (json.dumps({"data": [1]}, indent=2), "[1]"):
        file.write_text(text)
        assert main(["labels", "import", str(history), str(file)]) == FAILURE
        assert "line 1 is no JSON" in capsys.readouterr().err
