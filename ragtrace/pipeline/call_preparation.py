"""Preparation of RAG calls: their texts are read and redacted, and the steps become the call that evaluators see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from sys import maxsize

from ragtrace.capture import mark_duplicates
from ragtrace.capture.redact import FAILED, Redact, redact_step
from ragtrace.capture.tags import count_beyond
from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.tags import MOST_TAGS, TagValue, valid_tags
from ragtrace.core.types import RagCall
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.pipeline.call_ends import CALL_FAILED, HEAD_DROPPED, REDACTION_FAILED, CallEnd
from ragtrace.pipeline.work_items import CallItem, SpanItem
from ragtrace.recording.conversations import Conversations, needs_turns
from ragtrace.system.faults import faults, guarded


class CallPreparation:
    """Preparation of finished steps for their spans, and of RAG calls for their evaluators.

    It keeps nothing of a call but the turns of conversations, in a store with a lock of its own, and may be used from
    any thread. Two threads must not prepare the same step: `CallProcessor` says who prepares which.

    Args:
        redact: redaction rules.
        conversations: store of earlier turns; None: no evaluator reads them.
        score_head_dropped: whether calls are scored whose trace the head sampler dropped.
        fact_givers: functions that give a call tags, by its root step.
    """

    def __init__(
        self,
        redact: Redact,
        conversations: Conversations | None,
        *,
        score_head_dropped: bool,
        fact_givers: Sequence[Callable[[Step], Mapping[str, TagValue]]] = (),
    ) -> None:
        self._redact, self._conversations, self._score_head_dropped = redact, conversations, score_head_dropped
        self._fact_givers = tuple(fact_givers)
        self._may_be_plain = not redact.has_rules and redact.ids is None
        self._most_chars = maxsize if redact.max_chars is None else redact.max_chars

    def prepare(self, work: SpanItem) -> None:
        """Read and redact the texts of a step, or of all steps of a RAG call, before its span is written."""
        builder = work.builder if isinstance(work, CallItem) else None
        for step in (work.step, *(() if builder is None else (*builder.steps, *builder.orphans))):
            if (step.ended or step is work.step) and not step.redacted:
                step.complete()
                if self._may_be_plain and step.is_plain(self._most_chars):
                    step.redacted = True
                else:
                    redact_step(step, self._redact)
        if builder is not None:
            builder.show_contexts()
            for give in self._fact_givers:
                with guarded("facts of a call"):
                    given = builder.root.tags or {}
                    facts = {name: value for name, value in give(builder.root).items() if name not in given}
                    builder.root.tags = valid_tags({**given, **facts}) or None

    def build(self, builder: CallBuilder) -> RagCall:
        """Build the RAG call of prepared steps, and add it to its conversation."""
        guard = builder.root.guard
        if guard is not None and guard.call is not None:  # a conversation takes up each call once
            return guard.call
        call = builder.build()
        if call.reasoning_chars and not (call.answer_captured or call.abandoned):
            faults.warn_once(
                f"capture.reasoning:{call.workflow}",
                "an answer of %s is only the reasoning of its model, and is not scored: allow for more output tokens, "
                "or give answer=, a function that returns the text for the user",
                call.workflow,
            )
        if len(call.tags) == MOST_TAGS:
            names = dict.fromkeys(name for step in builder.steps if step.ended for name in step.tags or ())
            if left_out := [name for name in names if name not in call.tags]:
                count_beyond("the steps of a call", left_out)
        if self._conversations is not None:
            call = self._conversations.follow(call)
        return call if call.contexts is None else replace(call, contexts=mark_duplicates(call.contexts))

    def build_guarded(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Prepare and build the RAG call of a guarded function, before its span is written and the call is scored.

        Returns:
            The call, and the reason why it must not be judged, or an empty text.
        """
        self.prepare(CallItem(builder.root, builder))
        call = self.build(builder)
        end = self.end_without_scores(call)
        return call, "" if end is None else end.reason

    def build_partial(self, builder: CallBuilder) -> tuple[RagCall, str]:
        """Prepare and build a RAG call for a part of an answer that is still being streamed.

        Args:
            builder: builder of that call alone, whose root stands for the root step of the call in progress.

        Returns:
            The call, and the reason why it must not be judged, or an empty text.
        """
        self.prepare(CallItem(builder.root, builder))
        call = builder.build()  # which no conversation takes up
        call = call if call.contexts is None else replace(call, contexts=mark_duplicates(call.contexts))
        end = self.end_without_scores(call)
        return call, "" if end is None else end.reason

    def end_without_scores(self, call: RagCall) -> CallEnd | None:
        """Return the end of a RAG call that is not to be scored, or None for other calls."""
        texts = [call.query, call.answer, call.reference, *(document.text for document in call.contexts or ())]
        if FAILED in texts or FAILED in [turn.text for turn in call.turns or ()]:
            return REDACTION_FAILED
        if call.span is None or not (call.span.trace_flags.sampled or self._score_head_dropped):
            return HEAD_DROPPED
        # The application failed before there was an answer to score; its span shows the error.
        return CALL_FAILED if call.error is not None and not call.answer else None


def conversations_for(evaluators: Evaluators, *, turns_elsewhere: int) -> Conversations | None:
    """Return a store of earlier turns for evaluators that read them, or None if none does.

    Earlier turns are kept for two purposes: metrics of whole conversations, and judges that are shown the latest ones.
    A judge that only computes asks no model, and is shown none.

    Args:
        evaluators: the evaluators of this process.
        turns_elsewhere: most earlier turns that the judge of other processes is shown; 0: none, or there is none.
    """
    configured = [evaluator for evaluator in evaluators if evaluator is not None]
    whole = any(map(needs_turns, chain.from_iterable(evaluator.metrics for evaluator in configured)))
    turns_shown = [each.judge_turns for each in configured if not each.judge_client.computes]
    latest = max([*turns_shown, turns_elsewhere])
    return Conversations(whole=whole, latest=latest) if whole or latest else None
