"""What evaluation events and spans say beside the score: counts, methods, warnings; bounded, and redacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import ragtrace
from ragtrace.core.labels import ChunkLabel, Claim
from ragtrace.core.types import Judgement, RagCall, Score
from ragtrace.system.faults import faults
from ragtrace.telemetry.scores.event import MOST_CHARS, MOST_DETAILS, MOST_ITEMS, detail_attributes
from ragtrace.testing import Captured, FakeJudge
from tests.support import scored
from tests.support.watched import GOOD, HALF, ask, watch

MAIN = ("faithfulness", "hallucination", "contradiction", "context_relevance", "answered")


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def published(captured: Captured) -> dict[str, dict[str, Any]]:
    """The details of every event, by metric."""
    found = [event.log_record.attributes or {} for event in captured.events]
    return {str(each["gen_ai.evaluation.name"]): scored.details(each) for each in found}


def test_every_metric_publishes_its_counts() -> None:
    """With every score, and with what has none."""
    labels = replace(HALF, chunks=(ChunkLabel(3, False), ChunkLabel(None, False)))
    captured = watch(screen=FakeJudge(labels, name="screen", metrics=MAIN), metrics=list(MAIN))
    ask("where?")
    assert ragtrace.flush()
    found = published(captured)
    counts = {"supported": 1, "not_found": 1, "statements": 2}  # those of 0 are left out
    for name in ("faithfulness", "hallucination"):
        assert found[name] == counts
    assert found["contradiction"] == {**counts, "faithfulness": 0.5}
    assert found["context_relevance"]["unjudged"] == 1
    assert found["context_relevance"]["grades"] == (3.0,)


def test_what_a_judge_says_of_its_work_is_published() -> None:
    """Cut chunks and hidden characters are never silent."""
    labels = replace(GOOD, attributes={"truncated_chunks": 2, "judge_model": "tiny-1", "cached": True})
    captured = watch(screen=FakeJudge(labels, name="screen"), metrics=["faithfulness"])
    ask("where?")
    assert ragtrace.flush()
    assert {"truncated_chunks": 2, "judge_model": "tiny-1", "cached": True}.items() <= published(captured)[
        "faithfulness"
    ].items()


def test_an_injection_is_suspected_on_the_span() -> None:
    """And changes no score."""
    labels = replace(HALF, attributes={"injection_suspected": True})
    captured = watch(screen=FakeJudge(labels, name="screen"))
    ask("where?")
    assert ragtrace.flush()
    assert scored.scores(captured.root()) == {**scored.SCREENED, "ragtrace.eval.injection_suspected": True}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"a": 1, "b": 0.5, "c": True, "d": "x"}, {"a": 1, "b": 0.5, "c": True, "d": "x"}),
        ({"a": (1, 0.5), "b": ("x", "y")}, {"a": (1.0, 0.5), "b": ("x", "y")}),
        ({"a": 0, "b": False, "c": (), "d": "", "e": 0.0}, {"e": 0.0}),
        ({"a": None, "b": {}, "c": object(), "d": float("nan"), "e": 2**70, "f": (1, "x"), "g": (None,)}, {}),
        ({"": 1, "with space": 1, "x" * 65: 1, 3: 1}, {}),
        ({"a": "x" * 10_000}, {"a": "x" * MOST_CHARS}),
        ({"a": (1.0,) * 1_000}, {"a": (1.0,) * MOST_ITEMS}),
        ({"a": "\ud800"}, {"a": "\ufffd"}),
        (["a"], {}),
        (None, {}),
    ],
    ids=[
        "plain",
        "sequences",
        "nothing",
        "no values",
        "no names",
        "long text",
        "long list",
        "surrogate",
        "list",
        "none",
    ],
)
def test_only_plain_values_go_out(attributes: object, expected: dict[str, Any]) -> None:
    """A metric of a user's may put anything there; what would break an exporter is left out."""
    assert {name.rpartition(".")[2]: value for name, value in detail_attributes(attributes).items()} == expected


def test_the_number_of_details_is_bounded() -> None:
    """The first ones stay."""
    found = detail_attributes({f"n{number}": number for number in range(1, 1_000)})
    assert list(found.values()) == list(range(1, MOST_DETAILS + 1))


# --- redaction -------------------------------------------------------------------------------------------------------


class Chatty(FakeJudge):
    """Says a number again that was redacted in what it was shown."""

    def __init__(self) -> None:
        claim = Claim("Card 4111111111111111.", 0, 10, "not_found", quote="4111111111111111")
        super().__init__(Judgement(claims=(claim,), answer_label="answered", attributes={"said": "4111111111111111"}))


@ragtrace.metric(needs=("claims",), register=False)
def explained(call: RagCall, judgement: Judgement) -> Score:
    return Score(1.0, explanation="It says 4111111111111111 " + "at length " * 1_000)


def _texts(attributes: Mapping[str, Any]) -> str:
    return " ".join(str(value) for value in attributes.values())


def test_what_a_judge_writes_is_redacted() -> None:
    """Explanations, details, statements and quotes, on events and spans."""
    judge = Chatty()
    captured = watch(
        screen=judge,
        metrics=["faithfulness", explained],
        telemetry=ragtrace.TelemetryOptions(evidence=True),
        redact=ragtrace.Redact(patterns=[r"\b\d{16}\b"]),
    )
    ask("where?")
    assert ragtrace.flush()
    events = [event.log_record.attributes or {} for event in captured.events]
    assert {event["gen_ai.evaluation.name"] for event in events} == {"faithfulness", "explained"}
    root = captured.root().attributes or {}
    assert "[redacted]" in str(root["ragtrace.eval.unsupported"])
    assert scored.details(events[0])["said"] == "[redacted]"
    assert "4111111111111111" not in " ".join(map(_texts, [*events, root]))


def test_an_explanation_has_a_length() -> None:
    """A model may write a book."""
    captured = watch(screen=Chatty(), metrics=[explained])
    ask("where?")
    assert ragtrace.flush()
    (event,) = captured.events
    assert len(str((event.log_record.attributes or {})["gen_ai.evaluation.explanation"])) == 2_000
