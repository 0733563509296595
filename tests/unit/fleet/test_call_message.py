"""The message of a call to the workers of a fleet: what is written is read, and everything else is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from ragtrace.core.labels import CitedPart, Turn
from ragtrace.core.types import Document, RagCall, Timing, Usage
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.call_message import MOST_BYTES, CallMessage, MessageError, read_message, write_message

SPAN = SpanContext(0xABC, 0xDEF, True, TraceFlags(1), TraceState([("vendor", "value")]))
CALL = RagCall(
    "How tall is it? \U0001f5fc",
    (Document("330 m", id="d1", score=0.5),),
    "330 m",
    workflow="towers",
    timing=Timing(1.0, 0.5),
    usage=Usage(3, 4),
    span=SPAN,
    turns=(Turn("user", "Hello"), Turn("assistant", "Hi")),
    runs=("330 m", "331 m"),
    parts=(CitedPart("330 m", ("d1",)),),
    tags={"tenant": "acme", "paying": True, "seats": 3, "share": 0.5},
)
MESSAGE = CallMessage.of(UnscoredCall(CALL, (), "response-1", 0.25))


def changed(**values: Any) -> str:
    """The message with other values; names with a dot are fields of the call."""
    record = json.loads(write_message(MESSAGE))
    for name, value in values.items():
        place, _, field = name.rpartition("__")
        (record[place] if place else record)[field] = value
    return json.dumps(record)


def test_a_message_is_read_as_it_was_written() -> None:
    """Every field of the call, its span and its probability arrive."""
    assert read_message(write_message(MESSAGE)) == MESSAGE


def test_how_much_of_the_answer_was_cut_is_kept() -> None:
    """So that a worker's score of a part of it says so, as that of a call from the spool does."""
    call = RagCall("q", (Document("c", cut_chars=3),), "a", answer_cut_chars=12, span=SpanContext(1, 1, False))
    message = CallMessage.of(UnscoredCall(call, (), None, 0.5))
    read = read_message(write_message(message)).unscored.call
    assert (read.answer_cut_chars, read.contexts[0].cut_chars if read.contexts else None) == (12, 3)


def test_tags_keep_the_types_of_their_values() -> None:
    """True is no 1, and 1 is no 1.0."""
    tags = {"yes": True, "one": 1, "float": 1.0, "text": "1"}
    call = RagCall("q", (), "a", span=SPAN, tags=MappingProxyType(tags))
    read = read_message(write_message(CallMessage.of(UnscoredCall(call, (), None, 0.5)))).unscored.call.tags
    assert [(name, type(value)) for name, value in read.items()] == [(n, type(v)) for n, v in tags.items()]


def test_a_message_of_a_release_that_had_no_tags_has_none() -> None:
    """As its queue is still full of them when the workers are new."""
    record = json.loads(write_message(MESSAGE))
    del record["call"]["tags"]
    assert read_message(json.dumps(record)).unscored.call == replace(CALL, tags={})


def test_the_route_of_the_call_is_kept() -> None:
    """Its scores go where its spans went."""
    call = RagCall("q", (), "a", route="tenant=acme", span=SpanContext(1, 1, False))
    assert read_message(write_message(CallMessage.of(UnscoredCall(call, (), None, 0.5)))).unscored.call.route == (
        "tenant=acme"
    )


def test_the_number_of_tries_is_kept() -> None:
    """A call that failed once says so."""
    assert read_message(write_message(MESSAGE._replace(tries=1))).tries == 1


def test_unknown_fields_are_let_through() -> None:
    """A later release may add a field without a new version."""
    assert read_message(changed(added="later", call__added=1)) == MESSAGE


