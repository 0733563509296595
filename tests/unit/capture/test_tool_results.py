"""Results of tools are read alike, decorated and in spans: passages, or all they say; failures are no evidence."""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import ToolMessage
from pydantic import BaseModel, ConfigDict

import ragtrace
from ragtrace.capture import find_tool_result
from ragtrace.core.types import Document, DocumentsInPart
from ragtrace.span_reading.messages import documents_of_results, result_documents
from ragtrace.system.faults import faults
from tests.support.examples import examples
from tests.support.logged import logged
from tests.support.watched import watch

TOWER = "The Eiffel Tower stands in Paris."
MUSEUM = "The Louvre is a museum."
ROW = {"text": TOWER, "height": 330}


@dataclass
class Height:
    """A record of an application."""

    metres: float
    of: str = "Eiffel Tower"


class Slotless:
    """A class whose objects can be referred to weakly."""


@dataclass(slots=True)
class Slotted:
    """A record without a dictionary."""

    metres: Decimal
    opened: date = field(default=date(1889, 3, 31))


class Model(BaseModel):
    """A model of pydantic that keeps fields which it does not declare."""

    model_config = ConfigDict(extra="allow")
    metres: int


class Row(NamedTuple):
    """A row of a driver that names its columns."""

    name: str
    metres: int


class Kind(Enum):
    """A value of an enumeration."""

    TOWER = "tower"


