"""Capture from objects that raise, lie, never end, or answer to every name: it must not raise, consume or invent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock, NonCallableMock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragtrace.capture import (
    Answer,
    AnswerStream,
    find_answer,
    find_documents,
    find_query,
    find_tool_result,
    mark_duplicates,
)
from ragtrace.capture.field_names import VOCABULARY
from ragtrace.capture.fields import describe
from ragtrace.core.types import Document
from ragtrace.system.faults import faults
from tests.support.examples import examples


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults."""
    faults.clear()
    yield
    faults.clear()


def streamed(value: object) -> Answer | None:
    """The answer of a stream with one piece."""
    stream = AnswerStream()
    stream.add(value)
    return stream.answer()


READERS: list[Callable[[object], object]] = [find_documents, find_answer, find_query, find_tool_result, streamed]


OURS = {"capture.documents", "capture.answer", "capture.query", "capture.stream", "capture.tool"}
"""Places where an exception would be our own mistake."""


class Furious:
    """Everything about it raises."""

    def _no(self, *_: object, **__: object) -> Any:
        raise RuntimeError("do not touch")

    __getattr__ = __getattribute__ = __len__ = __iter__ = __getitem__ = __str__ = __repr__ = __bool__ = _no
    __eq__ = __hash__ = __contains__ = __call__ = __float__ = __int__ = __index__ = __enter__ = __del__ = _no
    __class__ = property(_no)  # type: ignore[assignment]
    __dict__ = property(_no)  # type: ignore[assignment]
    __del__ = lambda self: None  # noqa: E731
    text = content = page_content = answer = query = choices = type = property(_no)


class FuriousList(list[object]):
    """A list whose own methods raise."""

    def _no(self, *_: object) -> Any:
        raise RuntimeError("do not touch")

    __len__ = __iter__ = __getitem__ = __bool__ = __eq__ = __contains__ = _no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class FuriousDict(dict[str, object]):
    """A dict whose own methods raise."""

    def _no(self, *_: object) -> Any:
        raise RuntimeError("do not touch")

    __len__ = __iter__ = __getitem__ = __contains__ = get = keys = values = items = _no  # type: ignore[assignment]


class FuriousStr(str):
    """A string whose own methods raise."""

    def _no(self, *_: object) -> Any:
        raise RuntimeError("do not touch")

    __len__ = __iter__ = __getitem__ = __str__ = __repr__ = __bool__ = __eq__ = _no  # type: ignore[assignment]
    __hash__ = str.__hash__


class Liar:
    """It claims to be a string, and to have no end."""

    @property
    def __class__(self) -> Any:
        return str

    def __len__(self) -> int:
        return sys.maxsize

    def __iter__(self) -> Iterator[object]:
        while True:
            yield self

    def __getitem__(self, _: object) -> object:
        return self


class Echo:
    """It has every attribute, and each is a string."""

    def __getattr__(self, name: str) -> str:
        return name


class FuriousMeta(type):
    """A class that cannot be compared, hashed or asked."""

    def _no(cls, *_: object) -> Any:
        raise RuntimeError("do not touch")

    __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = __getattribute__ = __repr__ = _no  # type: ignore[assignment]


def of_furious_class() -> object:
    """An instance of such a class; the class itself is kept from whoever looks through this module."""
    return FuriousMeta("OfFuriousClass", (), {})()


class Sneaky:
    """Its text is an ORM's descriptor: reading it would ask a database."""

    class _Lazy:
        asked = False

        def __get__(self, instance: object, owner: object) -> str:
            Sneaky._Lazy.asked = True
            return "loaded"

    text = content = page_content = answer = query = question = _Lazy()


def cycle() -> dict[str, object]:
    """A record that is inside itself under every name."""
    names = (
        "documents results context node document metadata payload answer response output content query messages text"
    )
    record: dict[str, object] = {}
    record.update(dict.fromkeys(names.split(), record))
    record["hits"] = record["choices"] = record["nodes"] = [record, [record]]
    return record


def deep_list() -> list[object]:
    """A list inside a list, a thousand times."""
    value: list[object] = ["text"]
    for _ in range(1_000):
        value = [value]
    return value


def cyclic_list() -> list[object]:
    """A list that contains itself, many times."""
    value: list[object] = []
    value.extend([value] * 100)
    return value


