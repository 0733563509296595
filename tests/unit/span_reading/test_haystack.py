"""The reader of the spans of Haystack's own tracer finds question, documents and answer of a pipeline or agent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core import semconv
from ragtrace.core.types import Document, DocumentsInPart, Usage
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading
from ragtrace.span_reading.haystack import read
from tests.support.finished_spans import finished_span, recorded

TOWER = "The Eiffel Tower in Paris is 330 metres tall."
BRIDGE = "The Golden Gate Bridge spans 1280 metres."
QUESTION = "How tall is the Eiffel Tower?"


def component(kind: str, given: Any = None, returned: Any = None, name: str = "part") -> SpanReading | None:
    """Return what the reader finds in the span of a component of class *kind*."""
    attributes = {"haystack.component.type": kind, "haystack.component.name": name}
    attributes |= {"haystack.component.input": given, "haystack.component.output": returned}
    return read(finished_span(attributes, name="haystack.component.run"))


def found_in(attributes: dict[str, Any], name: str, **options: Any) -> SpanReading:
    """Return what the reader finds in a span with *name* and *attributes*."""
    found = read(finished_span(attributes, name=name, **options))
    assert found is not None
    return found


def said(role: str, *parts: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """Return a message as Haystack 2.9 and later trace it."""
    return {"role": role, "meta": meta, "name": None, "content": list(parts)}


@pytest.mark.parametrize(
    "name",
    [
        "haystack_pipeline-native-sync", "haystack_pipeline-native-async", "haystack_pipeline-native-stream",
        "haystack_pipeline-native-astream", "haystack_2_pipeline-native-sync", "haystack_2_pipeline-native-astream",
    ],
)  # fmt: skip
def test_a_recorded_pipeline(name: str) -> None:
    """Question, ranked documents, answer and tokens equal what the application logged."""
    spans, calls = recorded(name)
    found = [reading.step for span in spans if (reading := read(span)) is not None]
    roots = [step for step in found if step.kind == "trace"]
    ranked = [step for step in found if step.kind == "retrieve" and step.rerank]
    retrieved = [step for step in found if step.kind == "retrieve" and not step.rerank]
    generations = [step for step in found if step.kind == "generate"]
    assert len(found) == 4 * len(calls)
    for root, ranking, retrieval, generation, call in zip(roots, ranked, retrieved, generations, calls, strict=True):
        assert root.query == call["query"]
        # Haystack 2 writes the output of a pipeline before it has one.
        assert root.answer == (None if "haystack_2" in name else call["answer"])
        assert [document.text for document in ranking.documents or ()] == call["contexts"]
        assert {document.text for document in retrieval.documents or ()} >= set(call["contexts"])
        assert generation.answer == call["answer"]
        assert generation.usage == Usage(call["input_tokens"], call["output_tokens"])
        if not name.endswith("stream"):  # its callback is no JSON, and its messages are the `repr` of objects
            assert generation.prompt is not None
            assert call["query"] in generation.prompt.messages[-1].text


def test_a_recorded_pipeline_without_content() -> None:
    """The inputs of the pipeline are there all the same, and nothing else."""
    spans, calls = recorded("haystack_pipeline-native-default-sync")
    found = [reading.step for span in spans if (reading := read(span)) is not None]
    assert [step.query for step in found if step.kind == "trace"] == [call["query"] for call in calls]
    assert all(step.answer is None and step.documents is None and step.prompt is None for step in found)


def test_a_retriever_with_a_query() -> None:
    """Metadata stand beside the text of a document, and are not taken for it."""
    record = {"text": "a field of the metadata", "id": "d1", "content": TOWER, "score": 0.5, "embedding": None}
    found = component(
        "InMemoryBM25Retriever", {"query": QUESTION, "top_k": 3}, {"documents": [record, {"id": "d2"}]}, "bm25"
    )
    assert found is not None
    step = found.step
    assert (step.kind, step.name, step.query, step.top_k, step.rerank) == ("retrieve", "bm25", QUESTION, 3, False)
    assert (step.documents, found.documents_without_text) == ((Document(TOWER, "d1", 0.5),), 1)


def test_a_ranker_replaces_the_documents() -> None:
    """Its output is what the model is given."""
    given = {"documents": [{"content": TOWER}, {"content": BRIDGE}]}
    found = component("TransformersSimilarityRanker", given, {"documents": [{"content": BRIDGE}]})
    assert found is not None
    assert (found.step.kind, found.step.rerank, found.step.documents) == ("retrieve", True, (Document(BRIDGE),))


@pytest.mark.parametrize("kind", ["OpenAITextEmbedder", "PromptBuilder", "AnswerBuilder", "OutputAdapter", "Agent"])
def test_other_components_are_no_step(kind: str) -> None:
    """They neither find documents nor ask a model, or have spans of their own inside."""
    assert component(kind, {"text": QUESTION}, {"prompt": QUESTION, "answers": [{"data": TOWER}]}) is None


@pytest.mark.parametrize(
    ("data", "query"),
    [
        ({"embedder": {"text": "tower height"}, "prompt": {"question": QUESTION}}, QUESTION),
        ({"bm25": {"query": QUESTION, "top_k": 3}, "ranker": {"query": QUESTION}}, QUESTION),
        ({"llm": {"messages": [said("system", {"text": "Be short."}), said("user", {"text": QUESTION})]}}, QUESTION),
        ({"query": QUESTION}, QUESTION),
        # Two questions: nothing says which of them the answer is to.
        ({"left": {"query": QUESTION}, "right": {"query": "How long is the bridge?"}}, None),
        ({"converter": {"sources": ["a.pdf"]}}, None),
    ],
)
def test_the_question_among_the_inputs_of_a_pipeline(data: Any, query: str | None) -> None:
    """By the clearest name; the same one under several components is one."""
    assert found_in({"haystack.pipeline.input_data": data}, "haystack.pipeline.run").step.query == query


def test_inputs_that_are_no_json() -> None:
    """Haystack writes the `repr` of inputs of which JSON cannot hold one."""
    data = "{'prompt': {'question': 'How tall?'}, 'llm': {'streaming_callback': <function f at 0x7f>}}"
    assert found_in({"haystack.pipeline.input_data": data}, "haystack.pipeline.run").step.query == "How tall?"


def test_truncated_outputs_are_seen_as_such() -> None:
    """The provider cut the JSON text in the middle."""
    whole = json.dumps({"documents": [{"content": TOWER}]})
    attributes = {"haystack.component.type": "MyRetriever", "haystack.component.output": whole[:30]}
    found = found_in(attributes, "haystack.component.run", max_text_chars=30)
    assert (found.step.documents, found.is_cut) == (None, True)


def test_other_spans_are_left_to_their_readers() -> None:
    """Spans of other names, also of Haystack."""
    assert read(finished_span({}, name="haystack.tracing.auto_enable", scope="haystack")) is None
    assert read(finished_span({"gen_ai.operation.name": "chat"}, name="chat gpt-4o-mini")) is None


_NAMES = sorted(value for key, value in vars(semconv).items() if key.startswith("HAYSTACK_") and isinstance(value, str))
_KEYS = [
    "documents",
    "replies",
    "messages",
    "content",
    "role",
    "meta",
    "prompt",
    "query",
    "tool_messages",
    "tool_call_result",
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=10,
)


@given(
    st.sampled_from(sorted(semconv.HAYSTACK_SPANS)),
    st.sampled_from(["XRetriever", "XRanker", "XGenerator", "ToolInvoker", None, 3]),
    st.dictionaries(st.sampled_from(_NAMES), _JSON | _JSON.map(json.dumps) | _JSON.map(repr), max_size=6),
)
def test_any_attributes_are_read_without_an_error(name: str, kind: Any, attributes: dict[str, Any]) -> None:
    """Whatever stands under the names that the reader knows, it finds texts, or None."""
    every = {**attributes, "haystack.component.type": kind}
    found = read(FinishedSpan(finished_span({}).context, None, name, every, 0, 0))
    if found is not None:
        assert all(each is None or isinstance(each, str) for each in (found.step.query, found.step.answer))
        assert all(isinstance(document, Document) for document in found.step.documents or ())


def test_more_documents_than_are_read_are_marked() -> None:
    """A thousand are read."""
    for count, kind in ((1_000, tuple), (1_001, DocumentsInPart)):
        shown = {"documents": [{"content": f"Passage {each}."} for each in range(count)]}
        reading = component("InMemoryBM25Retriever", json.dumps({"query": QUESTION}), json.dumps(shown))
        assert reading is not None
        assert reading.step.documents is not None
        assert (len(reading.step.documents), type(reading.step.documents)) == (1_000, kind)
