"""Capture from plain values: strings, dicts, tuples, dataclasses, models, streams of them."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
import wrapt
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ragtrace.capture import (
    Answer,
    AnswerStream,
    documents,
    field_names,
    find_answer,
    find_documents,
    find_query,
    mark_duplicates,
    warn_not_found,
)
from ragtrace.capture.documents import add_documents
from ragtrace.core.types import Document, DocumentsInPart
from ragtrace.system.faults import faults
from tests.support.examples import examples
from tests.support.ids import readable
from tests.support.logged import logged


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults."""
    faults.clear()
    yield
    faults.clear()


def texts(value: object) -> list[str] | None:
    """The texts of the documents in *value*."""
    found = find_documents(value)
    return None if found is None else [document.text for document in found]


def said(value: object) -> str | None:
    """The text of the answer in *value*."""
    found = find_answer(value)
    return None if found is None else found.text


def streamed(*pieces: object) -> Answer | None:
    """The answer gathered from *pieces*."""
    stream = AnswerStream()
    for piece in pieces:
        stream.add(piece)
    return stream.answer()


@dataclass
class Passage:
    body: str
    score: float = 0.5
    metadata: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlottedChunk:
    text: str
    chunk_id: int


class Hit(NamedTuple):
    document: str
    score: float


class ModelChunk(BaseModel):
    content: str
    similarity: float


class WithProperty:
    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def text(self) -> str:
        return self._text


class Row(UserDict[str, object]):
    """A mapping that is no dict."""


# --- documents -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["text", "content", "page_content", "document", "passage", "chunk", "body", "snippet"])
def test_text_is_found_under_the_usual_keys(key: str) -> None:
    """A dict's text may stand under any of the usual keys."""
    assert texts([{key: "a"}, {key: "b"}]) == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [
        ["a", "b"],
        ("a", "b"),
        deque(["a", "b"]),
        UserList(["a", "b"]),
        [["a"], ["b"]],
        [Passage("a"), Passage("b")],
        [SlottedChunk("a", 1), SlottedChunk("b", 2)],
        [Hit("a", 0.9), Hit("b", 0.8)],
        [ModelChunk(content="a", similarity=0.9), ModelChunk(content="b", similarity=0.8)],
        [WithProperty("a"), WithProperty("b")],
        [SimpleNamespace(page_content="a"), SimpleNamespace(page_content="b")],
        [MappingProxyType({"text": "a"}), Row(text="b")],
        [OrderedDict(text="a"), defaultdict(str, text="b")],
        [("a", 0.9), ("b", 0.8)],
        [(0.9, "a"), (0.8, "b")],
        [({"text": "a"}, 0.9), (Passage("b"), 0.8)],
        (["a", "b"], [0.9, 0.8]),
        ("the rewritten question", ["a", "b"]),
        {"documents": ["a", "b"]},
        {"results": [{"text": "a"}, {"text": "b"}]},
        {"matches": [{"id": "1", "metadata": {"text": "a"}}, {"id": "2", "metadata": {"text": "b"}}]},
        {"query": "q", "context": ["a", "b"]},
        {"hits": {"total": 2, "hits": [{"_source": {"text": "a"}}, {"_source": {"text": "b"}}]}},
        {"ids": [["1", "2"]], "documents": [["a", "b"]], "distances": [[0.1, 0.2]]},
        {"retrievalResults": [{"content": {"text": "a"}}, {"content": {"text": "b"}}]},
        {"points": [{"payload": {"page_content": "a"}}, {"payload": {"page_content": "b"}}]},
        {"data": [{"content": [{"type": "text", "text": "a"}]}, {"content": [{"type": "text", "text": "b"}]}]},
        {"retriever": {"documents": ["a", "b"]}},
        SimpleNamespace(matches=[SimpleNamespace(metadata={"text": "a"}), SimpleNamespace(metadata={"text": "b"})]),
        wrapt.ObjectProxy(["a", "b"]),
        [wrapt.ObjectProxy(Passage("a")), wrapt.ObjectProxy({"text": "b"})],
    ],
    ids=readable,
)
def test_documents_are_found_in_any_wrapping(value: object) -> None:
    """Every shape that retrievers return gives the same two texts in the same order."""
    assert texts(value) == ["a", "b"]


def test_a_single_text_is_one_document() -> None:
    """A retriever may join its passages."""
    assert find_documents("a") == (Document("a"),)


def test_a_joined_context_is_one_document() -> None:
    """So may a dict."""
    assert texts({"question": "q", "context": "a b"}) == ["a b"]


@pytest.mark.parametrize(
    "value", [[], (), {"documents": []}, {"documents": [[]], "ids": [[]]}, {"hits": {"hits": []}}, [[]]], ids=readable
)
def test_empty_is_understood(value: object) -> None:
    """Nothing retrieved is (), not None."""
    assert find_documents(value) == ()


@pytest.mark.parametrize(
    "value",
    [None, 5, 1.5, True, object(), {}, {"documents": None}, {"a": "b"}, b"a", [object()], [1, 2], str, iter("a")],
)
def test_what_is_no_document_is_none(value: object) -> None:
    """What is not understood is None, not ()."""
    assert find_documents(value) is None


@pytest.mark.parametrize(
    ("record", "id_"),
    [
        ({"text": "a", "id": "x"}, "x"),
        ({"text": "a", "doc_id": 7}, "7"),
        ({"text": "a", "id": None, "metadata": {"chunk_id": "m"}}, "m"),
        ({"text": "a", "uuid": UUID(int=1)}, "00000000-0000-0000-0000-000000000001"),
        ({"text": "a", "_id": "e"}, "e"),
        ({"text": "a", "id": ["x"]}, None),
        ({"text": "a"}, None),
        (SlottedChunk("a", 3), "3"),
    ],
)
def test_ids_are_taken_along(record: object, id_: str | None) -> None:
    """A passage keeps its id, from its metadata if need be."""
    found = find_documents([record])
    assert found is not None
    assert found[0].id == id_


@pytest.mark.parametrize(
    ("record", "score"),
    [
        ({"text": "a", "score": 0.5}, 0.5),
        ({"text": "a", "score": 1}, 1.0),
        ({"text": "a", "score": 0.1, "relevance_score": 0.9}, 0.9),
        ({"text": "a", "metadata": {"similarity": 0.3}}, 0.3),
        ({"text": "a", "score": Decimal("0.25")}, 0.25),
        ({"text": "a", "score": float("nan")}, None),
        ({"text": "a", "score": True}, None),
        ({"text": "a", "score": "0.5"}, None),
        ({"text": "a", "distance": 0.5}, None),
        (("a", 0.75), 0.75),
        (("a", 0), 0.0),
    ],
)
def test_scores_are_taken_along(record: object, score: float | None) -> None:
    """A finite relevance score is kept; a distance, where less is better, is not taken for one."""
    found = find_documents([record])
    assert found is not None
    assert found[0].score == score


