"""Times of a generation: what is measured, and what is left unscored instead of being made up."""

from __future__ import annotations

import pytest

from ragtrace.core.types import Judgement, RagCall, Score, Timing, Unscored, Usage
from ragtrace.metrics.latency import duration_s, time_per_output_token_s, time_to_first_token_s


def call(timing: Timing | None, tokens: int | None = None) -> RagCall:
    return RagCall(query="q", contexts=None, answer="a", timing=timing, usage=Usage(output_tokens=tokens))


def values(of: RagCall) -> list[float | str]:
    results = [metric(of, Judgement()) for metric in (time_to_first_token_s, time_per_output_token_s, duration_s)]
    return [result.value if isinstance(result, Score) else result.reason for result in results]


@pytest.mark.parametrize(
    ("timing", "tokens", "expected"),
    [
        (Timing(2.6, 0.5, 2.5), 41, [0.5, 0.05, 2.5]),
        (Timing(0.5, 0.5, 0.5), 1, [0.5, "too_few_tokens", 0.5]),
        (Timing(2.5, 0.5, 2.5), None, [0.5, "no_token_usage", 2.5]),
        (Timing(2.5), 41, ["not_streamed", "not_streamed", 2.5]),
        (Timing(4.5, 0.5, 4.5, consumer_wait_s=2.0), 41, [0.5, 0.05, 4.5]),
        (None, 41, ["not_streamed", "not_streamed", "not_streamed"]),
    ],
)
def test_times(timing: Timing | None, tokens: int | None, expected: list[float | str]) -> None:
    """First piece, a token after it, and the whole; the reader's own time is not the model's."""
    assert values(call(timing, tokens)) == pytest.approx(expected)


def test_the_readers_own_time_is_published() -> None:
    """Who reads slowly sees it beside the number it was taken out of."""
    result = time_per_output_token_s(call(Timing(4.5, 0.5, 4.5, consumer_wait_s=2.0), 41), Judgement())
    assert result.attributes == {"consumer_wait_s": 2.0}


def test_without_waiting_the_parts_make_the_whole() -> None:
    """duration = first token + per token * (tokens - 1)."""
    first, per_token, whole = values(call(Timing(2.5, 0.5, 2.5), 41))
    assert isinstance(first, float)
    assert isinstance(per_token, float)
    assert first + per_token * 40 == pytest.approx(whole)


def test_an_unscored_time_is_no_failure() -> None:
    """It does not apply, which is not the judge's fault."""
    result = time_per_output_token_s(call(None), Judgement())
    assert isinstance(result, Unscored)
    assert result.status == "not_applicable"
