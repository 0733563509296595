"""Notifications of alerts, as data and as text, with examples of badly scored calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Final, Literal, TypeAlias

from ragtrace.alerts.shared_tags import SharedTag
from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.labels import STATEMENT_METRICS, Claim
from ragtrace.core.types import NOT_A_RATE, Evaluation, RagCall, Score
from ragtrace.estimates import Distribution, Estimate
from ragtrace.system.faults import printable

Problem: TypeAlias = Literal["spiking", "no_data", "judge_failing", "judge_drift", "new_documents"]
Status: TypeAlias = Literal["firing", "resolved"]

SCHEMA: Final = 2
_VERBS: Final[dict[Problem, tuple[str, str]]] = {
    "spiking": ("is {direction} {bound}", "is back within {bound}"),
    "no_data": ("has no scores any more", "has scores again"),
    "judge_failing": ("is not known: the evaluator fails", "is known again: the evaluator works"),
    "judge_drift": (
        "is judged in agreement with human labels less often than before",
        "is judged in agreement with human labels as often as before again",
    ),
    "new_documents": (
        "is not compared with its baseline: the documents are new",
        "is compared with its baseline again: the documents are the known ones",
    ),
}
_VERDICTS: Final = frozenset(
    {"hallucinated", "hallucination", "faithfulness", "contradiction", "suspicious", "answered"}
    | {"answered_without_context"}
)
"""Metrics whose mean is a share of answers, or of statements in answers, by the evaluator's verdicts."""
_MOST_STATEMENTS: Final = 2
_QUESTION_CHARS: Final = 200
_STATEMENT_CHARS: Final = 400
_SUPPORT: Final = {"contradicted": 0.0, "not_found": 0.25, "partial": 0.5, "supported": 1.0}
_SUPPORT_IF_UNLABELLED: Final = 0.75
_NEXT: Final[dict[Problem, str]] = {
    "spiking": "next: open the calls below and compare question, chunks and answer; look for what changed at that time "
    "(release, prompt, model, index)",
    "no_data": "next: is the application up, and does it have traffic? Run: ragtrace doctor",
    "judge_failing": "next: run ragtrace doctor, which shows what the evaluator said",
    "judge_drift": "next: run ragtrace doctor, which shows the models that answered the judge; hold the judge against "
    "human labels again (ragtrace calibrate)",
    "new_documents": "hardly a call is about a document of the baseline any more, as after the index was rebuilt with "
    "other ids and texts, or with a topic that the baseline has not met. What is usual for such documents is not "
    "known, so worse answers raise no alarm. next: look at some calls; if all is well, learn a new baseline from calls "
    "on the new index, with ragtrace baseline HISTORY.db --since SINCE, or remove the file of the baseline",
}


@dataclass(frozen=True, slots=True)
class Example:
    """Badly scored call that the notification of an alert shows as an example."""

    trace_id: str
    """Trace id as 32 hexadecimal digits; empty if the call had no span."""
    score: float
    at: float
    """Time when the call was scored, in seconds since the epoch."""
    unsupported: tuple[str, ...] = ()
    """Statements of the answer, in full, that no retrieved passage supports; empty where content is not captured."""
    question: str = ""
    """Question of the call; empty where content is not captured."""
    not_in_chunks: tuple[str, ...] = ()
    """Statements of the answer, in full, with words that no retrieved passage has: found by a comparison of words,
    which also finds true paraphrases. Empty where a judge has labelled statements."""
    url: str = ""
    """Address of the trace in the backend's user interface; empty without `TelemetryOptions(trace_url=...)`."""

    @classmethod
    def from_call(
        cls, call: RagCall, evaluation: Evaluation, score: Score, at: float, *, show_texts: bool, url: str
    ) -> Example:
        """Create the example that a notification shows from a badly scored call.

        Args:
            call: the call, whose texts are redacted already.
            evaluation: the evaluation with *score*; the labels of its other scores are shown where *score* has none.
            show_texts: whether the question and statements may be shown.
            url: address of a trace, with `{trace_id}`; empty: there is no link.
        """
        trace = trace_id_hex(call)
        link = url.replace("{trace_id}", trace) if trace else ""
        if not show_texts:
            return cls(trace, score.value, at, url=link)
        statements = _unsupported_statements(evaluation, score)
        # Where no judge has labelled the statements, only their words were compared with the passages.
        labelled = evaluation.type != "deterministic" or not STATEMENT_METRICS.isdisjoint(evaluation.results)
        return cls(
            trace,
            score.value,
            at,
            question=printable(call.query or "", _QUESTION_CHARS),
            unsupported=statements if labelled else (),
            not_in_chunks=() if labelled else statements,
            url=link,
        )