def test_a_call_that_is_too_large_is_not_written() -> None:
    """The sender learns it, and not a worker."""
    call = RagCall("q", (Document("x" * MOST_BYTES),), "a", span=SPAN)
    with pytest.raises(MessageError) as raised:
        write_message(CallMessage.of(UnscoredCall(call, (), None, 1.0)))
    assert raised.value.reason == "too_large"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"bytes", "malformed"),
        ("", "malformed"),
        ("[]", "malformed"),
        ("[" * 100_000, "malformed"),
        ('{"a":' * 100_000, "malformed"),
        ("1" * 10_000, "malformed"),
        (" " * (MOST_BYTES + 1), "too_large"),
        ("{}", "version"),
        (changed(version=2), "version"),
        (changed(version=True), "version"),
        (changed(version="1"), "version"),
        (changed(version={"nested": []}), "version"),
        (changed(probability=None), "malformed"),
        (changed(probability=0), "malformed"),
        (changed(probability=1.5), "malformed"),
        (changed(probability=float("nan")), "malformed"),
        (changed(deadline="soon"), "malformed"),
        (changed(published=-1), "malformed"),
        (changed(tries=-1), "malformed"),
        (changed(tries=True), "malformed"),
        (changed(span=None), "malformed"),
        (changed(span__trace="xyz"), "malformed"),
        (changed(span__trace="f" * 33), "malformed"),
        (changed(span__flags=256), "malformed"),
        (changed(response_id=7), "malformed"),
        (changed(open={}), "malformed"),
        (changed(call=[]), "malformed"),
        (changed(call={}), "malformed"),
        (changed(call__query=["no", "text"]), "malformed"),
        (changed(call__contexts="text"), "malformed"),
        (changed(call__contexts=[{"id": "d1"}]), "malformed"),
        (changed(call__contexts=[{"text": None}]), "malformed"),
        (changed(call__contexts=[{"text": "x", "score": "high"}]), "malformed"),
        (changed(call__contexts=[[]] * 10_001), "malformed"),
        (changed(call__turns=[{"role": "system", "text": "x"}]), "malformed"),
        (changed(call__turns=[{"role": [], "text": "x"}]), "malformed"),
        (changed(call__timing={"duration_s": "1"}), "malformed"),
        (changed(call__runs=[1]), "malformed"),
        (changed(call__streamed=1), "malformed"),
        (changed(open=[7]), "malformed"),
        (changed(open=[["judge"]]), "malformed"),
        (changed(open=[None]), "malformed"),
        (changed(open=[""]), "malformed"),
        (changed(open=["judge"] * 101), "malformed"),
        (changed(call__cut_chars=10**400), "malformed"),
        (changed(call__tags=None), "malformed"),
        (changed(call__tags=["tenant"]), "malformed"),
        (changed(call__tags={"tenant": None}), "malformed"),
        (changed(call__tags={"tenant": ["acme"]}), "malformed"),
        (changed(call__tags={"no name": "acme"}), "malformed"),
        (changed(call__tags={"tenant": "x" * 201}), "malformed"),
        (changed(call__tags={"seats": 10**400}), "malformed"),
        (changed(call__tags={f"t{n}": n for n in range(17)}), "malformed"),
        (changed(published=10**400), "malformed"),
        (changed(call__contexts=[{"text": "x", "score": 10**400}]), "malformed"),
    ],
    ids=lambda value: value if len(value) < 10 else "message",
)
def test_a_wrong_message_is_refused_with_its_reason(text: object, reason: str) -> None:
    """Wrong types, ranges, versions, sizes and depths are named, and never raise anything else."""
    with pytest.raises(MessageError) as raised:
        read_message(text)
    assert raised.value.reason == reason


@pytest.mark.parametrize("bad", ["\ud800", "\0"])
@pytest.mark.parametrize("escaped", [True, False])
def test_what_cannot_be_exported_is_replaced_in_each_text(bad: str, escaped: bool) -> None:
    """Else the worker's exporter would lose the spans of other calls along with the scores of this one."""
    text = changed(
        open=["judge!"], reason="a!", response_id="r!", unjudged={"w!": 1}, call__workflow="w!", call__answer="It!",
        call__contexts=[{"text": "x!", "id": "d!"}], call__turns=[{"role": "user", "text": "t!"}],
    )  # fmt: skip
    message = read_message(text.replace("!", json.dumps(bad)[1:-1] if escaped or bad == "\0" else bad))
    call = message.unscored.call
    document, turn = (call.contexts or ())[0], (call.turns or ())[0]
    texts = [*message.unscored.pending_evaluators, message.unscored.reason, message.unscored.response_id]
    texts += [*message.unjudged, call.workflow, call.answer, document.text, document.id, turn.text]
    assert [str(each)[-1] for each in texts] == ["\ufffd"] * 9


def test_pairs_of_surrogates_are_texts() -> None:
    """JSON writes characters beyond the first plane so."""
    answer = "It is \U0001f600 there, \\ud800 too."
    text = changed(call__answer=answer)
    assert "\\ud83d" in text
    assert read_message(text).unscored.call.answer == answer


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(write_message(MESSAGE)))), JSON)
def test_any_value_of_any_field_is_read_or_refused(name: str, value: object) -> None:
    """Nothing but a `MessageError` is raised for a field of the envelope."""
    with suppress(MessageError):
        read_message(changed(**{name: value}))


@given(st.sampled_from(sorted(json.loads(write_message(MESSAGE))["call"])), JSON)
def test_any_value_of_any_field_of_the_call_is_read_or_refused(name: str, value: object) -> None:
    """Nothing but a `MessageError` is raised for a field of the call."""
    with suppress(MessageError):
        read_message(changed(**{f"call__{name}": value}))