HOSTILE: dict[str, Callable[[], object]] = {
    "furious": Furious,
    "list of furious": lambda: [Furious(), Furious()],
    "furious list": lambda: FuriousList([object()]),
    "liar": Liar,
    "list of liars": lambda: [Liar()],
    "echo": Echo,
    "furious class": of_furious_class,
    "lazy": Sneaky,
    "mock": MagicMock,
    "list of mocks": lambda: [MagicMock(), NonCallableMock()],
    "cycle": cycle,
    "deep list": deep_list,
    "cyclic list": cyclic_list,
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_values_are_warn_not_found(read: Callable[[object], object], make: Callable[[], object]) -> None:
    """None of them raises, hangs, or gives a text that nobody wrote."""
    assert read(make()) is None


@pytest.mark.parametrize("read", READERS)
def test_hostile_values_inside_records_are_warn_not_found(read: Callable[[object], object]) -> None:
    """The same one level down, under every name we look at."""
    for make in HOSTILE.values():
        names = ("text", "documents", "answer", "query", "choices", "messages", "content", "metadata", "id", "usage")
        assert read({name: make() for name in names}) is None


def test_lazy_attributes_of_an_orm_are_not_loaded() -> None:
    """Neither on the object nor in a list."""
    for read in READERS:
        read(Sneaky())
        read([Sneaky()])
    assert not Sneaky._Lazy.asked


@pytest.mark.parametrize("field", ["id", "score", "metadata", "relevance_score"])
def test_a_good_text_survives_bad_neighbours(field: str) -> None:
    """A passage whose other fields are hostile keeps its text."""
    for make in HOSTILE.values():
        assert find_documents([{"text": "a", field: make()}]) == (Document("a"),)


def test_derived_strings_become_plain() -> None:
    """What is handed on has none of the derived class's methods."""
    found = find_documents([FuriousStr("a"), {"text": FuriousStr("b")}])
    assert found == (Document("a"), Document("b"))
    assert {type(document.text) for document in found} == {str}
    assert find_answer(FuriousStr("yes")) == Answer("yes")
    assert find_query(FuriousStr("why?")) == "why?"


def test_derived_containers_are_read_past_their_methods() -> None:
    """The built-in class's own methods cannot be overridden."""
    assert find_documents(FuriousList(["a"])) == (Document("a"),)
    assert find_documents([FuriousDict(text="a")]) == (Document("a"),)
    assert find_answer(FuriousDict(answer="yes")) == Answer("yes")


def test_attributes_set_on_a_mock_are_read() -> None:
    """A user's test may stand a mock in for a completion: what was set on it is there, the rest is not."""
    assert find_answer(NonCallableMock(answer="yes")) == Answer("yes")


def test_a_message_that_raises_when_printed_is_described() -> None:
    """Only the names of types are used."""
    assert describe([Furious()]) == "list of Furious"
    assert describe(of_furious_class()) == "OfFuriousClass"


def test_a_deep_stack_does_no_harm() -> None:
    """Close to the recursion limit capture gives up, and does not raise."""

    def descend(depth: int) -> None:
        try:
            descend(depth + 1)
        except RecursionError:
            for read in READERS:
                read([{"text": "a", "metadata": {"id": "1"}}])

    descend(0)


def test_a_failing_log_handler_does_no_harm() -> None:
    """Not even the user's own logging gets an exception of ours into the application."""
    import logging

    def refuse(_: logging.LogRecord) -> bool:
        raise RuntimeError("no logging today")

    log = logging.getLogger("ragtrace")
    log.addFilter(refuse)
    try:
        find_documents(["a", object()])
    finally:
        log.removeFilter(refuse)


@pytest.mark.parametrize("read", READERS)
def test_wide_structures_are_bounded(read: Callable[[object], object]) -> None:
    """Millions of unknown items are not all looked at."""
    record: dict[str, object] = {}
    record.update(dict.fromkeys(VOCABULARY - {"choices", "type", "role"}, record))
    wide = [[object()] * 1_000] * 1_000
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        read(record)
        read(wide)
        read([record] * 1_000)
    finally:
        sys.setprofile(None)
    assert 0 < steps < 500_000


def test_surrogates_and_controls_are_kept_for_redaction() -> None:
    """Capture changes no character."""
    text = "\ud800\x00\x1b é"
    assert find_documents([text]) == (Document(text),)
    assert find_answer(text) == Answer(text)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5), st.uuids()
)
names = st.sampled_from(
    "text content page_content document node metadata id score documents results hits context answer output choices"
    " message messages role type delta usage raw response source_nodes query question input data replies".split()
)


class Bag:
    """An object with the attributes it is given."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.__dict__.update(fields)


MAKERS: dict[str, Callable[[Any], object]] = {
    "scalar": lambda value: value,
    "hostile": lambda name: HOSTILE[name](),
    "list": lambda items: [make(item) for item in items],
    "tuple": lambda items: tuple(make(item) for item in items),
    "furious": lambda items: FuriousList([make(item) for item in items]),
    "dict": lambda fields: {name: make(item) for name, item in fields.items()},
    "bag": lambda fields: Bag({name: make(item) for name, item in fields.items()}),
}


def make(recipe: tuple[str, Any]) -> object:
    """The value that a recipe describes: Hypothesis itself cannot hold values that refuse to be compared or hashed."""
    kind, content = recipe
    return MAKERS[kind](content)


def recipe(kind: str, content: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    """Recipes of one kind."""
    return st.tuples(st.just(kind), content)


recipes = st.recursive(
    recipe("scalar", scalars) | recipe("hostile", st.sampled_from(sorted(HOSTILE))),
    lambda inner: st.one_of(
        recipe("list", st.lists(inner, max_size=4)),
        recipe("tuple", st.lists(inner, max_size=3)),
        recipe("furious", st.lists(inner, max_size=3)),
        recipe("dict", st.dictionaries(names, inner, max_size=4)),
        recipe("bag", st.dictionaries(names, inner, max_size=4)),
    ),
    max_leaves=12,
)


@given(recipes)
@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
def test_whatever_comes_the_result_is_well_formed(described: tuple[str, Any]) -> None:
    """Any nesting gives None or plain, bounded values; nothing raises."""
    value = make(described)
    found = find_documents(value)
    for document in found or ():
        assert type(document.text) is str
        assert document.id is None or type(document.id) is str
        assert document.score is None or type(document.score) is float
    if found is not None:
        assert len(mark_duplicates(found)) == len(found)
    for answer in (find_answer(value), streamed(value)):
        if answer is not None:
            assert answer.text is None or type(answer.text) is str
            assert all(type(reason) is str for reason in answer.finish_reasons)
            assert answer.input_tokens is None or type(answer.input_tokens) is int
    question = find_query(value)
    assert question is None or type(question) is str
    assert not OURS & faults.counts().keys()


@given(st.lists(recipes, max_size=6))
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
def test_whatever_is_streamed_nothing_raises(pieces: list[tuple[str, Any]]) -> None:
    """Any sequence of pieces gives an answer or None."""
    stream = AnswerStream(max_chars=50)
    for piece in pieces:
        stream.add(make(piece))
    found = stream.answer()
    assert found is None or found.text is None or len(found.text) <= 50
