"""Routes by tag: what goes where, what is refused, and what is counted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags, Tracer

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall, Signals
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.spool import Spool
from ragtrace.runtime.current_runtime import current
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.faults import faults
from ragtrace.tagging.routing.span_routes import RoutedTracer, SpanRoutes
from ragtrace.telemetry.export.routes import Routing
from ragtrace.telemetry.spans.fast import FastTracer
from ragtrace.testing import Captured, FakeJudge
from tests.support.guards import guard
from tests.support.tenants import Backend, Hanging, signals_of
from tests.support.watched import GOOD, WaitingJudge, eventually

QUESTION: Final = "Where is the tower?"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@ragtrace.retrieve(source="places")
def search(question: str) -> list[str]:
    return ["The tower is in Paris."]


@ragtrace.generate(model="tiny")
def generate(question: str, docs: list[str]) -> str:
    return "In Paris."


@ragtrace.trace(name="guide", tags={"tenant": "tenant"})
def ask(question: str, tenant: object) -> str:
    return generate(question, search(question))


WHOLE: Final = ["chat tiny", "invoke_workflow guide", "retrieval places"]


class Backends(dict[str, Backend]):
    """Backends of a route by the values of `tenant`; "default" is that of everything else."""

    def configure(self, **settings: Any) -> Runtime:
        """Configure ragtrace with a route to them."""
        others = signals_of({value: one for value, one in self.items() if value != "default"})
        default = self["default"].signals if "default" in self else None
        settings.setdefault("screen", FakeJudge(GOOD))
        ragtrace.configure(exporter=ragtrace.types.Route("tenant", others, default=default), **settings)
        runtime = current()
        assert runtime is not None
        return runtime

    def flushed(self) -> dict[str, list[str]]:
        """Names of the spans that each has got."""
        assert ragtrace.flush()
        return {value: one.names for value, one in self.items()}


@pytest.fixture
def backends() -> Backends:
    return Backends(acme=Backend(), globex=Backend(), default=Backend())


def routing_of(runtime: Runtime) -> Routing:
    assert runtime.telemetry.routing is not None
    return runtime.telemetry.routing


# --- where calls go ---------------------------------------------------------------------------------------------------


def test_a_call_goes_to_the_exporter_of_its_value_with_spans_scores_and_events(backends: Backends) -> None:
    backends.configure()
    ask(QUESTION, "acme")
    assert backends.flushed() == {"acme": WHOLE, "globex": [], "default": []}
    assert (backends["acme"].root().attributes or {})[semconv.EVAL_STATUS] == "ok"
    assert len(backends["acme"].events) > 0
    assert backends["globex"].events == backends["default"].events == []


@pytest.mark.parametrize("tenant", ["initech", None, 3, ""])
def test_a_call_with_another_value_or_none_goes_to_the_default(tenant: object, backends: Backends) -> None:
    backends.configure()
    ask(QUESTION, tenant)
    assert backends.flushed() == {"acme": [], "globex": [], "default": WHOLE}
    assert len(backends["default"].events) > 0


@pytest.mark.parametrize(("value", "key"), [(True, True), (True, "true"), (7, 7), (7, "7"), (0.5, 0.5)])
def test_values_that_are_no_texts_are_told_by_their_text(value: object, key: Any) -> None:
    backend = Backend()
    ragtrace.configure(exporter=ragtrace.types.Route("tenant", {key: backend.signals}), screen=FakeJudge(GOOD))
    ask(QUESTION, value)
    assert ragtrace.flush()
    assert backend.names == WHOLE


@pytest.mark.parametrize("way", ["block", "call", "baggage"])
def test_the_value_may_come_by_every_way_that_is_known_when_the_call_begins(way: str, backends: Backends) -> None:
    from opentelemetry import baggage, context

    backends.configure(tags=ragtrace.types.Tags(baggage=["tenant"]))
    if way == "block":
        with ragtrace.tags(tenant="globex"), ragtrace.call(QUESTION) as call:
            call.answered("In Paris.")
    elif way == "call":
        with ragtrace.call(QUESTION, tags={"tenant": "globex"}) as call:
            call.answered("In Paris.")
    else:
        token = context.attach(baggage.set_baggage("tenant", "globex"))
        with ragtrace.call(QUESTION) as call:
            call.answered("In Paris.")
        context.detach(token)
    assert {value: len(names) for value, names in backends.flushed().items()} == {"acme": 0, "globex": 1, "default": 0}


def test_a_tag_that_is_set_later_does_not_change_the_route_and_that_is_said_once(
    backends: Backends, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans have gone to the first exporter by then; the events follow them."""
    backends.configure()
    for _ in range(2):
        with ragtrace.call(QUESTION, tags={"tenant": "acme"}) as call:
            call.tag("tenant", "globex")
            call.answered("In Paris.")
    assert {value: len(names) for value, names in backends.flushed().items()} == {"acme": 2, "globex": 0, "default": 0}
    assert backends["globex"].events == []
    assert len([each for each in caplog.messages if each.startswith("the tag 'tenant' was set or changed")]) == 1


