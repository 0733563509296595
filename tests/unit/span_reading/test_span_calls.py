"""Calls in the spans of other instrumentations, in the process that makes them: held, scored, counted, never twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from time import thread_time
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.span_reading.span_calls import SpanCalls, fill_step
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.intake import LostSpan, SpanIntake, SpanReader, clear_reader, set_reader
from ragtrace.telemetry.spans.span_listener import SpanListener
from ragtrace.testing import FakeJudge
from tests.support.logged import logged
from tests.support.watched import GOOD, watch

QUERY = "How tall is the Eiffel Tower?"
ANSWER = "The Eiffel Tower is 330 metres tall."
PASSAGE = "The Eiffel Tower in Paris is 330 metres tall."
KIND = "openinference.span.kind"
SCOPE = "openinference.instrumentation.langchain"


class Watched:
    """A user's provider with a hold that evaluates, and what it exports."""

    def __init__(self, **hold: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.hold = ragtrace.HoldProcessor(SimpleSpanProcessor(self.exporter), **{"evaluate": True, **hold})
        self.provider.add_span_processor(self.hold)
        self.tracer = self.provider.get_tracer(SCOPE)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def scores(self, name: str) -> dict[str, Any]:
        attributes = self.spans()[name].attributes or {}
        return {key: value for key, value in attributes.items() if key.startswith("ragtrace.")}

    def ask(self, query: str = QUERY, answer: str = ANSWER) -> None:
        """One request of an application that OpenInference instruments."""
        with self.tracer.start_as_current_span("chain") as root:
            root.set_attributes({KIND: "CHAIN", "input.value": query})
            with self.tracer.start_as_current_span("retriever") as span:
                span.set_attributes({KIND: "RETRIEVER", "retrieval.documents.0.document.content": PASSAGE})
            with self.tracer.start_as_current_span("llm") as span:
                span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.role": "assistant"})
                span.set_attribute("llm.output_messages.0.message.content", answer)
            root.set_attribute("output.value", answer)

    def fail(self) -> None:
        """One request whose retriever raises."""
        with self.tracer.start_as_current_span("chain") as root:
            root.set_attributes({KIND: "CHAIN", "input.value": QUERY})
            with self.tracer.start_as_current_span("retriever") as span:
                span.set_attributes({KIND: "RETRIEVER", "input.value": QUERY})
                raise LookupError("no index")


@pytest.fixture
def watched() -> Generator[Watched, None, None]:
    found = Watched()
    yield found
    ragtrace.shutdown()
    found.provider.shutdown()


@contextmanager
def ended(span: trace.Span) -> Generator[None, None, None]:
    """End *span* after a `with` block without making it the current one."""
    yield
    span.end()


def configure(watched: Watched, **settings: Any) -> FakeJudge:
    judge = FakeJudge(GOOD)
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=watched.provider),
        screen=judge,
        metrics=["faithfulness"],
        **settings,
    )
    return judge


def test_reasoning_in_a_span_is_not_judged(watched: Watched) -> None:
    """Other instrumentations record what the model has written; the scores say how much of it is no answer."""
    judge = configure(watched)
    reasoning = "<think>It may be 30 metres.</think>\n"
    watched.ask(answer=reasoning + ANSWER)
    assert ragtrace.flush()
    assert [(call.answer, call.reasoning_chars) for call in judge.calls] == [(ANSWER, len(reasoning))]
    assert (watched.spans()["chain"].attributes or {})["output.value"] == reasoning + ANSWER


