"""Background posting of scores to the REST API of a backend."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from ragtrace.core import semconv
from ragtrace.core.feedback import HUMAN, Feedback
from ragtrace.core.ledger import HEAD_DROPPED
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.score_id import score_id_of_result
from ragtrace.core.score_sink import Refusal, ScoreRecord, ScoreSink
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.system.faults import FAILURES, faults
from ragtrace.telemetry.export.outbox import Outbox
from ragtrace.telemetry.scores.score_sender import ANNOTATORS, prevailing_results

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

_CAPACITY: Final = 4_096
_MOST_BYTES: Final = 8 << 20
_PATIENCE_SECONDS: Final = 600.0
"""Longest time for which a score is offered to a backend that is away, or does not have the trace yet."""
_RECORD_BYTES: Final = 600
"""Size of a record without the explanation."""
_HEADLINES: Final = (
    frozenset({"hallucinated", "faithfulness"}),
    frozenset({"consistency", "suspicious"}),
    frozenset({"answered"}),
)


class ScorePoster(Part):
    """Observer of finished calls that queues their scores and posts them to one backend in the background.

    Each score is posted once by its id; see `Outbox` for bounds, retries and counts.

    Args:
        sink: the backend's API.
        service: name of the application.
        evidence: whether to quote the claims that are not supported.
        capacity: largest number of scores that may wait.
        most_bytes: largest number of bytes that they may take.
        patience: seconds after which a score that could not be posted is given up.
        clock: monotonic seconds.
    """

    what = "scores"

    def __init__(
        self,
        sink: ScoreSink,
        *,
        service: str = "",
        evidence: bool = False,
        capacity: int = _CAPACITY,
        most_bytes: int = _MOST_BYTES,
        patience: float = _PATIENCE_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.sink, self._service, self._evidence = sink, service, evidence
        self._newest: OrderedDict[str, int] = OrderedDict()  # times of the newest feedback by id
        self.outbox = Outbox(self, capacity=capacity, most_bytes=most_bytes, patience=patience, clock=clock)

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object = None) -> None:
        """Queue the scores of *call*, to be posted to the backend."""
        if call.span is None:
            return
        for record in self._records(call.span, call.workflow, evaluations):
            if not call.span.trace_flags.sampled:
                self.outbox.count_skipped(HEAD_DROPPED)
                continue
            size = _RECORD_BYTES + 2 * len(record.explanation or "")
            self.outbox.offer(record, size=size, key=record.id, delay=self._delay)

    def stats(self) -> Mapping[str, Mapping[str, object]]:
        """Return the counts of the scores, by name of the sink."""
        return {"sinks": {self.outbox.name: self.outbox.counts()}}

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the scores that were posted, or were not."""
        about = "Scores for a backend's own API, by outcome"
        yield ObservableMetric(semconv.METRIC_POSTED, "counter", "{score}", about, self._points)

    def _points(self) -> Iterator[Point]:
        for outcome, reason, count in self.outbox.counts().rows():
            yield count, {semconv.SINK: self.outbox.name, semconv.OUTCOME: outcome, semconv.REASON: reason}

    def flush(self, timeout: float) -> bool:
        """Post all queued scores within *timeout* seconds, and return whether none was lost."""
        return self.outbox.flush(timeout)

    def close(self, timeout: float) -> bool:
        """Post all queued scores within *timeout* seconds, refuse more, and return whether none was lost."""
        return self.outbox.close(timeout)

    def post_feedback(self, feedback: Feedback) -> None:
        """Queue the user feedback *feedback*, to be posted to the backend.

        It replaces earlier feedback with the same id there. Feedback without a score is not posted, as a backend's
        score needs a number.
        """
        if feedback.score is None:
            self.outbox.count_skipped("no_score")
        elif not feedback.span.trace_flags.sampled:
            self.outbox.count_skipped(HEAD_DROPPED)
        else:
            record = ScoreRecord(
                id=feedback.id,
                trace_id=feedback.span.trace_id,
                span_id=feedback.span.span_id,
                name=feedback.name,
                value=feedback.score,
                label=feedback.label,
                explanation=feedback.comment,
                annotator="HUMAN",
                evaluator=feedback.user or HUMAN,
                metric_version="",
                probability=1.0,
                time_ns=feedback.time_ns,
                service=self._service,
                headline=True,
            )
            self._newest[record.id] = record.time_ns
            self._newest.move_to_end(record.id)
            if len(self._newest) > _CAPACITY:
                self._newest.popitem(last=False)
            # Without a key, as feedback that returns to an earlier score is no repeat.
            self.outbox.offer(record, size=_RECORD_BYTES + 2 * len(record.explanation or ""), delay=self._delay)

    def _records(self, span: SpanContext, workflow: str, evaluations: Sequence[Evaluation]) -> Iterator[ScoreRecord]:
        """Yield one `ScoreRecord` for each metric that has a score.

        Of two evaluators the later one's score is taken, as backends average scores of one name. An unscored metric
        gets no record: every number would be invented.
        """
        shown = prevailing_results(evaluations)
        scored = {name for name, (_, result) in shown.items() if isinstance(result, Score)}
        headline = next((names for names in _HEADLINES if names & scored), scored)
        now = time_ns()
        for name, (evaluation, result) in shown.items():
            if not isinstance(result, Score):
                continue
            yield ScoreRecord(
                id=score_id_of_result(span, name, result, evaluation),
                trace_id=span.trace_id,
                span_id=span.span_id,
                name=name,
                value=float(result.value),
                label=result.label,
                explanation=result.explanation or _explanation(result, evidence=self._evidence),
                annotator=ANNOTATORS.get(evaluation.type, "CODE"),
                evaluator=f"{evaluation.evaluator}@{evaluation.version}",
                metric_version=result.metric_version,
                probability=evaluation.probability,
                time_ns=now,
                service=self._service,
                workflow=workflow,
                headline=name in headline,
            )

    @property
    def _delay(self) -> float:
        return float(getattr(self.sink, "first_after_s", 0.0))

    # --- as the receiver of the outbox, on its thread -----------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the backend that scores are posted to."""
        return self.sink.name

    @property
    def batch_size(self) -> int:
        """Largest number of scores that the backend takes in one call."""
        return self.sink.most_at_once

    def send(self, batch: Sequence[ScoreRecord], timeout: float) -> Mapping[int, Refusal]:
        """Post a batch of scores to the backend, and return the refusals by position in the batch.

        If the sink raises, or returns anything but refusals, all scores count as refused.
        """
        # Feedback that the backend refused for a while must not overwrite what has replaced it since.
        current = [n for n, record in enumerate(batch) if record.time_ns >= self._newest.get(record.id, 0)]
        refused: Mapping[str, Refusal] = {}
        try:
            if current:
                refused = self.sink.post([batch[position] for position in current], timeout)
            found = {position: refused[batch[position].id] for position in current if batch[position].id in refused}
            if not all(isinstance(refusal, Refusal) for refusal in found.values()):  # a user's own sink
                raise TypeError(f"post() of the score sink {self.name} must return a mapping of id to Refusal")
        except FAILURES as error:
            faults.record(f"posting scores to {self.name}", error)
            return dict.fromkeys(range(len(batch)), Refusal("internal"))
        return found

    def warn_lost(self, reason: str, detail: str, count: int) -> None:
        """Report lost scores: count them, and log a warning at the first loss for each reason."""
        faults.warn_once(
            f"scores for {self.name}: {reason}",
            "a score could not be posted to %s (%s); it is in spans, events and metrics all the same. Every further "
            "loss is counted in ragtrace.stats().sinks",
            *(self.name, f"{reason}: {detail}" if detail else reason),
            count=count,
        )


def _explanation(result: Score, *, evidence: bool) -> str | None:
    """Return a sentence on how many claims of the answer are supported, or None if the metric does not count claims."""
    checked = [claim for claim in result.claims if claim.checkable]
    if not checked:
        return None
    supports = Counter(claim.support or "unjudged" for claim in checked)
    found = ", ".join(f"{number} {support.replace('_', ' ')}" for support, number in sorted(supports.items()))
    text = f"of {len(checked)} claims: {found}"
    wrong = [claim.text for claim in checked if claim.support != "supported" and claim.text]
    return f"{text}. Not supported: {' | '.join(wrong)}" if evidence and wrong else text
