"""Light spans follow parents, samplers, id generators and limits just as the SDK's spans do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from ragtrace.telemetry.spans.fast import FastTracer
from ragtrace.telemetry.spans.span_providers import OwnTracerProvider, user_provider
from tests.support.spans import LINKED, WAYS, Shape, annotated, both, identity, inside, record, remote, shapes
from tests.support.watched import ask


@pytest.fixture(autouse=True)
def _one_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has one id, but here are two providers."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=1,team=search")


# --- parents and samplers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 0xFD, 0xFF])
@pytest.mark.parametrize("state", ["", "s"])
def test_a_remote_parent_is_followed_alike(flags: int, state: str) -> None:
    """Sampled or not, with unknown bits among its flags, with trace state and without."""

    def application() -> None:
        with inside(remote(flags=flags, state=state)):
            ask("why?")

    spans = both(application)
    assert len(spans) == (3 if flags & 1 else 0)


SAMPLERS: Final = ("always_on", "always_off", "parentbased_always_on", "parentbased_always_off")


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("flags", [None, 0, 1])
def test_samplers_of_the_environment_are_followed_alike(
    sampler: str, flags: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a root, below a remote parent that was sampled, and below one that was not."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)

    def application() -> None:
        with inside(Context() if flags is None else remote(flags=flags, state="s")):
            ask("why?")

    both(application)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_span_inside_a_dropped_one_sees_the_same_context(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the application would send to the next service does not depend on how spans are made."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    seen: list[tuple[Shape | None, bool]] = []

    def note(span: Span) -> None:
        seen.append((identity(span.get_span_context()), span.is_recording()))

    for way in WAYS:
        record(way, annotated(note))
        with inside(remote(flags=0, state="s")):
            record(way, annotated(note))
    assert seen[:2] == seen[2:4] == seen[4:]


class ByName(Sampler):
    """Looks at everything it is told, drops by name, and adds an attribute and trace state."""

    def __init__(self) -> None:
        self.told: list[tuple[str, SpanKind | None, dict[str, Any]]] = []

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        self.told.append((name, kind, dict(attributes or {})))
        decision = Decision.DROP if name == "dropped" else Decision.RECORD_AND_SAMPLE
        if name == "recorded":
            decision = Decision.RECORD_ONLY
        return SamplingResult(decision, {**(attributes or {}), "sampler": "yes"}, TraceState([("by", "name")]))

    def get_description(self) -> str:
        return "ByName"


class Counting(IdGenerator):
    """1, 2, 3: a generator as a user would plug in."""

    def __init__(self) -> None:
        self.last = 0

    def generate_span_id(self) -> int:
        self.last += 1
        return self.last

    def generate_trace_id(self) -> int:
        self.last += 1
        return self.last

    def is_trace_id_random(self) -> bool:
        return False


class Ended(SpanProcessor):
    """Keeps what has ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


Start: TypeAlias = Callable[[str, Context], Span]


def starters(sampler: Sampler, ids: Callable[[], IdGenerator] | None = None) -> list[tuple[Start, Ended, Sampler]]:
    """For each way a function that starts a span, what has ended, and the provider's sampler."""
    made: list[tuple[Start, Ended, Sampler]] = []
    for way in WAYS:
        ended = Ended()
        provider = OwnTracerProvider(Resource({"a": "b"}))
        provider.sampler = type(sampler)() if isinstance(sampler, ByName) else sampler
        provider.id_generator = provider.id_generator if ids is None else ids()
        provider.add_own_processor(ended)
        start = {"light": _light_start, "borrowed": _borrowed_start, "sdk": _sdk_start}[way](provider, ended)
        made.append((start, ended, provider.sampler))
    return made


def _light_start(provider: OwnTracerProvider, ended: Ended) -> Start:
    light = FastTracer(provider, ended, "1")
    return lambda name, context: light.start_span(context, SpanKind.CLIENT, lambda: (name, {"known": "early"}))


def _borrowed_start(provider: OwnTracerProvider, _: Ended) -> Start:
    seen = user_provider(provider.get_tracer("ragtrace", "1"))
    assert seen is not None
    assert seen.sees_ends_only
    light = FastTracer(seen, seen.processor, "1")
    return lambda name, context: light.start_span(context, SpanKind.CLIENT, lambda: (name, {"known": "early"}))


def _sdk_start(provider: OwnTracerProvider, _: Ended) -> Start:
    sdk = provider.get_tracer("ragtrace", "1")
    return lambda name, context: sdk.start_span(
        name, context=context, kind=SpanKind.CLIENT, attributes={"known": "early"}
    )


NAMES: Final = ("kept", "dropped", "recorded")


def test_a_custom_sampler_is_asked_and_heard_alike() -> None:
    """It sees names and attributes; its decision, attributes and trace state count, for roots and for children."""
    results: list[Any] = []
    for start, ended, sampler in starters(ByName()):
        contexts: list[Shape | None] = []
        for name in NAMES:
            outer = start(name, Context())
            inner = start(f"below {name}", set_span_in_context(outer))
            contexts += [identity(outer.get_span_context()), identity(inner.get_span_context())]
            inner.end()
            outer.end()
        assert isinstance(sampler, ByName)
        results.append((contexts, sampler.told, shapes(ended.spans)))
    assert results[0] == results[1] == results[2]
    assert dict(results[0][2][0]["attributes"]) == {"known": "early", "sampler": "yes"}