@pytest.mark.parametrize(
    "decision",
    [
        {KIND: "DECISION", "decision.model_name": "gpt-6-luna", "input.value": QUERY, "output.value": "0.97"},
        {"gen_ai.operation.name": "decision", "gen_ai.request.model": "gpt-6-luna"},
        {KIND: "LLM", "llm.provider": "typesafe", "llm.output_messages.0.message.content": "0.97"},
    ],
)
def test_a_decision_of_the_application_is_neither_answer_nor_evidence(
    watched: Watched, decision: dict[str, str]
) -> None:
    """A router before the retrieval and a guard after the answer leave the call as it is."""
    judge = configure(watched)
    with watched.tracer.start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": QUERY})
        for name, attributes in (
            ("router", decision),
            ("retriever", {KIND: "RETRIEVER", "retrieval.documents.0.document.content": PASSAGE}),
            ("llm", {KIND: "LLM", "llm.output_messages.0.message.content": ANSWER}),
            ("guard", decision),
        ):
            with watched.tracer.start_as_current_span(name) as span:
                span.set_attributes(attributes)
        root.set_attribute("output.value", ANSWER)
    assert ragtrace.flush()
    (call,) = judge.calls
    assert (call.query, call.answer) == (QUERY, ANSWER)
    assert [document.text for document in call.contexts or ()] == [PASSAGE]


def test_the_scores_are_on_the_root_span_before_it_leaves(watched: Watched) -> None:
    """The other spans leave as they are."""
    judge = configure(watched)
    watched.ask()
    assert watched.hold.held_count == 1
    assert ragtrace.flush()
    (call,) = judge.calls
    assert (call.query, [document.text for document in call.contexts or ()], call.answer) == (QUERY, [PASSAGE], ANSWER)
    assert sorted(watched.spans()) == ["chain", "llm", "retriever"]
    scores = watched.scores("chain")
    assert (scores["ragtrace.eval.faithfulness.score"], scores["ragtrace.context_source"]) == (1.0, "retriever")
    assert watched.scores("llm") == watched.scores("retriever") == {}
    assert ragtrace.stats().evaluators["fake"].scored == 1


def test_a_call_whose_retriever_fails_is_counted_as_failed(watched: Watched) -> None:
    """As one of a decorated application is; its root span says so, and nothing is judged."""
    judge = configure(watched)
    with pytest.raises(LookupError):
        watched.fail()
    assert ragtrace.flush()
    tally = ragtrace.stats().evaluators["fake"]
    assert (tally.offered, dict(tally.sampled_out), judge.calls) == (1, {"call_failed": 1}, [])
    assert watched.scores("chain") == {"ragtrace.eval.status": "call_failed"}


@pytest.mark.parametrize("query", ['{"question": "How', "[" * 1_000 + "]" * 1_000])
def test_a_call_whose_query_is_broken_json_has_no_query(watched: Watched, query: str) -> None:
    """What needs one says so, and all else is scored."""
    judge = FakeJudge(GOOD)
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=watched.provider),
        screen=judge,
        metrics=["faithfulness", "answered"],
    )
    watched.ask(query)
    assert ragtrace.flush()
    (call,) = judge.calls
    assert not call.query
    scores = watched.scores("chain")
    assert scores["ragtrace.eval.faithfulness.score"] == 1.0
    assert scores["ragtrace.eval.answered.reason"] == "empty_query"


def test_each_configuration_starts_its_own_background(watched: Watched) -> None:
    """The first span after `configure` starts the thread that will read it, whatever an earlier one has started."""
    started: list[str] = []
    for name in ("first", "second"):

        def wake(name: str = name) -> None:
            started.append(name)

        set_reader(reader := SpanReader(wake, fill_step))
        watched.ask()
        watched.ask()
        clear_reader(reader)
    assert started == ["first", "second"]
    assert watched.hold.intake is not None
    _taken(watched.hold.intake)  # no runtime has taken these spans: the next one would


@pytest.fixture
def unread(watched: Watched) -> Generator[SpanIntake, None, None]:
    """Queue of spans that no background takes spans from, with no fault counted before."""
    faults.clear()

    def wake() -> None:
        """Start nothing."""

    set_reader(reader := SpanReader(wake, fill_step))
    assert watched.hold.intake is not None
    yield watched.hold.intake
    clear_reader(reader)
    _taken(watched.hold.intake)
    watched.hold.intake.take_dropped()


def _taken(intake: SpanIntake) -> list[ReadableSpan]:
    return list(iter(intake.take, None))


