"""`WaitLimits`: what the steps of a group wait for before they become calls, and until when.

"Without news" means that no step of the group has come in, nor has the loss of one been noted. The waits, in the order
in which they are looked for:

- `open_above`: a span of generative AI that has started above or beside the steps, or any span right above steps that
  are all lost: until it ends, or `open_seconds` after its start. The calls are then made without it. At the end of the
  process ("all") they are not made, as a request that still goes on looks the same, and its answer is not known: the
  steps are left out as `unfinished`.
- `open_below`: one that has started below a step of the group: until it ends, `open_seconds` after its start, or
  `below_seconds` without news. The calls are then made without it.
- `other_half`: a generation where there are only contexts, and the reverse, while the span above them, such as that of
  a web server, is open: `parent_seconds` without news.
- `more_steps`: more steps in all other cases: `settle_seconds` without news.
- `missing_parent`: where parents are needed, a span that is missing above the steps, or above other steps at the same
  time: `parent_seconds` without news. `CallAssembler` then leaves the steps out as `incomplete`, unless the missing
  span is in another process than the steps below it, which may export nothing.

| `Extent` | waits for |
|---|---|
| "settled" | all five |
| "what_has_ended" | `open_above`, `open_below`, `other_half` |
| "all" | `open_above` |

Only `CallAssembler.observe` sees starts, so that the first three concern the process that makes the spans. In the
gateway and in a file, spans come in by `add` when they have ended: a root that never ends is not known at all. The
gateway waits for it as a `missing_parent`; a file does not wait for parents, and the steps form calls without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ragtrace.span_reading.intervals import Intervals, time_span
from ragtrace.span_reading.step_groups import StepGroup
from ragtrace.span_reading.trace_spans import TraceSpans

Extent: TypeAlias = Literal["settled", "what_has_ended", "all"]
"""Which calls are returned. "settled": those that nothing has come in for, for a moment. "what_has_ended": those whose
root has ended, with no span open below it. "all": those whose root has ended, as no more spans come in."""
Wait: TypeAlias = Literal["open_above", "open_below", "other_half", "more_steps", "missing_parent"]
"""What a group waits for: see the text at the top of this module."""


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """Limits of the waits of a group, in seconds."""

    settle_seconds: float = 2.0
    """Time without news after which no more steps are waited for."""
    parent_seconds: float = 5.0
    """Time without news after which a missing parent, or the other half of a call, is no longer waited for."""
    open_seconds: float = 600.0
    """Time after the start of a span after which its end is no longer waited for."""
    below_seconds: float = 30.0
    """Time without news after which a span below a step is no longer waited for: many are never ended."""

    def forget_overdue(self, trace: TraceSpans, now: float) -> None:
        """Forget the spans of a trace that started more than `open_seconds` ago: they are no longer waited for.

        Called before `wait_of`, which counts on it.

        Args:
            trace: the trace.
            now: monotonic seconds.
        """
        for span_id in [key for key, span in trace.unended.items() if now - span.since > self.open_seconds]:
            del trace.unended[span_id]

    def wait_of(
        self, trace: TraceSpans, group: StepGroup, lacking: Intervals, now: float, extent: Extent
    ) -> Wait | None:
        """Return what *group* waits for, or None if it waits for nothing any more. Changes nothing.

        Args:
            trace: the trace of the group.
            group: the group, made of the trace after `forget_overdue`.
            lacking: times of the groups of the trace whose parent span is missing; none where parents are not needed.
            now: monotonic seconds.
            extent: which calls are to be returned.
        """
        quiet = now - group.seen
        if group.n_unended:
            return "open_above"
        if extent == "all":
            return None
        if not group.readings and group.parent_id in trace.unended:
            return "open_above"  # what comes in by then has lost a step
        if group.n_unended_below and quiet < self.below_seconds:
            return "open_below"
        # An open parent of generative AI is one of `n_unended`, so this one is of another kind.
        if group.parent_id in trace.unended and not group.has_answer:
            return "other_half" if quiet < self.parent_seconds else None
        if extent == "what_has_ended":
            return None
        if quiet < self.settle_seconds:
            return "more_steps"
        if quiet < self.parent_seconds and lacking.touch(time_span(group.readings)):
            return "missing_parent"
        return None


DEFAULT_WAITS: Final = WaitLimits()
"""Limits that hold where none are given."""