class Zone(tzinfo):
    """A time zone of an application, whose code is not run."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Raise, as it must not be called."""
        raise AssertionError(dt)


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults, and what is logged once."""
    faults.clear()
    yield
    faults.clear()


def texts(value: object) -> list[str] | None:
    """The texts of the evidence in *value*."""
    found = find_tool_result(value)
    return None if found is None else [document.text for document in found]


def as_json(value: object) -> str:
    """JSON as ragtrace writes it of a value."""
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize(
    ("result", "evidence"),
    [
        ("330 metres", ["330 metres"]),
        ("", []),
        ([], []),
        (330, ["330"]),
        ([330, 324.5, None, True], ["[330, 324.5, null, true]"]),
        ({"height": 330, "unit": "m"}, ['{"height": 330, "unit": "m"}']),
        (ROW, [as_json(ROW)]),
        ([ROW, {"text": MUSEUM, "rooms": 403}], [as_json(ROW), as_json({"text": MUSEUM, "rooms": 403})]),
        ([ROW, {"text": MUSEUM}], [as_json(ROW), MUSEUM]),
        ([["Eiffel Tower", 330], ["Louvre", 21]], ['["Eiffel Tower", 330]', '["Louvre", 21]']),
        ([{"name": "Eiffel Tower", "metres": 330}], [as_json([{"name": "Eiffel Tower", "metres": 330}])]),
        ({"results": [ROW]}, [as_json(ROW)]),
        ({"results": [{"text": TOWER}], "total": 7}, [TOWER, '{"total": 7}']),
        ({"results": [{"text": TOWER, "score": 0.5}], "query": "tower", "status": "ok"}, [TOWER]),
        ({"hits": [{"_id": "1", "_source": {"text": TOWER, "metres": 330}}]},
         [as_json({"_id": "1", "_source": {"text": TOWER, "metres": 330}})]),
        ([TOWER, MUSEUM], [TOWER, MUSEUM]),
        ([{"page_content": TOWER, "metadata": {"page": 3}}], [TOWER]),
        ({"title": "Tower", "url": "https://a.example", "content": TOWER}, [TOWER]),
        ({"text": TOWER, "body": MUSEUM}, [as_json({"text": TOWER, "body": MUSEUM})]),
        ({"answer": "330 metres"}, ["330 metres"]),
        ({"answer": "330 metres", "metres": 330}, [as_json({"answer": "330 metres", "metres": 330})]),
        ({"error": 0.5, "metres": 330}, ['{"error": 0.5, "metres": 330}']),  # of a measurement
        ({"error": None, "metres": 330}, ['{"error": null, "metres": 330}']),
        # Messages with a result, and results of MCP.
        ({"role": "tool", "tool_call_id": "1", "content": TOWER}, [TOWER]),
        ({"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": TOWER}]}, [TOWER]),
        ({"type": "function_call_output", "call_id": "1", "output": as_json(ROW)}, [as_json(ROW)]),
        ({"content": [{"type": "text", "text": as_json({"id": "1", "text": TOWER})}, {"type": "text", "text": MUSEUM}]},
         [TOWER, MUSEUM]),
        ({"content": [{"type": "text", "text": TOWER}, {"type": "image", "data": "iVBORw0", "mimeType": "image/png"}],
          "isError": False}, [TOWER]),
        ({"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": TOWER}}]}, [TOWER]),
        ({"content": [], "structuredContent": {"metres": 330}, "isError": False}, ['{"metres": 330}']),
    ],
)  # fmt: skip
def test_a_result_is_read_alike_wherever_it_comes_from(result: Any, evidence: list[str]) -> None:
    """From a decorated function, as value and as JSON, as an object, and from the attribute of a span."""
    assert texts(result) == evidence
    assert texts(as_json(result)) == evidence
    assert [document.text for document in result_documents(as_json(result)) or ()] == evidence
    if isinstance(result, dict) and not isinstance(result.get("content"), str):
        assert texts(MappingProxyType(result)) == texts(UserDict(result)) == evidence
    assert faults.counts() == {}


@pytest.mark.parametrize(
    ("result", "evidence"),
    [
        (Height(330.5), {"metres": 330.5, "of": "Eiffel Tower"}),
        (Slotted(Decimal("330.50")), {"metres": "330.50", "opened": "1889-03-31"}),
        (Model(metres=330, unit="m"), {"metres": 330, "unit": "m"}),
        (Row("Eiffel Tower", 330), {"name": "Eiffel Tower", "metres": 330}),
        (SimpleNamespace(metres=330, kind=Kind.TOWER, _private=1), {"metres": 330, "kind": "tower"}),
        ([Row("Eiffel Tower", 330), Row("Louvre", 21)], [{"name": "Eiffel Tower", "metres": 330},
                                                         {"name": "Louvre", "metres": 21}]),
        ({"rows": [Height(1.5)], 7: UUID(int=7)},
         {"rows": [{"metres": 1.5, "of": "Eiffel Tower"}], "7": "00000000-0000-0000-0000-000000000007"}),
        ({"at": datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc), "took": timedelta(minutes=5), "n": float("inf")},
         {"at": "2026-01-02T03:04:00+00:00", "took": "0:05:00", "n": "inf"}),
    ],
)  # fmt: skip
def test_plain_values_of_objects_are_evidence(result: object, evidence: object) -> None:
    """Of dataclasses, models, named tuples and namespaces, with decimal numbers, dates and the like in them."""
    assert texts(result) == [as_json(evidence)]


def test_a_record_that_has_an_attribute_of_another_class_is_evidence() -> None:
    """As a dataclass with slots before Python 3.11.3, which has the `__weakref__` of the class that it was made of."""
    stale = {"__slots__": ("metres",), "__weakref__": vars(Slotless)["__weakref__"]}
    made: Any = type("Slotted", (), stale)()
    made.metres = 330
    assert texts(made) == ['{"metres": 330}']


@pytest.mark.parametrize(
    ("result", "evidence"),
    [
        (Decimal("19.90"), "19.90"),
        (date(1889, 3, 31), "1889-03-31"),
        (Kind.TOWER, "tower"),
        (("Eiffel Tower", 330), '["Eiffel Tower", 330]'),
    ],
)
def test_a_single_value_is_its_text(result: object, evidence: str) -> None:
    """Without quotation marks around it."""
    assert texts(result) == [evidence]


def test_numbers_of_rows_are_evidence_and_no_scores() -> None:
    """Beside a text, whatever the field; a passage keeps its score."""
    assert find_tool_result([("Eiffel Tower", 330), ("Louvre", 21)]) == (
        Document('["Eiffel Tower", 330]'),
        Document('["Louvre", 21]'),
    )
    assert find_tool_result([{"id": "1", "text": TOWER, "score": 7, "stars": 5}]) == (
        Document(as_json({"id": "1", "text": TOWER, "score": 7, "stars": 5}), "1"),
    )
    scored = [(LangChainDocument(page_content=TOWER, metadata={"id": "1"}), 0.5)]
    assert find_tool_result(scored) == (Document(TOWER, "1", 0.5),)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "No such index"}], "isError": True},
        {"role": "tool", "status": "error", "content": "No such index"},
        {"error": "No such index"},
        {"error": {"code": 404, "message": "No such index"}, "results": []},
        {"error": True, "message": "No such index"},
        ToolMessage("No such index", tool_call_id="1", status="error"),
        ValueError("No such index"),
        None,
    ],
)
def test_the_message_of_a_failure_is_no_evidence(result: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Decorated or in a span, as value or as JSON; and the log does not ask where the result is."""
    assert texts(result) is None
    if isinstance(result, dict):
        assert texts(as_json(result)) is None
        assert result_documents(as_json(result)) is None
        assert texts({"content": [{"type": "text", "text": as_json(result)}]}) is None

    @ragtrace.tool
    def look_up(query: str) -> object:
        return result

    watch(screen=None)
    look_up("height")
    assert ragtrace.flush()
    assert logged(caplog, "look_up") == []