def test_a_tag_of_a_step_inside_is_too_late_as_well(backends: Backends, caplog: pytest.LogCaptureFixture) -> None:
    @ragtrace.generate(tags={"tenant": "tenant"})
    def answer(question: str, tenant: str) -> str:
        return "In Paris."

    backends.configure()
    with ragtrace.call(QUESTION):
        answer(QUESTION, "acme")
    assert {value: len(names) for value, names in backends.flushed().items()} == {"acme": 0, "globex": 0, "default": 2}
    assert [each[:34] for each in caplog.messages] == ["the tag 'tenant' was set or change"]


@pytest.mark.parametrize("action", ["shadow", "annotate"])
def test_a_guarded_call_goes_by_its_value_with_its_verdict(action: str, backends: Backends) -> None:
    @ragtrace.trace(name="guide", tags={"tenant": "tenant"}, guard=guard(action))
    def guarded(question: str, tenant: str) -> str:
        return generate(question, search(question))

    backends.configure()
    guarded(QUESTION, "acme")
    assert backends.flushed() == {"acme": WHOLE, "globex": [], "default": []}
    assert semconv.EVENT_GUARD in {event.log_record.event_name for event in backends["acme"].events}
    assert backends["globex"].events == backends["default"].events == []


def test_contents_on_events_go_with_the_call(backends: Backends) -> None:
    """They are emitted while the spans end."""
    backends.configure(capture_content="EVENT_ONLY")
    ask(QUESTION, "acme")
    backends.flushed()
    names = [event.log_record.event_name for event in backends["acme"].events]
    assert names.count(semconv.EVENT_STEP_DETAILS) == 2
    assert names.count(semconv.EVENT_DETAILS) == 1
    assert backends["globex"].events == backends["default"].events == []


def test_spans_that_the_sdk_makes_go_the_same_way(backends: Backends) -> None:
    """Where another library has added a processor to ragtrace's own provider, which became the process's."""
    runtime = backends.configure()
    provider: Any = runtime.telemetry.flushes[0]
    provider.__self__.add_span_processor(SimpleSpanProcessor(everything := InMemorySpanExporter()))
    with ragtrace.tags(tenant="acme"):
        search(QUESTION)
    ask(QUESTION, "acme")
    ask(QUESTION, "globex")
    found = backends.flushed()
    assert found == {"acme": sorted([*WHOLE, "retrieval places"]), "globex": WHOLE, "default": []}
    assert len(everything.get_finished_spans()) == 7


def test_a_tag_that_stays_as_it_was_is_nothing_to_tell_of(backends: Backends, caplog: pytest.LogCaptureFixture) -> None:
    backends.configure()
    with ragtrace.call(QUESTION, tags={"tenant": "acme"}) as call:
        call.tag("tenant", "acme")
        call.tag("arm", "b")
    assert backends.flushed()["acme"] != []
    assert caplog.messages == []


