"""Data types of ragtrace, and the protocols of judges, metrics and exporters that users can implement."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from ragtrace.core.labels import (
    AnswerLabel,
    ChunkLabel,
    Citation,
    CitedPart,
    Claim,
    Entailments,
    Fact,
    Intention,
    Nugget,
    Rating,
    Sentence,
    Turn,
)
from ragtrace.core.tags import TagValue
from ragtrace.core.unscored_reasons import Status, status_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

    from ragtrace.core.score_sink import ScoreSink

EvaluatorType: TypeAlias = Literal["llm_judge", "deterministic", "model", "decision", "human"]
JUDGE_MODEL: Final = "judge_model"
JUDGE_FINGERPRINT: Final = "judge_fingerprint"
"""Attribute of a judgement: name that the judge's server gives to the configuration of the model in `JUDGE_MODEL`."""
CALIBRATION: Final = "calibration"
"""Attribute of a score that rests on probabilities of a decision model: what is known of their calibration."""
UNCALIBRATED: Final = "uncalibrated"
"""Value of `CALIBRATION`: no labels were held against the probabilities, so that their mean is not a rate."""
NOT_A_RATE: Final = "uncalibrated: not a rate"
"""Explanation of a score that is `UNCALIBRATED`, and the words in place of a rate of such scores."""
STALE_CALIBRATION: Final = "stale"
"""Value of `CALIBRATION`: the labels belong to another judge, question set or served model and say nothing."""
CALIBRATED: Final = "calibrated"
"""Value of `CALIBRATION`: human labels gave a curve, whose probability is in `CALIBRATED_PROBABILITY`."""
CALIBRATED_PROBABILITY: Final = "calibrated_probability"
"""Attribute of a `CALIBRATED` score: the probability that people would call the call bad. The score itself is raw."""
_KNOWN_CALIBRATIONS: Final = (UNCALIBRATED, STALE_CALIBRATION, CALIBRATED)
Plain: TypeAlias = "str | bool | int | float | tuple[str, ...] | tuple[float, ...]"
"""Value that OpenTelemetry accepts as an attribute."""


def _no_attributes() -> dict[str, Plain]:
    return {}


@dataclass(frozen=True, slots=True)
class Document:
    """Retrieved passage, as it was given to the model.

    Examples:
        >>> tower = ragtrace.Document("The tower is in Paris.", id="tower.md", score=0.83)
        >>> ragtrace.score(contexts=[tower], answer="In Paris.")["consistency"]
        Score(1, metric='consistency')
    """

    text: str
    id: str | None = None
    score: float | None = None
    duplicate: bool = False
    """Whether an earlier passage of the call has the same text, apart from whitespace."""
    cut_chars: int = 0
    """Number of characters that `Redact(max_chars=...)` cut off the end of the text."""


class DocumentsInPart(tuple[Document, ...]):
    """Documents of a retrieval that returned more of them than ragtrace has read, or some of which were cut."""

    __slots__ = ()


