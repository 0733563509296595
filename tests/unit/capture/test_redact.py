"""Redaction: what must not leave the process does not, and every cut is counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.capture.redact import FAILED, MARGIN_CHARS, Redact, Redacted
from ragtrace.core.errors import SettingsError
from ragtrace.core.text import encodable
from ragtrace.core.types import Document
from ragtrace.system.faults import faults

CARD = r"\b\d{16}\b"
NUMBER = "1234567890123456"


@pytest.fixture(autouse=True)
def fresh_faults() -> Iterator[None]:
    """Each test sees its own faults."""
    faults.clear()
    yield
    faults.clear()


# --- patterns --------------------------------------------------------------------------------------------------------
def test_matches_are_replaced_and_counted() -> None:
    """Every match of every pattern."""
    redact = Redact([CARD, re.compile("secret", re.IGNORECASE)])
    assert redact.text(f"{NUMBER} and Secret") == Redacted("[redacted] and [redacted]")


def test_without_a_match_nothing_changes() -> None:
    """The text is the very same."""
    text = "nothing to hide"
    assert Redact([CARD]).text(text).text is text


def test_the_replacement_is_literal() -> None:
    """It is no template: a backslash stays one."""
    assert Redact(["b"], replacement=r"\1").text("abc").text == r"a\1c"


def test_overlapping_matches_leave_nothing_between() -> None:
    """Each pattern sees the original text, so that one cannot spoil another's match."""
    redact = Redact([r"\d{4}", r"[A-Z]{2}\d{6}"])
    assert redact.text("id AB123456 end") == Redacted("id [redacted] end")


def test_empty_matches_are_ignored() -> None:
    """A pattern that can match nothing replaces only what it really matched."""
    assert Redact([r"\d*"]).text("a12b") == Redacted("a[redacted]b")


# --- the limit -------------------------------------------------------------------------------------------------------
def test_long_texts_are_cut_and_the_cut_is_counted() -> None:
    """The count is exact."""
    assert Redact(max_chars=10).text("x" * 25) == Redacted("x" * 10, cut_chars=15)


def test_texts_of_the_limit_are_whole() -> None:
    """The limit itself is allowed."""
    assert Redact(max_chars=10).text("x" * 10) == Redacted("x" * 10)


def test_no_limit() -> None:
    """None keeps everything."""
    assert Redact(max_chars=None).text("x" * 100_000) == Redacted("x" * 100_000)


def test_a_match_across_the_cut_leaves_no_part() -> None:
    """A card number whose first half would be kept is found whole."""
    for start in range(80, 101):
        text = " " * start + NUMBER + " " * 10_000
        assert not re.search(r"\d", Redact([CARD], max_chars=100).text(text).text)


def test_a_match_across_the_end_of_what_is_looked_at_leaves_no_part() -> None:
    """Replaced matches make the text shorter: what was not seen whole must not move into the kept part."""
    window = 100 + MARGIN_CHARS
    secrets = "secretsecretsecretsecret " * (window // 25)
    text = (secrets + " " * window)[: window - 8] + NUMBER + " tail" * 1_000
    redacted = Redact([CARD, r"(?:secret)+ "], max_chars=100, replacement="").text(text)
    assert not re.search(r"\d", redacted.text)
    assert redacted.cut_chars > 0


def test_a_function_sees_beyond_the_cut() -> None:
    """So that it too can recognise what would be cut in half."""
    redact = Redact(max_chars=100, function=lambda text: text.replace(NUMBER, "#"))
    assert not re.search(r"\d", redact.text(" " * 95 + NUMBER + " " * 10_000).text)


def test_a_function_that_shortens_cannot_pull_in_an_unseen_part() -> None:
    """The end of what it was given may be half a secret."""
    text = " " * (100 + MARGIN_CHARS - 8) + NUMBER + " " * 1_000
    redact = Redact(max_chars=100, function=lambda seen: seen.replace(NUMBER, "#").replace(" ", ""))
    assert redact.text(text).text == ""


def test_fifty_megabytes_are_cheap() -> None:
    """Only what can be kept is looked at: a pattern that would take minutes over everything sees little."""
    seen: list[int] = []

    def watch(text: str) -> str:
        seen.append(len(text))
        return text

    redacted = Redact([r"(x+)y"], max_chars=100, function=watch).text("x" * 50_000_000)
    assert seen == [100 + MARGIN_CHARS]
    assert redacted == Redacted("x" * 100, cut_chars=49_999_900)


@given(st.text(alphabet="a1 ", max_size=60), st.integers(min_value=1, max_value=40))
def test_no_digit_survives_and_nothing_is_lost_uncounted(text: str, limit: int) -> None:
    """For any text and limit: bounded, redacted, and every missing character is either a hit's or counted."""
    redacted = Redact([r"1+"], max_chars=limit, replacement="").text(text)
    assert "1" not in redacted.text
    assert len(redacted.text) + redacted.cut_chars == len(text) - text.count("1")
    assert len(redacted.text) <= limit


# --- characters ------------------------------------------------------------------------------------------------------
def test_lone_surrogates_are_replaced() -> None:
    """They cannot be encoded, and one would lose a whole batch of spans."""
    assert Redact().text("a\ud800b").text == "a\ufffdb"


def test_surrogate_pairs_are_joined() -> None:
    """Two halves make the character that was meant."""
    assert Redact().text("\ud83d\ude00").text == "\U0001f600"


def test_nul_is_replaced() -> None:
    """Backends on PostgreSQL refuse it."""
    assert Redact().text("a\0b").text == "a\ufffdb"


def test_a_nul_does_not_hide_a_match() -> None:
    """Characters are put right before patterns look."""
    assert "x" not in Redact(["x\ufffdy"]).text("x\0y").text


def test_other_characters_stay() -> None:
    """Tabs, line ends, other controls and every script."""
    text = "a\t\r\n\x1b é 漢字 العربية \U0001f600"
    assert Redact().text(text).text == text


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=50))
def test_everything_can_be_encoded(text: str) -> None:
    """Any text of any characters."""
    encodable(text).encode("utf-8")