def test_the_value_is_that_before_redaction_and_leaves_no_trace(backends: Backends) -> None:
    """What is redacted is not on the spans, and the route tells only that the tenant has an exporter."""
    backends.configure(redact=ragtrace.Redact(patterns=["acme"]))
    ask(QUESTION, "acme")
    assert backends.flushed() == {"acme": WHOLE, "globex": [], "default": []}
    assert not any("acme" in span.to_json() for span in backends["acme"].spans)


def test_a_retrieval_outside_any_call_goes_by_the_tags_around_it(backends: Backends) -> None:
    """As does the generation that uses it, which has contexts then."""
    judge = FakeJudge(GOOD)
    backends.configure(screen=judge)
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("app").start_as_current_span("request"), ragtrace.tags(tenant="acme"):
        generate(QUESTION, search(QUESTION))
    assert backends.flushed() == {"acme": ["chat tiny", "retrieval places"], "globex": [], "default": []}


def test_a_generation_has_no_documents_of_another_tenants_retrieval() -> None:
    """Both are below one span of a batch: the scores would show what was found for another."""
    judge, backends = FakeJudge(GOOD), Backends(acme=Backend(), globex=Backend())
    backends.configure(screen=judge)
    provider = TracerProvider(shutdown_on_exit=False)

    @ragtrace.generate(model="tiny")
    def answer(question: str) -> str:
        return "In Paris."

    with provider.get_tracer("app").start_as_current_span("batch"):
        with ragtrace.tags(tenant="acme"):
            search(QUESTION)
        with ragtrace.tags(tenant="globex"):
            answer(QUESTION)
    assert backends.flushed() == {"acme": ["retrieval places"], "globex": ["chat tiny"]}
    assert [call.contexts for call in judge.calls] == [None]


# --- spans of other instrumentations, in ragtrace's own provider ------------------------------------------------------


@pytest.fixture
def library(backends: Backends) -> Tracer:
    """A tracer whose spans go where those of ragtrace's own provider go, as with `set_global`."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(routing_of(backends.configure()).span_processor)
    return provider.get_tracer("http")


def test_spans_inside_a_call_go_with_it_and_those_beside_it_to_the_default(backends: Backends, library: Tracer) -> None:
    with library.start_as_current_span("batch"):
        with library.start_as_current_span("before"):
            pass
        with ragtrace.call(QUESTION, name="guide", tags={"tenant": "acme"}):
            with library.start_as_current_span("inside"), library.start_as_current_span("deeper"):
                search(QUESTION)
            with ragtrace.tags(tenant="globex"), library.start_as_current_span("still inside"):
                pass
        with library.start_as_current_span("after"):
            pass
        ask(QUESTION, "globex")
    acme = ["deeper", "inside", "invoke_workflow guide", "retrieval places", "still inside"]
    assert backends.flushed() == {"acme": acme, "globex": WHOLE, "default": ["after", "batch", "before"]}


def test_a_span_above_calls_of_one_tenant_goes_with_them(backends: Backends, library: Tracer) -> None:
    with library.start_as_current_span("POST /ask"), library.start_as_current_span("handler"):
        ask(QUESTION, "acme")
        ask(QUESTION, "acme")
    assert backends.flushed()["acme"] == sorted([*WHOLE, *WHOLE, "POST /ask", "handler"])
    assert backends["default"].names == []


@pytest.mark.parametrize("other", ["globex", None])
def test_a_span_above_calls_of_several_goes_to_the_default(
    other: str | None, backends: Backends, library: Tracer
) -> None:
    """Also where the second call has no tenant."""
    with library.start_as_current_span("batch"):
        with library.start_as_current_span("part"):
            ask(QUESTION, "acme")
        ask(QUESTION, other)
    found = backends.flushed()
    assert found["acme"] == sorted([*WHOLE, "part"])
    assert "batch" in found["default"]


def test_a_call_that_begins_below_a_span_that_has_ended_makes_those_above_it_mixed(
    backends: Backends, library: Tracer
) -> None:
    """A task outlives its request: the chain of parents is broken, and the trace is known."""
    batch = library.start_span("batch")
    above = trace.set_span_in_context(batch, Context())
    with trace.use_span(batch):
        ask(QUESTION, "acme")
    part = library.start_span("part", context=above)
    part.end()
    with trace.use_span(part):
        ask(QUESTION, "globex")
    batch.end()
    assert backends.flushed() == {"acme": WHOLE, "globex": WHOLE, "default": ["batch", "part"]}


def test_a_span_that_begins_after_the_call_has_ended_is_nobodys(backends: Backends, library: Tracer) -> None:
    context: Context | None = None
    with ragtrace.call(QUESTION, name="guide", tags={"tenant": "acme"}):
        from opentelemetry.context import get_current

        context = get_current()
    assert ragtrace.flush()
    library.start_span("late", context=context).end()
    assert backends.flushed() == {"acme": ["invoke_workflow guide"], "globex": [], "default": ["late"]}


def test_spans_that_never_end_are_forgotten_in_the_end_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes to the default exporter, should it end after all; the roots of calls are known for longer."""
    monkeypatch.setattr("ragtrace.tagging.routing.span_routes._MOST_OPEN", 10)
    backends = Backends(acme=Backend(), default=Backend())
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(routing_of(backends.configure()).span_processor)
    tracer = provider.get_tracer("http")
    with ragtrace.call(QUESTION, tags={"tenant": "acme"}):
        spans = [tracer.start_span(f"s{number}") for number in range(15)]
        for span in spans:
            span.end()
    found = backends.flushed()
    assert found["default"] == [f"s{number}" for number in range(5)]
    assert found["acme"] == sorted(["invoke_workflow call", *(f"s{number}" for number in range(5, 15))])
    assert ragtrace.stats().faults["routes of spans forgotten"] == 6


