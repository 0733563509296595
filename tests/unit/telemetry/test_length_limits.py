"""The JSON that ragtrace writes on spans stays JSON under OpenTelemetry's length limits, and says what it lacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.limited_json import shorten_json
from ragtrace.span_reading.finished_span import from_sdk_span
from ragtrace.span_reading.readers import read_span
from ragtrace.testing import FakeJudge
from tests.support.examples import examples
from tests.support.watched import HALF, watch

TEXTS = ["The tower is 330 metres tall.", 'It opened in "1889".\n', "Élan — " * 9]
DIALECTS = ["otel", "openinference", "langfuse"]
WRITTEN = (
    semconv.RETRIEVAL_DOCUMENTS, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.CONTEXTS,
    semconv.TOOL_ARGUMENTS, semconv.TOOL_RESULT, semconv.EVAL_UNSUPPORTED,
)  # fmt: skip


@ragtrace.retrieve
def search(query: str) -> list[dict[str, Any]]:
    return [{"id": f"d{at}", "text": text, "score": 1 / (at + 1)} for at, text in enumerate(TEXTS)]


@ragtrace.tool
def look_up(query: str) -> list[str]:
    return TEXTS


@ragtrace.trace(name="guide")
def ask(question: str) -> str:
    search(question)
    look_up(question)
    return " ".join(TEXTS) * 3


def spans_of(limit: int | None, monkeypatch: pytest.MonkeyPatch, is_own: bool) -> Sequence[ReadableSpan]:
    """The spans of a call under a limit, by ragtrace's own provider or by one of the application."""
    if is_own:
        if limit is not None:
            monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", str(limit))
        captured = watch(screen=FakeJudge(HALF), telemetry=ragtrace.TelemetryOptions(dialects=DIALECTS))
        ask("How tall is the tower?")
        assert ragtrace.flush()
        return captured.spans
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(max_span_attribute_length=limit))
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter)))
    telemetry = ragtrace.TelemetryOptions(tracer_provider=provider, dialects=DIALECTS)
    ragtrace.configure(screen=FakeJudge(HALF), telemetry=telemetry)
    ask("How tall is the tower?")
    assert ragtrace.flush()
    return exporter.get_finished_spans()


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("limit", [1, 9, 64, 120, 200, 400, 4_000, None])
def test_json_on_spans_is_json_under_any_limit(
    limit: int | None, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of messages, documents, arguments, results and unsupported claims; what is left out is counted."""
    seen: set[str] = set()
    for span in spans_of(limit, monkeypatch, is_own):
        attributes = dict(span.attributes or {})
        limited = attributes.get(semconv.LIMITED_CHARS)
        for name in set(WRITTEN) & set(attributes):
            text = str(attributes[name])
            seen.add(name)
            if limit is not None and limit < 2:
                continue  # no JSON is so short
            assert isinstance(json.loads(text), (list, dict)), name
            is_score = name == semconv.EVAL_UNSUPPORTED  # no limit applies to the scores of a span that is held
            assert limit is None or is_score or len(text) <= limit
        assert limited is None or (limit is not None and isinstance(limited, int) and limited > 0)
        if limit is not None and limit >= 4_000:
            assert limited is None
        if limit == 120 and semconv.RETRIEVAL_DOCUMENTS in attributes:
            assert limited == sum(map(len, TEXTS)) - sum(
                len(each["content"]) for each in json.loads(str(attributes[semconv.RETRIEVAL_DOCUMENTS]))
            )
    assert {semconv.RETRIEVAL_DOCUMENTS, semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.TOOL_RESULT} <= seen


def test_shortened_texts_are_read_as_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever reads the spans of ragtrace, as texts that break off are."""
    for limit, is_cut in ((150, True), (None, False)):
        for span in spans_of(limit, monkeypatch, is_own=False):
            finished = from_sdk_span(span)
            assert finished is not None
            found = read_span(finished)
            if semconv.RETRIEVAL_DOCUMENTS in finished.attributes:
                assert found is not None
                assert found.is_cut is is_cut


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["content", "id", "x"]), inner),
    max_leaves=15,
)


@settings(max_examples=examples(500))
@given(st.lists(JSON) | st.dictionaries(st.text(max_size=3), JSON), st.integers(0, 300))
def test_any_json_is_shortened_to_json(value: Any, limit: int) -> None:
    """No longer than the limit, with the same beginning, and as it is if it fits."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    found = shorten_json(text, limit)
    if limit < 2:
        assert found is None
        return
    assert found is not None
    shortened, left_out = found
    assert len(shortened) <= limit
    assert type(json.loads(shortened)) is type(value)
    if len(text) <= limit:
        assert (json.loads(shortened), left_out) == (value, 0)
    if isinstance(value, list):
        assert len(json.loads(shortened)) <= len(value)


def test_text_that_is_no_json_is_left_to_the_sdk() -> None:
    """A question may begin like JSON."""
    assert shorten_json("[urgent] where is it?" * 9, 20) is None
    assert shorten_json("{" * 99_999, 20) is None


def test_a_million_characters_are_shortened_at_once() -> None:
    """Texts that are too long are not written to find the length that fits."""
    documents = [{"id": str(at), "content": "x" * 20_000} for at in range(1_000)]
    shortened, left_out = shorten_json(json.dumps(documents), 65_536) or ("", 0)
    assert 64_000 < len(shortened) <= 65_536
    assert left_out + sum(len(each["content"]) for each in json.loads(shortened)) == 20_000_000