@pytest.mark.parametrize("record", [dict, SimpleNamespace, UserDict], ids=readable)
@pytest.mark.parametrize("name", ["handbook.pdf", "Staff handbook", "handbook"])
def test_a_passage_beside_the_name_of_its_document_is_the_text(record: Any, name: str) -> None:
    """The name is its id, as that of a file in `source` would be; a longer text under `document` stays the passage."""
    passage = "Worn shoes may be returned within 14 days."

    def made(**fields: str) -> Any:
        return UserDict(fields) if record is UserDict else record(**fields)

    values = [[made(document=name, chunk=passage)], {"results": [made(document=passage, chunk=name)]}]
    assert [texts(value) for value in values] == [[passage], [passage]]
    (named,) = find_documents(values[0]) or ()
    (with_id,) = find_documents([made(document=name, chunk=passage, id="c-7")]) or ()
    assert (named.id, with_id.id) == (name, "c-7")


def test_of_pairs_of_a_query_and_its_hits_the_hits_are_documents() -> None:
    """Not the query. Tags or vectors beside a passage are no passages."""
    one, other = "Worn shoes may be returned within 14 days.", "Islands take five days longer."
    assert texts([("returns?", [one, other]), ("islands?", [other])]) == [one, other, other]
    assert texts([("returns?", [{"text": one}]), ("islands?", [])]) == [one]
    beside: list[tuple[Any, Any]] = [(["shoes"], ["post"]), ([0.1, 0.2], [0.3, 0.4]), ([1], [2]), ([object()], [])]
    for first, last in beside:
        assert texts([(one, first), (other, last)]) == [one, other]
    assert faults.counts() == {}


SHORT = "It is 330 metres tall."


@pytest.mark.parametrize(
    ("found", "query", "wanted"),
    [
        ([("tall?", [])], "tall?", []),
        ([("tall?", ()), ("old?", [])], "tall?", []),
        ([["tall?", []]], "tall?", []),
        ({"results": [("tall?", [])]}, "tall?", []),
        ([("tall?", [])], None, None),  # the query is not known: a passage without tags looks the same
        ([(SHORT, [])], None, None),
        ([("tall?", []), ("How tall is it, and how old?", [{"text": SHORT, "id": "c-1"}])], None, [SHORT]),
        ([("How tall is it?", []), ("How old is it?", [{"text": SHORT}])], None, [SHORT]),
        ([["How tall is it?", []], ["How old is it?", [{"text": SHORT}]]], None, [SHORT]),
        ([("How tall is it?", None), ("How old is it?", [{"text": SHORT}])], None, [SHORT]),
        ([("How tall is it, would you say?", [SHORT])], "How tall is it, would you say? ", [SHORT]),
        ({"How tall is it?": [{"text": SHORT}], "How old is it?": []}, None, [SHORT]),
        ({"How tall is it?": []}, None, []),
        ({"tall?": [SHORT], "old?": []}, "tall?", [SHORT]),
        ({"tall?": []}, "tall?", []),
        ({"tall?": []}, None, None),
        ({"Product name": [SHORT], "Long name": ["a tower"]}, None, None),  # columns of a table
        ({"An embedding": [0.5, 0.25]}, None, None),
        ([("tall?", None)], "tall?", None),  # or a question that was asked before, and has no score
        ([("tall?", None), ("old?", [])], "tall?", []),
        ([("c-1", SHORT, None)], SHORT, [SHORT]),
        ([("q-1", "tall?", [])], "tall?", []),
        ([("How tall is it?", [SHORT])], None, None),  # as long as tags may be
        ([(SHORT, [])], "How tall is it?", None),  # a passage without tags, or a query that was put otherwise
        ([(SHORT, ["tower"])], SHORT, None),
        ([(SHORT, [{"text": "330", "label": "number"}])], None, [SHORT]),
        ([("c-1", SHORT, []), ("c-2", SHORT, [])], "How tall is it?", [SHORT, SHORT]),
    ],
    ids=readable,
)
def test_a_query_beside_its_hits_is_no_passage(found: Any, query: str | None, wanted: list[str] | None) -> None:
    """Nor is it where it has none. What may be a query or a passage is told by the query, or is not known."""
    read = find_documents(found, query=query)
    assert (None if read is None else [each.text for each in read]) == wanted


def test_passages_without_tags_beside_an_answer_are_not_said_to_be_none() -> None:
    """Nor are they read, as they may be queries without a hit; an empty list says that there are none."""
    for beside, wanted in (([(SHORT, [])], None), ([], ()), ([[]], ())):
        found = find_answer({"answer": "yes", "contexts": beside})
        assert found == Answer("yes", documents=wanted)


def test_numpy_scores_count() -> None:
    """A NumPy scalar is a number, an array is not."""
    numpy = pytest.importorskip("numpy")
    found = find_documents([("a", numpy.float32(0.5)), {"text": "b", "score": numpy.array([0.5])}])
    assert found == (Document("a", score=0.5), Document("b"))


def test_parallel_lists_of_ids_and_scores() -> None:
    """Ids and scores in lists beside the documents go to their documents."""
    found = find_documents({"ids": [["1", "2"]], "documents": [["a", "b"]], "scores": [[0.9, 0.8]]})
    assert found == (Document("a", "1", 0.9), Document("b", "2", 0.8))


@pytest.mark.parametrize(
    ("ids", "documents", "wanted"),
    [
        ([["a", "b"], ["c"]], [["A", "B"], ["C"]], [("A", "a"), ("B", "b"), ("C", "c")]),
        ([["a", "b"], ["c"]], [["A", None], ["C"]], [("A", "a"), ("C", "c")]),
        ([[], ["c"]], [[], ["C"]], [("C", "c")]),
        ([["a", "b"], ["c"]], [["A"], ["C"]], [("A", None), ("C", None)]),  # of which text is "b" the id?
    ],
    ids=readable,
)
def test_each_document_of_several_queries_has_its_id(ids: Any, documents: Any, wanted: list[tuple[str, Any]]) -> None:
    """As Chroma gives them, with distances that are no scores."""
    distances = [[0.1 for _ in each] for each in ids]
    found = find_documents({"ids": ids, "documents": documents, "distances": distances, "embeddings": None})
    assert found == tuple(Document(text, id_) for text, id_ in wanted)


