"""Large hostile texts on spans are read in time that grows with their length, else these tests would not end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from ragtrace.capture.prompt_parts import split_prompt
from ragtrace.span_reading.finished_span import SpanReading
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.serialized import argument_in, flatten
from ragtrace.system.faults import faults
from tests.unit.span_reading.recorded import span

LANGCHAIN: Final = "openinference.instrumentation.langchain"
LLAMA_INDEX: Final = "openinference.instrumentation.llama_index"
TEXTS: Final = {
    "string that does not end": "ChatMessage(_role=<ChatRole.USER: 'user'>, _content=['" + "\\'" * 1_000_000,
    "answer that does not end": "GeneratedAnswer(data='" + "\\'" * 1_000_000,
    "name of a node": "<" + "Node" * 1_000_000,
    "nested lists": "[" * 3_000_000,
    "nested objects": '{"a":' * 600_000,
    "very many values": "[" + "{}," * 1_000_000 + "{}]",
    "ten megabytes": "x " * 5_000_000,
    "surrogates": "\ud800" * 1_000_000,
}
SPANS: Final[Mapping[str, tuple[str, str, Mapping[str, Any], tuple[str, ...]]]] = {
    "chain": ("chain", LANGCHAIN, {"openinference.span.kind": "CHAIN"}, ("input.value", "output.value", "metadata")),
    "query engine": ("query", LLAMA_INDEX, {"openinference.span.kind": "CHAIN"}, ("input.value", "output.value")),
    "retriever": (
        "retriever",
        LANGCHAIN,
        {"openinference.span.kind": "RETRIEVER"},
        ("input.value", "output.value", "retrieval.documents.0.document.metadata"),
    ),
    "tool": ("tool", LANGCHAIN, {"openinference.span.kind": "TOOL", "tool.name": "search"}, ("output.value",)),
    "chat": (
        "chat",
        "",
        {"gen_ai.operation.name": "chat"},
        ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
    ),
    "agent": (
        "invoke_agent",
        "pydantic-ai",
        {"gen_ai.operation.name": "invoke_agent"},
        ("pydantic_ai.all_messages", "final_result"),
    ),
    "workflow": (
        "workflow",
        "opentelemetry.instrumentation.langchain",
        {"traceloop.span.kind": "workflow"},
        ("traceloop.entity.input", "traceloop.entity.output"),
    ),
    "component": (
        "haystack.component.run",
        "haystack",
        {"haystack.component.type": "OpenAIGenerator", "haystack.component.name": "generator"},
        ("haystack.component.input", "haystack.component.output"),
    ),
}


def _read(kind: str, text: str) -> SpanReading | None:
    name, scope, attributes, contents = SPANS[kind]
    return read_span(span({**attributes, **dict.fromkeys(contents, text)}, name, scope))


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize("kind", SPANS)
def test_any_text_is_read_without_a_fault(kind: str, text: str) -> None:
    """A step is read of each span, whatever its texts are."""
    before = faults.counts().get("reading a span", 0)
    assert _read(kind, text) is not None
    assert faults.counts().get("reading a span", 0) == before


@pytest.mark.parametrize("kind", ["chain", "query engine"])
def test_json_that_is_too_large_is_no_text_of_the_application(kind: str) -> None:
    """It is neither a question nor an answer, and counts as cut off."""
    reading = _read(kind, TEXTS["very many values"])
    assert reading is not None
    assert (reading.step.query, reading.step.answer, reading.is_cut) == (None, None, True)


@pytest.mark.parametrize(
    "text",
    [
        "<question>" * 39_000,
        "<context>" * 39_000,
        "Context:\n" + "<doc>" * 70_000,
        "Context:\none\nAnswer:" + " " * 380_000 + "x",
        "\nAnswer: " * 40_000,
        "\nContext: " + "the " * 90_000,
        "\n" + "#" * 390_000,
        "Context:\n" + "\n---" * 90_000,
    ],
    ids=["questions", "contexts", "documents", "answer", "answers", "label", "heading", "rules"],
)
def test_any_prompt_is_split(text: str) -> None:
    """A prompt may have any number of marks without an end."""
    parts = split_prompt(text)
    assert parts is None or len(parts.documents) <= 200


def test_unclosed_tags_do_not_hide_a_closed_one() -> None:
    """Tags of the same name may stand in the text before them."""
    parts = split_prompt("<query>Write <question>Why?</question> <documents> <context>Because.</context>")
    assert parts is not None
    assert (parts.question, [document.text for document in parts.documents]) == ("Why?", ["Because."])


@pytest.mark.parametrize("end", ["", " ", "\n", "\n\n \n"])
def test_the_label_of_the_answer_ends_the_question(end: str) -> None:
    """Blank lines may follow it."""
    parts = split_prompt(f"Context:\nIt is tall.\n\nQuestion: How tall?\nAnswer:{end}")
    assert parts is not None
    assert parts.question == "How tall?"


def test_arguments_that_python_would_warn_of_are_no_record() -> None:
    """A warning of Python's parser would stand in the output of the application."""
    text = "{'pattern': '\\d'}"
    assert argument_in(text) == text
    assert flatten({"replies": ["ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='\\d')])"]})