def trace_id_hex(call: RagCall) -> str:
    """Return the trace id of *call* as 32 hexadecimal digits, or "" if the call has no span."""
    return "" if call.span is None else f"{call.span.trace_id:032x}"


def _unsupported_statements(evaluation: Evaluation, score: Score) -> tuple[str, ...]:
    """Return the statements of the answer that the retrieved passages support least, worst first.

    Without labels by a judge, statements with words that are in no passage are returned.
    """
    scores = (result for result in (score, *evaluation.results.values()) if isinstance(result, Score))
    claims = next((each.claims for each in scores if each.claims), ())
    # A statement without a label is shown only where the judge marks words in it.
    wrong = [c for c in claims if c.checkable and (c.unsupported or c.support not in ("supported", None))]

    def support(claim: Claim) -> float:
        return _SUPPORT.get(claim.support or "", _SUPPORT_IF_UNLABELLED) if claim.score is None else claim.score

    return tuple(printable(claim.text, _STATEMENT_CHARS) for claim in sorted(wrong, key=support)[:_MOST_STATEMENTS])


@dataclass(frozen=True, slots=True)
class Notice:
    """Notification that an alert sends to its notifiers when a problem begins, persists or is over."""

    id: str
    """Id of the notification, the same when it is delivered again."""
    key: str
    """Id of the problem: the same from its beginning to its end, and when it comes again."""
    alert: str
    metric: str
    direction: Literal["above", "below"]
    bound: float
    problem: Problem
    status: Status
    at: float
    """Time of the notification, in seconds since the epoch."""
    since: float
    """Time when the problem began, in seconds since the epoch; of a spike, when its first call was scored."""
    mean_calls_between_false_alarms: float
    repeat: int = 0
    """Number of earlier notifications of the same ongoing problem, or of how often documents were new before."""
    calls: int = 0
    """Number of scored calls behind `estimate`."""
    estimate: Estimate | None = None
    """Mean over the scored calls since a spike began (at most the last 500), which leans to the bad side, as these
    calls were selected for looking bad; at the end of a spike, over the calls that ended it. None: no scores."""
    workflow: str | None = None
    """Workflow of the calls; None: all workflows."""
    model: str | None = None
    """Model of the calls; None: all models."""
    tag: str | None = None
    """Tag of the calls as `name=value`, without a value where the calls lack the tag; None: whatever tags they have."""
    evaluator: str = ""
    """Id of the evaluator that gave the scores."""
    service: str = ""
    trace_id: str = ""
    """Trace id of the call that caused the notification; empty if the notification became due by time alone."""
    worst: tuple[Example, ...] = ()
    """Worst calls since a spike began, worst first; empty for other problems and at the end of a spike."""
    shared: tuple[SharedTag, ...] = ()
    """Tags that the bad calls since a spike began have in common, and the others have not; mostly empty."""
    batch: int = 1
    """Number of scored calls whose mean counts as one observation of the alert."""
    judged: bool = False
    """Whether the judge gave the scores; False: the screen did."""
    host: str = ""
    release: str = ""
    """Version (`service.version`) of the application; empty: not known."""
    before: float | None = None
    """Mean score before a spike, or agreement before a judge's drift; with a baseline, its mean. None: not known."""
    baseline: Distribution | None = None
    """Baseline that `bound` was computed from; None: the user gave the bound."""
    provisional: bool = False
    """Whether the baseline is provisional: too few calls for the usual effects of documents and lengths."""
    part_of: str | None = None
    """Name of the alert that has already notified of the same event; this notification then goes to the log alone."""
    scores: Literal["", "uncalibrated", "calibrated"] = ""
    """Kind of the scores, if they are probabilities of a decision model: raw, so that their mean is no rate, or
    converted by a calibration curve. Empty: other scores."""
    sensitivity: str = ""
    """After how many calls the alert notices a worse mean, in words; empty: not known, or the user gave the bound."""
    due_within: float | None = None
    """Seconds within which scores were expected, if they stay away for unusually long. Without it, a notification
    that there are no scores goes to the log and the events alone."""
    canary_label: str = ""
    """Label (bad or good) of the canaries on which the judge errs more often than before; empty for other problems."""

    @property
    def where(self) -> str:
        """Service, workflow, model and tag of the calls that the notification is about, as far as they are known."""
        parts = (
            self.service,
            self.workflow and f"workflow {self.workflow}",
            self.model and f"model {self.model}",
            self.of_tag,
        )
        return ", ".join(part for part in parts if part)

    @property
    def of_tag(self) -> str:
        """Tag of the calls in words, or an empty text."""
        name, _, value = (self.tag or "").partition("=")
        return f"{name} {value}" if value else f"calls without {name}" if name else ""

    @property
    def title(self) -> str:
        """Notification in one line of text: the metric, its problem, and where it occurs."""
        bound = f"{self.bound:.3g}" if self.baseline is None else "its baseline"
        verb = _VERBS[self.problem][self.status == "resolved"].format(direction=self.direction, bound=bound)
        again = " (still)" if self.repeat and self.status == "firing" and self.problem != "new_documents" else ""
        return f"{self.metric} {verb}{again}" + (f" in {self.where}" if self.where else "")

    @property
    def text(self) -> str:
        """Notification as several lines of text: title, mean before and now, beginning, next steps, worst calls."""
        return "\n".join([self.title, *self.details()])

    def details(self) -> Iterator[str]:
        """Yield the lines of the notification's text that follow its title."""
        estimate, firing = self.estimate, self.status == "firing"
        if estimate is not None and estimate.value is not None:
            low, high = estimate.low or 0.0, estimate.high or 0.0
            interval = NOT_A_RATE if self.scores == "uncalibrated" else f"95 % interval {low:.3f} to {high:.3f}"
            was = "" if self.before is None else f"{self.before:.3f} before, "
            now = "now " if firing else ""
            of = "canary judgements" if self.problem == "judge_drift" else "scored calls"
            yield f"{self._measured_value}: {was}{now}{estimate.value:.3f} ({interval}, {self.calls} {of})"
        known = self.baseline
        if known is not None and self.problem == "spiking":
            of = f" of release {', '.join(known.versions)}" if known.versions else ""
            until = f", until {_utc(known.until)}" if known.until else ""
            what = "provisional baseline" if self.provisional else "baseline"
            yield f"{what}: {known.n:,} calls{of}{until}; alarm {self.direction} {self.bound:.3f}"
            if not self.provisional:
                yield "scores are compared with what answers on such documents and lengths of contexts usually get"
        release, host = self.release and f"release {self.release}", self.host and f"host {self.host}"
        yield ", ".join(part for part in (f"since {_utc(self.since)}", release, host) if part)
        if self.due_within is not None and firing:
            seen, due = ((each / 3600.0) for each in (self.at - self.since, self.due_within))
            yield f"no score for {seen:.1f} hours, which is unusual here: at most {due:.1f} were expected"
        if self.part_of is not None:
            yield f"part of the event that the alert {self.part_of!r} has reported"
        for each in self.shared:
            yield each.text
        if firing:
            yield _NEXT[self.problem].replace("SINCE", _utc(self.since))
        for example in self.worst:
            trace = example.url or f"trace {example.trace_id or 'unknown'}"
            yield f"- {example.score:.2f} {trace}"
            if example.question:
                yield f"  asked: “{example.question}”"
            for statement in example.unsupported:
                yield f"  without support: “{statement}”"
            for statement in example.not_in_chunks:
                yield f"  with words not in the chunks: “{statement}”"
        if self.problem == "spiking" and firing:
            answers = "bad answers" if self.metric in _VERDICTS else "answers with low scores"
            condition = f"where {answers} come in no long bursts"
            calls = f"{self.mean_calls_between_false_alarms:,.0f}"
            of_all = f", of all values of {self.tag.partition('=')[0]} together" if self.tag else ""
            promise = f"false alarms: at most one in {calls} scored calls in the mean{of_all}"
            if self.baseline is None:
                yield f"{promise}, {condition}"
            elif self.provisional:
                yield (
                    f"{promise}, over all baselines of this size, {condition} and the mix of topics stays the same. "
                    f"The baseline is provisional: {self.baseline.n:,} calls do not tell how scores depend on topics"
                )
            else:
                yield (
                    f"{promise}, while the mix of topics varies as it did in the {self.baseline.n:,} calls of the "
                    "baseline. New topics, or a mix that changes more slowly than the baseline is long, can raise this "
                    "alarm without worse answers"
                )
            if self.sensitivity:
                yield f"with this baseline, {self.sensitivity}"
        if self.problem == "judge_drift" and firing:
            calls = f"{self.mean_calls_between_false_alarms:,.0f}"
            yield f"false alarms: at most one in {calls} canary judgements in the mean, while the judge does not change"

    @property
    def _measured_value(self) -> str:
        if self.problem == "judge_drift":
            return f"agreement on calls that people have labelled {self.canary_label}"
        who = "judge" if self.judged else "screen"
        if self.scores:
            return f"mean {'raw score' if self.scores == 'uncalibrated' else 'calibrated probability'} by the {who}"
        corrected = self.estimate is not None and self.estimate.corrected
        by = " corrected by human labels" if corrected else ""
        return f"share of the {who}'s verdicts{by}" if self.metric in _VERDICTS else f"mean score by the {who}{by}"

    def incident(self, process: str) -> AlertIncident:
        """Return what is known of the problem in this process, to be kept in the history.

        Args:
            process: id of the process, or of its runtime, that is in no other.
        """
        resolved = self.status == "resolved"
        seen = None if resolved else self.estimate  # at the end of a spike, it is of the calls that ended it
        return AlertIncident(
            id=hash_of(self.key, process, repr(self.since)),
            key=self.key,
            alert=f"{self.alert}, {self.of_tag}" if self.of_tag else self.alert,
            metric=self.metric,
            problem=self.problem,
            direction=self.direction,
            bound=self.bound,
            against_baseline=self.baseline is not None,
            workflow=self.workflow,
            model=self.model,
            release=self.release,
            evaluator=self.evaluator,
            since=self.since,
            seen=self.at,
            ended=self.at if resolved else None,
            calls=0 if resolved else self.calls,
            value=None if seen is None else seen.value,
            low=None if seen is None else seen.low,
            high=None if seen is None else seen.high,
            before=self.before,
            is_raw=self.scores == "uncalibrated",
        )

    def as_dict(self) -> dict[str, object]:
        """Return the notification as a dict for JSON: all fields, with times also as ISO 8601."""
        fields = asdict(self)
        times = {"at_iso": _utc(self.at), "since_iso": _utc(self.since)}
        return {"version": SCHEMA, "title": self.title, **fields, **times, "text": self.text}


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def hash_of(*parts: str) -> str:
    """Return a hash of *parts* as 32 hexadecimal digits, for the id or key of a notification.

    The hash also depends on where one part ends and the next begins.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()