def test_scores_beside_a_list_of_documents() -> None:
    """(documents, scores) is taken apart."""
    assert find_documents((["a", "b"], [0.9, 0.8])) == (Document("a", score=0.9), Document("b", score=0.8))


def test_rows_of_a_database() -> None:
    """A row that is looked up by column name is a record."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    rows = connection.execute("select 'a' as text, 7 as id").fetchall()
    connection.close()
    assert find_documents(rows) == (Document("a", "7"),)


LONG = "The tower is 330 metres tall."
OTHER = "It opened in 1889."


@pytest.mark.parametrize(
    ("rows", "ids", "scores"),
    [
        ([("d-1", LONG, 0.9), ("d-2", OTHER, 0.4)], ["d-1", "d-2"], [0.9, 0.4]),
        ([(7, LONG), (8, OTHER)], ["7", "8"], [None, None]),
        ([(LONG, 8), (OTHER, 7)], [None, None], [8.0, 7.0]),  # a pair of text and number, whatever the number is
        ([("d-1", LONG, 0.4), ("d-2", OTHER, 0.9)], ["d-1", "d-2"], [None, None]),  # distances, as pgvector has them
        ([("d-1", LONG, 0.4), ("d-2", OTHER, 0.4)], ["d-1", "d-2"], [None, None]),  # which nobody can tell
        ([("d-1", LONG, Decimal("sNaN")), ("d-2", OTHER, Decimal("NaN"))], ["d-1", "d-2"], [None, None]),
        ([(7, LONG, {"page": 3}, [0.1, 0.2]), (8, OTHER, None, None)], ["7", "8"], [None, None]),
        ([("d-1", "Eiffel Tower", LONG), ("d-2", "Opening", OTHER)], ["d-1", "d-2"], [None, None]),
        (
            [("https://a.example/1", LONG, "[0.1, 0.2]"), ("https://a.example/2", OTHER, "[0.3, 0.4]")],
            [0, 0],
            [None] * 2,
        ),
        ([["d-1", LONG], ["d-2", OTHER]], None, None),
        (([LONG, OTHER], ["d-1", "d-2"]), ["d-1", "d-2"], [None, None]),
        ((["d-1", "d-2"], [LONG, OTHER], [0.9, 0.4]), ["d-1", "d-2"], [0.9, 0.4]),
        ([("d-1", {"text": LONG}), ("d-2", {"text": OTHER})], [None, None], [None, None]),
        ([(Passage(LONG), 0.5, "a.md"), (Passage(OTHER), 0.5, "b.md")], [None, None], [0.5, 0.5]),
    ],
    ids=readable,
)
def test_ids_and_titles_of_rows_are_no_passages(rows: Any, ids: Any, scores: Any) -> None:
    """Of the columns of a database, that with by far the longest texts has the passages."""
    found = find_documents(rows)
    if ids is None:  # lists in a list may be anything: all of their texts
        assert texts(rows) == ["d-1", LONG, "d-2", OTHER]
        return
    assert texts(rows) == [LONG, OTHER]
    assert found is not None
    wanted = [f"https://a.example/{at}" for at in (1, 2)] if ids == [0, 0] else ids
    assert [(each.id, each.score) for each in found] == list(zip(wanted, scores, strict=True))


@pytest.mark.parametrize(
    "rows",
    [
        [("Is it tall?", "Yes, it is."), ("Is it old?", "It is old.")],  # which of the two?
        [("d-1", "en"), ("d-2", "de")],
    ],
    ids=readable,
)
def test_rows_without_a_column_of_passages_are_not_understood(rows: Any) -> None:
    """What a column means is not guessed."""
    assert find_documents(rows) is None


def test_a_list_of_words_that_is_no_column_of_ids_is_kept() -> None:
    """Where it is not as long as the list of documents beside it."""
    assert sorted(texts(([LONG], ["Paris", "Rome"]))) == ["Paris", "Rome", LONG]


@settings(max_examples=examples(300))
@given(
    st.lists(st.text(alphabet="ab ", min_size=30).filter(lambda text: " " in text.strip()), min_size=1, max_size=5),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.builds(object)),
    st.one_of(
        st.none(), st.decimals(), st.dates(), st.uuids(), st.binary(), st.lists(st.integers()), st.builds(object)
    ),
)
def test_no_text_of_a_row_is_lost_or_invented(said: list[str], first: object, last: object) -> None:
    """Whatever stands beside the texts, in each row alike."""
    assert texts([(first, text, at, last) for at, text in enumerate(said)]) == said


def test_a_single_row_and_a_row_without_a_text() -> None:
    """As `fetchone` gives it; an empty text is no passage."""
    assert find_documents((3, LONG, 0.5)) == (Document(LONG, "3"),)  # 0.5 may be a distance
    assert texts([("d-1", LONG, 0.5), ("d-2", None, 0.4)]) == [LONG]
    assert texts([(f"d-{at}", LONG, 0.5) for at in range(1_100)]) == [LONG] * 1_000


@pytest.mark.parametrize(
    "value",
    [
        {"content": [{"type": "text", "text": LONG}, {"type": "text", "text": OTHER}], "isError": False},  # of MCP
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": LONG}, {"text": OTHER}]},
        SimpleNamespace(content=[{"type": "text", "text": LONG}, {"type": "text", "text": OTHER}], is_error=False),
        {"root": {"id": "top", "children": [{"fields": {"text": LONG}}, {"fields": {"text": OTHER}}]}},  # Vespa
        {"result": {"hits": [{"_id": "1", "fields": {"text": LONG}}, {"fields": {"chunk_text": OTHER}}]}},  # Pinecone
        {"hits": {"hits": [{"_source": {"title": "t"}, "highlight": {"text": [LONG]}}, {"_source": {"text": OTHER}}]}},
        {
            "hits": {
                "hits": [
                    {
                        "_source": {"title": "t"},
                        "inner_hits": {
                            "parts": {"hits": {"hits": [{"_source": {"text": LONG}}, {"_source": {"text": OTHER}}]}}
                        },
                    }
                ]
            }
        },
        {"d1": LONG, "d2": OTHER},
        {1: LONG, 2: OTHER},
        {"a.md": {"text": LONG}, "b/c.md": {"text": OTHER}},
    ],
    ids=readable,
)
def test_results_of_search_engines_and_tools(value: object) -> None:
    """Each passage of a result is a document of its own."""
    assert texts(value) == [LONG, OTHER]


def test_the_error_of_a_tool_is_no_passage() -> None:
    """MCP and Anthropic mark the message of a failure."""
    for name in ("isError", "is_error"):
        assert find_documents({"content": [{"type": "text", "text": "no index"}], name: True}) is None


def test_fields_of_unknown_names_are_no_ids_of_passages() -> None:
    """A dict of texts is none of texts by their ids, unless its keys are ids."""
    assert find_documents({"title": LONG, "summary": OTHER}) is None


def test_a_list_of_file_names_is_no_context() -> None:
    """`sources` often names files: names are not passages."""
    assert find_documents({"sources": ["a.pdf", "b.pdf"]}) is None


def test_duplicates_are_kept_and_marked() -> None:
    """Equal after whitespace folding: kept in place, marked from the second on."""
    found = find_documents(["a b", " a\n b ", "c", "a b"])
    assert found is not None
    assert [document.duplicate for document in mark_duplicates(found)] == [False, True, False, True]


def test_duplicates_are_told_by_all_their_words() -> None:
    """Also where the first ones are the same, and among texts without any word."""
    same = "one two three four five six seven eight nine"
    texts = (f"{same} ten", " ", f"{same} TEN", f" {same}\tten", "one", "", "one two", "one")
    found = tuple(Document(text) for text in texts)
    assert [document.duplicate for document in mark_duplicates(found)] == [
        False, False, False, True, False, True, False, True,
    ]  # fmt: skip


def test_capture_itself_marks_no_duplicates() -> None:
    """Comparing texts is work for the background."""
    assert find_documents(["a", "a"]) == (Document("a"), Document("a"))


def test_what_cannot_be_read_in_a_list_is_skipped_and_counted() -> None:
    """The rest of the list is captured, and the loss is visible."""
    assert texts(["a", object(), {"text": "b"}]) == ["a", "b"]
    assert faults.counts() == {"capture.documents.skipped": 1}


def test_too_many_documents_are_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """At most a thousand documents are kept, and that is said."""
    found = find_documents(["a"] * 1_500)
    assert found is not None
    assert len(found) == 1_000
    assert faults.counts() == {"capture.documents.cut": 1}
    assert "1000 were kept" in caplog.text
    assert isinstance(found, DocumentsInPart)
    assert type(find_documents(["a"] * 1_000)) is tuple
    by_id = {f"d-{number}": "a text" for number in range(1_001)}
    found = find_documents(by_id)
    assert found is not None
    assert (len(found), type(found)) == (1_000, DocumentsInPart)
    by_id.popitem()
    assert type(find_documents(by_id)) is tuple


def test_documents_beyond_the_limit_of_names_components_or_columns_are_marked() -> None:
    """Search results of twenty names are read, and twenty components of a pipeline; of a row, 32 columns."""
    for names, kind in ((20, tuple), (21, DocumentsInPart)):
        hits = {str(each): {"hits": {"hits": [{"_source": {"text": f"{each} is read."}}]}} for each in range(names)}
        assert type(find_documents({"hits": {"hits": [{"inner_hits": hits}]}})) is kind
        found = find_documents({f"part {each}": {"documents": [{"content": "It is read."}]} for each in range(names)})
        assert type(found) is kind
    for columns, kind in ((32, tuple), (33, DocumentsInPart)):
        row = [f"The text of a row, in column {at}." if at == 3 else at for at in range(columns)]
        assert type(find_documents([tuple(row)] * 3)) is kind


def test_documents_that_take_too_long_to_read_are_cut_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The request waits for them: what was read in time is kept, and that is said."""
    monkeypatch.setattr(documents, "MAX_SECONDS", 0.0)
    slow = [{"document": {"page_content": f"text {number}"}} for number in range(100)]
    found = find_documents(slow)
    assert found is not None
    assert 0 < len(found) < 100
    assert [document.text for document in found] == [f"text {number}" for number in range(len(found))]
    assert faults.counts() == {"capture.documents.cut": 1}
    assert f"{len(found)} were kept" in caplog.text