@pytest.mark.timing
def test_the_start_of_a_span_takes_no_longer_where_very_many_are_open(unread: SpanIntake) -> None:
    """It is the application's time: that of spans that never end is not spent anew by each span after them."""

    def seconds(first: int, last: int) -> float:
        contexts = [trace.SpanContext(1, number, False, trace.TraceFlags(1)) for number in range(first, last)]
        scope, nothing = InstrumentationScope("openinference.instrumentation.openai"), Resource.get_empty()
        spans = [ReadableSpan("chat", each, resource=nothing, instrumentation_scope=scope) for each in contexts]
        began = thread_time()
        for each in spans:
            unread.started(each, Context())
        return (thread_time() - began) / (last - first)

    few = seconds(1, 16_000)
    assert seconds(16_000, 80_000) < 3 * few


def test_a_full_queue_tells_which_ended_span_it_refused(watched: Watched, unread: SpanIntake) -> None:
    """So that the call of that span is not waited for; a refused start alone loses nothing."""
    root = watched.tracer.start_span("chain")
    assert _taken(unread) == [root]
    open_spans = [watched.tracer.start_span("llm") for _ in range(9_000)]
    root.end()
    assert unread.take_dropped() == [LostSpan(root.get_span_context(), 0, is_genai=True)]
    assert len(_taken(unread)) < len(open_spans)
    assert unread.take_dropped() == []


FULL = "spans not evaluated: the queue of spans was full"


def _collect() -> None:
    """Read the queues of spans as the background thread does, and submit no call."""
    SpanCalls(lambda call: None, lambda span_id: None, lambda: None, most_bytes=1 << 20).collect()


def test_losses_are_taken_over_while_no_other_thread_counts_one(unread: SpanIntake) -> None:
    """Else one that a flush counts at that moment would be set back to what the background has just told of."""
    locked: list[bool] = []

    class Counts(Counter[str]):
        def pop(self, key: str, *default: Any) -> Any:
            other = threading.Thread(target=lambda: locked.append(not calls._lock.acquire(blocking=False)))
            other.start()
            other.join()
            return super().pop(key, *default)

    calls = SpanCalls(lambda call: None, lambda span_id: None, lambda: None, most_bytes=1 << 20)
    calls.collect()
    assert calls._assembler is not None
    calls._assembler.counts = Counts(late=2)
    faults.clear()
    calls.collect()
    assert list(faults.counts().values()) == [2]
    assert set(locked) == {True}


def test_a_span_that_a_full_queue_refuses_counts_once(watched: Watched, unread: SpanIntake) -> None:
    """At its end, whether or not its start was queued; a span that never ends is not counted at all."""
    open_spans = [watched.tracer.start_span("llm") for _ in range(9_000)]
    for _ in range(3_000):  # the starts of the first 808 were refused
        open_spans.pop().end()
    _collect()
    assert faults.counts() == {FULL: 3_000}


def test_a_span_that_had_ended_when_its_start_was_read_is_not_counted(watched: Watched, unread: SpanIntake) -> None:
    """What is on it was read then, although its end was refused; of these spans 808 starts were refused, too."""
    open_spans = [watched.tracer.start_span("llm") for _ in range(9_000)]
    for span in open_spans[-3_000:]:
        span.end()
    _collect()
    assert faults.counts() == {FULL: 808}


def test_a_span_whose_start_alone_was_refused_is_not_counted(watched: Watched, unread: SpanIntake) -> None:
    """Its end was queued, and with it all that is on the span."""
    open_spans = [watched.tracer.start_span("llm") for _ in range(9_000)]
    _collect()
    for span in open_spans[-500:]:
        span.end()
    _collect()
    assert faults.counts() == {}


def test_a_span_that_two_queues_refuse_counts_once(watched: Watched, unread: SpanIntake) -> None:
    """As where two hold processors pass the spans of one provider on to two backends."""
    second = ragtrace.HoldProcessor(SimpleSpanProcessor(InMemorySpanExporter()), evaluate=True)
    watched.provider.add_span_processor(second)
    open_spans = [watched.tracer.start_span("llm") for _ in range(9_000)]
    for _ in range(700):
        open_spans.pop().end()
    _collect()
    assert faults.counts() == {FULL: 700}


