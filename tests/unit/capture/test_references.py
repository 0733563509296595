"""Addresses, names and ids beside an answer name documents, in whatever field and form; texts beside them are kept."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from ragtrace.capture import AnswerStream, field_names, find_answer
from ragtrace.capture.references import is_address, is_id, is_reference
from tests.support.ids import readable

TOWER = "The tower is 330 metres tall."
CHINESE = "\u5854\u5f88\u9ad8\uff0c\u6709\u4e09\u767e\u4e09\u5341\u7c73\u3002"
THAI = "\u0e2b\u0e2d\u0e04\u0e2d\u0e22\u0e2a\u0e39\u0e07330\u0e40\u0e21\u0e15\u0e23"
JAPANESE = "\u5854\u306e\u9ad8\u3055\u306f330\u30e1\u30fc\u30c8\u30eb\u3067\u3059\u3002"
KHMER = "\u1794\u17c9\u1798\u1793\u17c1\u17c7\u1781\u17d2\u1796\u179f\u17cb\u178e\u17b6\u179f\u17cb"

ADDRESSES = [
    "https://a.example/page.html",
    "https://a.example/?q=a%20b#top",
    "s3://bucket/a",
    "www.a.example",
    "a.example/page",
    "mailto:ann@a.example",
    "urn:isbn:0451450523",
    "doi:10.1000/182",
    "10.1000/182",
    "a.pdf",
    "report_2023-final.DOCX",
    "handbook.pdf#page=3",
    "handbook.pdf:12",
    "/srv/docs/a",
    "./docs/a",
    "C:\\docs\\a",
    "docs/2023/a",
    "\u00dcbersicht.pdf",
    "\u5408\u540c.pdf",
    "https://\u4f8b\u3048.example/\u5854",
    "Annual report 2023.pdf",
    "Annual report 2023.pdf, page 3",
    "Annual report 2023.pdf (p. 12-14)",
    "Annual report.pdf p. 3",
    "[The tower](https://a.example/tower)",
    "https://a.example/1 https://a.example/2",
    "a.pdf, b.pdf;\nc.pdf",
]
WORDS = [
    "doc-17",
    "17",
    "Paris",
    "Z\u00fcrich",
    "\u0422\u0435\u043a\u0441\u0442",
    "\ud30c\ub9ac",
    "8f14e45f",
    "refund_policy",
    "",
]
TEXTS = [
    TOWER,
    "It is tall",
    "330 metres",
    CHINESE,
    "\u5854\u5f88\u9ad8",
    "\u8bf7\u8bbf\u95eehttps://a.example",
    "\u8be6\u60c5\u89c1\u5408\u540c\u3002\u53e6\u89c1a.pdf",
    "https://a.example/\u5854\u9ad8\u4e09\u767e\u7c73\u3002",
    THAI,
    JAPANESE,
    KHMER,
    "\ud0d1\uc740 \ub192\ub2e4",
    "Read handbook.pdf first.",
    "The tower is tall. See handbook.pdf",
    "https://a.example says that it is tall",
    "a.pdf and others",
]


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses_and_names_of_files_are_references(text: str) -> None:
    """With the place in the file, with spaces in the name, and in any script."""
    assert is_reference(text)
    assert is_reference(f" {text}\n")
    assert is_address(text)


@pytest.mark.parametrize("text", WORDS)
def test_words_are_references_and_no_addresses(text: str) -> None:
    """In scripts with spaces, which Korean has."""
    assert is_reference(text)
    assert not is_address(text)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_no_references(text: str) -> None:
    """Nor those in scripts without spaces, if they are no names of files and no addresses."""
    assert not is_reference(text)
    assert not is_address(text)
    assert not is_id(text)


@pytest.mark.parametrize("text", ["3.14", "24/7", "01/02/2023", "$330", "U.S.A", "e.g.", "N/A", "12:30", "330m", "-"])
def test_figures_and_abbreviations_are_no_addresses(text: str) -> None:
    """As the text of a record, they stay."""
    assert not is_address(text)


def test_ids_are_told_from_words() -> None:
    """By a digit beside letters, an underscore or a slash."""
    assert [text for text in (*WORDS, "docs/a", "A_b", "Note:", "3.14") if is_id(text)] == [
        "doc-17", "8f14e45f", "refund_policy", "docs/a", "A_b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "a/" * 500_000, "\u5854" * 1_000_000, "https://a.example/" + "a" * 10_000]
)
def test_long_words_are_no_addresses(text: str) -> None:
    """What holds no white space at that length is data."""
    assert not is_address(text)
    assert not is_id(text)


class Model(BaseModel):
    answer: str
    model_config = {"extra": "allow"}


@dataclass
class Reply:
    answer: str
    context: object = None
    sources: object = None
    documents: object = None


@dataclass
class Passage:
    page_content: str
    metadata: dict[str, str]


def forms(name: str, value: object) -> list[object]:
    """Return answers that carry *value* in the field *name*: a dict, an object, and a pydantic model."""
    made: list[object] = [{"answer": "yes", name: value}, SimpleNamespace(answer="yes", **{name: value})]
    made.append(Model.model_validate({"answer": "yes", name: value}))
    if name in ("context", "sources", "documents"):
        made.append(Reply("yes", **{name: value}))
    return made


def texts(value: object) -> list[str] | None:
    found = find_answer(value)
    assert found is not None
    assert found.text == "yes"
    assert found.previews is None
    return None if found.documents is None else [each.text for each in found.documents]


@pytest.mark.parametrize("name", [*field_names.ANSWER_DOCUMENTS, "citations", "references", "annotations"])
@pytest.mark.parametrize(
    "references",
    [
        ["https://a.example/page.html", "doc-17"],
        ("a.pdf", "b.pdf"),
        "https://a.example/page.html",
        ["\u00dcbersicht.pdf", "Z\u00fcrich"],
        ["\u5408\u540c.pdf"],
        ["Annual report 2023.pdf, page 3", "a.pdf"],
        [("a.pdf", 0.9), ("b.pdf", 0.8)],
        [("doc-17", 0.9), ("doc-18", 0.8)],
        [["a.pdf", "b.pdf"]],
        {"a.pdf": "https://a.example/a.pdf"},
        [{"url": "https://a.example", "title": "The tower"}],
        [{"source": "a.pdf", "page": 3}],
        [{"metadata": {"source": "a.pdf"}}],
        [{"document": "a.pdf", "page": 3}],
        [{"document": "doc-17", "page": 3}, {"chunk": "doc-17#3", "score": 0.5}],
        [{"content": "https://a.example", "title": "The tower"}],
        [{"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "T"}}],
        [{"type": "url_citation", "url": "https://a.example", "title": "T", "start_index": 0, "end_index": 3}],
        [Passage("a.pdf", {}), "b.pdf"],
        ["a.pdf"] * 300,
    ],
    ids=readable,
)
def test_nothing_but_references_is_no_document(name: str, references: object) -> None:
    """In no field, of a dict, an object, a dataclass or a model."""
    for value in forms(name, references):
        assert texts(value) is None


@pytest.mark.parametrize(
    "references", [["a.pdf", "b.pdf"], ["\u00dcbersicht.pdf"], [{"document": "a.pdf"}]], ids=readable
)
def test_references_beside_an_answer_in_a_tuple_are_no_documents(references: list[object]) -> None:
    """As in a field; a list of texts after them is one."""
    assert texts(("yes", references)) is None
    assert texts(("yes", references, [TOWER])) == [TOWER]


@pytest.mark.parametrize("name", [name for name in field_names.ANSWER_DOCUMENTS if name not in field_names.REFERENCES])
@pytest.mark.parametrize(
    ("mixed", "kept"),
    [
        (["a.pdf", TOWER, "https://a.example", "doc-17"], [TOWER]),
        ([TOWER, "Paris"], [TOWER, "Paris"]),
        ([CHINESE, "\u5408\u540c.pdf"], [CHINESE]),
        ([THAI, "a.pdf"], [THAI]),
        (["a.pdf"] * 200 + [TOWER], [TOWER]),
        ([("a.pdf", 0.9), (TOWER, 0.8)], [TOWER]),
        ([["a.pdf", TOWER]], [TOWER]),
    ],
    ids=readable,
)
def test_of_references_and_texts_the_texts_are_documents(name: str, mixed: object, kept: list[str]) -> None:
    """A word without a sign of an id among texts is one of them."""
    for value in forms(name, mixed):
        assert texts(value) == kept


@pytest.mark.parametrize("name", field_names.ANSWER_DOCUMENTS)
@pytest.mark.parametrize(
    ("mixed", "kept"),
    [
        (["a.pdf", {"text": TOWER}], [TOWER]),
        ([{"text": TOWER}, "a.pdf"], [TOWER]),
        ([{"document": "a.pdf", "page": 3}, {"text": TOWER}], [TOWER]),
        ([{"text": "24/7"}, {"text": "doc-17"}, {"text": "Paris"}], ["24/7", "doc-17", "Paris"]),
        ([Passage(TOWER, {"source": "a.pdf"})], [TOWER]),
        ([{"node": {"text": TOWER}, "score": 0.5}], [TOWER]),
        ([{"url": "https://a.example", "snippet": TOWER}], [TOWER]),
        ([{"chunk": "A380"}, {"chunk": "It is big."}], ["It is big."]),
    ],
    ids=readable,
)
def test_texts_of_records_are_documents_beside_references(name: str, mixed: object, kept: list[str]) -> None:
    """However short; where the field may name a document, an id is none."""
    for value in forms(name, mixed):
        assert texts(value) == kept


def test_strings_of_sources_are_titles() -> None:
    """With spaces, too, also beside records: a title or an entry of a bibliography cannot be told from a text."""
    assert texts({"answer": "yes", "sources": ["The tower of Paris"]}) is None
    assert texts({"answer": "yes", "sources": ["The tower of Paris", {"text": TOWER}]}) == [TOWER]


def test_references_in_one_field_do_not_hide_texts_in_another() -> None:
    """Nor do previews."""
    assert texts({"answer": "yes", "context": ["a.pdf"], "documents": [TOWER]}) == [TOWER]
    found = find_answer({"answer": "yes", "context": ["The tower..."], "documents": [TOWER]})
    assert found is not None
    assert [each.text for each in found.documents or ()] == [TOWER]


@pytest.mark.parametrize("order", [1, -1])
def test_an_empty_list_hides_no_documents_of_another_field(order: int) -> None:
    """As a model's default is; where nothing else came, nothing was found."""
    fields: list[tuple[str, object]] = [("documents", []), ("sources", [{"text": TOWER}]), ("docs", ["a.pdf"])]
    assert texts({"answer": "yes", **dict(fields[::order])}) == [TOWER]
    assert texts({"answer": "yes", "context": [{"text": TOWER}], "documents": []}) == [TOWER]
    assert texts({"answer": "yes", "documents": [], "docs": ["a.pdf"]}) == []
    found = find_answer({"answer": "yes", "context": [], "sources": [{"snippet": "The tower\u2026"}]})
    assert found is not None
    assert (found.documents, len(found.previews or ())) == (None, 1)