def test_documents_of_a_stream_beyond_the_limit_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever piece of the stream they come in."""
    some = find_documents(["a"] * 600)
    assert some is not None
    documents = add_documents(add_documents(None, some), some)
    assert len(documents) == 1_000
    assert faults.counts() == {"capture.documents.cut": 200}
    assert add_documents(documents, some[:5]) == documents
    assert faults.counts() == {"capture.documents.cut": 205}
    assert "first 1000 are kept" in caplog.text
    assert isinstance(add_documents(documents, ()), DocumentsInPart)
    assert type(add_documents(some, some[:5])) is tuple


def test_exactly_the_limit_is_not_cut() -> None:
    """A thousand documents are no loss."""
    found = find_documents(["a"] * 1_000)
    assert found is not None
    assert len(found) == 1_000
    assert faults.counts() == {}


def test_a_defaultdict_gets_no_new_keys() -> None:
    """Looking must not add what is looked for."""
    record: defaultdict[str, list[str]] = defaultdict(list, {"other": []})
    find_documents([record])
    find_answer(record)
    find_query(record)
    assert list(record) == ["other"]


@pytest.mark.parametrize("read", [find_documents, find_answer, find_query])
def test_iterators_are_left_alone(read: Any) -> None:
    """What can be read once belongs to the application."""
    generator = (text for text in ["a", "b"])
    assert read(generator) is None
    assert read({"documents": generator, "answer": generator, "query": generator}) is None
    assert list(generator) == ["a", "b"]


def test_a_fifty_megabyte_text_is_not_copied() -> None:
    """The document holds the very string it was given."""
    text = "x" * 50_000_000
    found = find_documents([{"text": text}])
    assert found is not None
    assert found[0].text is text


# --- answers ---------------------------------------------------------------------------------------------------------
class AnswerModel(BaseModel):
    answer: str
    sources: list[Passage] = []


class AutoGenText:
    """A message without a role."""

    def __init__(self, content: str, source: str) -> None:
        self.content, self.source, self.type = content, source, "TextMessage"


@dataclass
class WrappedModel:
    """A class that was made of another, which it names, as Instructor does."""

    answer: str
    __wrapped__ = AnswerModel


class Envelope(BaseModel):
    status_code: int
    answer: str


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        b"yes",
        {"answer": "yes"},
        {"text": "yes"},
        {"content": "yes"},
        {"response": "yes"},
        {"output": "yes"},
        {"result": "yes"},
        {"output_text": "yes"},
        {"message": "yes"},
        {"message": {"role": "assistant", "content": "yes"}},
        {"result": {"answer": "yes"}},
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]},
        [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
        [{"type": "text", "text": "yes"}],
        {"role": "assistant", "content": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "yes"}]},
        {"llm": {"replies": ["yes", "no"]}},
        {"retriever": {"documents": ["a"]}, "answer_builder": {"answers": [{"data": "yes"}]}},
        {"output": {"message": {"role": "assistant", "content": [{"text": "yes"}]}}},
        ("yes", ["a"]),
        (["a"], "yes"),
        ("yes", 0.9),
        ("yes", None),
        AnswerModel(answer="yes"),
        Envelope(status_code=200, answer="yes"),
        SimpleNamespace(text="yes"),
        SimpleNamespace(content="yes", status="done"),
        SimpleNamespace(input="q", new_items=[], raw_responses=[], final_output="yes"),  # OpenAI Agents SDK
        SimpleNamespace(raw="yes", pydantic=None, json_dict=None, tasks_output=[SimpleNamespace(raw="no")]),  # CrewAI
        SimpleNamespace(messages=[AutoGenText("q", "user"), AutoGenText("yes", "guide")], stop_reason=None),
        SimpleNamespace(chat_message=AutoGenText("yes", "guide"), inner_messages=[]),
        WrappedModel("yes"),
        WithProperty("yes"),
        wrapt.ObjectProxy(SimpleNamespace(answer="yes")),
    ],
    ids=readable,
)
def test_an_answer_is_found_in_any_wrapping(value: object) -> None:
    """Every shape that generators return gives the same answer."""
    assert said(value) == "yes"


class HttpResponse:
    """Like those of FastAPI, requests and Django: reading the body may consume it."""

    def __init__(self) -> None:
        self.status_code = 200
        self.headers = {"content-type": "text/plain"}
        self.read = False

    @property
    def text(self) -> str:
        self.read = True
        return "body"


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        True,
        object(),
        {},
        [],
        ["a", "b"],
        [{"text": "a", "score": 0.5}],
        [Passage("a")],
        {"documents": ["a"]},
        {"question": "q"},
        {"usage": {"input_tokens": 1}},
        ("a", "b"),
        b"\xff\xfe\x00",
        str,
        ValueError("message"),
        HttpResponse(),
        iter("a"),
        {"error": {"message": "no"}},
    ],
    ids=readable,
)
def test_what_is_no_answer_is_none(value: object) -> None:
    """Documents, HTTP responses and things unknown are no answers."""
    assert find_answer(value) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"answer": "It is 330 metres tall.", "sources": ["a.md"]}', "It is 330 metres tall."),
        (' {"data": {"reply": "yes"}, "status": "ok"}', "yes"),
        ('{"summary_de": "Er ist 330 Meter hoch.", "lang": "de", "score": 0.5}', "Er ist 330 Meter hoch."),
        (
            '{"summary_de": "Er ist 330 Meter hoch.", "final": true, "id": "a1", "citations": [{"at": 3}]}',
            "Er ist 330 Meter hoch.",
        ),
        ('{"a": "It is 330 metres tall.", "b": "It is very old."}', None),
        ('{"name": "Tower of Gustave Eiffel", "height": 330}', None),
        ('{"name": "Tower of Gustave Eiffel", "height": "330 metres"}', None),
        ('{"name": "Tower of Gustave Eiffel", "built": {"from": "long ago"}}', None),
        ('{"error": "The model has timed out."}', None),
        ('{"height": 330, "unit": "metres"}', None),
        ('["It is 330 metres tall."]', None),
        ('{"answer": "It is', None),
        ('```json\n{"answer": "It is tall.", "confidence": 0.9}\n```', "It is tall."),
        ('```\n{"answer": "It is tall."}\n```\n', "It is tall."),
        ('```json\n{"answer": "It is tall."}\n```\nSee above.', None),
        ('```json\n{"answer": "a"}\n```\n```json\n{"answer": "b"}\n```', None),
        ('```python\n{"answer": "It is tall."}\n```', None),
        ('```json\n["It is tall."]\n```', None),
        ("```json\nIt is tall.\n```", None),
        ("```", None),
        ("{placeholder} is a word", None),
    ],
)
def test_the_answer_in_json_text_is_found(text: str, answer: str | None) -> None:
    """In a field with a well-known name or in the only one with a sentence; other JSON is the answer itself."""
    assert said(text) == (answer or text)
    stream = AnswerStream()
    for at in range(0, len(text), 3):
        stream.add(text[at : at + 3])
    found = stream.answer()
    assert found is not None
    assert found.text == (answer or text)


def test_the_question_of_an_agent_is_no_answer() -> None:
    """AutoGen's result may have the user's message alone, and its streams begin with it."""
    asked, answered = AutoGenText("q", "user"), AutoGenText("yes", "guide")
    assert find_answer(SimpleNamespace(messages=[asked], stop_reason=None)) is None
    stream = AnswerStream()
    for piece in (asked, answered):
        stream.add(piece)
    found = stream.answer()
    assert found is not None
    assert found.text == "yes"


def test_the_body_of_an_http_response_is_not_touched() -> None:
    """Its text may be a stream that the application still needs."""
    response = HttpResponse()
    find_documents(response)
    find_answer(response)
    find_query(response)
    assert not response.read


def test_starlette_responses_are_no_answers() -> None:
    """FastAPI's responses have a body and headers, and no answer that we would read."""
    responses = pytest.importorskip("fastapi.responses")
    assert find_answer(responses.PlainTextResponse("body")) is None
    assert find_answer(responses.JSONResponse({"answer": "yes"})) is None
    assert find_answer(responses.StreamingResponse(iter(["a"]))) is None


