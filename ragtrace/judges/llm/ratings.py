"""Ratings of a call that an LLM gives by a user's own criteria (`g_eval`).

A rating is the mean over replies, or over possible scores weighted by token probability.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Rating, RatingMethod
from ragtrace.core.types import RagCall
from ragtrace.judges.llm.extra_labels import MOST_UNJUDGED, ExtraLabels, LabelFamily
from ragtrace.judges.llm.prompt import enum, id_text_list, object_with, string, strings
from ragtrace.judges.llm.prompts import own_instructions
from ragtrace.judges.llm.reply_reader import ReplyReader, one_line, shorten_value

SAMPLING_TEMPERATURE: Final = 1.0
LEAST_PROBABILITY: Final = 0.01
"""Lowest probability of a token that counts as a candidate for the rating."""
_FEWEST_STEPS: Final = 2
_MOST_STEPS: Final = 6
_STEPS: Final = object_with(steps=strings())
_MOST_REMEMBERED: Final = 256
_DESCRIBED: Final = {
    "query": "query: what the user asked (elsewhere called input)",
    "answer": "answer: what is rated (actual output)",
    "contexts": "contexts: the passages retrieved for the query (retrieval context)",
    "reference": "reference: a right answer (expected output)",
    "turns": "turns: the conversation so far",
}


@runtime_checkable
class RatedMetric(Protocol):
    """Protocol of a metric made by `g_eval`, for which an LLM rates the call by the criteria of the user."""

    @property
    def name(self) -> str: ...
    @property
    def criteria(self) -> str | None: ...
    @property
    def steps(self) -> tuple[str, ...]: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    @property
    def method(self) -> RatingMethod: ...
    @property
    def samples(self) -> int: ...
    def missing_input(self, call: RagCall) -> str:
        """Return the reason why *call* cannot be rated by this metric, or "" if there is none."""
        ...


class RatingReply(NamedTuple):
    """Reply of the LLM that rates a call: the score and the reason for it."""

    score: int | None
    reason: str
    defects: list[str]


def read_rating(data: Mapping[str, Any], low: int, high: int) -> RatingReply:
    """Read the score from the LLM's reply. Only a whole number from *low* to *high*, written as a string, is valid.

    The reply may be any JSON object.
    """
    given: object = data.get("score")
    scale = {str(number): number for number in range(low, high + 1)}
    score = scale.get(given.strip()) if isinstance(given, str) else None
    defects = (
        [] if score is not None else [f'score must be a string from "{low}" to "{high}", got {shorten_value(given)}']
    )
    return RatingReply(score, one_line(data.get("reason")), defects)


class StepsReply(NamedTuple):
    """Reply of the LLM that lists the evaluation steps it wrote for a user's criteria."""

    steps: tuple[str, ...]
    defects: list[str]


def read_steps(data: Mapping[str, Any]) -> StepsReply:
    """Read the evaluation steps from an LLM's JSON reply, whatever its form."""
    written = ReplyReader(data).texts("steps")
    steps = tuple(step for step in map(one_line, written[:_MOST_STEPS]) if step)
    return StepsReply(steps, [] if len(steps) >= _FEWEST_STEPS else ["steps must be a list of 3 or 4 sentences"])


_written_steps: Final[OrderedDict[tuple[object, ...], tuple[str, ...]]] = OrderedDict()
"""Evaluation steps by model, criteria and fields, cached so that all calls are rated along the same steps."""
_locks: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


