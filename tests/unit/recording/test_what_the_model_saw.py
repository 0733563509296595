"""What a call is scored by: the retrievals that its answer was written from, and the answer that its user got."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace.capture import find_answer
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S

ACME = {"id": "acme-1", "text": "Acme was founded by Jane Doe in 1931."}
JANE = {"id": "jane-1", "text": "Jane Doe was born in Oslo."}
PORT = {"id": "port-1", "text": "Oslo has a port."}
FOUND = {"Who founded Acme?": [ACME], "Where was Jane Doe born?": [JANE, PORT]}
QUESTION = "Where was the founder of Acme born?"


@ragtrace.retrieve
def search(query: str) -> list[dict[str, str]]:
    return FOUND[query]


@ragtrace.retrieve
def rerank(query: str, docs: list[dict[str, str]], top_n: int = 1) -> list[dict[str, str]]:
    return docs[:top_n]


@ragtrace.generate
def write(prompt: str) -> str:
    return "The founder of Acme was born in Oslo."


@pytest.fixture
def contexts() -> Iterator[Callable[[Callable[[str], object]], list[str | None]]]:
    """Asks an application one question, and returns the ids of the contexts of its call."""
    seen: list[ragtrace.RagCall] = []

    @ragtrace.metric(register=False)
    def tap(call: ragtrace.RagCall) -> float:
        seen.append(call)
        return 1.0

    ragtrace.configure(exporter=Captured().signals, screen=None, metrics=[tap])

    def ask(application: Callable[[str], object]) -> list[str | None]:
        seen.clear()
        ragtrace.trace(application)(QUESTION)
        assert ragtrace.flush(WAIT_S)
        (call,) = seen
        return [document.id for document in call.contexts or ()]

    yield ask
    ragtrace.shutdown(WAIT_S)


def test_a_reranking_replaces_what_it_was_given_and_nothing_else(contexts: Any) -> None:
    """Of a question in two steps, the second ranks its own hits."""

    def ask(question: str) -> str:
        return write(str([rerank(each, search(each)) for each in FOUND]))

    assert contexts(ask) == ["acme-1", "jane-1"]


def test_a_search_that_is_given_its_collection_is_no_reranking(contexts: Any) -> None:
    """As that of a library for keywords, beside one by vectors."""
    texts = [each["text"] for each in (ACME, JANE, PORT)] + [f"Sentence {number} of a book." for number in range(5)]

    @ragtrace.retrieve
    def keywords(query: str, documents: list[str]) -> list[dict[str, str]]:
        return [JANE]

    def ask(question: str) -> str:
        return write(str([search("Who founded Acme?"), keywords(question, texts)]))

    assert contexts(ask) == ["acme-1", "jane-1"]


def test_what_is_looked_up_for_an_answer_is_none_of_its_contexts(contexts: Any) -> None:
    """The model has not seen it; of an answer that is wrong it may say the same."""

    def ask(question: str) -> dict[str, object]:
        answer = write(str(search("Who founded Acme?")))
        return {"answer": answer, "see_also": [each["id"] for each in search("Where was Jane Doe born?")]}

    assert contexts(ask) == ["acme-1"]


def test_a_rewritten_question_is_no_answer(contexts: Any) -> None:
    """What is retrieved for it was shown to whatever wrote the answer, decorated or not."""

    @ragtrace.generate
    def rewrite(question: str) -> str:
        return "Oslo"

    def ask(question: str) -> str:
        rewrite(question)
        return f"The founder was born in Oslo, says {search('Where was Jane Doe born?')[0]['id']}."

    assert contexts(ask) == ["jane-1", "port-1"]


def test_names_among_the_arguments_are_no_contexts(contexts: Any) -> None:
    """File names or ids of what was retrieved, under a name that usually has the texts."""

    @ragtrace.generate
    def cite(question: str, passages: str, sources: list[str], chunks: list[str]) -> str:
        return "The founder of Acme was born in Oslo."

    def ask(question: str) -> str:
        hits = search("Where was Jane Doe born?")
        return cite(question, str(hits), ["handbook.pdf"], [hit["id"] for hit in hits])

    assert contexts(ask) == ["jane-1", "port-1"]


@ragtrace.generate
def breaks(prompt: str) -> Iterator[str]:
    yield "The founder "
    raise ConnectionError


@ragtrace.generate
def sends(prompt: str) -> None:
    """Send the answer over a socket."""


def _broken(question: str) -> dict[str, str | None]:
    try:
        return {"text": "".join(breaks(question))}
    except ConnectionError:
        return {"text": None}


def _withheld(question: str) -> dict[str, str | bool | None]:
    write(question)
    return {"answer": None, "blocked": True}


def _failed(question: str) -> dict[str, str]:
    write(question)
    return {"message": "Your session has expired.", "error": "session_expired"}


def _sent(question: str) -> None:
    sends(question)


@pytest.mark.parametrize("application", [_broken, _withheld, _failed, _sent])
def test_an_answer_that_nobody_got_or_saw_is_not_captured(application: Callable[[str], object]) -> None:
    """Neither that of a generation nor an empty one is made of it: an outage would look like an answer."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals)

    @ragtrace.trace
    def ask(question: str) -> object:
        search("Who founded Acme?")
        return application(question)

    ask(QUESTION)
    assert ragtrace.shutdown(WAIT_S)
    (root,) = captured.roots()
    attributes = dict(root.attributes or {})
    assert attributes["ragtrace.eval.consistency.reason"] == "answer_not_captured"
    assert attributes["ragtrace.eval.answered.reason"] == "answer_not_captured"


def test_a_stream_without_a_piece_is_an_empty_answer() -> None:
    """Of a traced function, too: it was read to its end, and there was nothing."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals)

    @ragtrace.trace
    def relay(question: str) -> Iterator[str]:
        search("Who founded Acme?")
        yield from ()

    assert list(relay(QUESTION)) == []
    assert ragtrace.shutdown(WAIT_S)
    (root,) = captured.roots()
    assert dict(root.attributes or {})["ragtrace.eval.consistency.reason"] == "empty_answer"


def test_a_call_that_raised_has_no_answer() -> None:
    """Of a stream that broke inside it the user has nothing: a failed call, and no score."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals)

    @ragtrace.trace
    def ask(question: str) -> str:
        search("Who founded Acme?")
        return "".join(breaks(question))

    with pytest.raises(ConnectionError):
        ask(QUESTION)
    assert ragtrace.shutdown(WAIT_S)
    (root,) = captured.roots()
    assert dict(root.attributes or {})["ragtrace.eval.status"] == "call_failed"
    assert ragtrace.stats().scored == 0


def test_a_response_of_flask_is_no_answer() -> None:
    """Its bytes are JSON or HTML for a browser, and no text for the user."""
    flask = pytest.importorskip("flask")
    application = flask.Flask("shop")
    with application.test_request_context():
        assert find_answer(flask.jsonify(answer="Within 14 days.", sources=["returns.md"])) is None