def test_an_empty_answer_is_an_answer() -> None:
    """ "" is understood: the answer is empty."""
    assert said("") == ""
    assert said({"answer": ""}) == ""


@pytest.mark.parametrize(
    "value",
    [
        {"answer": "yes", "context": [{"page_content": "a b"}]},
        {"result": "yes", "source_documents": ["a b"]},
        ("yes", ["a b"]),
        SimpleNamespace(answer="yes", documents=[Passage("a b")]),
        AnswerModel(answer="yes", sources=[Passage("a b")]),
    ],
    ids=readable,
)
def test_documents_beside_the_answer_are_taken_along(value: object) -> None:
    """An answer that brings its documents gives them."""
    found = find_answer(value)
    assert found is not None
    assert found.documents is not None
    assert [document.text for document in found.documents] == ["a b"]


@pytest.mark.parametrize("name", field_names.ANSWER_DOCUMENTS)
@pytest.mark.parametrize(
    "references",
    [
        ["a.pdf", "b.pdf"],
        ["https://a.example/1"],
        ["d-1"],
        "a.pdf",
        ["The tower is...", "It opened in\u2026 "],
        ["a.pdf", ""],
    ],
    ids=readable,
)
def test_names_and_previews_beside_an_answer_are_no_documents(name: str, references: object) -> None:
    """In no field, of a dict or an object, and beside an answer in a tuple: what was retrieved counts."""
    values: list[object] = [{"answer": "yes", name: references}, SimpleNamespace(answer="yes", **{name: references})]
    values += [("yes", references)] if isinstance(references, list) else []
    for value in values:
        found = find_answer(value)
        assert found is not None
        assert (found.text, found.documents) == ("yes", None)


