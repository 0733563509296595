"""What judges and metrics write about a call is content of it: `capture_content` holds for it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.core.contents import without_contents
from ragtrace.core.text import OwnText
from ragtrace.core.types import Evaluation, Result
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import WAIT_S, ask, watch

SECRET = "XANTHIPPE"
"""Word of the call, in every text that a judge or metric writes about it."""
CLAIM = ragtrace.Claim(
    f"It says {SECRET}", 0, 9, "not_found", evidence=(0,), quote=f"the {SECRET}", unsupported=((0, 2),)
)
TOLD = ragtrace.Judgement(
    claims=(CLAIM,),
    attributes={"note": f"about {SECRET}", "method": f"by {SECRET}", "words": (SECRET, "x"), "judge_model": "model-1"},
)


@ragtrace.metric
def told(call: ragtrace.RagCall) -> ragtrace.Score:
    """Score with the call's words in all its texts."""
    del call
    return ragtrace.Score(0.5, label=f"quotes {SECRET}", explanation=f"quotes {SECRET}", attributes={"why": SECRET})


@ragtrace.metric
def missing(call: ragtrace.RagCall) -> ragtrace.Unscored:
    """Reason with the call's words in its explanation."""
    del call
    return ragtrace.Unscored("needs_runs", explanation=f"quotes {SECRET}")


@ragtrace.metric
def wrong(call: ragtrace.RagCall) -> Any:
    """Neither a number nor a result."""
    return call.answer


@ragtrace.metric
def kind(call: ragtrace.RagCall) -> ragtrace.Score:
    """Score with a label that is the name of a class."""
    del call
    return ragtrace.Score(1.0, label="small-talk")


METRICS = ("hallucinated", "faithfulness", told, missing, wrong, kind)


def _captured(tmp_path: Path, mode: str, **options: Any) -> Captured:
    captured = watch(
        screen=FakeJudge(TOLD),
        metrics=METRICS,
        capture_content=mode,
        store=tmp_path / "history.db",
        telemetry=ragtrace.TelemetryOptions(evidence=True, **options),
    )
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    return captured


def _events(captured: Captured) -> dict[str, dict[str, Any]]:
    found = [dict(record.log_record.attributes or {}) for record in captured.events]
    return {str(each["gen_ai.evaluation.name"]): each for each in found if "gen_ai.evaluation.name" in each}


def test_without_content_nothing_that_a_judge_or_metric_wrote_about_the_call_leaves(tmp_path: Path) -> None:
    """No claim, quote, explanation, label of several words or detail, on spans, events, metrics or in the history."""
    captured = _captured(tmp_path, "NO_CONTENT")
    shown = "".join(span.to_json() for span in captured.spans) + str(_events(captured)) + str(ragtrace.doctor())
    assert set(_events(captured)) == {"hallucinated", "faithfulness", "told", "missing", "wrong", "kind"}
    assert SECRET not in shown + str(captured.metrics)
    ragtrace.shutdown(WAIT_S)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("history.db*"))
    assert SECRET.encode() not in kept


def test_without_content_numbers_offsets_codes_and_words_of_ragtrace_stay(tmp_path: Path) -> None:
    """What holds no text of the call is as useful as before."""
    captured = _captured(tmp_path, "NO_CONTENT")
    events, root = _events(captured), captured.root().attributes or {}
    assert events["told"]["gen_ai.evaluation.score.value"] == 0.5
    assert events["kind"]["gen_ai.evaluation.score.label"] == "small-talk"
    assert events["wrong"]["gen_ai.evaluation.explanation"] == "it returned str, not a number, a Score or an Unscored"
    assert events["faithfulness"]["ragtrace.eval.detail.judge_model"] == "model-1"
    assert '"start": 0, "end": 9, "support": "not_found"' in str(root["ragtrace.eval.unsupported"])


def test_with_content_what_a_judge_wrote_is_told(tmp_path: Path) -> None:
    """The other modes take nothing out of events."""
    events = _events(_captured(tmp_path, "SPAN_ONLY"))
    assert SECRET in events["told"]["gen_ai.evaluation.explanation"]
    assert SECRET in events["missing"]["gen_ai.evaluation.explanation"]


def test_with_content_on_events_alone_no_span_quotes_the_call(tmp_path: Path) -> None:
    """Neither evidence on the root span nor explanations on the span of late scores."""
    captured = _captured(tmp_path, "EVENT_ONLY")
    assert SECRET not in "".join(span.to_json() for span in captured.spans)
    assert SECRET in str(_events(captured))


@pytest.mark.parametrize("redact", [None, ragtrace.Redact([SECRET])])
def test_explanations_of_ragtraces_own_metrics_hold_no_text_and_stay(redact: ragtrace.Redact | None) -> None:
    """Under redaction, too: a text in which nothing was replaced is the same text."""
    captured = watch(screen=FakeJudge(TOLD), metrics=[wrong], capture_content="NO_CONTENT", redact=redact)
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    explained = {name: event.get("gen_ai.evaluation.explanation") for name, event in _events(captured).items()}
    assert explained["wrong"] == "it returned str, not a number, a Score or an Unscored"


def test_a_text_is_ragtraces_own_only_where_ragtrace_says_so() -> None:
    """The same words by a judge are content."""
    given: dict[str, Result] = {
        "own": ragtrace.Score(1.0, explanation=OwnText("7 labels")),
        "judge": ragtrace.Score(1.0, explanation="7 labels"),
    }
    found = without_contents(Evaluation("j", "1", "llm_judge", given, 1.0)).results
    assert [found["own"].explanation, found["judge"].explanation] == ["7 labels", None]
