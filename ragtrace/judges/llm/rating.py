"""Ratings along a user's own criteria (`g_eval`)."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Rating, RatingMethod
from ragtrace.core.types import RagCall
from ragtrace.judges.llm.family import MOST_UNJUDGED, Case, Found, Request, instructions, listed, note, shown, text_of
from ragtrace.judges.llm.logprobs import expected
from ragtrace.judges.llm.shapes import one_of, record, text, texts

if TYPE_CHECKING:
    from ragtrace.judges.llm.chat_types import Answer

FIELDS: Final = frozenset({"ratings"})
SAMPLING_TEMPERATURE: Final = 1.0
_FEWEST_STEPS: Final = 2
_MOST_STEPS: Final = 6
_STEPS: Final = record(steps=texts())
_MOST_REMEMBERED: Final = 256
_DESCRIBED: Final = {
    "query": "query: what the user asked (elsewhere called input)",
    "answer": "answer: what is rated (actual output)",
    "contexts": "contexts: the passages retrieved for the query (retrieval context)",
    "reference": "reference: a right answer (expected output)",
    "turns": "turns: the conversation so far",
}


@runtime_checkable
class Rated(Protocol):
    """A metric that is a rating: what `ragtrace.g_eval` makes."""

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
    def lacks(self, call: RagCall) -> str:
        """Why a call cannot be rated; "" if it can."""
        ...


class Reply(NamedTuple):
    """What a reply says."""

    score: int | None
    reason: str
    defects: list[str]


def read(data: Mapping[str, Any], low: int, high: int) -> Reply:
    """*data*, a reply, whatever it is: the score is one of the strings "low".."high", and nothing else."""
    defects: list[str] = []
    given: object = data.get("score")
    scale = {str(number): number for number in range(low, high + 1)}
    score = scale.get(given) if isinstance(given, str) else None
    if score is None:
        note(defects, f'score must be a string from "{low}" to "{high}", got {shown(given)}')
    return Reply(score, text_of(data, "reason"), defects)


def read_steps(data: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """The steps in *data*, a reply, whatever it is; and its defects."""
    given: object = data.get("steps")
    items = cast("list[object]", given) if isinstance(given, list) else []
    steps = tuple(step for step in (text_of({"text": item}) for item in items[:_MOST_STEPS]) if step)
    defects = [] if len(steps) >= _FEWEST_STEPS else ["steps must be a list of 3 or 4 sentences"]
    return steps, defects


class StepMemory:
    """Steps once written for criteria: all calls are rated along the same ones."""

    def __init__(self) -> None:
        self._steps: OrderedDict[tuple[object, ...], tuple[str, ...]] = OrderedDict()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def of(self, case: Case, found: Found, metric: Rated) -> tuple[str, ...]:
        """The steps of *metric*, written at its first call; others wait for them meanwhile."""
        if metric.steps:
            return metric.steps
        key = (case.chat.model, metric.criteria, metric.fields)
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if key not in self._steps:
                # Another event loop may have been faster: the first steps stay.
                self._steps.setdefault(key, await self._write(case, found, metric))
                while len(self._steps) > _MOST_REMEMBERED:
                    self._steps.popitem(last=False)
            return self._steps[key]

    async def _write(self, case: Case, found: Found, metric: Rated) -> tuple[str, ...]:
        # The criteria are the developer's own words, not a stranger's: they are instruction, and stand with it.
        system = "\n".join([instructions("steps"), "Criteria:", metric.criteria or "", *_fields(metric)])
        request = Request("steps", system, {}, _STEPS, lambda reply: read_steps(reply)[1])
        steps, defects = read_steps((await found.ask(case, request)).data)
        if defects:
            raise JudgeError("unparsable", "no steps were written for the criteria", retryable=False)
        return steps


_memory: Final = StepMemory()


async def find(case: Case, found: Found) -> None:
    """Rate the call by every g_eval metric; one that fails leaves the others their ratings."""
    metrics = [metric for metric in case.metrics if isinstance(metric, Rated) and not metric.lacks(case.call)]
    ratings: dict[str, Rating] = {}
    found.labels["ratings"] = ratings
    failures: list[JudgeError] = []
    for metric, rating in zip(
        metrics, await asyncio.gather(*(_try(case, found, metric) for metric in metrics)), strict=True
    ):
        if isinstance(rating, Rating):
            ratings[metric.name] = rating
        else:
            failures.append(rating)
            found.reasons[f"ratings.{metric.name}"] = rating.reason
    if failures and not ratings:
        raise failures[0]


async def _try(case: Case, found: Found, metric: Rated) -> Rating | JudgeError:
    try:
        return await _rate(case, found, metric)
    except JudgeError as error:
        return error


async def _rate(case: Case, found: Found, metric: Rated) -> Rating:
    answer = await found.ask(case, _request(case, found, metric, await _memory.of(case, found, metric)))
    if metric.method == "samples":
        return _mean(answer, metric)
    reply = read(answer.data, metric.low, metric.high)
    if reply.score is None:
        raise JudgeError("unparsable", "; ".join(reply.defects), retryable=False)
    return _weighted(answer, reply, metric) or Rating(float(reply.score), "single", reply.reason)


def _weighted(answer: Answer, reply: Reply, metric: Rated) -> Rating | None:
    """Return the mean weighted by probability, where that was asked for and the server tells it for a single token."""
    if metric.method != "logprobs" or not answer.tokens:
        return None
    alternatives = [{token.text: token.logprob, **dict(token.top)} if token.top else {} for token in answer.tokens]
    value = expected(
        answer.text, [token.text for token in answer.tokens], alternatives, "score", metric.low, metric.high
    )
    return None if value is None else Rating(value, "logprobs", reply.reason)


def _mean(answer: Answer, metric: Rated) -> Rating:
    """Over the replies that have a rating, as long as few have none."""
    replies = [read(data, metric.low, metric.high) for data in answer.samples]
    scores = [reply.score for reply in replies if reply.score is not None]
    if not scores or metric.samples - len(scores) > MOST_UNJUDGED * metric.samples:
        seen = f"{len(scores)} of {metric.samples} replies have a rating"
        raise JudgeError("too_many_unjudged", seen, retryable=False)
    return Rating(math.fsum(scores) / len(scores), "samples", replies[0].reason, len(scores))


def _fields(metric: Rated) -> list[str]:
    return ["Fields of the data:", *(f"- {_DESCRIBED[field]}" for field in metric.fields)]


def _request(case: Case, found: Found, metric: Rated, steps: Sequence[str]) -> Request:
    scale = [str(number) for number in range(metric.low, metric.high + 1)]
    lines = [instructions("rating"), *_fields(metric), "Steps:"]
    lines += [*(f"{number}. {step}" for number, step in enumerate(steps, 1))]
    if metric.criteria:
        lines += ["Criteria:", metric.criteria]
    lines.append(f"Scale: whole numbers from {metric.low} to {metric.high}.")
    return Request(
        "rating",
        "\n".join(lines),
        {field: _field(case, found, field) for field in metric.fields},
        record(reason=text(), score=one_of(scale)),
        lambda reply: read(reply, metric.low, metric.high).defects,
        logprobs=metric.method == "logprobs",
        temperature=SAMPLING_TEMPERATURE if metric.method == "samples" else 0.0,
        samples=metric.samples if metric.method == "samples" else 1,
    )


def _field(case: Case, found: Found, field: str) -> object:
    if field == "query":
        return case.sheet.query
    if field == "contexts":
        return listed({chunk.id: chunk.text for chunk in case.sheet.chunks})
    if field == "turns":
        return [{"role": turn.role, "text": found.shown("turn", turn.text)} for turn in case.call.turns or ()]
    return found.shown(field, case.call.answer if field == "answer" else case.call.reference)