@pytest.mark.parametrize("passages", [["Paris", "It is tall."], ["\u5854\u5f88\u9ad8"], [{"text": "Paris"}]])
def test_passages_beside_an_answer_are_documents(passages: object) -> None:
    """One that is a word among them, in a script without spaces, and as the text of a record."""
    found = find_answer({"answer": "yes", "context": passages})
    assert found is not None
    assert len(found.documents or ()) == len(cast("list[object]", passages))


def test_names_of_sources_are_no_documents() -> None:
    """`sources` with file names leaves the documents unknown."""
    found = find_answer({"answer": "yes", "sources": ["a.pdf"]})
    assert found == Answer("yes")


def test_a_chat_completion_as_dict() -> None:
    """The JSON of a chat completion is read like its object."""
    completion = {
        "id": "c1",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    assert find_answer(completion) == Answer("yes", "m", "c1", ("stop",), 3, 4)


def test_an_applications_own_id_is_no_response_id() -> None:
    """Only what a provider said goes to the response's id."""
    found = find_answer({"answer": "yes", "id": "row-7"})
    assert found is not None
    assert found.response_id is None


# --- queries ---------------------------------------------------------------------------------------------------------
class ChatRequest(BaseModel):
    question: str
    session_id: str = ""


@dataclass
class AskRequest:
    query: str


@pytest.mark.parametrize(
    "value",
    [
        "why?",
        {"query": "why?"},
        {"question": "why?"},
        {"input": "why?", "chat_history": []},
        {"inputs": {"question": "why?"}},
        {"messages": [{"role": "user", "content": "why?"}]},
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "why?"},
            {"role": "assistant", "content": "x"},
        ],
        [{"role": "user", "content": "first"}, {"role": "user", "content": "why?"}],
        [{"role": "user", "content": [{"type": "text", "text": "why?"}, {"type": "image_url", "image_url": {}}]}],
        [("system", "s"), ("human", "why?")],
        ({"role": "user", "content": "why?"},),
        {"role": "user", "content": "why?"},
        [{"type": "input_text", "text": "why?"}],
        ChatRequest(question="why?"),
        AskRequest("why?"),
        SimpleNamespace(text="why?"),
    ],
    ids=readable,
)
def test_the_question_is_found_in_any_wrapping(value: object) -> None:
    """Every shape in which a question comes gives the same question."""
    assert find_query(value) == "why?"


@pytest.mark.parametrize(
    "value",
    [None, 5, object(), {}, [], ["a", "b"], [{"role": "assistant", "content": "x"}], [{"text": "a"}], {"query": 5}],
    ids=readable,
)
def test_what_is_no_question_is_none(value: object) -> None:
    """A list of texts may be anything, and an assistant's turn is not the user's."""
    assert find_query(value) is None


# --- streams ---------------------------------------------------------------------------------------------------------
def test_strings_are_joined() -> None:
    """The answer of a stream of strings is their concatenation."""
    assert streamed("a", "b", "", "c") == Answer("abc")


def test_add_tells_what_is_new_in_a_piece() -> None:
    """None of a piece that may have a text, and was not read."""
    stream = AnswerStream()
    pieces = ({"role": "assistant"}, "", "a", None, {"odd": "b"})
    assert [stream.add(piece) for piece in pieces] == ["", "", "a", "", None]


def test_bytes_may_split_a_character() -> None:
    """UTF-8 is decoded across pieces."""
    raw = "né".encode()
    assert streamed(raw[:2], raw[2:]) == Answer("né")


def test_dict_pieces_of_a_chain() -> None:
    """A chain streams its context first and the answer in parts."""
    found = streamed({"context": [{"page_content": "a"}]}, {"answer": "y"}, {"answer": "es"})
    assert found == Answer("yes", documents=(Document("a"),))


def test_a_message_with_metadata() -> None:
    """LangGraph streams (message, metadata)."""
    assert streamed(({"content": "y"}, {"step": 1}), ({"content": "es"}, {"step": 1})) == Answer("yes")


