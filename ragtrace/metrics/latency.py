"""Latency of a generation, measured by its span and without a judge.

Stream pieces are not tokens: per-token times need the token count that the provider reports. The time that the reader
held the stream between two pieces is not the model's; it is subtracted and published.
"""

from __future__ import annotations

import math
from typing import Final

from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import formula

_SECONDS: Final = (0.0, math.inf)


@formula(higher_is_better=False, range=_SECONDS)
def time_to_first_token_s(call: RagCall, _: Judgement) -> Result:
    """Seconds from the start of the generation to the first piece of its stream.

    Inputs: the call's timing.
    Formula: first piece - submit.
    Range: [0, inf) seconds, lower is better.
    Judge calls: none.
    Unscored: `not_streamed`.
    Source: the usual definition of time to first token in LLM serving.
    """
    timing = call.timing
    if timing is None or timing.first_s is None:
        return Unscored("not_streamed")
    return Score(timing.first_s)


@formula(higher_is_better=False, range=_SECONDS)
def time_per_output_token_s(call: RagCall, _: Judgement) -> Result:
    """Mean seconds per output token after the first one.

    Inputs: the call's timing and the number of output tokens, N, that the provider reports.
    Formula: (last piece - first piece - the reader's own time between them) / (N - 1).
    Range: [0, inf) seconds, lower is better.
    Judge calls: none.
    Unscored: `not_streamed`; `no_token_usage`; `too_few_tokens` (one or none).
    Source: the usual definition of time per output token in LLM serving.

    The attribute `consumer_wait_s` is the reader's own time. Pieces of a stream are not tokens.
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


@formula(higher_is_better=False, range=_SECONDS)
def duration_s(call: RagCall, _: Judgement) -> Result:
    """Seconds from the start of the generation to its last piece, or to its return if it was not streamed.

    Inputs: the call's timing.
    Formula: last piece - submit; of a call that was not streamed, its return - submit.
    Range: [0, inf) seconds, lower is better.
    Judge calls: none.
    Unscored: `not_streamed` (the call was not traced, so that it has no timing; the stream metrics share this reason).
    Source: the usual definition of end-to-end latency in LLM serving.

    The attribute `consumer_wait_s` is the reader's own time between the first piece and the last.
    """
    timing = call.timing
    if timing is None:
        return Unscored("not_streamed")
    end = timing.duration_s if timing.last_s is None else timing.last_s
    return Score(end, attributes={"consumer_wait_s": timing.consumer_wait_s})


METRICS: Final = (time_to_first_token_s, time_per_output_token_s, duration_s)
