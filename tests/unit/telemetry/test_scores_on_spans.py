"""Scores on spans, whole: the held root, the carrier where nothing holds it, and the evidence."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Claim
from ragtrace.core.score_id import score_id
from ragtrace.core.types import Judgement, RagCall, Score
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.telemetry.scores.score_sender import unsupported_json
from ragtrace.testing import FakeJudge
from tests.support.scored import EVERY, SCREENED, scored_event, scores, screen, without_id
from tests.support.watched import ANSWER, CLAIMS, GOOD, HALF, WAIT_S, WaitingJudge, ask, eventually, watch


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


# --- the held span ---------------------------------------------------------------------------------------------------


def test_the_screen_alone() -> None:
    """Its scores, labels, identity and probability 1, and nothing else of ours."""
    captured = watch(screen=screen())
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == SCREENED


def test_a_flush_with_little_time_leaves_the_spans_to_one_that_waits_for_their_scores() -> None:
    """A flush after each request would export the spans of all others without scores, which another flush waits for."""
    judge = WaitingJudge(name="screen")
    captured = watch(screen=judge, limits=ragtrace.Limits(hold_seconds=600))
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    done: list[bool] = []
    waiting = threading.Thread(target=lambda: done.append(ragtrace.flush(2 * WAIT_S)))
    waiting.start()
    runtime = current()
    assert runtime is not None
    assert eventually(lambda: runtime.worker.is_hurried)
    assert not ragtrace.flush(0.05)
    judge.open()
    waiting.join(2 * WAIT_S)
    assert done == [True]
    assert (captured.root().attributes or {})["ragtrace.eval.status"] == "ok"


def test_a_flush_that_nobody_waits_longer_than_exports_spans_without_their_scores() -> None:
    """The application has asked for it."""
    judge = WaitingJudge(name="screen")
    captured = watch(screen=judge, limits=ragtrace.Limits(hold_seconds=600))
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    assert not ragtrace.flush(0.05)
    assert eventually(lambda: len(captured.roots()) == 1)  # a flush that is late goes on in the background
    assert (captured.root().attributes or {})["ragtrace.eval.status"] == "late"
    judge.open()


def test_the_judge_prevails_over_the_screen() -> None:
    """Where both give a metric, the judge's value is on the span, and nothing of the screen stands beside its name."""
    captured = watch(screen=screen(), judge=FakeJudge(GOOD, name="judge"), sampling=EVERY)
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == {
        **SCREENED,
        "ragtrace.eval.evaluator": "judge@1",
        "ragtrace.eval.faithfulness.score": 1.0,
        "ragtrace.eval.faithfulness.label": "pass",
        "ragtrace.eval.hallucinated.score": 0.0,
        "ragtrace.eval.hallucinated.label": "pass",
        "ragtrace.eval.consistency.score": 0.9,
        "ragtrace.eval.suspicious.evaluator": "screen@1",
    }


def test_a_judge_that_fails_leaves_the_screens_scores() -> None:
    """The status says that something is missing; whose scores they are is right."""
    captured = watch(screen=screen(), judge=FakeJudge(JudgeError("refused"), name="judge"), sampling=EVERY)
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == {**SCREENED, "ragtrace.eval.status": "partial"}


def test_a_score_of_another_evaluator_names_it() -> None:
    """The evaluator and the probability on the root are the judge's; what only the screen gives says that it does."""
    judge = FakeJudge(GOOD, name="judge", metrics=["faithfulness", "answered"])
    narrow = FakeJudge(HALF, name="screen", metrics=["consistency", "answered"])
    captured = watch(screen=narrow, judge=judge, sampling=EVERY)
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == {
        "ragtrace.eval.status": "ok",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.evaluator": "judge@1",
        "ragtrace.eval.faithfulness.score": 1.0,
        "ragtrace.eval.faithfulness.label": "pass",
        "ragtrace.eval.answered.score": 1.0,
        "ragtrace.eval.answered.label": "answered",
        "ragtrace.eval.consistency.score": 0.25,
        "ragtrace.eval.consistency.evaluator": "screen@1",
        "ragtrace.eval.suspicious.reason": "no_baseline",
        "ragtrace.eval.suspicious.evaluator": "screen@1",
    }