def test_chat_chunks_as_dicts() -> None:
    """The JSON of chat chunks is read like their objects; the last one has the usage and no choice."""
    found = streamed(
        {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "y"}}]},
        {"id": "c1", "model": "m", "choices": [{"index": 1, "delta": {"content": "NO"}}]},
        {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "es"}, "finish_reason": "stop"}]},
        {"id": "c1", "model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    )
    assert found == Answer("yes", "m", "c1", ("stop",), 3, 4)


def test_block_events() -> None:
    """Anthropic's events: usage comes in two parts, thinking is not the answer."""
    found = streamed(
        {"type": "message_start", "message": {"id": "m1", "model": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "yes"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    )
    assert found == Answer("yes", "m", "m1", ("end_turn",), 3, 4)


def gemini(parts: list[dict[str, Any]], reason: str | None = None, **usage: int) -> dict[str, Any]:
    """The JSON of a reply of Gemini, or of a chunk of one."""
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": reason}
    return {"candidates": [candidate], "modelVersion": "m", "responseId": "r1", "usageMetadata": usage}


THOUGHT = {"text": "hm", "thought": True}
GEMINI = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 20, "totalTokenCount": 35}


def test_a_reply_of_gemini() -> None:
    """Its thoughts are no text of the answer, and count as output."""
    found = find_answer(gemini([THOUGHT, {"text": "y"}, {"text": "es"}], "STOP", **GEMINI))
    assert found == Answer("yes", "m", "r1", ("STOP",), 10, 25)


def test_a_reply_of_gemini_that_calls_a_function_has_no_text() -> None:
    """It is understood all the same, in a stream, too."""
    reply = gemini([{"functionCall": {"name": "search", "args": {}}}], "STOP", **GEMINI)
    assert find_answer(reply) == streamed(reply) == Answer(None, "m", "r1", ("STOP",), 10, 25, tool_calls=1)


@pytest.mark.parametrize(("reason", "text"), [("SAFETY", ""), ("MAX_TOKENS", ""), ("STOP", None)])
def test_a_reply_of_gemini_may_end_before_its_first_word(reason: str, text: str | None) -> None:
    """Its reason says so; the thoughts alone are counted."""
    found = find_answer(gemini([THOUGHT], reason, promptTokenCount=10, thoughtsTokenCount=20, totalTokenCount=30))
    assert found == (None if text is None else Answer(text, "m", "r1", (reason,), 10, 20))


def test_chunks_of_gemini() -> None:
    """A chunk may have thoughts alone, or the usage alone; each tells of the usage so far."""
    found = streamed(
        gemini([THOUGHT], promptTokenCount=10, thoughtsTokenCount=20, totalTokenCount=30),
        gemini([{"text": "y"}], promptTokenCount=10, candidatesTokenCount=2, thoughtsTokenCount=20, totalTokenCount=32),
        gemini([{"text": "es"}], **GEMINI),
        {"candidates": [{"index": 0, "finishReason": "STOP"}], "modelVersion": "m", "usageMetadata": GEMINI},
        {"candidates": None, "modelVersion": "m", "responseId": "r1", "usageMetadata": GEMINI},
    )
    assert found == Answer("yes", "m", "r1", ("STOP",), 10, 25)


def test_a_reason_is_given_in_words() -> None:
    """Older SDKs of Google's have the number of an enumeration."""
    reply = gemini([{"text": "yes"}], **GEMINI)
    reply["candidates"][0]["finishReason"] = 1
    assert find_answer(reply) == Answer("yes", "m", "r1", (), 10, 25)


def test_candidates_of_an_application_are_no_reply_of_gemini() -> None:
    """They are records of its own, beside the answer."""
    candidates = [{"text": "a", "finish_reason": "x"}, {"content": "b", "score": 0.5}, {"content": None}]
    assert said({"candidates": candidates, "answer": "yes"}) == "yes"
    assert streamed({"candidates": candidates, "answer": "y"}, {"answer": "es"}) == Answer("yes")


@pytest.mark.parametrize(
    ("usage", "given", "made"),
    [
        (
            {
                "input_tokens": 20,
                "cache_read_input_tokens": 8000,
                "cache_creation_input_tokens": 10,
                "output_tokens": 9,
            },
            8030,
            9,
        ),
        ({"inputTokens": 20, "cacheReadInputTokens": 8000, "cacheWriteInputTokens": 10, "outputTokens": 9}, 8030, 9),
        ({"inputTokens": 20, "cacheReadInputTokens": 8000, "outputTokens": 9, "totalTokens": 8029}, 8020, 9),
        ({"inputTokens": 8020, "cacheReadInputTokens": 8000, "outputTokens": 9, "totalTokens": 8029}, 8020, 9),
        ({"prompt_tokens": 8020, "input_tokens": 20, "cache_read_input_tokens": 8000, "completion_tokens": 9}, 20, 9),
        ({"prompt_token_count": 10, "tool_use_prompt_token_count": 7, "cached_content_token_count": 4}, 17, None),
        ({"candidates_token_count": 5, "thoughts_token_count": 20, "prompt_token_count": 10}, 10, 25),
        (
            {
                "candidates_token_count": 25,
                "thoughts_token_count": 20,
                "prompt_token_count": 10,
                "total_token_count": 35,
            },
            10,
            25,
        ),
    ],
    ids=readable,
)
def test_tokens_that_are_counted_apart_are_in_the_sum(usage: dict[str, int], given: int, made: int | None) -> None:
    """Those of a cache in the input, and those of thoughts in the output, unless the total shows that they are."""
    found = find_answer({"content": "yes", "role": "assistant", "usage": usage})
    assert found is not None
    assert (found.text, found.input_tokens, found.output_tokens) == ("yes", given, made)


def converse(content: list[dict[str, Any]], reason: str = "end_turn") -> dict[str, Any]:
    """What Amazon Bedrock's Converse returns."""
    usage = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
    return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": reason, "usage": usage}


@pytest.mark.parametrize(
    ("content", "reason", "text", "calls"),
    [
        ([{"text": "yes"}], "end_turn", "yes", 0),
        ([{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "yes"}], "end_turn", "yes", 0),
        ([{"citationsContent": {"content": [{"text": "y"}], "citations": []}}, {"text": "es"}], "end_turn", "yes", 0),
        ([{"toolUse": {"toolUseId": "1", "name": "search", "input": {}}}], "tool_use", None, 1),
        ([{"text": "yes"}, {"toolUse": {"toolUseId": "1", "name": "search", "input": {}}}], "tool_use", "yes", 1),
        ([], "content_filtered", "", 0),
    ],
    ids=readable,
)
def test_a_reply_of_converse(content: list[dict[str, Any]], reason: str, text: str | None, calls: int) -> None:
    """Its thoughts are no text, what cites something is, and a tool call alone has none."""
    found = find_answer(converse(content, reason))
    assert found == Answer(text, None, None, (reason,), 3, 4, tool_calls=calls)


def test_a_stream_of_converse_has_its_reason() -> None:
    """And the tokens of the cache."""
    found = streamed(
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"delta": {"reasoningContent": {"text": "hm"}}, "contentBlockIndex": 0}},
        {"contentBlockDelta": {"delta": {"text": "yes"}, "contentBlockIndex": 1}},
        {"messageStop": {"stopReason": "max_tokens"}},
        {"metadata": {"usage": {"inputTokens": 3, "cacheReadInputTokens": 5, "outputTokens": 4}, "metrics": {}}},
    )
    assert found == Answer("yes", None, None, ("max_tokens",), 8, 4)


def test_a_message_of_anthropic_that_only_calls_a_tool_has_no_text() -> None:
    """It is understood all the same."""
    content = [{"type": "tool_use", "id": "1", "name": "search", "input": {}}]
    found = find_answer({"role": "assistant", "type": "message", "model": "m", "content": content})
    assert found == Answer(None, "m", tool_calls=1)


@pytest.mark.parametrize("counts", [{"prompt_eval_count": 3, "eval_count": 4}, {"eval_count": 4}], ids=readable)
@pytest.mark.parametrize("field_of_text", ["message", "response"])
def test_the_last_piece_of_ollama_has_tokens_and_reason(field_of_text: str, counts: dict[str, int]) -> None:
    """It has no text. Where a cache has had the prompt, its tokens are not counted."""
    pieces: list[dict[str, Any]] = [
        {"model": "m", field_of_text: {"role": "assistant", "content": text} if field_of_text == "message" else text}
        for text in ("y", "es", "")
    ]
    last = {"done": True, "done_reason": "length", **counts}
    found = streamed(*({**piece, "done": False} for piece in pieces[:-1]), {**pieces[-1], **last})
    assert found == Answer("yes", "m", None, ("length",), counts.get("prompt_eval_count"), 4)