def test_the_places_and_scores_of_documents_beside_references_stay() -> None:
    """Ids and scores are those of the texts."""
    found = find_answer(
        {"answer": "yes", "docs": [{"id": "a", "text": "a.pdf"}, {"id": "b", "text": TOWER, "score": 0.5}]}
    )
    assert found is not None
    assert found.documents is not None
    assert [(each.id, each.score) for each in found.documents] == [("b", 0.5)]


def streamed(pieces: list[Any]) -> Any:
    stream = AnswerStream()
    for piece in pieces:
        stream.add(piece)
    return stream.answer()


@pytest.mark.parametrize("name", ["sources", "context", "source_documents"])
def test_references_in_a_piece_of_a_stream_are_no_documents(name: str) -> None:
    """Texts are, and previews are kept apart."""
    words = [{"answer": "The tower "}, {"answer": "is tall."}]
    for at in (0, 2):
        pieces = [*words[:at], {name: ["https://a.example/1"]}, *words[at:]]
        assert (streamed(pieces).text, streamed(pieces).documents) == ("The tower is tall.", None)
        pieces = [*words[:at], {name: [{"text": TOWER}, "a.pdf"]}, *words[at:]]
        assert [each.text for each in streamed(pieces).documents] == [TOWER]
        pieces = [*words[:at], {name: [{"text": "The tower..."}]}, *words[at:]]
        found = streamed(pieces)
        assert (found.text, found.documents) == ("The tower is tall.", None)
        assert [each.text for each in found.previews] == ["The tower..."]


def test_real_answers_of_frameworks_carry_documents_or_references() -> None:
    """LangChain's and LlamaIndex's own classes."""
    documents = pytest.importorskip("langchain_core.documents")
    found = documents.Document(page_content=TOWER, metadata={"source": "a.pdf"})
    assert texts({"answer": "yes", "source_documents": [found]}) == [TOWER]
    assert texts({"answer": "yes", "source_documents": [documents.Document(page_content="a.pdf")]}) is None
    assert texts({"answer": "yes", "context": [CHINESE], "sources": ["a.pdf"]}) == [CHINESE]
    schema = pytest.importorskip("llama_index.core.schema")
    response = pytest.importorskip("llama_index.core.base.response.schema")
    for text, kept in ((TOWER, [TOWER]), ("https://a.example", None)):
        node = schema.NodeWithScore(node=schema.TextNode(text=text), score=0.5)
        assert texts(response.Response("yes", source_nodes=[node])) == kept
