"""Calls whose trace head sampling dropped: left out and counted, or, if wanted, scored all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, SamplingResult

import ragtrace
from ragtrace.testing import FakeJudge
from tests.support.watched import ANSWER, GOOD, HALF, ask, watch

SCORED = ragtrace.Sampling(rate=1.0, score_head_dropped=True)


class Dropping:
    """A user's providers, whose head sampler keeps nothing."""

    def __init__(self) -> None:
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
        self.tracers = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
        self.tracers.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(self.spans)))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        self.screen, self.judge = FakeJudge(HALF, name="screen"), FakeJudge(GOOD, name="judge")

    def watch(self, sampling: ragtrace.Sampling) -> None:
        ragtrace.configure(
            telemetry=ragtrace.TelemetryOptions(
                tracer_provider=self.tracers, meter_provider=self.meters, logger_provider=self.loggers
            ),
            screen=self.screen,
            judge=self.judge,
            sampling=sampling,
            metrics=["faithfulness"],
        )

    def metrics(self) -> set[str]:
        data = self.reader.get_metrics_data()
        scopes = (
            [] if data is None else [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        )
        return {metric.name for scope in scopes for metric in scope.metrics}


@pytest.fixture
def dropping() -> Iterator[Dropping]:
    users = Dropping()
    yield users
    ragtrace.shutdown()
    users.tracers.shutdown()
    users.meters.shutdown()
    users.loggers.shutdown()


def test_wanted_they_are_scored_from_what_was_captured(dropping: Dropping) -> None:
    """By screen and judge, with question, contexts and answer, though there is no span."""
    dropping.watch(SCORED)
    assert ask("where?") == ANSWER
    assert ragtrace.flush()
    for judge in (dropping.screen, dropping.judge):
        [call] = judge.calls
        assert (call.query, call.answer, len(call.contexts or ())) == ("where?", ANSWER, 2)
    tallies = ragtrace.stats().evaluators
    assert [(tally.offered, tally.scored, tally.sampled_out) for tally in tallies.values()] == [(1, 1, {})] * 2


def test_their_scores_are_events_and_metrics_and_no_span(dropping: Dropping) -> None:
    """The events have the ids of the trace that was dropped, and its flags say so."""
    dropping.watch(SCORED)
    ask("where?")
    assert ragtrace.flush()
    assert dropping.spans.get_finished_spans() == ()
    span = dropping.judge.calls[0].span
    assert span is not None
    records = [event.log_record for event in dropping.logs.get_finished_logs()]
    assert {(record.trace_id, record.span_id, (record.trace_flags or 0) & 1) for record in records} == {
        (span.trace_id, span.span_id, 0)
    }
    assert [dict(record.attributes or {})["gen_ai.evaluation.score.value"] for record in records] == [0.5, 1.0]
    assert {"ragtrace.eval.score", "ragtrace.eval.results", "ragtrace.calls"} <= dropping.metrics()


def test_unwanted_they_are_left_out_and_counted(dropping: Dropping) -> None:
    """Nobody is asked and nothing sent."""
    dropping.watch(ragtrace.Sampling(rate=1.0))
    ask("where?")
    assert ragtrace.flush()
    assert (dropping.screen.calls, dropping.judge.calls, dropping.logs.get_finished_logs()) == ([], [], ())
    tallies = ragtrace.stats().evaluators
    assert [tally.sampled_out for tally in tallies.values()] == [{"head_dropped": 1}] * 2


def test_the_sampling_of_the_judge_is_the_same(dropping: Dropping) -> None:
    """The option is about the head sampler's decision, not about ours."""
    dropping.watch(ragtrace.Sampling(rate=0.0, score_head_dropped=True))
    ask("where?")
    assert ragtrace.flush()
    assert (len(dropping.screen.calls), len(dropping.judge.calls)) == (1, 0)
    assert ragtrace.stats().evaluators["judge"].sampled_out == {"not_sampled": 1}


def test_it_holds_for_our_own_provider_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the standard variable for a head sampler."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(screen=None, judge=judge, sampling=SCORED, metrics=["faithfulness"])
    assert ask("where?") == ANSWER
    assert ragtrace.flush()
    assert (captured.spans, len(judge.calls), len(captured.events)) == ((), 1, 1)


def test_a_switch_must_be_one() -> None:
    """A string that is neither true nor false is refused."""
    with pytest.raises(ragtrace.SettingsError, match="score_head_dropped="):
        ragtrace.Sampling(score_head_dropped="perhaps")  # type: ignore[arg-type]


class Picky(Sampler):
    """A user's own sampler, which drops the root and wants what is below it."""

    def should_sample(self, parent_context: Context | None, trace_id: int, name: str, *_: Any, **__: Any) -> Any:
        """Part of the SDK's interface."""
        wanted = not name.startswith("invoke_workflow")
        return SamplingResult(Decision.RECORD_AND_SAMPLE if wanted else Decision.DROP)

    def get_description(self) -> str:
        """Part of the SDK's interface."""
        return "Picky"


@pytest.mark.parametrize(
    ("sampler", "names"),
    [(ALWAYS_OFF, []), (ParentBased(ALWAYS_OFF), []), (Picky(), ["retrieval places", "chat tiny"])],
)
def test_a_users_sampler_decides_about_what_is_below(sampler: Sampler, names: list[str]) -> None:
    """It is asked again unless it is known to say the same, and the call is counted once either way."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=tracers))
    assert ask("where?") == ANSWER
    assert ragtrace.flush()
    [tally] = ragtrace.stats().evaluators.values()
    assert (tally.offered, tally.sampled_out) == (1, {"head_dropped": 1})
    assert [span.name for span in spans.get_finished_spans()] == names
    ragtrace.shutdown()
    tracers.shutdown()


class Speechless(Picky):
    """A user's sampler that cannot describe itself."""

    def get_description(self) -> str:
        """Part of the SDK's interface."""
        raise RuntimeError("no words")


def test_a_sampler_that_cannot_describe_itself_is_asked_each_time() -> None:
    """Nothing is known of it, and configuring goes on."""
    tracers = TracerProvider(sampler=Speechless(), shutdown_on_exit=False)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=tracers))
    assert ask("where?") == ANSWER
    assert ragtrace.flush()
    [tally] = ragtrace.stats().evaluators.values()
    assert tally.sampled_out == {"head_dropped": 1}
    ragtrace.shutdown()
    tracers.shutdown()
