"""Recent outcomes of RAG calls, and health of capture and evaluators, for `ragtrace.doctor()` and log warnings.

Contexts or answers that are missing from the beginning, and an evaluator that keeps failing, are logged once as a
warning, with the line to write.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from ragtrace.core.part import Part
from ragtrace.core.types import Evaluation, RagCall, Score, Unscored
from ragtrace.evaluation.scoring import LabelFreeJudge
from ragtrace.system.faults import faults, log_safely, printable
from ragtrace.system.urls import hide_secrets

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

MOST_OUTCOMES: Final = 300
"""Recent outcomes that are kept: those of a hundred calls with three evaluators."""
_MOST_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RecentOutcome:
    """Outcome of a RAG call at one evaluator: scored, failed, dropped or sampled out, with the reason."""

    at: float
    """Time of the outcome, in seconds since the epoch."""
    trace_id: str
    """Trace id of 32 hexadecimal digits; empty if the call had no span."""
    span_id: str
    workflow: str
    evaluator: str
    outcome: str
    """Kind of outcome: sampled_out, scored, partial, failed or dropped."""
    reason: str
    probability: float | None
    """Probability with which the call was sampled for the judge, from 0 to 1; None if the sampler did not decide."""
    detail: str
    """Error message of the judge or its server, or names of unscored metrics; empty if there is nothing to say."""

    @property
    def why(self) -> str:
        """Explanation of the outcome for the user, or an empty text if the call was simply scored."""
        words = REASON_WORDS.get((self.outcome, self.reason), self.reason)
        if self.outcome == "sampled_out" and self.probability is not None:
            words = f"{words} at p={self.probability:.3g}"
        elif self.outcome == "partial":
            words = f"some metrics have no score: {words}"
        elif self.outcome == "scored":
            words = f"no metric applies: {words}" if words else ""
        return ": ".join(filter(None, (words, self.detail)))


class RecentOutcomes:
    """Thread-safe bounded list of the most recent outcomes of RAG calls."""

    def __init__(self) -> None:
        # Unformatted values: they are turned into texts only when `ragtrace.doctor()` reads them.
        self._entries: deque[tuple[float, SpanContext | None, tuple[str, str, str, str, float | None], str]]
        self._entries = deque(maxlen=MOST_OUTCOMES)

    def add(
        self,
        span: SpanContext | None,
        workflow: str,
        evaluator: str,
        outcome: str,
        reason: str = "",
        probability: float | None = None,
        detail: str = "",
    ) -> None:
        """Add the outcome of a RAG call at one evaluator to the list, dropping the oldest one if it is full."""
        self._entries.append((time(), span, (workflow, evaluator, outcome, reason, probability), detail))

    def last(self, most: int = MOST_OUTCOMES) -> list[RecentOutcome]:
        """Return at most *most* of the latest outcomes of RAG calls, oldest first."""
        found: list[RecentOutcome] = []
        for at, span, outcome, detail in list(self._entries)[-most:]:
            trace_id, span_id = ("", "") if span is None else (f"{span.trace_id:032x}", f"{span.span_id:016x}")
            found.append(RecentOutcome(at, trace_id, span_id, *outcome, printable(detail, _MOST_CHARS)))
        return found


def failure_detail(evaluation: Evaluation) -> str:
    """Return the error message of the first failure in *evaluation* without API keys, or an empty text."""
    for result in evaluation.results.values():
        if isinstance(result, Unscored) and result.status in ("judge_error", "judge_suspect"):
            return hide_secrets(result.explanation or "")
    return ""


def unscored_metrics(evaluation: Evaluation) -> str:
    """Return a text that lists the metrics without a score in *evaluation* by reason, or an empty text.

    Metrics that wait for a baseline are left out.
    """
    by_reason: dict[str, list[str]] = {}
    for name, result in evaluation.results.items():
        if isinstance(result, Unscored) and result.reason != "no_baseline":
            by_reason.setdefault(result.reason, []).append(name)
    return "; ".join(f"no {', '.join(names)}: {reason}" for reason, names in by_reason.items())


REASON_WORDS: Final[Mapping[tuple[str, str], str]] = {
    ("sampled_out", "not_sampled"): "sampled out",
    ("sampled_out", "budget"): "sampled out, as the budget allows no more",
    ("sampled_out", "overload"): "sampled out, as the fleet judges fewer calls than come: start more workers",
    ("sampled_out", "never_rule"): "left out by a rule of Sampling(never=...)",
    ("sampled_out", "head_dropped"): "head sampling dropped its trace, see Sampling(score_head_dropped=)",
    ("sampled_out", "call_failed"): "the application failed before there was an answer",
    ("dropped", "queue_full"): "queue full: raise Limits(capacity=), or make the evaluators faster",
    ("dropped", "shutdown"): "the process ended before it was scored (Limits(spool=) keeps such calls)",
    ("dropped", "spooled"): "the process ended before it was scored; it is in the spool for the next",
    ("dropped", "not_spooled"): "the process ended before it was scored, and the spool could not take it",
    ("dropped", "not_configured"): "it came from the spool, and its evaluator is not configured any more",
    ("dropped", "too_large"): "its texts are too large for the queue of the fleet",
    ("failed", "redaction"): "redaction failed, so no evaluator saw the call",
    ("failed", "internal"): "ragtrace itself failed; see the log",
    ("failed", "cancelled"): "a judge or metric cancelled tasks that are not its own; see the log",
}
"""Explanation of each outcome and reason in `REASONS_OF_CALLS`. The reasons of metrics explain themselves."""


LATELY_SECONDS: Final = 300.0
_FIRST_CALLS: Final = 10
"""Number of a workflow's calls after which a warning is logged if contexts or answers were never captured."""
_IN_A_ROW: Final = 5
"""Number of consecutive failures after which an evaluator is logged as failing."""
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
OUTSIDE: Final = (
    "no contexts were captured in the first %d calls of workflow %s, so that nothing that compares answers with "
    "contexts has a score (contexts_missing), though {} began while they ran: outside of them, on a thread that does "
    "not carry their context, as those of run_in_executor and of bare pools; use asyncio.to_thread, or give the pool "
    "ragtrace.carry(function)"
)
NO_DOCUMENTS: Final = (
    "the retrieval found nothing in the first %d calls of workflow %s, so that nothing that compares answers with "
    "contexts has a score (no_contexts): look at the index and at the filters of the search; if it finds documents, "
    "say where they are in what the function returns: @ragtrace.retrieve(documents=lambda found: found.matches)"
)
NO_ANSWERS: Final = (
    "no answer was found in the first %d calls of workflow %s, so that nothing has a score (answer_not_captured): say "
    "where it is in what the function returns: @ragtrace.trace(answer=lambda result: result.text); if that is a "
    "response that streams, decorate the generator whose pieces it sends instead"
)
_ADVICE: Final[Sequence[tuple[str, str, str]]] = (
    # pattern in what was seen, name of the cause, what to do
    (r"gives no log prob", "no log probabilities", "take another model or server, or ask this one with OpenAIJudge"),
    (r"thinks before it", "thinking", "switch it off, or take a model that does not think"),
    (r"HTTP 40[13]\b", "key refused", "check the key: api_key=, or OPENAI_API_KEY in the environment of this process"),
    (r"no API key", "no key", "pass api_key=, or set OPENAI_API_KEY in the environment of this process"),
    (r"HTTP 404\b", "model or address unknown", "check the model's name and base_url="),
    (r"HTTP 4(?:00|22)\b", "request refused", "check the model's name, and whether it is one that chats"),
    (r"HTTP 429\b", "rate limit or quota", "lower Sampling(rate=) or JudgeLimits(concurrency=), or raise the quota"),
    (r"HTTP 501\b", "not offered", "the server, or its model, does not offer this"),
    (r"HTTP 5\d\d\b", "server error", "look into the log of the judge's server"),
    (r"^(?!Connection)\w+$", "exception", "the log has the judge's traceback"),
    (r"Retry-After lasts another", "rate limit or quota", "lower Sampling(rate=) or JudgeLimits(concurrency=)"),
)
_BY_REASON: Final[Mapping[str, tuple[str, str]]] = {
    "timeout": ("timeout", "raise JudgeLimits(timeout=), or lower JudgeLimits(concurrency=)"),
    "unavailable": ("unreachable", "is the judge's server up, and base_url= right?"),
    "unparsable": (
        "garbage",
        "its replies cannot be read: check that base_url= and the model are those of a chat model",
    ),
    "truncated": ("truncated", "its replies are cut off: raise max_tokens=, or take a model with a larger context"),
    "unverified": (
        "unverified labels",
        "it labels statements as supported of which no chunk has the quotes, numbers or names: ragtrace doctor --gold "
        "tells whether this model can label support",
    ),
    "refused": ("refused", "the model refuses to judge these calls: take another one"),
    "content_filter": ("content filter", "the server withholds the replies: take another model or filter"),
}
_AT_ONCE: Final = frozenset({"key refused", "no key", "model or address unknown", "unreachable"})
"""Permanent causes, which are logged at the first failure if the judge has never answered."""


