"""The JSON on spans is put together by hand, and equals what the standard library makes of the same structures."""

from __future__ import annotations

import json

import pytest

from ragtrace.core.step import Message
from ragtrace.core.types import Document
from ragtrace.dialects.otel_genai import document_records, documents_json, message_records, messages_json

TEXTS = (
    "",
    "plain",
    'a "quoted" back\\slash / and a tab\t',
    "line\nbreak\r\u2028\u2029",
    "\x00\x01\x1f\x7f",
    "Größe 漢字 \U0001f600",
    "\ufffd",
)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("text", TEXTS)
def test_a_message_is_what_the_standard_library_makes_of_it(text: str) -> None:
    """Whatever its text holds."""
    said = (Message("user", "Why?"), Message("assistant", text))
    assert messages_json(said) == _dumps(message_records(said))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("id_", [None, "", 'a "b"'])
@pytest.mark.parametrize("score", [None, 0.0, -0.0, 1, 1e-7, 1e300, float("inf"), float("nan"), True])
def test_documents_are_what_the_standard_library_makes_of_them(text: str, id_: str | None, score: float | None) -> None:
    """With and without id and score."""
    documents = (Document(text, id_, score), Document("and another"))
    assert documents_json(documents) == _dumps(document_records(documents))


def test_no_documents_are_an_empty_list() -> None:
    """Retrieval found nothing."""
    assert documents_json(()) == "[]"