# --- without a default ------------------------------------------------------------------------------------------------


def test_without_a_default_what_has_no_route_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    backends = Backends(acme=Backend())
    backends.configure()
    ask(QUESTION, "acme")
    ask(QUESTION, "globex")
    ask(QUESTION, None)
    assert backends.flushed() == {"acme": WHOLE}
    counts = ragtrace.stats().faults
    assert counts["spans without a route"] == 6
    assert counts["events without a route"] == 2 * len(backends["acme"].events)
    assert len([each for each in caplog.messages if "Route(default=) is None" in each]) == 2


def test_without_a_default_scores_that_no_backend_gets_are_counted() -> None:
    backends = Backends(acme=Backend(posts=True))
    backends.configure()
    ask(QUESTION, "acme")
    ask(QUESTION, None)
    backends.flushed()
    posted = ragtrace.stats().sinks["api of acme"].posted
    assert ragtrace.stats().faults["scores without a route"] == posted > 0


def test_metrics_go_to_the_default_alone() -> None:
    captured, backends = Captured(), Backends(acme=Backend())
    route = ragtrace.types.Route("tenant", signals_of(backends), default=captured.signals)
    ragtrace.configure(exporter=route, screen=FakeJudge(GOOD))
    ask(QUESTION, "acme")
    assert backends.flushed() == {"acme": WHOLE}
    assert captured.spans == ()
    assert "ragtrace.eval.score" in captured.metrics()


# --- scores -----------------------------------------------------------------------------------------------------------


def test_scores_are_posted_to_the_backend_of_their_call_and_counted_there() -> None:
    backends = Backends(acme=Backend(posts=True), globex=Backend(posts=True), default=Backend(posts=True))
    backends.configure()
    for tenant, times in (("acme", 1), ("globex", 2), ("initech", 3)):
        for _ in range(times):
            ask(QUESTION, tenant)
    backends.flushed()
    for backend in backends.values():
        assert backend.sink is not None
        roots = {root.context.trace_id for root in backend.roots() if root.context}
        assert {score.trace_id for score in backend.sink.taken} == roots != set()
    posted = {name: counts.posted for name, counts in ragtrace.stats().sinks.items()}
    one = posted["api of acme"]
    assert posted == {"api of acme": one, "api of globex": 2 * one, "api of default": 3 * one}


