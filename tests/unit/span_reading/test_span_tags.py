"""Tags of calls in the spans of other instrumentations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import SpanContext

from ragtrace.core.tags import MOST_TAGS, TagValue
from ragtrace.span_reading.assembler import CallAssembler
from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.span_tags import tags_of
from ragtrace.system.faults import faults
from tests.support.logged import logged
from tests.unit.span_reading.recorded import RECORDED, recording, span

CHAIN = {"openinference.span.kind": "CHAIN", "input.value": "why?", "output.value": "as it is"}


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults."""
    faults.clear()
    yield
    faults.clear()


def metadata(**entries: Any) -> dict[str, str]:
    return {"openinference.span.kind": "CHAIN", "metadata": json.dumps(entries)}


@pytest.mark.parametrize(
    ("attributes", "tags"),
    [
        ({"ragtrace.tag.tenant": "acme", "ragtrace.tag.size": 3, "ragtrace.tag.beta": False},
         {"tenant": "acme", "size": 3, "beta": False}),
        ({"tag.tags": ("tenant:acme", "arm=b", "beta", "url:http://a", "a b")},
         {"tenant": "acme", "arm": "b", "beta": True, "url": "http://a"}),
        ({"langfuse.trace.tags": '["tenant:acme", "beta"]', "langfuse.trace.metadata.plan": "free"},
         {"tenant": "acme", "beta": True, "plan": "free"}),
        ({"traceloop.association.properties.tenant": "acme", "traceloop.association.properties.path": ("a", "b")},
         {"tenant": "acme"}),
        (metadata(tenant="acme", size=3, beta=True, nested={"a": 1}, listed=[1], none=None, text="x" * 201),
         {"tenant": "acme", "size": 3, "beta": True}),
        ({"metadata": '{"tenant": "acme"}'}, None),  # of another convention, where it may be anything
        ({"openinference.span.kind": "CHAIN", "metadata": '{"tenant": "ac'}, None),
        ({"ragtrace.tag.tenant": "[REDACTED]", "traceloop.association.properties.a": "__REDACTED__"}, None),
        ({}, None),
    ],
    ids=["own", "list", "langfuse", "association", "metadata", "elsewhere", "broken", "masked", "none"],
)  # fmt: skip
def test_what_is_read_as_tags(attributes: dict[str, Any], tags: dict[str, TagValue] | None) -> None:
    """What each convention has for it."""
    assert tags_of(span(attributes)) == tags


def test_ids_of_sessions_and_users_and_what_frameworks_write_are_no_tags() -> None:
    """Those are read as what they are; these say nothing of whose call it was."""
    ids = {"session_id": "s", "conversation_id": "s", "thread_id": "s", "chat_id": "s", "user_id": "u"}
    own = {"ls_provider": "openai", "langgraph_step": 3, "checkpoint_ns": "a", "lc_versions": "1"}
    associations = {f"traceloop.association.properties.{name}": value for name, value in {**ids, **own}.items()}
    labels = {"tag.tags": ("seq:step:1", "map:key:context", "langsmith:hidden", "user_id:ada")}
    assert tags_of(span({**associations, **labels, **metadata(**ids, **own)})) is None


def test_no_recording_of_a_framework_has_tags() -> None:
    """Their applications give none, whatever the frameworks write."""
    names = [path.name.split(".")[0] for path in RECORDED.glob("*.spans.jsonl.gz")]
    assert {name for name in names for each in recording(name).spans if tags_of(each) is not None} == set()
    assert len(names) > 100


def test_ragtraces_own_tags_count_before_lists_and_those_before_metadata() -> None:
    """Where two have the same name."""
    attributes = {
        "ragtrace.tag.a": "own",
        "tag.tags": ("a:listed", "b:listed"),
        **metadata(a="metadata", b="metadata", c="metadata"),
    }
    assert tags_of(span(attributes)) == {"a": "own", "b": "listed", "c": "metadata"}


def test_a_value_that_was_cut_is_no_tag(caplog: pytest.LogCaptureFixture) -> None:
    """It would be that of another tenant."""
    attributes = {
        "ragtrace.tag.tenant": "acme-a",
        "ragtrace.tag.arm": "b",
        "traceloop.association.properties.x": "acme-b",
    }
    assert tags_of(span(attributes, limit=6)) == {"arm": "b"}
    assert len(logged(caplog, "cut at the provider's limit of 6 characters")) == 1


def test_of_many_the_first_are_read() -> None:
    """As many as a call may have; more of what an application calls tags are counted."""
    assert len(tags_of(span(metadata(**{f"m{number}": number for number in range(40)}))) or ()) == MOST_TAGS
    assert faults.counts() == {}
    assert len(tags_of(span({f"ragtrace.tag.t{number}": number for number in range(17)})) or ()) == MOST_TAGS
    assert faults.counts() == {"tags left out: spans of other instrumentations": 1}


def test_the_readers_put_the_tags_on_the_step() -> None:
    """Whatever the convention."""
    reading = read_span(span({**CHAIN, "tag.tags": ("tenant:acme",)}))
    assert reading is not None
    assert reading.step.tags == {"tenant": "acme"}
    reading = read_span(span(CHAIN))
    assert reading is not None
    assert reading.step.tags is None


def test_the_tags_of_a_call_are_those_of_its_root_and_then_those_of_its_other_spans() -> None:
    """Through the assembler."""

    def made(number: int, parent: int | None, attributes: dict[str, Any]) -> FinishedSpan:
        outer = None if parent is None else SpanContext(1, parent, is_remote=False)
        start, end = number * 10, 1_000 - number * 10
        return FinishedSpan(SpanContext(1, number, is_remote=False), outer, "span", attributes, start, end)

    assembler = CallAssembler(include_own=True)
    retrieval = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": "found"}
    assembler.add(made(2, 1, {**retrieval, "tag.tags": ("tenant:globex", "index:b")}))
    assembler.add(made(1, None, {**CHAIN, "tag.tags": ("tenant:acme",)}))
    [call] = assembler.take_complete(everything=True)
    assert call.builder.build().tags == {"tenant": "acme", "index": "b"}
