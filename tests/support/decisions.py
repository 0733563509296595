"""Calls and judges for the tests of decision models."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any, Final

import openai
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.types import Document, Evaluation, Metric, RagCall, Score
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import QueuedCall
from ragtrace.judges import DecisionJudge
from ragtrace.metrics import registry
from ragtrace.testing import DecisionServer
from tests.support.history import fill

SENTENCES: Final = (
    "The harbour bridge was opened in 1932 after eight years of work.",
    "It is 1149 metres long and carries eight lanes of road.",
    "The arch is made of steel and stands 134 metres above the water.",
    "Two railway tracks cross it on the western side.",
    "A crew of eight painters keeps the steel from rusting all year.",
    "The bridge was designed by an engineering office in the north of the country.",
    "Its granite pylons carry no load and were added for the look of it.",
    "The last rivet was driven on 21 January 1932 by the oldest foreman.",
    "Some 53000 tonnes of steel went into the arch and the approach spans.",
    "Ships of up to 49 metres pass below it at high tide.",
    "Tolls paid for the loans that financed it until 1988.",
    "On clear days the summit walk takes visitors up 1332 steps.",
)
CALL: Final = RagCall(
    query="How long is the harbour bridge and what is it made of?",
    contexts=tuple(Document(" ".join((*SENTENCES, *SENTENCES)[n : n + 5])) for n in range(8)),
    answer=" ".join(SENTENCES),
)
"""Call of 12 statements, all of which the 8 chunks support."""
SHORT: Final = RagCall(
    query="How long is the harbour bridge?",
    contexts=(Document(SENTENCES[1]), Document(SENTENCES[0])),
    answer=f"{SENTENCES[1]} {SENTENCES[0]} Penguins live in Antarctica.",
)
"""Call of 3 statements, of which the 2 chunks do not support the last."""


def evaluated(judge: DecisionJudge, call: RagCall = SHORT, *names: str, timeout: float = 20.0) -> Evaluation:
    """Evaluate *call* with the metrics called *names*, or all that *judge* offers except those that need a reference.

    The judge is closed.
    """
    metrics = tuple(map(registry.get, names)) or offered(judge)

    async def run() -> Evaluation:
        try:
            return await evaluate(Evaluator(judge.asking(metrics), metrics, timeout), call)
        finally:
            await judge.aclose()

    return asyncio.run(run())


def offered(judge: DecisionJudge) -> tuple[Metric, ...]:
    """Return the metrics that *judge* offers and that cost no request of their own."""
    return tuple(metric for metric in registry.every() if metric.needs and judge.offers(metric))


def values(evaluation: Evaluation) -> dict[str, float | str]:
    """Return the score of each metric, or the reason why there is none."""
    return {n: r.value if isinstance(r, Score) else r.reason for n, r in evaluation.results.items()}


def openai_reply(answers: Mapping[str, object], **more: object) -> dict[str, object]:
    """Return a reply in OpenAI's form with these probabilities by name of the question, in order."""
    listed = [{"type": "predicate", "name": name, "probability": value} for name, value in answers.items()]
    return {"model": "decision-1", "answers": listed, "usage": {"input_tokens": 100, "output_tokens": 0}, **more}


def systemone_reply(answers: Mapping[str, object], **more: object) -> dict[str, object]:
    """Return a reply in the System One form with these probabilities by name of the question."""
    given = {name: {"type": "noul", "noul": value} for name, value in answers.items()}
    return {"model": "decision-1", "answers": given, "usage": {"input_tokens": 100, "output_tokens": 0}, **more}


def top_logprobs(chances: Mapping[str, float]) -> dict[str, Any]:
    """Return a chat completion of one token, with the probabilities of the likeliest tokens."""
    listed = [{"token": token, "logprob": log(chance), "bytes": None} for token, chance in chances.items()]
    token = {**listed[0], "top_logprobs": listed}
    message = {"role": "assistant", "content": listed[0]["token"]}
    choice = {"index": 0, "message": message, "finish_reason": "length", "logprobs": {"content": [token]}}
    return {"model": "small-1", "choices": [choice], "usage": {"prompt_tokens": 50, "completion_tokens": 1}}


class ScriptedClient(openai.AsyncOpenAI):
    """Client that sends nothing and answers every request with what a function makes of its body."""

    def __init__(self, answer: Callable[[dict[str, Any]], bytes]) -> None:
        super().__init__(api_key="none", base_url="http://localhost/v1")
        self._answer = answer

    async def post(self, path: str, **options: Any) -> Any:  # type: ignore[override]
        return _Response(self._answer(options["body"]))


class _Response:
    def __init__(self, body: bytes) -> None:
        self.http_response = self
        self.headers: dict[str, str] = {}
        self._body = body

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        pass


def renamed(call: RagCall, number: int) -> RagCall:
    """Return *call* with another query, so that no cache knows it."""
    return replace(call, query=f"{call.query} ({number})")


def encoded(reply: object) -> bytes:
    """Return *reply* as the body of a response."""
    return json.dumps(reply).encode()


def stored_decisions(
    path: Path, times: Sequence[float], *, probability: float = 0.2, refused: bool = False, **more: Any
) -> None:
    """Write a history of `SHORT`, once for each of *times*, whose last statement has that *probability* of support.

    With *refused*, the model declines to answer about that statement, so that the call has no score.
    """
    given: dict[str, float | str] = {"s1": 0.97, "s2": 0.96, "s3": "refusal" if refused else probability}
    with DecisionServer(given) as server:
        evaluation = evaluated(DecisionJudge("local", base_url=server.url, api_key="none"))
    judge, metrics = f"{evaluation.evaluator}@{evaluation.version}", tuple(evaluation.results)
    source = CallOrigin("bot", "1.0", "", (), judge, metrics)
    rng = random.Random(str(list(times)))  # another batch has other spans
    spans = [SpanContext(rng.getrandbits(128) | 1, rng.getrandbits(64) | 1, False, TraceFlags(1)) for _ in times]
    calls = [
        QueuedCall(replace(SHORT, workflow="support", span=span), (evaluation,), "sampled", at)
        for at, span in zip(times, spans, strict=True)
    ]
    fill(path, calls, source, **more)