def test_feedback_goes_where_the_call_went_or_to_the_default_where_that_is_not_known(backends: Backends) -> None:
    backends.configure()
    with ragtrace.call(QUESTION, tags={"tenant": "acme"}):
        token = ragtrace.call_id()
    backends.flushed()
    for backend in backends.values():
        backend.clear()
    ragtrace.feedback(True, call=token)
    ragtrace.feedback(True, call=f"00-{7:032x}-{7:016x}-01")
    backends.flushed()
    assert [len(backend.events) for backend in backends.values()] == [1, 0, 1]
    assert backends["acme"].events[0].log_record.trace_id != 7


def test_a_carrier_goes_where_the_call_went(backends: Backends) -> None:
    """The root span has left without the scores, as its time was over."""
    judge = WaitingJudge(GOOD)
    backends.configure(
        screen=None,
        judge=judge,
        sampling=ragtrace.Sampling(rate=1.0),
        limits=ragtrace.Limits(hold_seconds=0.01),
    )
    ask(QUESTION, "acme")
    assert eventually(lambda: WHOLE[1] in flushed_spans(backends["acme"]))
    judge.open()
    found = backends.flushed()
    assert found == {"acme": sorted([*WHOLE, "evaluate guide"]), "globex": [], "default": []}


def flushed_spans(backend: Backend) -> list[str]:
    runtime = current()
    assert runtime is not None
    runtime.telemetry.flush(0.1, release_held=False)
    return backend.names


def test_a_backend_with_a_score_api_gets_no_carriers() -> None:
    judge, backends = WaitingJudge(GOOD), Backends(acme=Backend(posts=True), globex=Backend())
    backends.configure(
        screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0), limits=ragtrace.Limits(hold_seconds=0.01)
    )
    ask(QUESTION, "acme")
    ask(QUESTION, "globex")
    assert eventually(lambda: all(WHOLE[1] in flushed_spans(one) for one in backends.values()))
    judge.open()
    assert backends.flushed() == {"acme": WHOLE, "globex": sorted([*WHOLE, "evaluate guide"])}


# --- calls that another process has recorded --------------------------------------------------------------------------


def kept(route: str, evaluator: str, **tags: Any) -> UnscoredCall:
    span = SpanContext(11, 12, True, TraceFlags(1))
    return UnscoredCall(RagCall(QUESTION, (), "In Paris.", span=span, tags=tags, route=route), (evaluator,), None, 1.0)


@pytest.mark.parametrize(
    ("route", "goes_to"),
    [
        ("tenant=acme", "acme"),
        ("tenant=", "default"),
        ("tenant=initech", "default"),
        ("region=globex", "default"),
        ("", "default"),
    ],
)
def test_a_call_of_another_process_goes_by_the_route_that_it_had_there(
    route: str, goes_to: str, backends: Backends, tmp_path: Path
) -> None:
    """Not by its tags, which may have been set later; without a route there, it is nobody's."""
    path = str(tmp_path / "spool")
    spool = Spool(path)
    spool.prepare("spool=")
    assert spool.add([kept(route, "fake", tenant="globex")]) == [True]
    backends.configure(limits=ragtrace.Limits(spool=path))
    found = backends.flushed()
    assert {value: names for value, names in found.items() if names} == {goes_to: ["evaluate"]}
    assert [value for value, backend in backends.items() if backend.events] == [goes_to]


def test_the_route_travels_with_the_call(backends: Backends) -> None:
    judge = FakeJudge(GOOD)
    backends.configure(screen=judge)
    ask(QUESTION, "acme")
    ask("Where is the bridge?", "initech")
    backends.flushed()
    assert [call.route for call in judge.calls] == ["tenant=acme", "tenant="]


# --- what each exporter is to itself ----------------------------------------------------------------------------------