def test_a_functions_result_can_be_encoded() -> None:
    """What it returns is put right too."""
    assert Redact(function=lambda text: text + "\ud800").text("a").text == "a\ufffd"


# --- failures --------------------------------------------------------------------------------------------------------
def refuse(_: str) -> str:
    """A user's function that fails."""
    raise RuntimeError("no")


@pytest.mark.parametrize("function", [refuse, lambda text: None, lambda text: text.encode()])
def test_a_failing_function_does_not_let_the_text_out(function: Any) -> None:
    """No text is better than the wrong one; it is counted."""
    redacted = Redact(function=function).text("secret")
    assert redacted.text == FAILED
    assert redacted.cut_chars == len("secret")
    assert faults.counts() == {"redaction": 1}


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_function_that_exits_fails_like_any_other(ends: type[BaseException]) -> None:
    """On the threads of ragtrace, which would end otherwise; on the main thread it may be a signal's, and passes."""

    def leave(_: str) -> str:
        raise ends

    redact = Redact(function=leave, ids=leave)
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(redact.text, "secret").result().text == FAILED
        assert threads.submit(redact.tail, "secret", 3).result() == FAILED
        assert threads.submit(redact.id, "secret").result() == FAILED
    assert faults.counts() == {"redaction": 3}
    for method in (redact.text, redact.id):
        with pytest.raises(ends):
            method("secret")


def test_a_message_that_cannot_be_redacted_is_left_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the user's function exits: that must not end the thread which counts the failure."""

    def leave(_: str) -> str:
        raise SystemExit(3)

    faults.message_filter = Redact(function=leave).message
    with ThreadPoolExecutor(1) as threads:
        threads.submit(faults.record, "scoring", ValueError("secret")).result()
    assert "could not be redacted" in caplog.text
    assert "secret" not in caplog.text
    assert faults.counts() == {"scoring": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patterns": CARD}, r"must be a list of regular expressions, got str.*patterns=\[\.\.\.\]"),
        ({"patterns": re.compile("a")}, "must be a list"),
        ({"patterns": 5}, "must be a list"),
        ({"patterns": ["("]}, r"'\(' is no regular expression"),
        ({"patterns": [5]}, "5 is no regular expression"),
        ({"patterns": [b"a"]}, "matches bytes"),
        ({"max_chars": 0}, "must be a whole number above 0, or None for no limit; got 0"),
        ({"max_chars": -1}, "above 0"),
        ({"max_chars": True}, "above 0"),
        ({"max_chars": 1.5}, "above 0"),
        ({"replacement": None}, "must be a str, got None"),
        ({"function": "f"}, "must take and return a str, got str"),
    ],
)
def test_mistakes_stop_at_once(arguments: dict[str, Any], message: str) -> None:
    """What was wrong, what was given, what to write."""
    with pytest.raises(SettingsError, match=message):
        Redact(**arguments)


def test_settings_cannot_be_changed_afterwards() -> None:
    """A list of patterns is copied."""
    patterns = ["a"]
    redact = Redact(patterns)
    patterns.append("b")
    assert redact.patterns == ("a",)
    assert redact == Redact(["a"])
    assert hash(redact) == hash(Redact(["a"]))


# --- documents and calls ---------------------------------------------------------------------------------------------
def test_documents() -> None:
    """Text and id are redacted, the cut is added up, the rest is kept."""
    redact = Redact(["secret"], max_chars=13)
    found = redact.documents([Document("secret " + "x" * 20, "id secret", 0.5, duplicate=True, cut_chars=1)])
    assert found == (Document("[redacted] xx", "id [redacted]", 0.5, duplicate=True, cut_chars=19),)


def test_documents_without_a_finding_are_the_same() -> None:
    """Nothing is copied for nothing."""
    document = Document("a", "1")
    assert Redact(["secret"]).documents([document])[0] is document
