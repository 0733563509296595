"""Health of capture and of the evaluators: how many calls had contexts and an answer, and which evaluators fail.

Contexts or answers that are missing from the beginning, and an evaluator that keeps failing, are logged once as a
warning, with the line to write; the doctor shows the figures.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.judges.llm.stopwatch import Stopwatch
from ragtrace.pipeline.recent_outcomes import detail_of
from ragtrace.system.faults import faults, printable, say

LATELY_SECONDS: Final = 300.0
_FIRST_CALLS: Final = 10
"""Calls of a workflow after which what was never seen is spoken of."""
_IN_A_ROW: Final = 5
"""Failures that may still be an accident."""
_MOST_WORKFLOWS: Final = 100
_MOST_REMEMBERED: Final = 1_000
_MOST_CAUSES: Final = 20
_SAID_CHARS: Final = 300
_LEFT_ALONE: Final = "the judge kept failing and its circuit is open"

NO_CONTEXTS: Final = (
    "no contexts were captured in the first %d calls of workflow %s, so that nothing that compares answers with "
    "contexts has a score (contexts_missing): decorate the function that retrieves with @ragtrace.retrieve, or "
    'name the argument that holds the texts: @ragtrace.generate(contexts="docs")'
)
NO_ANSWERS: Final = (
    "no answer was found in the first %d calls of workflow %s, so that nothing has a score (answer_not_captured): say "
    "where it is in what the function returns: @ragtrace.trace(answer=lambda result: result.text)"
)
_ADVICE: Final[Sequence[tuple[str, str, str]]] = (
    # pattern in what was seen, name of the cause, what to do
    (r"HTTP 40[13]\b", "key refused", "check the key: api_key=, or OPENAI_API_KEY in the environment of this process"),
    (r"no API key", "no key", "pass api_key=, or set OPENAI_API_KEY in the environment of this process"),
    (r"HTTP 404\b", "model or address unknown", "check the model's name and base_url="),
    (r"HTTP 4(?:00|22)\b", "request refused", "check the model's name, and whether it is one that chats"),
    (r"HTTP 429\b", "rate limit or quota", "lower Sampling(rate=) or judge_concurrency=, or raise the quota"),
    (r"HTTP 5\d\d\b", "server error", "look into the log of the judge's server"),
    (r"^(?!Connection)\w+$", "exception", "the log has the judge's traceback"),
    (r"Retry-After lasts another", "rate limit or quota", "lower Sampling(rate=) or judge_concurrency="),
)
_BY_REASON: Final[Mapping[str, tuple[str, str]]] = {
    "timeout": ("timeout", "raise judge_timeout=, or lower judge_concurrency="),
    "unavailable": ("unreachable", "is the judge's server up, and base_url= right?"),
    "unparsable": (
        "garbage",
        "its replies cannot be read: check that base_url= and the model are those of a chat model",
    ),
    "truncated": ("truncated", "its replies are cut off: raise max_tokens=, or take a model with a larger context"),
    "refused": ("refused", "the model refuses to judge these calls: take another one"),
    "content_filter": ("content filter", "the server withholds the replies: take another model or filter"),
}
_AT_ONCE: Final = frozenset({"key refused", "no key", "model or address unknown", "unreachable"})
"""Causes that do not pass by themselves: spoken of at the first failure if the judge has never answered."""


def cause_of(reason: str, detail: str) -> tuple[str, str]:
    """Return why a judge failed, in a few words, and what to do about it."""
    for pattern, cause, advice in _ADVICE:
        if re.search(pattern, detail):
            return cause, advice
    return _BY_REASON.get(reason, (reason, "ragtrace.doctor() asks it and shows the reply"))


@dataclass(slots=True)
class Seen:
    """Counts of the calls of one workflow and of what was captured of them, without the calls that raised."""

    calls: int = 0
    with_contexts: int = 0
    """Calls whose retrieval was captured, also if it returned nothing."""
    with_answer: int = 0


@dataclass(slots=True)
class Failing:
    """Failures of one evaluator: how many in a row, by which cause, and what the last one said."""

    in_a_row: int = 0
    causes: Counter[str] = field(default_factory=Counter[str])
    said: str = ""
    """What the last failure said of itself."""
    advice: str = ""
    answered: bool = False
    """Whether the evaluator has given labels at least once."""
    told: bool = False


class Health:
    """Observer of calls that counts, in the background, what was captured of them and how their evaluators fail.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start afresh: after a fork, the calls are the parent's."""
        self.seen: dict[str, Seen] = {}
        self.failing: dict[str, Failing] = {}
        self._well: deque[float] = deque(maxlen=_MOST_REMEMBERED)
        self._told: set[str] = set()

    @property
    def scored_lately(self) -> int:
        """Calls with contexts and an answer that got a score in the last five minutes; at most 1,000 are counted."""
        since = self._clock() - LATELY_SECONDS
        return sum(at >= since for at in list(self._well))

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object) -> None:
        """Count *call*, and the failures among its *evaluations*."""
        for evaluation in evaluations if call.answer_captured else ():  # of others nobody was asked
            self._note(evaluation)
        if call.error is not None or not (evaluations or decision is not None):
            return
        if call.workflow not in self.seen and len(self.seen) >= _MOST_WORKFLOWS:
            return
        seen = self.seen.setdefault(call.workflow, Seen())
        seen.calls += 1
        seen.with_contexts += call.contexts is not None
        seen.with_answer += call.answer_captured
        if seen.calls == _FIRST_CALLS:
            self._tell("contexts", seen.with_contexts, NO_CONTEXTS, call.workflow)
            self._tell("answer", seen.with_answer, NO_ANSWERS, call.workflow)
        if call.contexts is not None and call.answer_captured and _any_score(evaluations):
            self._well.append(self._clock())

    def _tell(self, what: str, count: int, message: str, workflow: str) -> None:
        if count == 0 and what not in self._told:
            self._told.add(what)
            if any(place.startswith(f"capture.{what}:") for place in faults.counts()):
                return  # capture has said in which value it found none
            say(logging.WARNING, message, _FIRST_CALLS, repr(workflow))

    def _note(self, evaluation: Evaluation) -> None:
        row = self.failing.setdefault(evaluation.evaluator, Failing())
        outcome, reason = evaluation.outcome
        if outcome != "failed":
            if not evaluation.cached:
                row.in_a_row, row.answered, row.told = 0, True, False
            return
        detail = detail_of(evaluation)
        row.in_a_row += 1
        if not detail.startswith(_LEFT_ALONE):
            cause, row.advice = cause_of(reason, detail)
            row.said = printable(detail or reason, _SAID_CHARS)
            if cause in row.causes or len(row.causes) < _MOST_CAUSES:
                row.causes[cause] += 1
            if not row.told and (row.in_a_row >= _IN_A_ROW or (cause in _AT_ONCE and not row.answered)):
                row.told = True
                say(
                    logging.WARNING,
                    "%s fails (%s), and gives no scores until it answers: %s; %s. ragtrace.doctor() shows more",
                    repr(evaluation.evaluator),
                    cause,
                    row.said,
                    row.advice,
                )


def _any_score(evaluations: Iterable[Evaluation]) -> bool:
    """Return whether an evaluator has scored the call; measured times are no scores of it."""
    judged = (each for each in evaluations if each.evaluator != Stopwatch().id)
    return any(isinstance(result, Score) for each in judged for result in each.results.values())
