"""Judges with a real language model, from the decorated application to span, event, history, page and doctor.

RAGTRACE_MODEL_URL is the address of any server behind the OpenAI API, up to and including "/v1"; RAGTRACE_MODEL is the
model's name there, without which it is the first that the server lists. Some ten requests, one at a time. What a model
answers is printed (`pytest -s`) and not asserted, as another one answers otherwise: asserted is that every place has
the same, and that nothing is invented where there is no answer.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest
from opentelemetry.sdk._logs import ReadableLogRecord

import ragtrace
from ragtrace.core.unscored_reasons import JUDGE_ERROR, JUDGE_SUSPECT, NOT_APPLICABLE
from ragtrace.judges import Judge
from ragtrace.judges.decision.wire_forms import Protocol
from ragtrace.testing import Captured
from tests.unit.web.test_history_pages import text_of
from tests.unit.web.test_labelling import client

pytestmark = pytest.mark.integration

METRICS: Final = ("hallucinated", "faithfulness")
SECONDS: Final = 500.0
"""For one call: a model on two processors takes most of a minute, and others may use it."""
LIMITS: Final = ragtrace.JudgeLimits(timeout=SECONDS, concurrency=1)
QUESTION: Final = "Where is the Eiffel Tower, and how tall is it?"
PASSAGE: Final = "The Eiffel Tower in Paris, France, is 330 metres tall."
ANSWER: Final = "The Eiffel Tower is in Berlin. It is 330 metres tall."


@pytest.fixture(scope="module")
def url() -> str:
    """Address of the server."""
    found = os.environ.get("RAGTRACE_MODEL_URL")
    if not found:
        pytest.skip("no RAGTRACE_MODEL_URL: set it to a server behind the OpenAI API, such as http://127.0.0.1:8080/v1")
    return found.rstrip("/")


@pytest.fixture(scope="module")
def model(url: str) -> str:
    """Name of the model."""
    if found := os.environ.get("RAGTRACE_MODEL"):
        return found
    with urllib.request.urlopen(f"{url}/models", timeout=60) as response:
        return str(json.load(response)["data"][0]["id"])


@dataclass(frozen=True)
class Run:
    """What is known everywhere of the one call of an application."""

    span: Mapping[str, Any]
    events: Mapping[str, Mapping[str, Any]]
    """Attributes of the evaluation event of each metric."""
    page: str
    """Text of the page of the call, read from the history."""
    diagnosis: ragtrace.types.Diagnosis

    def results(self) -> dict[str, float | str]:
        """Return the score of each metric, or the reason why there is none, as they are on the span."""
        return {
            name: self.span.get(f"ragtrace.eval.{name}.score", self.span.get(f"ragtrace.eval.{name}.reason"))
            for name in METRICS
        }


@ragtrace.retrieve(source="monuments")
def search(question: str) -> list[str]:
    """Find the passage."""
    return [PASSAGE]


@ragtrace.generate(model="tiny-1")
def generate(question: str, passages: list[str]) -> str:
    """Answer with a false sentence and a true one."""
    return ANSWER


@ragtrace.trace(name="guide")
def ask(question: str) -> str:
    """Answer a question."""
    return generate(question, search(question))


def watched(judge: Judge, folder: Path) -> Run:
    """Judge one call of the application, and look it up everywhere."""
    captured, history = Captured(), folder / "history.db"
    ragtrace.configure(
        exporter=captured.signals,
        screen=None,
        judge=judge,
        metrics=METRICS,
        sampling=ragtrace.Sampling(rate=1.0),
        store=history,
        limits=ragtrace.Limits(hold_seconds=SECONDS),
    )
    try:
        assert ask(QUESTION) == ANSWER
        assert ragtrace.flush(SECONDS)
        diagnosis = ragtrace.doctor(timeout=SECONDS / 2)
    finally:
        ragtrace.shutdown()
    span = dict(captured.root().attributes or {})
    page = text_of(client(history).get("/calls/1").text)
    events = {str(each["gen_ai.evaluation.name"]): each for each in _evaluation_events(captured)}
    run = Run(span, {name: events[name] for name in METRICS}, page, diagnosis)
    tell(f"\n{diagnosis.evaluators[-1].version}: {span['ragtrace.eval.status']} {run.results()}")
    for check in diagnosis.checks:
        tell(f"  {check.what}: {'ok' if check.ok else 'FAILED'}, {check.seen}")
    for fate in diagnosis.fates:
        tell(f"  {fate.outcome} {fate.why}")
    for problem in diagnosis.problems:
        tell(f"  problem: {problem}")
    return run


def tell(line: str) -> None:
    """Print a line for who runs the tests with `-s`."""
    sys.stdout.write(f"{line}\n")


def _evaluation_events(captured: Captured) -> Iterator[Mapping[str, Any]]:
    for event in cast("list[ReadableLogRecord]", captured.events):
        attributes = event.log_record.attributes or {}
        if "gen_ai.evaluation.name" in attributes:
            yield attributes


def assert_same_everywhere(run: Run) -> None:
    """The span, the event and the stored call have the same score, or the same reason why there is none."""
    for name, found in run.results().items():
        event = run.events[name]
        if isinstance(found, float):
            assert 0.0 <= found <= 1.0
            assert event["gen_ai.evaluation.score.value"] == found
        else:
            assert found in JUDGE_ERROR | JUDGE_SUSPECT | NOT_APPLICABLE
            assert "gen_ai.evaluation.score.value" not in event
            assert event["error.type"] == found
            assert found.replace("_", " ") in run.page
    assert QUESTION in run.page
    assert "The Eiffel Tower is in Berlin." in run.page


def test_probabilities_of_the_first_token(url: str, model: str, tmp_path: Path) -> None:
    """A probability for each of the two sentences, and one for the answer from them."""
    judge = ragtrace.DecisionJudge(model, protocol="logprobs", base_url=url, limits=LIMITS, timeout=SECONDS)
    run = watched(judge, tmp_path)
    assert_same_everywhere(run)
    statements = json.loads(run.span["ragtrace.eval.statements"])
    tell(f"  {statements}")
    assert run.span["ragtrace.eval.status"] == "ok"
    assert run.results()["hallucinated"] == pytest.approx(1 - min(each["probability"] for each in statements))
    (check,) = [check for check in run.diagnosis.checks if check.what == "decision"]
    assert check.ok
    assert "answered in" in check.seen
    assert [fate.outcome for fate in run.diagnosis.fates if fate.evaluator == "decision"] == ["scored"]


def test_labels_of_a_chat_model(url: str, model: str, tmp_path: Path) -> None:
    """Labels that were checked, or else a reason: a small model may give none that can be believed."""
    judge = ragtrace.OpenAIJudge(
        model, base_url=url, limits=LIMITS, requests=ragtrace.judges.RequestOptions(timeout=SECONDS)
    )
    run = watched(judge, tmp_path)
    assert_same_everywhere(run)
    (check,) = [check for check in run.diagnosis.checks if check.what == "openai"]
    assert check.ok
    assert run.span["ragtrace.eval.status"] in {"ok", "partial", "error"}


@pytest.mark.parametrize(("protocol", "path"), [("systemone", "/systemone"), ("openai", "/decisions")])
def test_a_server_of_chat_models_has_no_decisions(
    url: str, model: str, tmp_path: Path, protocol: Protocol, path: str
) -> None:
    """The call has a reason, no score is invented, and the doctor says how this server can be asked."""
    judge = ragtrace.DecisionJudge(model, protocol=protocol, base_url=url, limits=LIMITS)
    run = watched(judge, tmp_path)
    assert_same_everywhere(run)
    assert run.results() == dict.fromkeys(METRICS, "unavailable")
    assert run.span["ragtrace.eval.status"] == "error"
    (check,) = [check for check in run.diagnosis.checks if check.what == "decision"]
    assert not check.ok
    assert f"POST {path}" in check.seen
    assert any("DecisionJudge(protocol='logprobs')" in problem for problem in run.diagnosis.problems)