def test_a_custom_sampler_sees_the_real_name_and_the_model() -> None:
    """Also where arguments are otherwise read later."""
    told: list[Any] = []
    for start, _, sampler in starters(ByName()):
        start("chat m", Context())
        assert isinstance(sampler, ByName)
        told.append(sampler.told)
    assert told[0] == told[1] == [("chat m", SpanKind.CLIENT, {"known": "early"})]


@pytest.mark.parametrize(
    "sampler",
    [
        ALWAYS_ON,
        ALWAYS_OFF,
        DEFAULT_ON,
        DEFAULT_OFF,
        TraceIdRatioBased(0.5),
        ParentBasedTraceIdRatio(0.5),
        ParentBased(ALWAYS_ON, remote_parent_not_sampled=ALWAYS_ON),
        ParentBased(ALWAYS_ON, local_parent_sampled=ALWAYS_OFF),
        ParentBased(ALWAYS_ON, local_parent_not_sampled=ALWAYS_ON),
        ParentBased(DEFAULT_ON, remote_parent_sampled=ALWAYS_OFF),
    ],
    ids=lambda sampler: sampler.get_description()[:80],
)
def test_samplers_decide_alike_about_the_same_traces(sampler: Sampler) -> None:
    """For roots, and for children of local and remote parents of either kind, with the same ids."""
    results: list[list[Any]] = []
    for start, ended, _ in starters(sampler, Halves):
        identities: list[Any] = []
        for is_remote in (False, True):
            for flags in (0, 1, 3):
                for trace_id in (1, 1 << 63):
                    parent = SpanContext(trace_id, 5, is_remote, TraceFlags(flags), TraceState([("v", "s")]))
                    span = start("child", set_span_in_context(NonRecordingSpan(parent)))
                    identities.append((identity(span.get_span_context()), span.is_recording()))
                    span.end()
        roots = [start("root", Context()) for _ in range(4)]
        identities += [(identity(span.get_span_context()), span.is_recording()) for span in roots]
        results.append([identities, shapes(ended.spans)])
    assert results[0] == results[1] == results[2]


class Halves(Counting):
    """Trace ids of which a ratio of one half keeps every other."""

    def generate_trace_id(self) -> int:
        self.last += 1
        return self.last % 2 << 63 | self.last


@pytest.mark.newest
def test_a_sampler_that_records_everything_is_asked_alike() -> None:
    """It describes itself with the words of the one it wraps, but records what that one drops."""
    from opentelemetry.sdk.trace.sampling import AlwaysRecordSampler

    results: list[Any] = []
    for start, ended, _ in starters(AlwaysRecordSampler(DEFAULT_ON)):
        parent = SpanContext(1, 5, False, TraceFlags(0))
        start("child", set_span_in_context(NonRecordingSpan(parent))).end()
        results.append(shapes(ended.spans))
    assert results[0] == results[1] == results[2]
    assert [span["name"] for span in results[0]] == ["child"]


def test_a_custom_id_generator_is_used() -> None:
    """For traces and for spans, in the same order, and its word on the randomness of trace ids counts."""
    results: list[Any] = []
    for start, _, _ in starters(DEFAULT_ON, Counting):
        root = start("root", Context())
        child = start("child", set_span_in_context(root))
        contexts = [span.get_span_context() for span in (root, child)]
        results.append([(context.trace_id, context.span_id, int(context.trace_flags)) for context in contexts])
    assert results[0] == results[1] == results[2] == [(1, 2, 1), (1, 3, 1)]


# --- limits ----------------------------------------------------------------------------------------------------------


def _much(span: Span) -> None:
    span.set_attribute("a", "x" * 50)
    span.set_attributes({"b": ["y" * 50, "z"], "c": 1, "d": 2, "e": 3})
    for number in range(4):
        span.add_event(f"event {number}", {"long": "x" * 50, "more": 1, "most": 2})
        span.add_link(LINKED, {"long": "x" * 50, "more": number, "most": 2})


LIMITS: Final = (
    {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "3"},
    {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "6"},
    {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0"},
    {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "4"},
    {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "4"},
    {"OTEL_ATTRIBUTE_COUNT_LIMIT": "2"},
    {"OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "1"},
    {"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "1"},
    {"OTEL_SPAN_EVENT_COUNT_LIMIT": "2", "OTEL_SPAN_LINK_COUNT_LIMIT": "1"},
)


@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: " ".join(f"{k[5:]}={v}" for k, v in limits.items()))
def test_limits_of_the_environment_are_kept_alike(limits: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attributes, events and links stay, cut to the same length, and the same number is counted as dropped."""
    for name, value in limits.items():
        monkeypatch.setenv(name, value)
    both(annotated(_much))


def test_a_length_limit_cuts_what_ragtrace_writes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Content is an attribute like any other, and JSON stays JSON."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "58")
    spans = both(lambda: ask("why?"))
    texts = [value for span in spans for key, value in span["attributes"] if key.startswith("gen_ai.input")]
    assert texts == ['[{"role":"user","parts":[{"type":"text","content":"wh"}]}]'] * 2
