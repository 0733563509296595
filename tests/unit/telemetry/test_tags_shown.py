"""Tags of a call on its root span, its carrier span and its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.tagged import ask_tagged, ask_tagged_inside, tag_step
from tests.support.watched import GOOD, WAIT_S, ask, generate, search, watch

TAGS: dict[str, Any] = {"tenant": "acme", "paying": True, "seats": 3, "share": 0.5}
SHOWN = {f"ragtrace.tag.{name}": value for name, value in TAGS.items()}


def tags_of(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the attributes that are tags, with the type of each value."""
    return {name: value for name, value in (attributes or {}).items() if name.startswith("ragtrace.tag.")}


def spans(captured: Captured) -> dict[str, dict[str, Any]]:
    """Return the tags on each span, by its name."""
    assert ragtrace.flush(WAIT_S)
    return {span.name: tags_of(span.attributes) for span in captured.spans}


@pytest.mark.parametrize("capture", ["NO_CONTENT", "SPAN_AND_EVENT"])
@pytest.mark.parametrize("judged", [True, False])
def test_tags_are_on_the_root_span_whatever_is_captured(capture: str, *, judged: bool) -> None:
    """With the types of their values; a call that nobody scores has them, too."""
    faults.clear()
    captured = watch(screen=FakeJudge(GOOD) if judged else None, capture_content=capture)
    ask_tagged("where?", **TAGS)
    found = spans(captured)
    assert found == {"invoke_workflow guide": SHOWN, "retrieval places": {}, "chat tiny": {}}
    assert type(found["invoke_workflow guide"]["ragtrace.tag.paying"]) is bool
    assert ragtrace.stats().faults == {}


def test_the_root_span_of_a_scored_call_has_the_tags_of_all_its_steps() -> None:
    """A tag that only an inner step has is the call's; of the root's own, the root's value counts."""
    captured = watch(screen=FakeJudge(GOOD))
    ask_tagged_inside("where?", tenant="acme")
    assert spans(captured)["invoke_workflow guide"] == {"ragtrace.tag.tenant": "acme", "ragtrace.tag.arm": "b"}


def test_every_evaluation_event_has_the_tags() -> None:
    """Also the event of a guard, which says what became of the call's answer."""

    @ragtrace.trace(name="guarded", guard=ragtrace.Guard("consistency", below=0.1))
    def guarded(question: str) -> str:
        tag_step(**TAGS)
        return generate(question, search(question))

    captured = watch(screen=FakeJudge(GOOD))
    guarded("where?")
    assert ragtrace.flush(WAIT_S)
    records = [event.log_record for event in captured.events]
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result", "ragtrace.guard.result"}
    assert all(tags_of(record.attributes) == SHOWN for record in records)


def test_without_tags_there_are_none() -> None:
    """Neither on spans nor on events."""
    captured = watch(screen=FakeJudge(GOOD))
    ask("where?")
    assert not any(spans(captured).values())
    assert not any(tags_of(event.log_record.attributes) for event in captured.events)


def test_a_carrier_span_has_the_tags() -> None:
    """Where nothing holds the root span back, which has those of its own step then."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=FakeJudge(GOOD), metrics=["answered"]
    )
    ask_tagged_inside("where?", tenant="acme")
    assert ragtrace.flush(WAIT_S)
    found = {span.name: tags_of(span.attributes) for span in exporter.get_finished_spans()}
    assert found["evaluate guide"] == {"ragtrace.tag.tenant": "acme", "ragtrace.tag.arm": "b"}
    assert found["invoke_workflow guide"] == {"ragtrace.tag.tenant": "acme"}
    provider.shutdown()


def test_langfuse_gets_tags_as_metadata_of_the_trace() -> None:
    """On the root span alone."""
    captured = watch(screen=None, telemetry=ragtrace.TelemetryOptions(dialects=("langfuse",)))
    ask_tagged_inside("where?", **TAGS)
    assert ragtrace.flush(WAIT_S)
    prefix = "langfuse.trace.metadata."
    found = {
        span.name: {name: value for name, value in (span.attributes or {}).items() if name.startswith(prefix)}
        for span in captured.spans
    }
    assert found["invoke_workflow guide"] == {f"{prefix}{name}": value for name, value in TAGS.items()}
    assert not any(attributes for name, attributes in found.items() if name != "invoke_workflow guide")