def test_a_judge_that_finds_nothing_to_score_has_the_last_word() -> None:
    """That a metric does not apply is a judgement, not a failure."""
    judge = FakeJudge(Judgement(claims=(), answer_label="answered", consistency=0.9), name="judge")
    captured = watch(screen=screen(), judge=judge, sampling=EVERY, metrics=["faithfulness"])
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == {
        "ragtrace.eval.status": "ok",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.evaluator": "judge@1",
        "ragtrace.eval.faithfulness.reason": "no_claims",
    }


def test_an_evaluator_that_decides_some_metrics_only_is_partial() -> None:
    """Scores where there are some, reasons where not, never a number made up."""
    captured = watch(screen=FakeJudge(Judgement(claims=CLAIMS), name="screen"))
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == {
        "ragtrace.eval.status": "partial",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.evaluator": "screen@1",
        "ragtrace.eval.faithfulness.score": 0.5,
        "ragtrace.eval.faithfulness.label": "fail",
        "ragtrace.eval.hallucinated.score": 1.0,
        "ragtrace.eval.hallucinated.label": "fail",
        "ragtrace.eval.consistency.reason": "no_scorer",
        "ragtrace.eval.suspicious.reason": "no_scorer",
        "ragtrace.eval.answered.reason": "unparsable",
    }


def test_an_evaluator_that_fails_is_an_error_with_its_reason() -> None:
    """On every metric."""
    captured = watch(screen=FakeJudge(JudgeError("content_filter"), name="screen"))
    ask("where?")
    assert ragtrace.flush()
    metrics = ("hallucinated", "faithfulness", "consistency", "suspicious", "answered")
    assert scores(captured.root()) == {
        "ragtrace.eval.status": "error",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.evaluator": "screen@1",
        **{f"ragtrace.eval.{name}.reason": "content_filter" for name in metrics},
    }


def test_a_call_that_nobody_scores_says_so() -> None:
    """ "Not scored" cannot be read as "good"."""
    captured = watch(screen=None, judge=FakeJudge(GOOD), sampling=ragtrace.Sampling(rate=0.0))
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == {"ragtrace.eval.status": "not_sampled", "ragtrace.eval.probability": 0.0}
    assert (captured.root().attributes or {})["ragtrace.reason"] == "not_sampled"


def test_only_the_root_carries_scores() -> None:
    """The spans below it carry none and no status."""
    captured = watch(screen=screen())
    ask("where?")
    assert ragtrace.flush()
    assert [span.name for span in captured.spans if scores(span)] == ["invoke_workflow guide"]


def test_the_score_of_a_held_span_needs_no_carrier() -> None:
    """Three spans in, three spans out."""
    captured = watch(screen=screen(), judge=FakeJudge(GOOD, name="judge"), sampling=EVERY)
    ask("where?")
    assert ragtrace.flush()
    assert len(captured.spans) == 3


# --- a provider that holds nothing -----------------------------------------------------------------------------------