def test_attributes_that_an_exporter_adds_to_the_resource_are_seen_by_no_other() -> None:
    """Such as the name of a project."""
    acme = Backend(resource={"project": "acme's"}, service_attribute="project.service")
    backends = Backends(acme=acme, globex=Backend(), default=Backend(resource={"project": "ours"}))
    backends.configure(service="support-bot")
    for tenant in ("acme", "globex", "initech"):
        ask(QUESTION, tenant)
    backends.flushed()
    for name, project in (("acme", "acme's"), ("globex", None), ("default", "ours")):
        for item in (*backends[name].spans, *backends[name].events):
            assert item.resource.attributes.get("project") == project
            assert item.resource.attributes["service.name"] == "support-bot"
    assert {span.resource.attributes.get("project.service") for span in acme.spans} == {"support-bot"}


@pytest.mark.parametrize("immediate", [False, True])
def test_a_backend_that_hangs_delays_neither_flush_nor_shutdown_of_the_others(immediate: bool) -> None:
    """Both last as long as they were given, and the others have got everything; none is asked on a common thread."""
    hanging, acme = Hanging(), Backend()
    hangs = Signals(spans=hanging, immediate=immediate)
    route = ragtrace.types.Route("tenant", {"acme": acme.signals, "hangs": hangs})
    ragtrace.configure(exporter=route, screen=FakeJudge(GOOD))
    ask(QUESTION, "hangs")
    assert not ragtrace.flush(0.5)
    assert hanging.entered.is_set()
    ask(QUESTION, "acme")
    assert not ragtrace.flush(0.5)
    assert acme.names == WHOLE
    ask(QUESTION, "acme")
    assert not ragtrace.shutdown(1.0)
    assert len(acme.spans) == 6
    counts = ragtrace.stats().faults
    assert {name: n for name, n in counts.items() if "lost" in name} == {
        "lost spans of hangs: not exported before the end": 3
    }
    hanging.gate.set()


def test_what_does_not_fit_into_a_queue_is_lost_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for room: the calls of the others would wait, too."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    hanging, acme = Hanging(), Backend()
    route = ragtrace.types.Route("tenant", {"acme": acme.signals, "hangs": hanging})
    ragtrace.configure(exporter=route, screen=FakeJudge(GOOD))
    for _ in range(20):
        ask(QUESTION, "hangs")
    ask(QUESTION, "acme")
    assert eventually(lambda: flushed_spans(acme) == WHOLE)
    runtime = current()
    assert runtime is not None
    assert routing_of(runtime).exporters["spans of hangs"].queue.remaining_capacity() == 0
    assert runtime.telemetry.remaining_capacity(0) > 0
    ragtrace.shutdown(0.5)
    counts = {name: n for name, n in ragtrace.stats().faults.items() if "lost" in name}
    assert sum(counts.values()) == 60
    assert counts["lost spans of hangs: queue full"] > 0
    hanging.gate.set()


def test_the_doctor_shows_where_each_value_goes() -> None:
    backends = Backends(acme=Backend())
    runtime = backends.configure()
    [status] = [each for each in runtime.parts.statuses() if each.title == "Exporters by tenant"]
    assert status.rows == (
        ("acme", "Signals of InMemorySpanExporter, InMemoryLogRecordExporter", "0 waiting", "0 lost"),
        ("default", "none: dropped and counted", "", ""),
    )
    assert "Exporters by tenant" in str(ragtrace.doctor())


# --- what is refused --------------------------------------------------------------------------------------------------