def test_a_span_that_one_of_two_queues_takes_is_not_counted(watched: Watched, unread: SpanIntake) -> None:
    """It is read from the queue that had room."""
    open_spans = [watched.tracer.start_span("llm") for _ in range(9_000)]
    second = ragtrace.HoldProcessor(SimpleSpanProcessor(InMemorySpanExporter()), evaluate=True)
    watched.provider.add_span_processor(second)
    for _ in range(700):
        open_spans.pop().end()
    _collect()
    assert faults.counts() == {}


def test_the_queue_is_bounded_by_the_memory_of_the_texts(watched: Watched, unread: SpanIntake) -> None:
    """No more than 16 MiB of large texts wait, and then there is room again."""
    for number in range(400):
        with watched.tracer.start_as_current_span("llm") as span:
            span.set_attribute("output.value", f"{number}" * 100_000)
    refused = unread.take_dropped()
    del span
    texts = [(each.attributes or {})["output.value"] for each in _taken(unread)]
    assert 15 << 20 < sum(len(str(text)) for text in texts) < 40 << 20
    assert len(refused) > 200
    watched.ask()
    assert len(_taken(unread)) == 3


def test_without_evaluate_nothing_is_read(watched: Watched) -> None:
    """Spans of others are theirs."""
    watched.hold.intake = None
    judge = configure(watched)
    watched.ask()
    assert watched.hold.held_count == 0
    assert ragtrace.flush()
    assert judge.calls == []
    assert watched.scores("chain") == {}