@pytest.fixture
def plain_provider() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    """A user's provider without `HoldProcessor`."""
    gc.collect()  # a hold of an earlier test that still exists could belong to any provider
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def test_without_a_hold_spans_end_on_the_request_and_scores_follow_on_a_carrier(
    plain_provider: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    """The spans are out before the function returns, marked deferred; then one root with one link and all scores."""
    provider, exporter = plain_provider
    judge = FakeJudge(GOOD, name="judge")
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider),
        screen=screen(),
        judge=judge,
        sampling=EVERY,
        metrics=["faithfulness"],
    )
    ask("where?")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) >= {"invoke_workflow guide", "retrieval places", "chat tiny"}
    root = spans["invoke_workflow guide"]
    assert scores(root) == {"ragtrace.eval.status": "deferred"}
    assert ragtrace.flush()

    carriers = [span for span in exporter.get_finished_spans() if span.name == "evaluate guide"]
    assert len(carriers) == 1
    carrier = carriers[0]
    assert carrier.parent is None
    assert [link.context for link in carrier.links] == [root.get_span_context()]
    assert (carrier.get_span_context() or trace.INVALID_SPAN_CONTEXT).trace_id != (
        root.get_span_context() or trace.INVALID_SPAN_CONTEXT
    ).trace_id
    target = root.get_span_context()
    assert target is not None
    metadata = {"evaluator": "judge@1", "probability": 1.0, "metric_version": "1"}
    assert dict(carrier.attributes or {}) == {
        "gen_ai.operation.name": "evaluation",
        "openinference.span.kind": "EVALUATOR",
        "ragtrace.context_source": "arguments",
        "ragtrace.eval.status": "ok",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.evaluator": "judge@1",
        "ragtrace.eval.faithfulness.score": 1.0,
        "ragtrace.eval.faithfulness.label": "pass",
        "evaluations.0.evaluation.name": "faithfulness",
        "evaluations.0.evaluation.score": 1.0,
        "evaluations.0.evaluation.label": "pass",
        "evaluations.0.evaluation.annotator_kind": "LLM",
        "evaluations.0.evaluation.identifier": score_id(
            target, "faithfulness", "judge", metric_version="1", evaluator_version="1"
        ),
        "evaluations.0.evaluation.metadata": json.dumps(metadata),
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
    }


def test_without_a_hold_events_and_metrics_are_complete(
    plain_provider: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    """Neither needs the span to be open."""
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

    provider, exporter = plain_provider
    reader = InMemoryMetricReader()
    logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call,unused-ignore]
    meters, loggers = MeterProvider([reader], shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider, meter_provider=meters, logger_provider=loggers),
        screen=screen(),
        metrics=["answered"],
    )
    ask("where?")
    assert ragtrace.flush()
    root = next(span for span in exporter.get_finished_spans() if span.name == "invoke_workflow guide")
    context = root.get_span_context()
    assert context is not None
    found = [(r.log_record.span_id, without_id(r.log_record.attributes or {})) for r in logs.get_finished_logs()]
    assert found == [(context.span_id, scored_event("answered", "screen", 1.0, "answered"))]
    data = reader.get_metrics_data()
    assert data is not None
    names = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {"ragtrace.eval.score", "ragtrace.eval.results", "ragtrace.calls"} <= names
    meters.shutdown()
    loggers.shutdown()


def test_a_call_that_nobody_scores_has_no_carrier(
    plain_provider: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    """There is nothing to carry."""
    provider, exporter = plain_provider
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=None)
    ask("where?")
    assert ragtrace.flush()
    assert len(exporter.get_finished_spans()) == 3


def test_a_call_that_head_sampling_dropped_is_neither_scored_nor_carried() -> None:
    """And is accounted for."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter)))
    judge = screen()
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=judge)
    ask("where?")
    assert ragtrace.flush()
    assert (exporter.get_finished_spans(), judge.calls) == ((), [])
    assert ragtrace.stats().sampled_out == {"head_dropped": 1}
    provider.shutdown()


GLOBAL_PROVIDER = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import ragtrace
from tests.support.watched import ask

exporter = InMemorySpanExporter()
provider = TracerProvider(shutdown_on_exit=False)
inner = SimpleSpanProcessor(exporter)
provider.add_span_processor(ragtrace.HoldProcessor(inner) if sys.argv[1] == "hold" else inner)
trace.set_tracer_provider(provider)
ragtrace.configure(service="s")
ask("where?")
assert ragtrace.flush()
assert trace.get_tracer_provider() is provider
for span in exporter.get_finished_spans():
    print(span.name, span.attributes.get("ragtrace.eval.status"), "ragtrace.eval.consistency.score" in span.attributes)
"""


