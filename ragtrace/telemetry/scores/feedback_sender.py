"""Background sending of user feedback to events, metrics, score sinks and histories."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from opentelemetry._logs import SeverityNumber
from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from ragtrace.core import semconv
from ragtrace.core.feedback import HUMAN, Feedback
from ragtrace.core.part import Part
from ragtrace.core.score_sink import Refusal
from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.export.outbox import Outbox
from ragtrace.telemetry.scores.event import EXPLANATION_CHARS, accepts_events

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.context import Context

    from ragtrace.capture.redact import Redact
    from ragtrace.telemetry.export.score_poster import ScorePoster
    from ragtrace.telemetry.export.telemetry import ScoreStore
    from ragtrace.telemetry.scores.instruments import Instruments

_CAPACITY: Final = 4_096
_MOST_BYTES: Final = 8 << 20
_MOST_REMEMBERED: Final = 10_000
"""Most feedback entries that are kept to recognise repeats; the oldest is dropped first."""
_FEEDBACK_BYTES: Final = 600
"""Memory of a feedback entry without the texts."""


class FeedbackSender(Part):
    """Queue of user feedback, whose thread redacts each item and sends it to events, metrics, score sinks and
    histories.

    Feedback that repeats earlier feedback of this process in every field is not sent again; feedback with the id of
    earlier feedback is sent again, to replace it, and is counted once in the metrics.

    Args:
        logger: takes evaluation events; None: there are none.
        instruments: take the metrics.
        posters: post scores to the score APIs of backends.
        histories: store feedback in a file.
        redact: rewrites comments, corrections and user ids.
        texts: whether comments and corrections may leave the process.
    """

    what = "feedback"
    name = "feedback"
    batch_size = 100

    def __init__(
        self,
        logger: Logger | None,
        instruments: Instruments,
        posters: Iterable[ScorePoster],
        histories: Iterable[ScoreStore],
        redact: Redact,
        *,
        texts: bool,
    ) -> None:
        self._logger, self._instruments, self._redact, self._texts = logger, instruments, redact, texts
        self._posters, self._histories = posters, histories
        self._remembered: OrderedDict[str, Feedback] = OrderedDict()
        self.outbox: Outbox[Feedback] = Outbox(self, capacity=_CAPACITY, most_bytes=_MOST_BYTES)

    def offer(self, feedback: Feedback) -> bool:
        """Queue *feedback* and return at once. Feedback that does not fit is counted as lost."""
        texts = len(feedback.comment or "") + len(feedback.correction or "")
        return self.outbox.offer(feedback, size=_FEEDBACK_BYTES + 2 * texts)

    def flush(self, timeout: float) -> bool:
        """Send all queued feedback within *timeout* seconds, and return whether none was lost."""
        return self.outbox.flush(timeout)

    def close(self, timeout: float) -> bool:
        """Send all queued feedback within *timeout* seconds, refuse more, and return whether none was lost."""
        return self.outbox.close(timeout)

    # --- as the receiver of the outbox, on its thread -----------------------------------------------------------------

    def send(self, batch: Sequence[Feedback], timeout: float) -> Mapping[int, Refusal]:
        """Send each feedback of *batch*. A failure is counted as a fault and does not stop the others."""
        refused: dict[int, Refusal] = {}
        for position, feedback in enumerate(batch):
            try:
                self._send(self._redacted(feedback))
            except Exception as error:  # noqa: PERF203 - one failure must not take the others along
                faults.record("feedback", error)
                refused[position] = Refusal("internal")
        return refused

    def warn_lost(self, reason: str, detail: str, count: int) -> None:
        """Report lost user feedback: count it, and log a warning at the first loss for each reason."""
        faults.warn_once(
            f"feedback: {reason}",
            "feedback was lost (%s); every further loss is counted in ragtrace.stats().faults",
            reason,
            count=count,
        )

    def _redacted(self, feedback: Feedback) -> Feedback:
        def text(given: str | None) -> str | None:
            return self._redact.text(given).text if given and self._texts else None

        user = None if feedback.user is None else self._redact.id(feedback.user)
        return replace(feedback, comment=text(feedback.comment), correction=text(feedback.correction), user=user)

    def _send(self, feedback: Feedback) -> None:
        earlier = self._remembered.get(feedback.id)
        if earlier is not None and replace(earlier, time_ns=feedback.time_ns) == feedback:
            return
        self._remembered[feedback.id] = feedback
        self._remembered.move_to_end(feedback.id)
        if len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        context = set_span_in_context(NonRecordingSpan(feedback.span))
        if earlier is None:
            with guarded("metrics"):
                self._instruments.record_feedback(feedback, context)
        if self._logger is not None:
            with guarded("evaluation events"):
                emit_feedback(self._logger, feedback, context)
        for poster in self._posters:
            with guarded("posting feedback"):
                poster.post_feedback(feedback)
        for history in self._histories:
            with guarded("storing feedback"):
                history.add_feedback(feedback)


def emit_feedback(logger: Logger, feedback: Feedback, context: Context) -> None:
    """Emit user feedback as an evaluation event with a human evaluator.

    Nothing is emitted if the logger does not accept such events.

    Args:
        context: holds the span context of the call's root span.
    """
    if not accepts_events(logger, context):
        return
    given = {
        semconv.EVALUATION_SCORE: feedback.score,
        semconv.EVALUATION_LABEL: feedback.label,
        semconv.EVALUATION_EXPLANATION: feedback.comment and feedback.comment[:EXPLANATION_CHARS],
        semconv.FEEDBACK_CORRECTION: feedback.correction,
        semconv.USER_ID: feedback.user,
    }
    logger.emit(
        timestamp=feedback.time_ns,
        context=context,
        severity_number=SeverityNumber.INFO,
        event_name=semconv.EVENT_EVALUATION,
        attributes={
            semconv.EVALUATION_NAME: feedback.name,
            semconv.EVALUATOR_ID: HUMAN,
            semconv.EVALUATOR_TYPE: HUMAN,
            semconv.EVAL_HIGHER_IS_BETTER: True,
            semconv.EVAL_SCORE_ID: feedback.id,
            **{key: value for key, value in given.items() if value is not None},
        },
    )