def test_a_provider_without_a_hold_is_listened_to() -> None:
    """The scores then go onto a span of their own."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    judge = FakeJudge(GOOD)
    for _ in range(2):  # configured again, it listens once
        ragtrace.configure(
            telemetry=ragtrace.TelemetryOptions(tracer_provider=provider),
            screen=judge,
            metrics=["faithfulness"],
            evaluate_spans=True,
        )
    with provider.get_tracer(SCOPE).start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": QUERY, "output.value": ANSWER})
    assert ragtrace.flush()
    assert len(judge.calls) == 1
    assert sorted(span.name for span in exporter.get_finished_spans()) == ["chain", "evaluate chain"]
    processors = provider._active_span_processor._span_processors  # pyright: ignore[reportPrivateUsage]
    assert sum(isinstance(each, SpanListener) for each in processors) == 1
    provider.shutdown()


def test_a_provider_is_listened_to_also_after_a_configuration_with_a_provider_of_its_own() -> None:
    """The hold processor of that configuration sees none of its spans."""
    provider = TracerProvider(shutdown_on_exit=False)
    watch()
    judge = FakeJudge(GOOD)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=judge, evaluate_spans=True)
    with provider.get_tracer(SCOPE).start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": QUERY, "output.value": ANSWER})
    assert ragtrace.flush()
    assert len(judge.calls) == 1
    provider.shutdown()


def test_a_provider_that_takes_no_processors_stops_the_configuration() -> None:
    """Nothing would ever be scored."""
    with pytest.raises(SettingsError, match="evaluate_spans= needs a tracer provider"):
        ragtrace.configure(
            telemetry=ragtrace.TelemetryOptions(tracer_provider=trace.NoOpTracerProvider()), evaluate_spans=True
        )


def test_spans_inside_a_decorated_call_are_its_steps_and_no_call_of_their_own(watched: Watched) -> None:
    """Decorated and other steps mix, and nothing is scored twice."""
    judge = configure(watched)

    @ragtrace.trace(name="guide")
    def handle(question: str) -> str:
        watched.ask(question)
        return ANSWER

    handle("How tall?")
    assert ragtrace.flush()
    (call,) = judge.calls
    assert (call.query, [document.text for document in call.contexts or ()]) == ("How tall?", [PASSAGE])
    assert watched.scores("chain") == {}
    assert watched.scores("invoke_workflow guide")["ragtrace.eval.faithfulness.score"] == 1.0


@pytest.mark.parametrize("is_current", [True, False])
@pytest.mark.parametrize("kind", ["RETRIEVER", "TOOL"])
def test_a_decorated_search_inside_the_span_of_its_retriever_or_tool_counts_once(
    watched: Watched, kind: str, is_current: bool
) -> None:
    """Whether the instrumentation makes its span the current one or, as in callbacks of LangChain, does not."""
    judge = configure(watched)
    search = ragtrace.retrieve(lambda query: [PASSAGE])

    @ragtrace.trace(name="guide")
    def handle(question: str) -> str:
        span = watched.tracer.start_span("lookup")
        span.set_attributes({KIND: kind, "output.value": PASSAGE})
        if kind == "RETRIEVER":
            span.set_attribute("retrieval.documents.0.document.content", PASSAGE)
        with trace.use_span(span, end_on_exit=True) if is_current else ended(span):
            search(question)
        return ANSWER

    handle("How tall?")
    assert ragtrace.flush()
    (call,) = judge.calls
    assert [document.text for document in call.contexts or ()] == [PASSAGE]


def test_a_decorated_search_inside_a_retriever_with_hidden_texts_is_kept(watched: Watched) -> None:
    """An instrumentation can be told to keep texts off its spans."""
    judge = configure(watched)
    search = ragtrace.retrieve(lambda query: [PASSAGE])

    @ragtrace.trace(name="guide")
    def handle(question: str) -> str:
        with watched.tracer.start_as_current_span("retriever") as span:
            span.set_attribute(KIND, "RETRIEVER")
            search(question)
        return ANSWER

    handle("How tall?")
    assert ragtrace.flush()
    (call,) = judge.calls
    assert [document.text for document in call.contexts or ()] == [PASSAGE]


def test_a_decorated_retrieval_inside_another_instrumentations_call_is_part_of_it(watched: Watched) -> None:
    """Its span is in the same trace, under the same root."""
    judge = configure(watched)
    search = ragtrace.retrieve(lambda query: [PASSAGE])
    with watched.tracer.start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": QUERY, "output.value": ANSWER})
        search(QUERY)
    assert ragtrace.flush()
    assert ragtrace.flush()
    (call,) = judge.calls
    assert [document.text for document in call.contexts or ()] == [PASSAGE]


def test_steps_of_decorated_calls_are_not_told_as_spans_without_a_call(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them are scored, and nothing is missing."""
    judge = configure(watched)

    @ragtrace.retrieve
    def search(question: str) -> list[str]:
        return [PASSAGE]

    @ragtrace.trace
    def handle(question: str) -> str:
        search(question)
        return ANSWER

    for number in range(30):
        handle(f"How tall is tower number {number}?")
    assert ragtrace.flush()
    assert ragtrace.flush()
    assert len(judge.calls) == 30
    assert logged(caplog) == []


def test_a_thousand_traces_at_a_time_are_a_thousand_calls(watched: Watched) -> None:
    """Each with its own texts; what the hold cannot keep leaves without scores, and is scored all the same."""
    judge = configure(watched)
    numbers = iter(range(1_000))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            watched.ask(f"Question {number}?", f"Answer {number}.")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ragtrace.flush(60)
    lost = sum(count for kind, count in ragtrace.stats().faults.items() if kind.startswith("spans not evaluated"))
    assert {(call.query, call.answer) for call in judge.calls} <= {
        (f"Question {number}?", f"Answer {number}.") for number in range(1_000)
    }
    assert len(judge.calls) == len({call.query for call in judge.calls})
    assert lost or len(judge.calls) == 1_000