async def _evaluation_steps(extra: ExtraLabels, metric: RatedMetric) -> tuple[str, ...]:
    """Return the evaluation steps of *metric*. If it has none, the LLM writes them once from the criteria."""
    if metric.steps:
        return metric.steps
    key = (extra.session.model, metric.criteria, metric.fields)
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if key not in _written_steps:
            # The criteria are the developer's words, not untrusted data: they belong to the instructions.
            lines = [own_instructions("steps"), "Criteria:", metric.criteria or "", *_fields(metric)]
            steps, defects = (await extra.ask("steps", {}, _STEPS, read_steps, instructions="\n".join(lines))).reply
            if defects:
                raise JudgeError(
                    "unparsable", "the model wrote no evaluation steps for the criteria; pass steps=", retryable=False
                )
            _written_steps.setdefault(key, steps)  # another event loop may have been faster: the first steps stay
            while len(_written_steps) > _MOST_REMEMBERED:
                _written_steps.popitem(last=False)
        return _written_steps[key]


async def find_ratings(extra: ExtraLabels) -> None:
    """Ask the LLM to rate the call by every `g_eval` metric. If one metric fails, the others keep their ratings."""
    metrics = [
        metric for metric in extra.metrics if isinstance(metric, RatedMetric) and not metric.missing_input(extra.call)
    ]
    ratings: dict[str, Rating] = {}
    extra.labels["ratings"] = ratings
    failed: JudgeError | None = None
    outcome: Rating | BaseException | None = None
    outcomes = await asyncio.gather(*(_rate(extra, metric) for metric in metrics), return_exceptions=True)
    try:
        for metric, outcome in zip(metrics, outcomes, strict=True):
            if isinstance(outcome, Rating):
                ratings[metric.name] = outcome
            elif isinstance(outcome, JudgeError):
                failed = failed or outcome
                extra.reasons[f"ratings.{metric.name}"] = outcome.reason
            else:
                raise outcome
        if failed is not None and not ratings:
            raise failed
    finally:
        del failed, outcome, outcomes  # an error's traceback has this frame


