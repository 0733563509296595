"""The data that flows through ragtrace, and the protocols of what a user can plug in.

What we give is a frozen, slotted dataclass; what we take is a Protocol. No policy lives here.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

Support: TypeAlias = Literal["supported", "contradicted", "partial", "not_found"]
"""How a statement stands to the retrieved chunks; in merging, best first."""
Relevance: TypeAlias = Literal["yes", "supporting", "no"]
AnswerLabel: TypeAlias = Literal["answered", "abstained"]
EvaluatorType: TypeAlias = Literal["llm_judge", "deterministic", "model", "human"]
Status: TypeAlias = Literal["not_applicable", "judge_error", "judge_suspect", "skipped"]
Plain: TypeAlias = "str | bool | int | float | tuple[str, ...] | tuple[float, ...]"
"""A value that fits into an OpenTelemetry attribute."""


def _no_attributes() -> dict[str, Plain]:
    return {}


NOT_APPLICABLE = frozenset(
    "empty_answer empty_query contexts_missing no_contexts no_claims no_statements no_sentences abstained no_citations"
    " no_nuggets no_vital_nuggets no_reference_claims no_intentions needs_reference needs_conversation needs_runs"
    " no_scorer no_embedder no_token_embedder not_streamed too_few_tokens no_token_usage zero_mean"
    " missing_component unscorable_script".split()
)
JUDGE_ERROR = frozenset(
    "unavailable timeout refused content_filter truncated unparsable ambiguous coverage too_many_unjudged"
    " unjudged_rank no_questions non_finite out_of_range zero_norm metric_error".split()
)
JUDGE_SUSPECT = frozenset({"control_failed"})
SKIPPED = frozenset("not_sampled budget queue_full disabled shutdown".split())
_STATUS_REASONS: Mapping[Status, frozenset[str]] = {
    "not_applicable": NOT_APPLICABLE,
    "judge_error": JUDGE_ERROR,
    "judge_suspect": JUDGE_SUSPECT,
    "skipped": SKIPPED,
}


def status_of(reason: str) -> Status:
    """The status a reason belongs to.

    Raises:
        ValueError: if no status has that reason.
    """
    for status, reasons in _STATUS_REASONS.items():
        if reason in reasons:
            return status
    raise ValueError(f"unknown reason {reason!r}")


@dataclass(frozen=True, slots=True)
class Document:
    """One retrieved passage, as it was given to the model."""

    text: str
    id: str | None = None
    score: float | None = None
    duplicate: bool = False
    """True if an earlier passage of the call has the same text after whitespace folding."""
    cut_chars: int = 0
    """How many characters redaction's limit took off its end."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the provider reported them; None where it did not."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Monotonic times of a generation, in seconds since its submit; None where there was no such moment."""

    duration_s: float
    first_s: float | None = None
    """First piece of a stream; None if it was not streamed."""
    last_s: float | None = None
    consumer_wait_s: float = 0.0
    """Time the caller held the stream between two pieces: not the model's time."""


@dataclass(frozen=True, slots=True)
class RagCall:
    """One finished RAG call: what was asked, retrieved and answered.

    `contexts` is None when retrieval was not captured and () when it returned nothing: the two differ in every metric.
    """

    query: str | None
    contexts: tuple[Document, ...] | None
    answer: str | None
    reference: str | None = None
    workflow: str = ""
    conversation_id: str | None = None
    model: str | None = None
    timing: Timing | None = None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    """Type name of the exception that ended the call, None if none did."""
    streamed: bool = False
    abandoned: bool = False
    """The reader left the stream early: the answer is what was read so far."""
    cut_chars: int = 0
    """Characters taken off query, answer and contexts by `Redact(max_chars=...)`; 0 means the judge saw everything."""
    span: SpanContext | None = None
    """Context of the span the scores belong to."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the answer and how the chunks stand to it."""

    text: str
    start: int
    """Offset of the first character in the answer."""
    end: int
    """Offset after the last character in the answer."""
    support: Support | None
    """None: the judge was asked and gave no valid label (unjudged)."""
    checkable: bool = True
    relevant: Relevance | None = None
    evidence: tuple[int, ...] = ()
    """Ranks, from 0, of the chunks it was held against or supported by, best first."""
    quote: str | None = None
    score: float | None = None
    """Continuous support in [0, 1] where the judge has one."""
    unsupported: tuple[tuple[int, int], ...] = ()
    """Character ranges of the answer, within this claim, that no chunk supports."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Labels a judge gave one call. Metrics turn them into numbers; a judge never does that arithmetic.

    A field that is None was not judged; `reasons` may say why, keyed by field name, with one of the reasons above
    ("abstained", "no_claims", ...). `reasons[""]` holds for the whole judgement.
    """

    claims: tuple[Claim, ...] | None = None
    answer_label: AnswerLabel | None = None
    consistency: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    mode: str = ""
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    attributes: Mapping[str, Plain] = field(default_factory=_no_attributes)