@pytest.mark.parametrize(
    "value", ["", "{", "[1, 2", "null", 7, 1.5, True, ("a", "b"), "x" * 100_000, "\ud800", '{"a": ' * 2_000]
)
def test_attributes_of_any_kind_harm_nothing(watched: Watched, value: Any) -> None:
    """No exception reaches the application, and every span leaves."""
    configure(watched)
    names = ("input.value", "output.value", "retrieval.documents.0.document.content", "gen_ai.input.messages")
    names += ("traceloop.entity.input", "gen_ai.output.messages", "llm.output_messages.0.message.content")
    for kind in ("CHAIN", "RETRIEVER", "LLM", value):
        with watched.tracer.start_as_current_span("span") as span:
            span.set_attribute(KIND, kind)
            span.set_attributes(dict.fromkeys(names, value))
    assert ragtrace.flush()
    assert len(watched.exporter.get_finished_spans()) == 4


def test_a_span_that_never_ends_holds_back_no_other(watched: Watched) -> None:
    """The call goes on, so that it is not scored; its ended spans leave at the latest with the hold's deadline."""
    judge = configure(watched)
    root = watched.tracer.start_span("chain", attributes={KIND: "CHAIN"})
    with trace.use_span(root), watched.tracer.start_as_current_span("llm") as span:
        span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.content": ANSWER})
    assert ragtrace.flush()
    assert judge.calls == []
    assert list(watched.spans()) == ["llm"]


def test_steps_of_a_call_that_goes_on_at_shutdown_are_counted(watched: Watched) -> None:
    """The user learns that they were not scored, and why."""
    faults.clear()
    judge = configure(watched)
    root = watched.tracer.start_span("chain", attributes={KIND: "CHAIN"})
    with trace.use_span(root), watched.tracer.start_as_current_span("llm") as span:
        span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.content": ANSWER})
    assert ragtrace.flush()
    assert faults.counts() == {}
    ragtrace.shutdown()
    assert judge.calls == []
    assert faults.counts() == {"spans not evaluated: a span of their call had not ended at shutdown": 1}


def test_a_call_whose_root_has_ended_is_scored_at_shutdown(watched: Watched) -> None:
    """Although a span below the root goes on."""
    judge = configure(watched)
    with watched.tracer.start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": QUERY, "output.value": ANSWER})
        open_span = watched.tracer.start_span("llm", attributes={KIND: "LLM"})
        with watched.tracer.start_as_current_span("retriever") as span:
            span.set_attributes({KIND: "RETRIEVER", "retrieval.documents.0.document.content": PASSAGE})
    assert ragtrace.flush()
    assert judge.calls == []
    ragtrace.shutdown()
    open_span.end()
    (call,) = judge.calls
    assert (call.query, [document.text for document in call.contexts or ()], call.answer) == (QUERY, [PASSAGE], ANSWER)


def test_spans_that_head_sampling_dropped_are_no_call() -> None:
    """They reach no processor."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(InMemorySpanExporter()), evaluate=True))
    judge = FakeJudge(GOOD)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=judge)
    with provider.get_tracer(SCOPE).start_as_current_span("chain") as root:
        root.set_attributes({KIND: "CHAIN", "input.value": QUERY, "output.value": ANSWER})
    assert ragtrace.flush()
    assert judge.calls == []
    provider.shutdown()


def test_spans_without_any_call_are_logged_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """A user who has switched the evaluation on learns why there are no scores."""
    configure(watched)
    for _ in range(50):
        with watched.tracer.start_as_current_span("llm") as span:
            span.set_attributes({KIND: "LLM", "llm.output_messages.0.message.content": ANSWER})
    assert ragtrace.flush()
    assert ragtrace.flush()
    assert [message[:24] for message in logged(caplog)] == ["50 spans of model calls,"]


def test_texts_are_redacted_before_a_judge_sees_them(watched: Watched) -> None:
    """As those of decorated calls are."""
    judge = configure(watched, redact=ragtrace.Redact(patterns=["Eiffel"]))
    watched.ask()
    assert ragtrace.flush()
    (call,) = judge.calls
    assert not any(
        "Eiffel" in (text or "") for text in (call.query, call.answer, *(c.text for c in call.contexts or ()))
    )