def test_results_of_langchain() -> None:
    """A message with the result, and documents."""
    assert texts(ToolMessage(TOWER, tool_call_id="1", artifact={"raw": 1})) == [TOWER]
    assert texts(ToolMessage([{"type": "text", "text": TOWER}], tool_call_id="1")) == [TOWER]
    assert texts([LangChainDocument(page_content=TOWER, metadata={"page": 3})]) == [TOWER]


def test_values_of_numpy_are_numbers() -> None:
    """Also where they cannot be converted, as a date."""
    numpy = pytest.importorskip("numpy")
    assert texts({"metres": numpy.float32(330), "floors": numpy.int64(3)}) == ['{"metres": 330, "floors": 3}']
    assert texts([{"text": TOWER, "score": numpy.datetime64("2026-01-01")}]) == [TOWER]


@pytest.mark.parametrize(
    "result",
    [{"height": {330}}, [object()], lambda: 330, {"at": datetime(2026, 1, 1, tzinfo=Zone())}, [[1] * 200] * 200],
)
def test_what_cannot_be_read_is_said(result: object, caplog: pytest.LogCaptureFixture) -> None:
    """A set has no order, and other objects would have to run their code; the log names the remedy."""

    @ragtrace.tool
    def look_up(query: str) -> object:
        return result

    watch(screen=None)
    look_up("height")
    assert ragtrace.flush()
    assert find_tool_result(result) is None
    assert len(logged(caplog, "result=")) == 1
    assert logged(caplog, "documents=") == []


def test_a_thousand_passages_are_passages() -> None:
    """Not all of them have to be looked through to know what they are."""
    passages = [{"id": str(at), "text": TOWER, "score": 1 / (at + 1), "metadata": {"page": at}} for at in range(1_000)]
    assert texts(passages) == texts({"results": passages}) == [TOWER] * 1_000


def test_masked_results_of_spans_are_not_captured() -> None:
    """A text that an instrumentation has replaced is none of the tool's."""
    assert result_documents("[REDACTED]") is None
    assert result_documents(as_json({"content": [{"type": "text", "text": "__REDACTED__"}]})) is None
    assert texts("[REDACTED]") == ["[REDACTED]"]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9_999, 9_999) | st.floats(allow_nan=False, allow_infinity=False, width=16),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdefg"), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(500))
@given(PLAIN)
def test_no_number_of_a_result_is_lost(value: Any) -> None:
    """Whatever the structure, all numbers are in the evidence, which is the same for an object and its JSON."""
    found = texts(value)
    if value is None or value == []:
        assert not found
        return
    assert found is not None
    assert found == texts(as_json(value)) or not isinstance(value, (dict, list))

    def numbers(part: Any) -> list[str]:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return [as_json(part)] if isinstance(part, (int, float)) else [n for each in inner for n in numbers(each)]

    assert all(number in " ".join(found) for number in numbers(value))


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda n: [{"text": f"Passage {each}."} for each in range(n)], 1_000),
        (lambda n: {"results": [{"text": f"Passage {each}."} for each in range(n)]}, 1_000),
        (lambda n: {"results": [f"Passage {each}." for each in range(n)], "found": n}, 1_001),
        (lambda n: [{"type": "text", "text": f"Passage {each}."} for each in range(n)], 1_000),
        (lambda n: {"content": [{"type": "text", "text": json.dumps([TOWER] * n)}]}, 1_000),
        (lambda n: [{"text": TOWER, "height": each} for each in range(n)], 1),
        (lambda n: list(range(n)), 1),
    ],
    ids=["passages", "wrapped", "with more", "parts", "part of JSON", "data", "numbers"],
)
def test_a_result_that_was_read_in_part_is_marked(make: Callable[[int], object], kept: int) -> None:
    """Decorated and in a span; the same with no more items than are read is not marked."""
    whole, cut = find_tool_result(make(900)), find_tool_result(make(1_200))
    assert (type(whole), type(cut)) == (tuple, DocumentsInPart)
    assert cut is not None
    assert len(cut) == kept
    assert type(documents_of_results([make(900), make(1_200)])) is DocumentsInPart
    assert type(documents_of_results([make(900)])) is tuple


def test_a_text_that_is_kept_whole_is_no_part() -> None:
    """The JSON text of many rows of data is one document, to its end."""
    text = json.dumps([ROW] * 3_000)
    assert find_tool_result(text) == (Document(text),)
    assert type(find_tool_result(text)) is tuple