def documents_from(documents: Iterable[Document], *read: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return *documents*, which come from those *read*, as `DocumentsInPart` if any of these were read in part."""
    in_part = any(isinstance(each, DocumentsInPart) for each in read)
    return DocumentsInPart(documents) if in_part else tuple(documents)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a model's answer as the provider reported them, each None if it was not reported.

    Examples:
        >>> usage = ragtrace.types.Usage(input_tokens=240, output_tokens=12)
        >>> call = ragtrace.RagCall("Where is the tower?", (), "In Paris.", usage=usage)
        >>> call.usage.output_tokens
        12
    """

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Timing of a generation: its duration, and when a streamed answer began and ended, in seconds.

    All times count from the start of the generation; None where there was no such moment.
    """

    duration_s: float
    first_s: float | None = None
    """Seconds until the first piece of a stream; None: the answer was not streamed."""
    last_s: float | None = None
    consumer_wait_s: float = 0.0
    """Seconds for which the caller held the stream between two pieces, which is no time of the model."""


@dataclass(frozen=True, slots=True, repr=False)
class RagCall:
    """Finished RAG call: query, retrieved contexts and answer.

    `contexts` is None when retrieval was not captured and () when it returned nothing: the two differ in every metric.

    Examples:
        >>> tower = ragtrace.Document("The tower is in Paris.")
        >>> calls = [ragtrace.RagCall("Where is it?", (tower,), answer) for answer in ("In Paris.", "In Berlin.")]
        >>> ragtrace.evaluate(calls, metrics=["consistency"])
        <Evaluations of 2 calls: consistency 0.5431 (2 scored)>
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
    """Type name of the exception that ended the call; None: there was none."""
    streamed: bool = False
    abandoned: bool = False
    """Whether the reader left the stream early, so that the answer has only the part that was read."""
    cut_chars: int = 0
    """Number of characters that `Redact(max_chars=...)` cut off query, answer and contexts; 0: the judge saw all."""
    answer_cut_chars: int = 0
    """Number of characters that are missing at the end of the answer."""
    contexts_in_part: bool = False
    """Whether more was retrieved than `contexts` has: reading it all would have taken too long, or the application gave
    the beginnings of documents beside the answer and no retrieval has shown the rest."""
    reasoning_chars: int = 0
    """Number of characters at the beginning of the model's answer that are its reasoning (`<think>` and its like), and
    are left out of `answer`; it is on the span."""
    span: SpanContext | None = None
    """Context of the span to which the scores belong; None: the call has no span."""
    reference_contexts: tuple[Document, ...] | None = None
    """Passages on which a right answer rests, where the caller knows them; else None."""
    turns: tuple[Turn, ...] | None = None
    """Turns of the conversation up to and including this answer; None: not known."""
    runs: tuple[str, ...] | None = None
    """Answers of repeated runs of the same query, in order; None: the query was run once."""
    parts: tuple[CitedPart, ...] | None = None
    """Parts of the answer with their citations, where the application gives them; None: citation marks are read."""
    total_usage: Usage | None = None
    """Token counts of all model calls in a call that was read from spans; else None. `usage` is that of the answer."""
    context_source: str = ""
    """Source of the contexts: `arguments` of the generation, `result` of the call, `reranker`, `retriever`, `tool`,
    `prompt`, or several of these joined by a plus sign; empty where the caller gave the contexts or there are none."""
    defect: str = ""
    """Reason why texts of a call that was read from spans cannot be judged (`contexts_without_text`,
    `contexts_ambiguous`, `texts_truncated`); empty where they can be."""
    earlier_turns: tuple[Turn, ...] | None = None
    """Latest turns before the query, at most `judge_turns` and oldest first, which help a judge to understand the query
    but are no evidence; None: none are known, or none may be shown."""

    def __repr__(self) -> str:
        contexts = "None" if self.contexts is None else f"<{len(self.contexts)}>"
        return f"RagCall(query={_shortened(self.query)}, contexts={contexts}, answer={_shortened(self.answer)})"

    def _repr_html_(self) -> str:
        """Return the texts of the call as an HTML table, for notebooks."""
        given = [("query", self.query or ""), ("answer", "(not captured)" if self.answer is None else self.answer)]
        given += [(f"context {rank}", each.text) for rank, each in enumerate((self.contexts or ())[:20], 1)]
        return html_table(("", self.workflow), given)

    answer_captured: bool = True
    """Whether the answer was found, be it an empty one (None or ""); False: the application may have answered, but
    `answer` is None and nothing is scored (`answer_not_captured`)."""
    tags: Mapping[str, TagValue] = field(default_factory=dict[str, TagValue], hash=False)
    """Whose call it was, by name: tenant, channel, version of the prompt, arm of an experiment."""
    route: str = field(default="", compare=False, repr=False)
    """Tag and value by which the telemetry of the call is routed, written `tenant=acme`, and `tenant=` for a call that
    goes to the default exporter; empty: the process that recorded the call has no `Route`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Labels that a judge gave to the parts of one RAG call.

    Metrics turn them into numbers; a judge computes no scores. A field that is None was not judged; `reasons` may say
    why, keyed by field name, with a reason of `ragtrace.core.unscored_reasons` ("abstained", ...). `reasons[""]` holds
    for the whole judgement.

    Examples:
        >>> claim = ragtrace.Claim("In Paris.", start=0, end=9, support="supported")
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(claims=(claim,), answer_label="answered"))
        >>> ragtrace.score(contexts=["The tower is in Paris."], answer="In Paris.", judge=judge)["faithfulness"]
        Score(1, metric='faithfulness', label='pass')
    """

    claims: tuple[Claim, ...] | None = None
    answer_label: AnswerLabel | None = None
    consistency: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    sentences: tuple[Sentence, ...] | None = None
    chunks: tuple[ChunkLabel, ...] | None = None
    """Labels of the retrieved documents, one for each document in rank order."""
    citations: tuple[Citation, ...] | None = None
    """Citations in the answer; empty when the answer cites nothing."""
    parts: int | None = None
    """Number of parts of the answer that may cite: sentences without filler, or the parts the application gave."""
    answer_rating: int | None = None
    """Rating of how well the answer fits the query, from 0 (beside the point) to 3 (direct and complete)."""
    reference_contexts_contradicted: tuple[bool | None, ...] | None = None
    """Whether the answer contradicts each distinct non-blank reference context; None in the tuple: unjudged."""
    questions: tuple[str, ...] | None = None
    """Distinct questions to which the answer would be an answer, as guessed by a model."""
    question_cosines: tuple[float, ...] | None = None
    """Cosine of the query's embedding with the embedding of each question in `questions`."""
    noncommittal: bool | None = None
    nuggets: tuple[Nugget, ...] | None = None
    intentions: tuple[Intention, ...] | None = None
    answer_facts: tuple[Fact, ...] | None = None
    """Claims of the answer, compared with the reference."""
    reference_facts: tuple[Fact, ...] | None = None
    """Claims of the reference, compared with the answer."""
    entailments: Entailments | None = None
    reference_cosine: float | None = None
    """Cosine of the embeddings of answer and reference, in [-1, 1]."""
    ratings: Mapping[str, Rating] = field(default_factory=dict[str, Rating])
    """Ratings by the name of the `g_eval` metric."""
    mode: str = ""
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    attributes: Mapping[str, Plain] = field(default_factory=_no_attributes)
    answered_probability: float | None = None
    """Probability, by a decision model, that the answer does not decline to answer the query."""
    relevancy_probability: float | None = None
    """Probability, by a decision model, that the answer addresses the query."""

    @property
    def served_model(self) -> str:
        """Name and fingerprint of the model that the judge's server reported, or "" if it reported none."""
        given: object = self.attributes  # a user's judge may have set attributes of any type
        known = cast("Mapping[str, object]", given if isinstance(given, Mapping) else {})
        parts = (known.get(JUDGE_MODEL), known.get(JUDGE_FINGERPRINT))
        return " ".join(part for part in parts if isinstance(part, str) and part)


_SHOWN_CHARS: Final = 300
"""Number of characters shown of each text in a notebook's table."""
_LINE_CHARS: Final = 40
"""Number of characters shown of each text in a `repr`."""


def _shortened(text: str | None) -> str:
    """Return the first 40 characters of *text*, quoted."""
    return repr(text if text is None or len(text) <= _LINE_CHARS else f"{text[:_LINE_CHARS]}...")


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table for a notebook, with all texts escaped and long texts cut."""
    from html import escape  # imported here, as only notebooks need it

    def cells(tag: str, texts: Sequence[str]) -> str:
        shown = (text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..." for text in texts)
        return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in shown) + "</tr>"

    return f"<table>{cells('th', header)}{''.join(cells('td', row) for row in rows)}</table>"


def _table_cells(result: Result) -> tuple[str, str, str]:
    """Return the cells for *result* in a notebook's table: metric name, value or reason, and explanation or label."""
    value = f"{result.value:.4g}" if isinstance(result, Score) else result.reason
    label = result.label if isinstance(result, Score) else "unscored"
    return result.metric, value, result.explanation or label or ""


class Results(dict[str, "Result"]):
    """Results of an evaluation by metric name, shown as a table in a notebook."""

    def _repr_html_(self) -> str:
        return html_table(("metric", "score", ""), [(name, *_table_cells(each)[1:]) for name, each in self.items()])


@dataclass(frozen=True, slots=True, repr=False)
class Score:
    """Score of one call by one metric: a finite number.

    Examples:
        >>> tower = ["The tower is in Paris."]
        >>> score = ragtrace.score(query="Where is the tower?", contexts=tower, answer="In Paris.")["consistency"]
        >>> score.value, score.evaluator
        (1.0, 'embedded@3')
    """

    value: float
    metric: str = ""
    metric_version: str = ""
    higher_is_better: bool = True
    label: str | None = None
    explanation: str | None = None
    evaluator: str = ""
    """Evaluator whose labels were used, as `id@version`."""
    mode: str = ""
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    attributes: Mapping[str, Plain] = field(default_factory=_no_attributes)
    claims: tuple[Claim, ...] = ()
    """Claims with their labels, as evidence of a metric that rests on claims."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a score must be finite, got {self.value!r}; return Unscored(...) instead")

    def __repr__(self) -> str:
        label = f", label={self.label!r}" if self.label else ""
        return f"Score({self.value:.6g}, metric={self.metric!r}{label})"

    def _repr_html_(self) -> str:
        return html_table(("metric", "score", ""), [_table_cells(self)])


@dataclass(frozen=True, slots=True, repr=False)
class Unscored:
    """Reason why a metric has no score for one call, given in place of a default such as 0 or NaN.

    Examples:
        >>> unscored = ragtrace.score(contexts=[], answer="In Paris.")["consistency"]
        >>> unscored.reason
        'no_contexts'
    """

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

    def __repr__(self) -> str:
        return f"Unscored({self.reason!r}, metric={self.metric!r})"

    def _repr_html_(self) -> str:
        return html_table(("metric", "score", ""), [_table_cells(self)])

    @property
    def status(self) -> Status:
        """Status of the reason: not_applicable, judge_error, judge_suspect or skipped."""
        return status_of(self.reason)


Result: TypeAlias = "Score | Unscored"


def is_uncalibrated(result: Result) -> bool:
    """Return whether *result* is a score that rests on a decision model's probabilities as the model gave them."""
    return _calibration_of(result) == UNCALIBRATED


def is_raw_probability(result: Result) -> bool:
    """Return whether *result* is a score that rests on a decision model's probabilities, with a calibration or not."""
    return _calibration_of(result) in _KNOWN_CALIBRATIONS


def _calibration_of(result: Result) -> object:
    given: object = result.attributes  # a user's metric may put anything there
    if not isinstance(result, Score) or not isinstance(given, Mapping):
        return None
    return cast("Mapping[object, object]", given).get(CALIBRATION)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of one evaluator for one call: for each metric a score, or the reason why there is none."""

    evaluator: str
    """Id of the evaluator, without version."""
    version: str
    type: EvaluatorType
    results: Mapping[str, Result]
    """Score, or reason for a missing score, by the name of the metric."""
    probability: float = 1.0
    """Probability in (0, 1] with which the call was chosen for evaluation; a score stands for 1 / probability calls."""
    duration_s: float = 0.0
    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    error: str | None = None
    """Reason of the judge's failure; None if the judge gave labels."""
    cached: bool = False
    """Whether the labels are those of an identical call, so that the judge got no request."""
    turn_tokens: int = 0
    """Estimated number of the input tokens that show earlier turns of the conversation."""
    served_model: str = ""
    """Name and fingerprint of the model that the judge's server reports; empty: not known."""
    deferred: bool = False
    """Whether the failure says nothing about the call: the judge asked for a pause, or got no request."""

    @property
    def failures(self) -> list[str]:
        """Reasons for the missing scores of metrics that failed, in the order of the results."""
        faulty = ("judge_error", "judge_suspect")
        return [r.reason for r in self.results.values() if isinstance(r, Unscored) and r.status in faulty]

    @property
    def outcome(self) -> tuple[Literal["scored", "partial", "failed"], str]:
        """Outcome of the evaluation (scored, partial or failed), and the first reason for a missing score.

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
    """Metric that computes one score of a RAG call from the labels that a judge gave to the call.

    It is called in threads, several at a time, and may wait. A metric that only computes may have an attribute
    `computes = True`: it is called directly, and all others wait until it returns.

    Examples:
        >>> class AnswerWords:
        ...     name, version, needs = "answer_words", "1", frozenset()
        ...     higher_is_better, range = True, (0.0, float("inf"))
        ...     def __call__(self, call, judgement):
        ...         if not call.answer:
        ...             return ragtrace.Unscored("empty_answer")
        ...         return ragtrace.Score(len(call.answer.split()))
        >>> ragtrace.score(answer="The tower is in Paris.", metrics=[AnswerWords()])["answer_words"]
        Score(5, metric='answer_words')
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
        """Names of the labels, which are fields of `Judgement`, that the metric reads."""
        ...

    def __call__(self, call: RagCall, judgement: Judgement) -> Result: ...


@runtime_checkable
class Judge(Protocol):
    """Judge that labels the parts of a RAG call, such as the claims and sentences of the answer.

    A failure that the judge foresees is a `JudgeError` with a reason. `judge` may be a plain function too: it is then
    called in threads, several at a time. Identical calls (query, contexts, answer, reference) are judged once. A judge
    that only computes, without waiting for anything, may have an attribute `computes = True`: it is called directly,
    without deadline, cache or threads. Any other may have an attribute `limits`, a `ragtrace.JudgeLimits`.

    Examples:
        >>> class Quoting:
        ...     id, version, type = "quoting", "1", "deterministic"
        ...     def offers(self, metric):
        ...         return metric.name == "consistency"
        ...     def judge(self, call):
        ...         if not call.contexts:
        ...             return ragtrace.Judgement(reasons={"consistency": "no_contexts"})
        ...         found = any(call.answer in each.text for each in call.contexts)
        ...         return ragtrace.Judgement(consistency=float(found))
        >>> ragtrace.score(contexts=["The tower is in Paris."], answer="in Paris", judge=Quoting())["consistency"]
        Score(1, metric='consistency')
    """

    @property
    def id(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def type(self) -> EvaluatorType: ...
    def offers(self, metric: Metric) -> bool:
        """Return whether the judge's labels are good enough to compute *metric* from them."""
        ...

    def judge(self, call: RagCall) -> Awaitable[Judgement] | Judgement: ...


@runtime_checkable
class Askable(Protocol):
    """Judge that can be restricted to the labels that the configured metrics need."""

    def asking(self, metrics: Sequence[Metric]) -> Judge:
        """Return a judge like this one that gives only the labels that *metrics* need.

        Called once, before the first call is judged.
        """
        ...


@runtime_checkable
class Closable(Protocol):
    """Judge that holds connections or threads and can be closed."""

    async def aclose(self) -> None:
        """Close the judge's connections and threads.

        Called once, after the last call, on the event loop that `judge` ran on.
        """
        ...


@runtime_checkable
class Probed(Protocol):
    """Judge that can check whether its backend answers, for `ragtrace.doctor`."""

    async def probe(self) -> str:
        """Check the judge's backend and return a description of what answered, without secrets.

        For instance "gpt-4o-mini at https://... with a JSON schema". Called on the event loop that `judge` runs on,
        within a few seconds. A failure is a `JudgeError`, or any other exception; its text is shown.
        """
        ...


class Observer(Protocol):
    """Callback that gets every processed call with its evaluations and its sampling decision.

    It is called in the background, and must return at once.
    """

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: SamplingDecision | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Signals:
    """Exporters of spans, metrics, logs and scores to one backend.

    An entry point of the group `ragtrace.exporters` returns them.

    Examples:
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> spans = InMemorySpanExporter()
        >>> ragtrace.configure(exporter=ragtrace.types.Signals(spans=spans, immediate=True))
        >>> with ragtrace.call("Where is the tower?", name="support") as call:
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> [span.name for span in spans.get_finished_spans()]
        ['invoke_workflow support']
    """

    spans: SpanExporter | None = None
    metrics: MetricReader | None = None
    logs: object | None = None
    """Exporter for logs, a `LogRecordExporter` of the OpenTelemetry logs SDK; None: logs are not exported."""
    immediate: bool = False
    """Whether each item is exported at once instead of in batches, as for consoles and tests."""
    scores: ScoreSink | None = None
    """Receiver of the scores, where the backend does not read scores from the other signals; else None."""
    dialects: tuple[str, ...] = ()
    """Attribute conventions that the backend reads; those that the user names take precedence."""
    resource: Mapping[str, str] = field(default_factory=dict[str, str])
    """Resource attributes for the backend; those of the user take precedence."""
    service_attribute: str = ""
    """Resource attribute that has the name of the service, unless `resource` or the user sets it; empty: none."""


class JudgedTexts(NamedTuple):
    """Query and answer of a call as its evaluators got them, and the number of its contexts.

    The span that an exporter gets for the root of a call has them as its field `judged_texts`, on which nothing is
    sent, as the span of another instrumentation may show a record or the string form of a stream in their place.
    """

    query: str | None
    answer: str | None
    contexts: int | None = None
    """Number of the contexts; None: there was no retrieval, or the span is not the root of a call."""


@dataclass(frozen=True, slots=True)
class SamplingDecision:
    """Decision whether a call is sampled for evaluation by the judge, with its probability and reason."""

    included: bool
    probability: float
    """Probability in [0, 1] with which the call was to be included; 0 only by a rule or a rate of 0."""
    reason: str
    """Reason of the decision. Included: `sampled`, `suspicious`, `always_rule`. Not: `not_sampled`, `never_rule`, or
    `budget` where the rate alone would have included the call."""
    least: float = field(default=0.0, compare=False)
    """Smallest probability above 0 that any call could have had at that moment; 0: not known."""


BreakerState: TypeAlias = Literal["closed", "open", "half_open"]
"""State of a circuit breaker: closed lets all calls through, open none, half_open one at a time as a trial."""

BREAKER_STATES: Final[tuple[BreakerState, ...]] = ("closed", "open", "half_open")
