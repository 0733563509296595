"""The cost of splitting long texts into windows."""

from __future__ import annotations

from ragtrace.judges.local.scorer import split_at_sentences


def test_windows_of_a_long_text_are_found_without_reading_them_again_for_each_sentence() -> None:
    """The characters that are measured grow with the text, and not with the sentences in a window."""
    text, measured = "The tower stands in Paris. " * 4_000, 0

    def fits(window: str) -> bool:
        nonlocal measured
        measured += len(window)
        return len(window) <= 50_000

    windows = list(split_at_sentences(text, fits))
    assert len(windows) == 3
    assert measured < 40 * len(text)