def cause_of(reason: str, detail: str) -> tuple[str, str]:
    """Return the cause of a judge's failure in a few words, and advice for the user.

    Args:
        reason: reason of the `JudgeError`.
        detail: its message.
    """
    for pattern, cause, advice in _ADVICE:
        if re.search(pattern, detail):
            return cause, advice
    return _BY_REASON.get(reason, (reason, "ragtrace.doctor() asks it and shows the reply"))


@dataclass(slots=True)
class CaptureCounts:
    """Counts of a workflow's calls: all calls, and calls with contexts, with a retrieval in vain and with an answer.

    Calls that raised are left out.
    """

    workflow: str
    calls: int = 0
    with_contexts: int = 0
    """Number of calls whose retrieval found a text."""
    no_contexts: int = 0
    """Number of calls whose retrieval was captured and found no text."""
    with_answer: int = 0
    outside: Counter[str] = field(default_factory=Counter[str])
    """Retrievals that began while the calls ran, but outside of them, by function."""

    @property
    def contexts_missing(self) -> int:
        """Number of calls whose retrieval was not captured."""
        return self.calls - self.with_contexts - self.no_contexts

    @property
    def defects(self) -> list[tuple[str, str]]:
        """What was captured in none of the calls, each with a message that takes number of calls and workflow."""
        found = [] if self.with_answer else [("answer", NO_ANSWERS)]
        if self.no_contexts and not self.with_contexts:
            found.insert(0, ("documents", NO_DOCUMENTS))
        elif not self.with_contexts:
            names = " and ".join(f"{name} ({count} times)" for name, count in self.outside.most_common(3))
            found.insert(0, ("contexts", OUTSIDE.format(names.replace("%", "%%")) if names else NO_CONTEXTS))
        return found