ONE: Final = InMemorySpanExporter()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1tenant", {"acme": "none"}), "the name of a tag"),
        (("tenant", {}), "must be a mapping of the values of 'tenant' to exporters, got none"),
        (("tenant", ["acme"]), "must be a mapping of the values of 'tenant' to exporters, got list"),
        (("tenant", {None: "none"}), "has NoneType as a value"),
        (("tenant", {"": "none"}), "has str as a value"),
        (("tenant", {1: "none", "1": "none"}), "has '1' twice"),
        (("tenant", {"acme": None}), r"got NoneType \(of 'acme'\)"),
        (("tenant", {"acme": object()}), r"got object \(of 'acme'\)"),
        (("tenant", {"acme": Signals(metrics=Captured().signals.metrics)}), "has metrics for 'acme'; metrics are sums"),
        (("tenant", {"acme": ONE, "globex": Signals(spans=ONE)}), "one InMemorySpanExporter in two places"),
        (("tenant", {"acme": ONE}, ONE), "one InMemorySpanExporter in two places"),
        (("tenant", {"acme": "none"}, 7), r"got int \(default=\)"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ragtrace.types.Route(*arguments)


@pytest.mark.parametrize("where", ["acme", "default"])
def test_an_unknown_name_is_refused_by_configure_which_changes_nothing(where: str) -> None:
    acme = Backend()
    names: Mapping[str, Any] = {"acme": "otlpp"} if where == "acme" else {"acme": acme.signals}
    if where == "acme":
        names = {"globex": acme.signals, **names}
    before = current()
    with pytest.raises(SettingsError, match=r"no exporter named 'otlpp'.*otlp"):
        ragtrace.configure(
            exporter=ragtrace.types.Route("tenant", names, default="otlpp" if where == "default" else None)
        )
    assert current() is before
    ragtrace.configure(exporter=ragtrace.types.Route("tenant", {"acme": acme.signals}), screen=FakeJudge(GOOD))
    ask(QUESTION, "acme")
    assert ragtrace.flush()
    assert acme.names == WHOLE


def test_a_provider_that_would_see_the_events_of_all_is_refused() -> None:
    from opentelemetry.sdk._logs import LoggerProvider

    provider = LoggerProvider(shutdown_on_exit=False)
    with pytest.raises(SettingsError, match="the provider would get the events of all"):
        ragtrace.configure(
            exporter=ragtrace.types.Route("tenant", {"acme": InMemorySpanExporter()}),
            telemetry=ragtrace.TelemetryOptions(logger_provider=provider),
        )


def test_an_exporter_that_was_made_by_name_goes_without_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sums over all calls; and the same configuration again changes nothing."""
    route = ragtrace.types.Route("tenant", {"acme": "none"}, default="none")
    ragtrace.configure(exporter=route, screen=FakeJudge(GOOD))
    ask(QUESTION, "acme")
    assert ragtrace.flush()
    assert ragtrace.stats().faults == {}


def test_a_later_configuration_may_have_the_same_exporters(backends: Backends) -> None:
    """They stay open."""
    backends.configure()
    ask(QUESTION, "acme")
    backends.configure(service="another")
    ask(QUESTION, "acme")
    assert backends.flushed() == {"acme": sorted([*WHOLE, *WHOLE]), "globex": [], "default": []}


def test_without_a_route_nothing_of_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    """No router, no tracer of its own, no route on calls."""
    caplog.set_level(logging.DEBUG)
    judge = FakeJudge(GOOD)
    ragtrace.configure(exporter=InMemorySpanExporter(), screen=judge)
    runtime = current()
    assert runtime is not None
    assert (runtime.router, runtime.looks_around, runtime.telemetry.routing) == (None, False, None)
    assert type(runtime.telemetry.fast) is FastTracer
    ask(QUESTION, "acme")
    assert ragtrace.flush()
    assert [call.route for call in judge.calls] == [""]


def test_with_a_route_the_spans_are_light_still(backends: Backends) -> None:
    assert type(backends.configure().telemetry.fast) is RoutedTracer
    assert isinstance(backends.configure().router, SpanRoutes)


def test_events_of_calls_that_the_head_sampler_drops_go_to_their_tenant(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    backends.configure(sampling=ragtrace.Sampling(score_head_dropped=True))
    ask(QUESTION, "acme")
    assert backends.flushed() == {"acme": [], "globex": [], "default": []}
    assert [value for value, backend in backends.items() if backend.events] == ["acme"]