@pytest.mark.parametrize(
    ("how", "root", "more"),
    [
        ("hold", "invoke_workflow guide ok True", set()),
        ("plain", "invoke_workflow guide deferred False", {"evaluate guide ok True"}),
    ],
)
def test_the_provider_that_the_process_already_has_is_used(how: str, root: str, more: set[str]) -> None:
    """With its hold, if there is one; without it by a carrier."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", GLOBAL_PROVIDER, how], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0
    assert ("HoldProcessor" in done.stderr, done.stderr.count("\n")) == ((False, 0) if how == "hold" else (True, 1))
    assert set(done.stdout.splitlines()) == {root, "retrieval places None False", "chat tiny None False"} | more


# --- evidence --------------------------------------------------------------------------------------------------------


def test_evidence_names_the_unsupported_claims() -> None:
    """Only when asked for; with their place in the answer, what was held against them, and the judge's doubt."""
    captured = watch(screen=screen(), telemetry=ragtrace.TelemetryOptions(evidence=True))
    ask("where?")
    assert ragtrace.flush()
    found = json.loads(str(scores(captured.root())["ragtrace.eval.unsupported"]))
    assert found == [
        {
            "text": "Paris is on Mars.",
            "start": 14,
            "end": 31,
            "support": "not_found",
            "unsupported": [[26, 30]],
            "chunks": [1, 0],
            "score": 0.1,
            "quote": "Mars",
        }
    ]
    assert ANSWER[14:31] == "Paris is on Mars."
    assert ANSWER[26:30] == "Mars"


def test_the_embedded_judges_evidence_points_into_the_answer() -> None:
    """Offsets count characters of the answer as the span shows it."""
    captured = watch(telemetry=ragtrace.TelemetryOptions(evidence=True))
    with ragtrace.call("How high is it?") as call:
        call.retrieved(["The tower in Zürich 🗼 is 120 metres high."])
        answer = "The tower 🗼 is 120 metres high. It was painted by Picasso in 1955."
        call.answered(answer)
    assert ragtrace.flush()
    found = json.loads(str(scores(captured.root())["ragtrace.eval.unsupported"]))
    assert [answer[item["start"] : item["end"]] for item in found] == ["It was painted by Picasso in 1955."]
    ranges = [answer[start:end] for item in found for start, end in item["unsupported"]]
    assert any("Picasso" in text for text in ranges), ranges


def test_nothing_unsupported_is_an_empty_list() -> None:
    """ "Looked and found nothing" is not "did not look"."""
    captured = watch(screen=FakeJudge(GOOD, name="screen"), telemetry=ragtrace.TelemetryOptions(evidence=True))
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root())["ragtrace.eval.unsupported"] == "[]"


def test_evidence_is_bounded_and_says_what_it_left_out() -> None:
    """However many claims, however long: worst first, the rest counted, still JSON."""
    claims = tuple(
        Claim("x" * 5_000, number, number + 1, "not_found", score=1 - number / 1000, quote="y" * 5_000)
        for number in range(500)
    )
    call = RagCall(query="q", contexts=(), answer="a")
    text = unsupported_json([Score(0.0, claims=claims)], call)
    assert text is not None
    assert len(text) < 20_000
    items = json.loads(text)
    assert items[-1] == {"left_out": 500 - (len(items) - 1)}
    assert items[0]["start"] == 499
    assert {len(item["text"]) for item in items[:-1]} == {500}


def test_what_a_judge_says_can_always_be_exported() -> None:
    """A lone surrogate or NUL in a judge's text would cost a whole batch of spans."""
    claim = Claim("bad \ud800 \0 text", 0, 3, "not_found", quote="\udfff")
    judgement = Judgement(claims=(claim,), answer_label="answered", consistency=0.1)
    captured = watch(screen=FakeJudge(judgement, name="screen"), telemetry=ragtrace.TelemetryOptions(evidence=True))
    ask("where?")
    assert ragtrace.flush()
    for value in scores(captured.root()).values():
        str(value).encode()