@dataclass(frozen=True, slots=True)
class Score:
    """A number a metric computed: always finite."""

    value: float
    metric: str = ""
    metric_version: str = ""
    higher_is_better: bool = True
    label: str | None = None
    explanation: str | None = None
    evaluator: str = ""
    """id@version of the judge whose labels were used."""
    mode: str = ""
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    attributes: Mapping[str, Plain] = field(default_factory=_no_attributes)
    claims: tuple[Claim, ...] = ()
    """The evidence, for metrics that rest on claims."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a score must be finite, got {self.value!r}; return Unscored(...) instead")


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why a metric has no number. Never replaced by 0, NaN or any other default."""

    reason: str
    metric: str = ""
    metric_version: str = ""
    higher_is_better: bool = True
    explanation: str | None = None
    evaluator: str = ""
    mode: str = ""
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    attributes: Mapping[str, Plain] = field(default_factory=_no_attributes)

    def __post_init__(self) -> None:
        status_of(self.reason)

    @property
    def status(self) -> Status:
        """not_applicable, judge_error, judge_suspect or skipped."""
        return status_of(self.reason)


Result: TypeAlias = "Score | Unscored"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluator made of one call."""

    evaluator: str
    """Id of the judge."""
    version: str
    type: EvaluatorType
    results: Mapping[str, Result]
    """By metric name."""
    probability: float = 1.0
    """How probable it was that this call was evaluated: a score stands for 1 / probability calls."""
    duration_s: float = 0.0
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    error: str | None = None
    """Reason of the judge's failure, None if it gave labels."""

    @property
    def failures(self) -> list[str]:
        """Reasons of metrics that a fault left unscored, in the order of `results`."""
        faulty = ("judge_error", "judge_suspect")
        return [r.reason for r in self.results.values() if isinstance(r, Unscored) and r.status in faulty]

    @property
    def outcome(self) -> tuple[Literal["scored", "partial", "failed"], str]:
        """The outcome for the accounts, and the first reason of what is missing.

        A call to which no metric applies (an abstention, no contexts captured) is decided, so it is "scored" too, with
        the reason why there is no number.
        """
        if any(isinstance(result, Score) for result in self.results.values()):
            return ("partial", self.failures[0]) if self.failures else ("scored", "")
        if self.failures:
            return "failed", self.failures[0]
        return "scored", next((r.reason for r in self.results.values() if isinstance(r, Unscored)), "")


@runtime_checkable
class Metric(Protocol):
    """Arithmetic over a judge's labels.

    It is called in threads, several at a time, and may take its time. One that only computes may have an attribute
    `computes = True`: it is called directly, and holds up all others for as long as it takes.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def higher_is_better(self) -> bool: ...
    @property
    def range(self) -> tuple[float, float]: ...
    @property
    def needs(self) -> frozenset[str]:
        """Names of the `Judgement` fields it reads."""
        ...

    def __call__(self, call: RagCall, judgement: Judgement) -> Result: ...


@runtime_checkable
class Judge(Protocol):
    """Labels one call. A failure it foresees is a `JudgeError` with a reason.

    `judge` may be a plain function too: it is then called in threads, several at a time. Identical calls (query,
    contexts, answer, reference) are put to it once. A judge that only computes, without waiting for anything, may have
    an attribute `computes = True`: it is asked directly, without time limit, memory or threads.
    """

    @property
    def id(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def type(self) -> EvaluatorType: ...
    def offers(self, metric: Metric) -> bool:
        """Whether its labels are good enough for *metric*."""
        ...

    def judge(self, call: RagCall) -> Awaitable[Judgement] | Judgement: ...


@dataclass(frozen=True, slots=True)
class Signals:
    """Where telemetry goes: what an entry point of the group `ragtrace.exporters` returns. None: not sent."""

    spans: SpanExporter | None = None
    metrics: MetricReader | None = None
    logs: object | None = None
    """A `LogRecordExporter` of the OpenTelemetry logs SDK."""
    immediate: bool = False
    """Pass every item on at once instead of in batches: for consoles and tests."""
