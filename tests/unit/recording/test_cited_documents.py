"""Applications that return an answer with what it cites: the documents that were retrieved are judged and exported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.types import Judgement, RagCall
from ragtrace.testing import Captured, FakeJudge
from tests.support.ids import readable

TOWER = "The tower is 330 metres tall, and was built in 1889 by the company of Gustave Eiffel."
PYRAMID = "The pyramid of Cheops is 147 metres tall."
ANSWER = "It is 330 metres tall."
PREVIEW = "The tower is 330 m\u2026"


@dataclass
class Reply:
    answer: str
    sources: object


class Model(BaseModel):
    answer: str
    sources: list[Any]


@ragtrace.retrieve
def search(question: str) -> list[dict[str, str]]:
    return [{"text": TOWER, "url": "https://a.example/tower.html"}, {"text": PYRAMID, "url": "doc-17"}]


class Application:
    """A decorated application whose judge and exporter write down what they get."""

    def __init__(self) -> None:
        self.captured = Captured()
        self._judge = FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
        ragtrace.configure(exporter=self.captured.signals, screen=self._judge, metrics=["answered"])

    def ask(self, make: Callable[[], object], decorator: str, *, retrieves: bool = True) -> RagCall:
        """Return the call in which the application retrieves, and returns what *make* does."""

        def reply(question: str) -> object:
            if retrieves and decorator == "trace":
                search(question)
            return make()

        @ragtrace.trace
        def ask(question: str) -> object:
            if retrieves:
                search(question)
            return ragtrace.generate(reply)(question)

        returned = ask("How tall is it?") if decorator == "generate" else ragtrace.trace(reply)("How tall is it?")
        assert returned == make()  # the application sees what it returned
        assert ragtrace.flush()
        (call,) = self._judge.calls
        return call

    def exported(self) -> list[str]:
        """Return the texts of the documents on the retrieval's span."""
        (shown,) = (
            attributes
            for span in self.captured.spans
            if semconv.RETRIEVAL_DOCUMENTS in (attributes := span.attributes or {})
        )
        return [each["content"] for each in json.loads(str(shown[semconv.RETRIEVAL_DOCUMENTS]))]


@pytest.fixture
def application() -> Iterator[Application]:
    yield Application()
    ragtrace.shutdown()


def texts(call: RagCall) -> list[str] | None:
    return None if call.contexts is None else [each.text for each in call.contexts]


CITING: list[Callable[[], object]] = [
    lambda: {"answer": ANSWER, "sources": ["https://a.example/tower.html", "doc-17"]},
    lambda: {"answer": ANSWER, "context": ["https://a.example/tower.html", "doc-17"]},
    lambda: {"answer": ANSWER, "documents": ["\u00dcbersicht.pdf", "Annual report 2023.pdf"]},
    lambda: {"answer": ANSWER, "documents": [{"document": "tower.pdf", "page": 3}]},
    lambda: {"answer": ANSWER, "citations": [{"url": "https://a.example/tower.html", "title": "The tower"}]},
    lambda: {"answer": ANSWER, "sources": [{"url": "https://a.example/tower.html", "snippet": PREVIEW}]},
    lambda: {"answer": ANSWER, "source_documents": [{"page_content": PREVIEW}, {"page_content": PYRAMID}]},
    lambda: {"answer": ANSWER, "context": [PREVIEW, "https://a.example/tower.html"]},
    lambda: (ANSWER, ["a.pdf", "b.pdf"]),
    lambda: (ANSWER, [PREVIEW]),
    lambda: Reply(ANSWER, ["https://a.example/tower.html"]),
    lambda: Reply(ANSWER, [{"url": "https://a.example/tower.html", "snippet": PREVIEW}]),
    lambda: Model(answer=ANSWER, sources=["https://a.example/tower.html"]),
    lambda: Model(answer=ANSWER, sources=[{"url": "https://a.example/tower.html", "snippet": PREVIEW}]),
]


@pytest.mark.parametrize("decorator", ["trace", "generate"])
@pytest.mark.parametrize("make", CITING, ids=lambda make: readable(make()))
def test_what_was_retrieved_stays_where_an_answer_only_cites_it(
    application: Application, make: Callable[[], object], decorator: str
) -> None:
    """In the call that is judged, and on the exported span of the retrieval."""
    call = application.ask(make, decorator)
    assert (call.answer, texts(call), call.context_source) == (ANSWER, [TOWER, PYRAMID], "retriever")
    assert not call.contexts_in_part
    assert application.exported() == [TOWER, PYRAMID]


@pytest.mark.parametrize("decorator", ["trace", "generate"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: {"answer": ANSWER, "context": ["a.pdf", TOWER]}, [TOWER]),
        (lambda: {"answer": ANSWER, "sources": ["a.pdf", {"text": TOWER}]}, [TOWER]),
        (lambda: {"answer": ANSWER, "context": ["a.pdf"]}, None),
        (lambda: (ANSWER, ["a.pdf", "b.pdf"]), None),
        (lambda: {"answer": ANSWER, "context": [PREVIEW]}, [PREVIEW]),
        (lambda: {"answer": ANSWER, "sources": [{"snippet": PREVIEW}]}, [PREVIEW]),
    ],
    ids=readable,
)
def test_without_a_retrieval_the_texts_beside_an_answer_are_judged(
    application: Application, make: Callable[[], object], expected: list[str] | None, decorator: str
) -> None:
    """References are none, so that the contexts are not known; a text that breaks off is one."""
    call = application.ask(make, decorator, retrieves=False)
    assert (texts(call), call.contexts_in_part) == (expected, False)


def test_texts_that_a_program_cut_are_read_in_part(application: Application) -> None:
    """Where no retrieval has shown the rest of them."""
    cut = [{"snippet": f"{text[:37]}..."} for text in (TOWER, PYRAMID)]
    call = application.ask(lambda: {"answer": ANSWER, "sources": cut}, "trace", retrieves=False)
    assert texts(call) == [each["snippet"] for each in cut]
    assert call.contexts_in_part


def test_previews_in_a_stream_are_no_contexts(application: Application) -> None:
    """They come in a piece of their own."""

    @ragtrace.trace
    def ask(question: str) -> Iterator[dict[str, Any]]:
        search(question)
        yield {"sources": [{"url": "https://a.example/tower.html", "snippet": PREVIEW}]}
        yield {"answer": "It is 330 "}
        yield {"answer": "metres tall."}

    list(ask("How tall is it?"))
    assert ragtrace.flush()
    assert application.exported() == [TOWER, PYRAMID]
