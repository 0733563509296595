"""Calls with scores, and a sink that says what it is told to: for the tests of native scores."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace.core.types import Evaluation, RagCall, Score, Unscored

TRACE: Final = 0x0AF7651916CD43DD8448EB211C80319C
SPAN: Final = 0xB7AD6B7169203331
_numbers = count(1)


def call_of(span_id: int | None = None, *, sampled: bool = True, trace_id: int = TRACE) -> RagCall:
    """A call with a span: a new one, or that of *span_id*."""
    context = SpanContext(trace_id, span_id or next(_numbers), False, TraceFlags(int(sampled)))
    return RagCall(query="q", contexts=(), answer="a", workflow="guide", span=context)


def evaluation_of(
    results: Mapping[str, Score | Unscored] | None = None, *, type_: str = "llm_judge", evaluator: str = "judge"
) -> Evaluation:
    """What a judge made of it: by default one faithfulness score."""
    chosen = {"faithfulness": a_score(0.5)} if results is None else results
    return Evaluation(evaluator, "2", type_, chosen, probability=0.25)  # type: ignore[arg-type]


def a_score(value: float, name: str = "faithfulness") -> Score:
    """A score with label and explanation."""
    return Score(value, name, "1", label="partly", explanation="1 of 2 claims is supported", evaluator="judge@2")


class ScriptedSink:
    """Refuses what it is told to refuse, and keeps the rest."""

    name = "scripted"

    def __init__(self, most_at_once: int = 10) -> None:
        self.most_at_once = most_at_once
        self.taken: list[ScoreRecord] = []
        self.posts: list[list[ScoreRecord]] = []
        self.refusals: deque[Refusal | None] = deque()
        """For the next posts, all their scores; None: accept."""
        self.poison = ""
        """Metric for which a whole post is refused."""
        self.error: BaseException | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        self.entered.set()
        self.gate.wait(10)
        self.posts.append(list(scores))
        if self.error is not None:
            raise self.error
        refusal = self.refusals.popleft() if self.refusals else None
        if self.poison and any(score.name == self.poison for score in scores):
            refusal = Refusal("refused", detail="status 400")
        if refusal is None:
            self.taken += scores
            return {}
        return {score.id: refusal for score in scores}