@pytest.mark.parametrize(
    "pieces",
    [
        ['data: {"token": "a"}\n\n', 'data: {"token": "b"}\n\n', "data: [DONE]\n\n"],
        ["event: token\n", "data: a\n\n"],
        [b"data: a\n\n", b"data: b\n\n"],
        [": ping\n\n", "data: a\r\n\r\n"],
    ],
    ids=readable,
)
def test_framing_for_transport_is_no_answer(pieces: list[object]) -> None:
    """Server-sent events carry the answer, they are not it."""
    assert streamed(*pieces) is None


@pytest.mark.parametrize(
    "text", ["data: it depends", "id: 7 is the one.\n\nBecause.", "data:\n\nthe input of a model\n\n"]
)
def test_an_answer_that_begins_like_a_frame_is_an_answer(text: str) -> None:
    """One word at the start makes no frame."""
    found = streamed(text)
    assert found is not None
    assert found.text == text


def test_memory_is_bounded_and_the_rest_counted() -> None:
    """No more than max_chars are kept, whatever comes."""
    stream = AnswerStream(max_chars=10)
    for _ in range(3):
        stream.add("abcdef")
    found = stream.answer()
    assert found == Answer("abcdefabcd", cut_chars=8)


def test_bytes_beyond_the_limit_are_counted() -> None:
    """The same holds for bytes."""
    stream = AnswerStream(max_chars=10)
    stream.add(b"x" * 1_000_000)
    found = stream.answer()
    assert found is not None
    assert (found.text, found.cut_chars) == ("x" * 10, 999_990)


def test_many_pieces() -> None:
    """Nothing is lost where pieces are joined on the way."""
    assert streamed(*["ab"] * 5_000) == Answer("ab" * 5_000)


def test_a_stream_of_unknown_things_is_warn_not_found() -> None:
    """None, and the type of the first one for the message."""
    stream = AnswerStream()
    stream.add(object())
    assert stream.answer() is None
    assert stream.unknown == "pieces of object"


def test_a_stream_without_a_piece_has_an_empty_answer() -> None:
    """It ended, and said nothing."""
    assert streamed() == Answer("")


def test_pieces_without_a_text_do_no_harm() -> None:
    """Progress notes of other types are left out."""
    assert streamed(object(), "a", 5, {"message": "Searching"}, "b") == Answer("ab")


# --- what is said ----------------------------------------------------------------------------------------------------
def test_not_understood_names_types_and_the_argument(caplog: pytest.LogCaptureFixture) -> None:
    """It says what was seen without showing content, and what to give."""
    warn_not_found("answer", "ask", [{"secret": "x"}])
    assert "found no answer in the list of dict of ask" in caplog.text
    assert "answer=" in caplog.text
    assert "secret" not in caplog.text


class StreamingResponse:
    """A response of a web framework: its text is made when it is sent."""

    @property
    def body_iterator(self) -> None:
        """Run code of the application."""
        raise AssertionError("it was read")


class ChatResponse(StreamingResponse):
    """One of the application's own."""


@pytest.mark.parametrize("response", [StreamingResponse(), ChatResponse()], ids=lambda each: type(each).__name__)
def test_a_response_that_streams_is_told_with_what_to_decorate(
    response: StreamingResponse, caplog: pytest.LogCaptureFixture
) -> None:
    """No argument could find its text: there is none yet when the handler returns."""
    warn_not_found("answer", "handler", response)
    [record] = caplog.records
    assert f"found no answer in the {type(response).__name__} of handler" in record.message
    assert "Decorate the generator whose pieces it sends" in record.message
    assert "answer=" not in record.message


def test_not_understood_is_said_once_for_a_function(caplog: pytest.LogCaptureFixture) -> None:
    """And counted every time."""
    for name in ("ask", "ask", "search"):
        warn_not_found("documents", name, 5)
    assert len(logged(caplog, "found no documents")) == 2
    assert faults.counts() == {"capture.documents:ask": 2, "capture.documents:search": 1}


class LangChainDocument:
    def __init__(self, text: str, **metadata: object) -> None:
        self.page_content, self.metadata, self.id = text, metadata, None


@pytest.mark.parametrize("value", [
    LangChainDocument("a", source="faq.md"),
    LangChainDocument("a", file_name="faq.md", title="Questions"),
    {"text": "a", "metadata": {"url": "faq.md", "title": "Questions"}},
    {"text": "a", "title": "faq.md"},
    (LangChainDocument("a", source="faq.md"), 0.5),
    {"document": {"page_content": "a"}, "meta": {"source": "faq.md"}},
])  # fmt: skip
def test_a_passage_without_an_id_goes_by_the_name_of_its_document(value: object) -> None:
    """As LangChain, LlamaIndex and loaders keep it: a backend shows it instead of an unnamed card."""
    (found,) = find_documents([value]) or ()
    assert (found.text, found.id) == ("a", "faq.md")


def test_an_id_goes_before_the_name_of_a_document() -> None:
    """It tells the passages of one document apart."""
    found = find_documents(
        [{"text": "a", "id": "7", "title": "t"}, {"text": "b", "metadata": {"doc_id": "8", "source": "s"}}]
    )
    assert [document.id for document in found or ()] == ["7", "8"]


GROWING: list[tuple[Any, list[float | None]]] = [
    ([(LONG, 0.1), (OTHER, 0.4)], [None, None]),
    ([(LONG, 0.4), (OTHER, 0.1)], [0.4, 0.1]),
    ([({"text": LONG}, 0.0), ({"text": OTHER}, 2.0)], [None, None]),
    ([(-8.8e-07, LONG), (-8.3e-07, OTHER)], [None, None]),
    (([LONG, OTHER], [0.1, 0.4]), [None, None]),
    ([(1, LONG, 1764522000.0), (2, OTHER, 1764521000.0)], [None, None]),  # times
    ([(LONG, 0.5)], [0.5]),
]


@pytest.mark.parametrize(("found", "scores"), GROWING, ids=readable)
def test_growing_numbers_beside_documents_are_distances(found: Any, scores: list[float | None]) -> None:
    """As vector stores and search engines give them; what falls is taken for relevance."""
    documents = find_documents(found)
    assert documents is not None
    assert [each.text for each in documents] == [LONG, OTHER][: len(scores)]
    assert [each.score for each in documents] == scores


@pytest.mark.parametrize(
    "found",
    [
        {"documents": [], "chunks": [{"id": "a", "text": LONG}]},
        [(1, "Team meeting", f"[00:01] Ann: {LONG}"), (2, "Sales meeting", "[00:07] Bob: It opened in 1889, he says.")],
    ],
    ids=["an empty list before others", "a transcript with times"],
)
def test_texts_are_found_behind_what_is_empty_or_looks_made(found: Any) -> None:
    """An empty list hides no other, and a bracket makes no vector."""
    assert LONG in texts(found)[0]
