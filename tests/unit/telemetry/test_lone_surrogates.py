"""Names that are no UTF-8, as `os.fsdecode` and `json.loads` give them: nothing is lost by them, nothing is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

import ragtrace
from ragtrace.core.types import RagCall
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.otlp import GrpcReceiver, HttpReceiver, Receiver
from tests.support.watched import WAIT_S, ask

BAD = "x\udc80\ud800y"
SHOWN = "x\ufffd\ufffdy"


def answered(question: str) -> str:
    return f"It is there, {question}."


def block() -> None:
    with ragtrace.call("where?", name=BAD) as call:
        call.retrieved(["It is there."])
        call.answered("It is there.")


def named_badly() -> None:
    def function(question: str) -> str:
        return answered(question)

    function.__qualname__ = function.__name__ = BAD
    ragtrace.trace(function)("where?")


def with_steps() -> None:
    search = ragtrace.retrieve(source=BAD)(lambda query: [f"It is there, {query}."])
    calculate = ragtrace.tool(name=BAD)(lambda x: x)
    ragtrace.trace(name="steps")(lambda question: (search(question), calculate(BAD), answered(question))[-1])("where?")


def with_attributes() -> None:
    def function(question: str) -> str:
        span = trace.get_current_span()
        span.set_attribute("own", BAD)
        span.set_attribute("own.list", [BAD, "b"])
        span.add_event(BAD, {"own": BAD})
        return answered(question)

    ragtrace.trace(name="attributes")(function)("where?")


def failing() -> None:
    def function(question: str) -> str:
        raise ValueError(BAD)

    with pytest.raises(ValueError, match="x"):
        ragtrace.trace(name="failing")(function)("where?")


WAYS: dict[str, Callable[[], None]] = {
    "name of a trace": lambda: (ragtrace.trace(name=BAD)(answered)("where?"), None)[1],
    "name of a block": block,
    "qualified name": named_badly,
    "steps": with_steps,
    "attributes": with_attributes,
    "exception": failing,
}


@pytest.fixture(params=[HttpReceiver, GrpcReceiver])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A backend of each protocol, to which everything goes."""
    faults.clear()
    with request.param() as receiver:
        for name, value in receiver.environ.items():
            monkeypatch.setenv(name, value)
        yield receiver


def all_arrived(backend: Receiver, calls: int, caplog: pytest.LogCaptureFixture) -> None:
    """Flush, and check that *calls* root spans and their counts arrived, and that nothing was logged about it."""
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.shutdown(WAIT_S)
    assert len([span for span in backend.spans if not span.parent_span_id]) == calls
    points = backend.latest_metrics()["ragtrace.calls"].points
    offered = [point for point in points if point.attributes["ragtrace.outcome"] == "offered"]
    evaluators = {str(point.attributes["ragtrace.evaluator.id"]) for point in offered}
    assert sum(point.value or 0 for point in offered) == calls * len(evaluators)
    assert not ragtrace.stats().faults
    assert not [record for record in caplog.records if "encod" in record.getMessage() or record.exc_info]


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_is_no_utf8_loses_nothing(way: str, backend: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Neither its span nor the others of the batch, and it is exported with replacement characters."""
    with caplog.at_level(logging.WARNING):
        ragtrace.configure(service="s", exporter="otlp", capture_content="SPAN_AND_EVENT")
        ask("where?")
        WAYS[way]()
        ask("where?")
        all_arrived(backend, 3, caplog)
    assert SHOWN in repr(backend.spans) + repr(backend.logs)


@pytest.mark.parametrize("variable", ["keyword", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"])
def test_a_service_that_is_no_utf8_is_named_all_the_same(
    variable: str, backend: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python reads an environment variable that is no UTF-8 so."""
    bad = "x\udc80y"
    if variable == "OTEL_RESOURCE_ATTRIBUTES":
        monkeypatch.setenv(variable, f"team={bad},service.name=s")
    elif variable != "keyword":
        monkeypatch.setenv(variable, bad)
    with caplog.at_level(logging.WARNING):
        ragtrace.configure(service=bad if variable == "keyword" else None, exporter="otlp")
        ask("where?")
        all_arrived(backend, 1, caplog)
    assert "x\ufffdy" in backend.spans[0].resource.values()


def test_texts_of_scores_lose_nothing(backend: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """They are attributes of scores, events and metrics."""

    @ragtrace.metric(register=False)
    def own(call: RagCall) -> ragtrace.Score:
        del call
        return ragtrace.Score(0.5, label=BAD, explanation=BAD, attributes={BAD: BAD})

    judge = FakeJudge(ragtrace.Judgement(consistency=0.5, attributes={BAD: BAD}))
    with caplog.at_level(logging.WARNING):
        ragtrace.configure(service="s", exporter="otlp", judge=judge, metrics=["consistency", own])
        ask("where?")
        all_arrived(backend, 1, caplog)


@pytest.mark.parametrize("field", ["name", "comment", "correction", "user", "id"])
def test_feedback_loses_nothing(
    field: str, backend: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a user of the application wrote comes from anywhere."""
    given: Any = {field: BAD}
    with caplog.at_level(logging.WARNING):
        ragtrace.configure(service="s", exporter="otlp", store=tmp_path / "history.db")

        @ragtrace.trace(name="rated")
        def rated(question: str) -> str:
            assert ragtrace.feedback(True, **given)
            return answered(question)

        rated("where?")
        all_arrived(backend, 1, caplog)
    assert [log for log in backend.logs if "user_feedback" in repr(log) or SHOWN in repr(log)]
    assert "ragtrace.eval.score" in backend.latest_metrics()


def test_the_name_of_a_judge_is_checked_at_start_up() -> None:
    """It is part of every score and count, so that one that cannot be exported is a wrong setting."""
    judge = FakeJudge(ragtrace.Judgement(consistency=0.5), name=f"judge{BAD}")
    with pytest.raises(ragtrace.SettingsError, match=r"judgex\\udc80\\ud800y.*lone surrogates"):
        ragtrace.configure(service="s", exporter="none", screen=judge, metrics=["consistency"])
