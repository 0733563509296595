"""Times of a generation, from its span: no judge is asked.

Stream pieces are not tokens: per-token times need the token count that the provider reports. The time that the reader
held the stream between two pieces is not the model's; it is subtracted and published.
"""

from __future__ import annotations

import math

from ragtrace.metrics.formula import Formula
from ragtrace.model import Judgement, RagCall, Result, Score, Timing, Unscored


def time_to_first_token_of(call: RagCall, _: Judgement) -> Result:
    """Seconds from submitting the generation to the first piece of its stream.

    Inputs: the call's timing. Range [0, inf) seconds, lower is better. No judge call.

    Unscored: `not_streamed`.

    Source: the usual definition of time to first token in LLM serving.
    """
    timing = call.timing
    if timing is None or timing.first_s is None:
        return Unscored("not_streamed")
    return Score(timing.first_s)


def time_per_output_token_of(call: RagCall, _: Judgement) -> Result:
    """Seconds a token after the first: (last - first - the reader's own time) / (output tokens - 1).

    Inputs: the call's timing and the provider's output token count. Range [0, inf) seconds, lower is better. No judge
    call. Attribute `consumer_wait_s`: the reader's own time between the first piece and the last.

    Unscored: `not_streamed`, `no_token_usage`, `too_few_tokens` (one or none).

    Source: the usual definition of time per output token in LLM serving.
    """
    timing, tokens = call.timing, call.usage.output_tokens
    if timing is None or timing.first_s is None or timing.last_s is None:
        return Unscored("not_streamed")
    if tokens is None:
        return Unscored("no_token_usage")
    if tokens <= 1:
        return Unscored("too_few_tokens")
    generating = timing.last_s - timing.first_s - timing.consumer_wait_s
    return Score(generating / (tokens - 1), attributes={"consumer_wait_s": timing.consumer_wait_s})


def duration_of(call: RagCall, _: Judgement) -> Result:
    """Seconds from submitting the generation to its last piece, or to its return if it was not streamed.

    Inputs: the call's timing. Range [0, inf) seconds, lower is better. No judge call. Attribute `consumer_wait_s`.

    Unscored: `not_streamed` if the call has no timing (it was not traced).

    Source: the usual definition of end-to-end latency in LLM serving.
    """
    timing = call.timing
    if timing is None:
        return Unscored("not_streamed")
    return Score(_end(timing), attributes={"consumer_wait_s": timing.consumer_wait_s})


def _end(timing: Timing) -> float:
    return timing.duration_s if timing.last_s is None else timing.last_s


_SECONDS = (0.0, math.inf)
time_to_first_token_s = Formula(
    "time_to_first_token_s", "1", time_to_first_token_of, frozenset(), higher_is_better=False, range=_SECONDS
)
time_per_output_token_s = Formula(
    "time_per_output_token_s", "1", time_per_output_token_of, frozenset(), higher_is_better=False, range=_SECONDS
)
duration_s = Formula("duration_s", "1", duration_of, frozenset(), higher_is_better=False, range=_SECONDS)