async def _rate(extra: ExtraLabels, metric: RatedMetric) -> Rating:
    steps = await _evaluation_steps(extra, metric)
    lines = [own_instructions("rating"), *_fields(metric), "Steps:"]
    lines += [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    if metric.criteria:
        lines += ["Criteria:", metric.criteria]
    lines.append(f"Scale: whole numbers from {metric.low} to {metric.high}.")
    sampled = metric.method == "samples"
    answer = await extra.ask(
        "rating",
        {field: _field(extra, field) for field in metric.fields},
        object_with(reason=string(), score=enum([str(number) for number in range(metric.low, metric.high + 1)])),
        partial(read_rating, low=metric.low, high=metric.high),
        instructions="\n".join(lines),
        logprobs=metric.method == "logprobs",
        temperature=SAMPLING_TEMPERATURE if sampled else 0.0,
        samples=metric.samples if sampled else 1,
    )
    if sampled:
        scores = [reply.score for reply in answer.samples if reply.score is not None]
        if not scores or metric.samples - len(scores) > MOST_UNJUDGED * metric.samples:
            seen = f"{len(scores)} of {metric.samples} replies have a rating"
            raise JudgeError("too_many_unjudged", seen, retryable=False)
        return Rating(math.fsum(scores) / len(scores), "samples", answer.samples[0].reason, len(scores))
    if answer.reply.score is None:
        raise JudgeError("unparsable", "; ".join(answer.reply.defects), retryable=False)
    rating = Rating(float(answer.reply.score), "single", answer.reply.reason)
    if metric.method != "logprobs" or not answer.tokens:
        return rating
    alternatives = [{token.text: token.logprob, **dict(token.top)} if token.top else {} for token in answer.tokens]
    tokens = [token.text for token in answer.tokens]
    value = expected_rating(answer.text, tokens, alternatives, "score", metric.low, metric.high)
    return rating if value is None else Rating(value, "logprobs", answer.reply.reason)


def _fields(metric: RatedMetric) -> list[str]:
    """Return lines of instructions that tell the LLM what each data field of *metric* contains."""
    return ["Fields of the data:", *(f"- {_DESCRIBED[field]}" for field in metric.fields)]


def _field(extra: ExtraLabels, field: str) -> object:
    """Return the content of *field*, such as query or answer, as the prompt shows it to the LLM."""
    if field == "query":
        return extra.input.query
    if field == "contexts":
        return id_text_list({chunk.id: chunk.text for chunk in extra.input.chunks})
    if field == "turns":
        return [
            {"role": turn.role, "text": extra.text_for_prompt("turn", turn.text)} for turn in extra.call.turns or ()
        ]
    return extra.text_for_prompt(field, extra.call.answer if field == "answer" else extra.call.reference)


RATINGS: Final = LabelFamily(frozenset({"ratings"}), find_ratings)


# --- weighting by token probability ----------------------------------------------------------------------------------


def weighted_rating(
    candidates: Iterable[tuple[str, float]], low: int, high: int, before: str = "", after: str = ""
) -> float | None:
    """Return the mean of an LLM's possible scores, weighted by the probability of each score's token.

    It is sum(s p) / sum(p) over the candidates that are exactly a label of the scale, with p >= 0.01.

    Args:
        candidates: distinct texts, each with the natural logarithm of its probability.
        before: what stands in front of the label in every candidate.
        after: what stands behind it.

    Returns:
        None if there is no such candidate; if the probabilities are none (not a number, above 1, summing to more); or
        if a candidate with p >= 0.01 is the beginning of another label, as of a tokenizer that splits digits: what
        would have followed is not known.

    Source: Liu et al. 2023, "G-Eval", arXiv:2303.16634, section 2.3.
    """
    logprobs = dict(candidates)
    if not all(logprob <= 0 for logprob in logprobs.values()):
        return None
    # Excess over 1 that the sum of probabilities may have, since servers round.
    if math.fsum(map(math.exp, logprobs.values())) > 1 + 0.01:
        return None
    labels = {f"{before}{score}{after}": score for score in range(low, high + 1)}
    likely = {text: p for text, logprob in logprobs.items() if (p := math.exp(logprob)) >= LEAST_PROBABILITY}
    if any(label != text and label.startswith(text) for text in likely for label in labels):
        return None
    scores = {labels[text]: p for text, p in likely.items() if text in labels}
    total = math.fsum(scores.values())
    return math.fsum(score * p for score, p in scores.items()) / total if total else None


def value_span(text: str, field: str) -> tuple[int, int] | None:
    """Return the start and end of the last string value of *field* in the JSON *text*, or None.

    The key decides, not equal text: quotation marks in another string are escaped, so that they begin no key.
    """
    found = [match.span(1) for match in re.finditer(rf'(?<!\\)"{field}"\s*:\s*"([^"\\]*)"', text)]
    return found[-1] if found else None


def score_token(text: str, tokens: Sequence[str], field: str) -> tuple[int, str, str] | None:
    """Find the token that contains the string value of *field* in the JSON object at the end of *text*.

    Returns:
        Index of the token, and what it has before and after the value's own characters; None: the value is spread
        over several tokens, or the tokens are not those of *text*.
    """
    at = "".join(tokens).find(text) if text else -1
    span = value_span(text, field)
    if at < 0 or span is None:
        return None
    first, last = span[0] + at, span[1] + at
    at = 0
    for index, token in enumerate(tokens):
        if at <= first and last <= at + len(token):
            return index, token[: first - at], token[last - at :]
        at += len(token)
    return None


def expected_rating(
    text: str, tokens: Sequence[str], alternatives: Sequence[Mapping[str, float]], field: str, low: int, high: int
) -> float | None:
    """Return the mean of the scores that an LLM could have given in *field*, weighted by token probabilities.

    None if it is not known.

    Args:
        tokens: the tokens written, in order.
        alternatives: for each of them, what could have stood there, with the logarithm of its probability.
    """
    found = score_token(text, tokens, field)
    if found is None:
        return None
    index, before, after = found
    # A reply that is unlikely by its own log probabilities was not drawn from that distribution.
    if alternatives[index].get(tokens[index], -math.inf) < math.log(LEAST_PROBABILITY):
        return None
    return weighted_rating(alternatives[index].items(), low, high, before, after)
