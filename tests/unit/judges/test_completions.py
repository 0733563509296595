"""Reading a server's answer: whatever it sends, there is a completion or a reason."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.errors import JudgeError
from ragtrace.core.unscored_reasons import JUDGE_ERROR
from ragtrace.judges.llm.completions import Completion, read_completion
from ragtrace.judges.llm.embedder import read_vectors

KEYS = st.sampled_from(
    "choices message delta content refusal finish_reason logprobs token logprob top_logprobs usage prompt_tokens"
    " completion_tokens prompt_tokens_details cached_tokens model error code status index text".split()
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**12)
    | st.just(10**400)
    | st.floats()
    | st.sampled_from(["stop", "length", "", "x", "\ud800", "[DONE]"])
)
ANYTHING = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=4), max_leaves=20
)
ANSWERS = st.dictionaries(KEYS, ANYTHING, max_size=5) | st.fixed_dictionaries(
    {"choices": st.lists(st.dictionaries(KEYS, ANYTHING, max_size=5), min_size=1, max_size=3)}
)

VECTORS = st.lists(st.floats() | st.integers() | st.just(10**400), max_size=2) | st.text(max_size=9)
EMBEDDINGS = st.fixed_dictionaries(
    {"data": st.lists(st.fixed_dictionaries({"index": st.integers(0, 2) | ANYTHING, "embedding": VECTORS}), max_size=3)}
)


def outcome(body: bytes) -> Completion | None:
    """The completion; None: there was an error of ours."""
    try:
        return read_completion(body)
    except JudgeError as error:
        assert error.reason in JUDGE_ERROR, error  # noqa: PT017
        return None


def assert_sound(read: Completion | None) -> None:
    for choice in read.choices if read else ():
        assert choice.text.encode() is not None
        assert choice.refusal.encode() is not None
        for token in choice.tokens or ():
            assert math.isfinite(token.logprob)
            assert all(math.isfinite(logprob) for _, logprob in token.top)


@given(ANSWERS)
def test_any_json_is_read_or_has_a_reason(answer: dict[str, Any]) -> None:
    """No exception of another kind, no text that cannot be encoded, no number that is none."""
    assert_sound(outcome(json.dumps(answer).encode("utf-8", "replace")))


@given(st.lists(ANSWERS, max_size=4))
def test_any_stream_is_read_or_has_a_reason(answers: list[dict[str, Any]]) -> None:
    """Event by event."""
    events = "".join(f"data: {json.dumps(answer)}\n\n" for answer in answers)
    assert_sound(outcome(events.encode("utf-8", "replace")))


@given(st.binary(max_size=200) | st.text().map(lambda text: f"data: {text}\n\n".encode("utf-8", "replace")))
def test_any_bytes_have_a_reason(body: bytes) -> None:
    """Garbage included."""
    assert_sound(outcome(body))


@given(st.dictionaries(st.sampled_from(["data", "usage", "error"]), ANYTHING, max_size=3) | EMBEDDINGS)
def test_any_vectors_are_sound_or_have_a_reason(answer: dict[str, Any]) -> None:
    """Two of the same length, with finite numbers."""
    try:
        vectors = read_vectors(answer, 2)
    except JudgeError as error:
        assert error.reason in ("unparsable", "non_finite")  # noqa: PT017
    else:
        assert [len(vector) for vector in vectors] == [len(vectors[0])] * 2
        assert all(math.isfinite(number) for vector in vectors for number in vector)


def test_a_stream_is_put_together() -> None:
    """Comments, other fields and carriage returns are passed over; pieces belong to their choice."""
    pieces = [
        {"model": "m", "choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a1"}}]},
        {"choices": [{"index": 0, "delta": {"content": "a2"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    ]
    events = ": hello\r\n\r\n" + "".join(f"event: chunk\r\ndata:{json.dumps(piece)}\r\n\r\n" for piece in pieces)
    read = read_completion((events + "data: [DONE]\r\n\r\n").encode())
    assert [(choice.text, choice.finish) for choice in read.choices] == [("a1a2", "stop"), ("b", "")]
    assert read.model == "m"
    assert read.usage is not None
    assert read.usage.input_tokens == 3


def test_an_error_in_the_middle_of_a_stream_ends_it() -> None:
    """What came before is half a reply."""
    events = (
        'data: {"choices": [{"delta": {"content": "{"}}]}\n\ndata: {"error": {"message": "overloaded", "code": 529}}'
    )
    with pytest.raises(JudgeError, match="overloaded") as caught:
        read_completion(events.encode())
    assert caught.value.retryable


def test_text_in_parts_is_joined() -> None:
    """Some servers send a list."""
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    body = json.dumps({"choices": [{"message": {"content": parts}}]}).encode()
    assert read_completion(body).choices[0].text == "ab"


@pytest.mark.parametrize("streamed", [False, True])
def test_model_and_fingerprint_are_read(streamed: bool) -> None:
    """From one JSON body, and from the events of a stream."""
    body = json.dumps(
        {"model": "big-2", "system_fingerprint": "fp_1", "choices": [{"message": {"content": "yes"}}], "usage": None}
    )
    read = read_completion(f"data: {body}\n\ndata: [DONE]\n\n".encode() if streamed else body.encode())
    assert (read.model, read.fingerprint) == ("big-2", "fp_1")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_reply_in_the_field_of_the_reasoning_is_read(field: str, content: str | None) -> None:
    """Servers whose parser waits for the end of a thought put the whole reply there; a thought is no reply."""

    def text_of(thought: object, content: object = content) -> str:
        body = {"choices": [{"message": {"content": content, field: thought}}]}
        return read_completion(json.dumps(body).encode()).choices[0].text

    assert text_of('\n{"label": "good"}\n') == '{"label": "good"}'
    assert text_of('{"label": "bad"}', "good") == "good"
    for thought in ("Is it good?", 'It is {"label": "good"}', '{"a": 1} {"b": 2}', "[1]", "{", {"a": 1}, None):
        assert text_of(thought).strip() == ""