@dataclass(slots=True)
class EvaluatorFailures:
    """Failure record of one evaluator: number of consecutive failures, count of each cause, last message."""

    in_a_row: int = 0
    causes: Counter[str] = field(default_factory=Counter[str])
    said: str = ""
    """Message of the last failure, for the log; empty before the first."""
    advice: str = ""
    answered: bool = False
    """Whether the evaluator has given labels at least once."""
    logged: bool = False


class HealthMonitor(Part):
    """Health checks on finished RAG calls, which warn of missing contexts, missing answers and failing evaluators.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.captured: dict[str, CaptureCounts] = {}
        self.failures: dict[str, EvaluatorFailures] = {}
        self._outside: dict[str, Counter[str]] = {}
        self._scored: deque[float] = deque(maxlen=_MOST_REMEMBERED)
        self._logged: set[str] = set()

    @property
    def scored_lately(self) -> int:
        """Number of calls with contexts and an answer that were scored in the last five minutes.

        At most 1,000 calls are remembered.
        """
        since = self._clock() - LATELY_SECONDS
        return sum(at >= since for at in list(self._scored))

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object) -> None:
        """Count a finished RAG call and the failures in its evaluations, and log a warning if necessary."""
        for evaluation in evaluations if call.answer_captured else ():  # without an answer no evaluator is asked
            self._count_failure(evaluation)
        if call.error is not None or not (evaluations or decision is not None):
            return
        if call.workflow not in self.captured and len(self.captured) >= _MOST_WORKFLOWS:
            return
        counts = self.captured.setdefault(call.workflow, CaptureCounts(call.workflow))
        counts.calls += 1
        counts.outside = self._outside.get(call.workflow, counts.outside)
        has_contexts = any(document.text.strip() for document in call.contexts or ())
        counts.with_contexts += has_contexts
        counts.no_contexts += call.contexts is not None and not has_contexts
        counts.with_answer += call.answer_captured
        for what, message in counts.defects if counts.calls == _FIRST_CALLS else ():
            self._warn_once(what, message, call.workflow)
        # Metrics that need no judge, such as latencies, do not show that an evaluator works.
        judged = (each for each in evaluations if each.evaluator != LabelFreeJudge.id)
        scored = any(isinstance(result, Score) for each in judged for result in each.results.values())
        if has_contexts and call.answer_captured and scored:
            self._scored.append(self._clock())

    def lacks_contexts(self, workflow: str) -> bool:
        """Return whether no call of *workflow* was seen to have contexts."""
        counts = self.captured.get(workflow)
        return counts is None or not counts.with_contexts

    def add_outside(self, workflow: str, names: list[str]) -> None:
        """Count the retrievals of the functions *names* that began while a call of *workflow* ran, but outside of it.

        It is called on the application's threads, whose counts may miss one of each other's.
        """
        if names and (workflow in self._outside or len(self._outside) < _MOST_WORKFLOWS):
            self._outside.setdefault(workflow, Counter()).update(names)

    def _warn_once(self, what: str, message: str, workflow: str) -> None:
        if what not in self._logged:
            self._logged.add(what)
            if not any(place.startswith(f"capture.{what}:") for place in faults.counts()):  # else capture has warned
                log_safely(logging.WARNING, message, _FIRST_CALLS, repr(workflow))

    def _count_failure(self, evaluation: Evaluation) -> None:
        row = self.failures.setdefault(evaluation.evaluator, EvaluatorFailures())
        outcome, reason = evaluation.outcome
        if outcome != "failed":
            if not evaluation.cached:
                row.in_a_row, row.answered, row.logged = 0, True, False
            return
        detail = failure_detail(evaluation)
        row.in_a_row += 1
        if detail.startswith(_LEFT_ALONE):
            return
        cause, row.advice = cause_of(reason, detail)
        row.said = printable(detail or reason, _SAID_CHARS)
        if cause in row.causes or len(row.causes) < _MOST_CAUSES:
            row.causes[cause] += 1
        if not row.logged and (row.in_a_row >= _IN_A_ROW or (cause in _AT_ONCE and not row.answered)):
            row.logged = True
            log_safely(
                logging.WARNING,
                "%s fails (%s), and gives no scores until it answers: %s; %s. ragtrace.doctor() shows more",
                repr(evaluation.evaluator),
                cause,
                row.said,
                row.advice,
            )
