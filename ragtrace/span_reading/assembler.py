"""Assembly of RAG calls from the finished spans of a trace, whatever instrumentation has created the spans.

A *reading* (`SpanReading`) is the step of a RAG call that was read from one finished span, together with that span. No
part of the assembly changes a reading, but that it gets its span. It goes through these files:

1. `span_buffer.py`: the reading waits in the `TraceSpans` (`trace_spans.py`) of its trace. If there is no room, the
   oldest trace is evicted.
2. `step_groups.py`: the steps of a trace become groups, one for each span that has steps right below it. The steps of a
   group wait for one another; `group_waits.py` says for what, and how long.
3. `recorded_twice.py`: a call that another instrumentation shows, too, is left out. If that one shows more and is not
   complete yet, the call waits for it.
4. `pass_order.py`: a complete group is divided into calls by the passes of `DIVISION`, and each call is built by those
   of `PASSES`.

A step leaves the buffer once: in a call that is returned, or left out for one of the reasons `LEFT_OUT`, by which
`CallAssembler.counts` counts it. So with `include_own`, "spans" is at any time the number of steps in returned calls,
plus those that were left out, plus those that wait: `test_each_step_is_in_one_call_or_left_out_once` in
`tests/unit/span_reading/test_assembler.py` checks it for steps in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, get_args

from opentelemetry.trace import NonRecordingSpan, SpanContext

from ragtrace.core import semconv
from ragtrace.core.step import FINDING_KINDS
from ragtrace.span_reading.call_division import keep_own_workflows
from ragtrace.span_reading.call_draft import AssembledCall, CallDraft
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading, from_sdk_span
from ragtrace.span_reading.gone_roots import GoneRoots, WhyGone
from ragtrace.span_reading.group_waits import DEFAULT_WAITS, Extent, WaitLimits
from ragtrace.span_reading.intervals import Intervals, time_span
from ragtrace.span_reading.pass_order import build_call, divide
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.recorded_twice import RecordedTwice, detail_of
from ragtrace.span_reading.span_buffer import SpanBuffer
from ragtrace.span_reading.step_groups import StepGroup, group_steps, missing_parent
from ragtrace.span_reading.trace_spans import OpenSpan, TraceSpans
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.intake import LostSpan, is_genai

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_MOST_LOST: Final = 4_096
"""Most lost steps of a trace. With more of them, next to no call of the trace can be complete, and it is evicted."""
_CHECK_SECONDS: Final = 0.2
"""Time between two checks of a trace, at least: a small part of the two seconds that its steps settle in."""
_CHECK_SECONDS_A_READING: Final = 0.000_2
"""Time between two checks of a trace, for each of its readings: a check takes some microseconds for each, and so a few
hundredths of the time at most."""

LossReason: TypeAlias = Literal["incomplete", "evicted", "late", "unfinished", "failed"]
LeftOutReason: TypeAlias = Literal[LossReason, "duplicates", "no_call"]


@dataclass(frozen=True, eq=False)
class _ReadyGroup:
    """Group of steps that waits for no further span, with what is known to be missing."""

    trace: TraceSpans
    group: StepGroup
    is_cut_off: bool
    """Whether the process ends while spans below a reading of the group have not ended."""
    incomplete_times: Intervals
    """Times of the groups of the trace whose parent span is missing in this process, and of the steps that were
    evicted: a call at the same time may lack these steps."""

    @cached_property
    def divided(self) -> list[CallDraft]:
        """Drafts of the calls that the group is divided into."""
        return divide(self.group)

    @cached_property
    def calls(self) -> list[CallDraft]:
        """Drafts of the calls that are built."""
        return _calls_of(self.divided)


class CallAssembler:
    """Bounded buffer of finished spans, which combines the spans of a RAG call once all of them have arrived.

    A call begins at the topmost workflow, agent or chain, or else at a generation together with the retrievals and
    tools under the same parent span. It is returned when its root has ended and nothing below it has come in for a
    moment.

    Not safe for use from several threads. `SpanCalls.collect` calls `observe` with the spans of this process, which it
    takes from a queue in the worker's periodic work or in a flush, and holds a lock meanwhile. The gateway and the
    reader of span files call `add`.

    What a group of steps waits for, and until when, is decided by `WaitLimits` (`group_waits.py`). A span above steps
    that have left the buffer is no call without them, should it come in after all (`gone_roots.py`).

    Args:
        settle_seconds: seconds without news after which a call whose root has ended is returned.
        parent_seconds: seconds without news for which steps wait for spans above or beside them.
        open_seconds: seconds after its start at which a span that has not ended is no longer waited for.
        most_spans: readings that are kept at a time; for one more, the oldest trace is evicted.
        most_bytes: memory that their texts may take.
        most_traces: traces that are kept at a time.
        needs_parents: whether spans come from other processes, so that some may be missing.
        include_own: whether calls are assembled from ragtrace's own spans, too. Not in the process that made these
            spans, because the decorated functions submit these calls there.
        clock: returns monotonic seconds.
    """

    LOSSES: ClassVar[tuple[LossReason, ...]] = get_args(LossReason)
    """Reasons for which steps are left out that would have been part of a call: users are told of them as losses."""
    LEFT_OUT: ClassVar[tuple[LeftOutReason, ...]] = get_args(LeftOutReason)
    """All reasons for which steps that were read are in no call: names in `counts`."""

    def __init__(
        self,
        *,
        include_own: bool = True,
        settle_seconds: float = DEFAULT_WAITS.settle_seconds,
        parent_seconds: float = DEFAULT_WAITS.parent_seconds,
        open_seconds: float = DEFAULT_WAITS.open_seconds,
        most_spans: int = 50_000,
        most_bytes: int = 32 << 20,
        most_traces: int = 20_000,
        needs_parents: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._waits = WaitLimits(settle_seconds, parent_seconds, open_seconds)
        self._include_own, self._needs_parents, self._clock = include_own, needs_parents, clock
        self._buffer = SpanBuffer(
            most_readings=most_spans,
            most_bytes=most_bytes,
            most_traces=most_traces,
            on_evicted=lambda readings: self._leave_out("evicted", readings),
        )
        self._gone_roots = GoneRoots()
        self._recorded_twice = RecordedTwice()
        self._left_out: list[SpanContext] = []
        self.counts: Counter[str] = Counter()
        """Number of `spans` that were read, of `calls`, and of the readings that are in none (`LEFT_OUT`): `evicted`
        for lack of room, `late` after their call was returned, as a part of it or above it, `duplicates` of another
        instrumentation's, `incomplete` because other spans of their call are missing or were lost, `unfinished` when
        the process ended, `failed` as building their call raised, `no_call`."""

    def __len__(self) -> int:
        """Number of steps that wait."""
        return len(self._buffer)

    # --- spans come in ------------------------------------------------------------------------------------------------

    def observe(self, span: ReadableSpan) -> SpanReading | None:
        """Add a started or ended span of the SDK to the buffer.

        Return the step that was read from it if the span has ended and is a step of a RAG call.
        """
        context = span.context
        if context is None:
            return None
        if span.end_time is None:
            now, parent_id = self._clock(), 0 if span.parent is None else span.parent.span_id
            started = OpenSpan(is_genai(span), now, span.start_time or 0)
            self._buffer.touch(context.trace_id, now).begin(context.span_id, parent_id, started)
            return None
        finished = from_sdk_span(span)
        return None if finished is None else self.add(finished)

    def add(self, span: FinishedSpan) -> SpanReading | None:
        """Add a finished span to the buffer, and return the RAG step read from it.

        Return None for a span that is left out, such as one that is no step of a RAG call.
        """
        now, span_id = self._clock(), span.context.span_id
        trace = self._buffer.touch(span.context.trace_id, now)
        trace.end(span_id, 0 if span.parent is None else span.parent.span_id)
        trace.lost.pop(span_id, None)  # another processor had room for it
        if self._needs_parents and span.parent is not None and span.parent.is_remote:
            trace.remote.add(span_id)
        if trace.is_read(span_id):  # exported twice, or ended by two processors
            return None
        reading = read_span(span)
        if reading is None:
            self._left_out.append(span.context)
            self._leave_out_below(trace, span_id)
            return None
        if not self._include_own and span.scope == semconv.SCOPE and reading.step.kind in ("trace", "generate"):
            trace.mark_handled(reading)
            self._left_out.append(span.context)
            return None
        self.counts["spans"] += 1
        why = "late" if trace.is_late(span_id, reading) else self._gone_roots.why_too_late(reading)
        if why is not None:
            trace.mark_handled(reading)
            self._leave_out(why, [reading])
            self._leave_out_below(trace, span_id)
            return None
        reading.step.span = NonRecordingSpan(span.context)
        self._recorded_twice.note_step(reading, now)
        self._buffer.keep(trace, reading, now)
        return reading

    def lose(self, span: LostSpan) -> None:
        """Record that the contents of an ended span are lost.

        The RAG call that the span belongs to is incomplete.
        """
        now, span_id = self._clock(), span.context.span_id
        trace = self._buffer.touch(span.context.trace_id, now)
        trace.end(span_id, span.parent_id)
        if span.is_genai and not trace.is_late(span_id, None):
            trace.lose(span_id, now)
        if len(trace.lost) > _MOST_LOST:
            self._buffer.evict(span.context.trace_id)

    # --- steps that are in no call ------------------------------------------------------------------------------------

    def take_left_out(self) -> list[SpanContext]:
        """Return the ended spans that belong to no RAG call, and forget them."""
        left_out, self._left_out = self._left_out, []
        return left_out

    def _leave_out(self, why: LeftOutReason, readings: Collection[SpanReading]) -> None:
        """Count steps that are in no call, and keep their spans for `take_left_out`."""
        if readings:
            self.counts[why] += len(readings)
        self._left_out += [reading.span.context for reading in readings]

    def _leave_out_below(self, trace: TraceSpans, span_id: int) -> None:
        """Leave out the steps that waited below a span which was taken for a request, and is none."""
        late = trace.take_below(span_id)
        self._buffer.hand_over(trace, late)
        self._leave_out("late", late)

    def _leave_out_without_call(self, readings: Collection[SpanReading], why: Literal["no_call", "unfinished"]) -> None:
        """Leave out steps that form no RAG call.

        Where ragtrace's own calls are not assembled, its own steps are those of calls that were submitted otherwise.
        """
        others: list[SpanReading] = []
        for reading in readings:
            if self._include_own or reading.span.scope != semconv.SCOPE:
                others.append(reading)
            else:
                self._left_out.append(reading.span.context)
        self._leave_out(why, others)

    # --- calls come out -----------------------------------------------------------------------------------------------

    def take_complete(self, *, everything: bool = False) -> list[AssembledCall]:
        """Remove the RAG calls whose spans are complete from the buffer, and return them.

        Called again and again: a trace is checked only when its next check is due.

        Args:
            everything: check all traces now, and wait for no more spans of the calls whose root has ended.
        """
        return self._take("what_has_ended" if everything else "settled")

    def take_last(self) -> list[AssembledCall]:
        """Return the RAG calls whose root has ended, when no more spans come in, and empty the buffer.

        Spans that have not ended by now are not waited for: below the root, a call goes without them. Other steps that
        wait for one, or form no call without one, are left out as `unfinished`.
        """
        calls = self._take("all")
        self._leave_out_without_call(self._buffer.clear(), "unfinished")
        return calls

    def _take(self, extent: Extent) -> list[AssembledCall]:
        """Remove the RAG calls that wait for nothing from the buffer, and return them, in four phases.

        1. The groups of steps that are ready are found, in all traces whose check is due.
        2. Those are held back of which another instrumentation's recording that shows more is not ready yet, or is
           held back itself: that one may become a call, which makes theirs a duplicate, or turn out to be none.
        3. The others become calls. Of two recordings of a call that are both ready, the one that shows more is built
           first; if it becomes no call, the other does.
        4. The traces in which nothing waits any more are retired, and what is old is forgotten.
        """
        now = self._clock()
        due = [item for item in self._buffer.live_traces() if extent != "settled" or now >= item[1].due]
        ready = [each for trace_id, trace in due for each in self._ready_groups(trace_id, trace, now, extent)]
        held: set[_ReadyGroup] = set()
        try:
            held = held if extent == "all" else self._held_back(ready)
        except Exception as error:  # of the division of a group, which is left out below if it is ready
            faults.record("division of spans into calls", error)
        calls = self._assemble([each for each in ready if each not in held])
        for trace_id, trace in due:
            self._end_check(trace_id, trace, now, extent)
        # All at the same time, so that of two recordings that are held back for each other both are ready then. What
        # they wait for is divided in each check.
        due_again = now + max(_CHECK_SECONDS, len(self._buffer) * _CHECK_SECONDS_A_READING if held else 0.0)
        for each in held:
            each.trace.due = due_again
        self._buffer.forget_old(now)
        self._recorded_twice.forget_old(now, self._buffer.live_ids)
        self.counts["calls"] += len(calls)
        return calls

    def _ready_groups(self, trace_id: int, trace: TraceSpans, now: float, extent: Extent) -> list[_ReadyGroup]:
        """Return the groups of steps in a trace that wait for nothing any more.

        Changes nothing, but that the trace forgets spans that have been open for too long.

        Args:
            trace_id: id of the trace.
            trace: the trace.
            now: monotonic seconds.
            extent: which calls are to be returned.
        """
        self._waits.forget_overdue(trace, now)
        groups = group_steps(trace)
        missing = {id(each): missing_parent(trace, each) for each in groups} if self._needs_parents else {}
        lacking = Intervals(time_span(each.readings) for each in groups if missing.get(id(each)))
        evicted = self._buffer.evicted_times(trace_id)
        incomplete = [time_span(each.readings) for each in groups if missing.get(id(each)) == "local"]
        incomplete_times = Intervals(incomplete if evicted is None else [*incomplete, evicted])
        return [
            _ReadyGroup(trace, group, extent == "all" and group.n_unended_below > 0, incomplete_times)
            for group in groups
            if self._waits.wait_of(trace, group, lacking, now, extent) is None
        ]

    def _held_back(self, ready: Sequence[_ReadyGroup]) -> set[_ReadyGroup]:
        """Return those of the *ready* groups that wait for another recording of one of their calls.

        They wait for one that shows more, and that is not ready or is held back.
        """
        doubled = [each for each in ready if self._recorded_twice.may_be_recorded_otherwise(each.group.readings)]
        if not doubled:
            return set()
        waiting = _WaitingCalls(self._buffer)
        group_of = {_ids(reading.span.context): each for each in ready for reading in each.group.readings}
        others: dict[_ReadyGroup, set[_ReadyGroup | None]] = {each: set() for each in doubled}
        for each in doubled:
            for draft in each.calls:
                for span in self._recorded_twice.other_recordings(draft, apart_from=each.group.readings):
                    other = group_of.get(_ids(span))
                    if waiting.has(span) and (
                        (other is None and not draft.has_workflow) or waiting.shows_more(span, draft)
                    ):
                        others[each].add(other)
        held: set[_ReadyGroup | None] = {None}  # None stands for all groups that are not ready
        while more := {
            each for each, waits_for in others.items() if each not in held and not held.isdisjoint(waits_for)
        }:
            held |= more
        return {each for each in held if each is not None}

    def _end_check(self, trace_id: int, trace: TraceSpans, now: float, extent: Extent) -> None:
        """Set when a trace is checked again, or retire it if nothing in it waits.

        Args:
            trace_id: id of the trace.
            trace: the trace, whose groups that were ready have left the buffer.
            now: monotonic seconds.
            extent: which calls were to be returned.
        """
        trace.due = now + max(_CHECK_SECONDS, len(trace.readings) * _CHECK_SECONDS_A_READING)
        is_quiet = extent != "settled" or now - trace.touched > self._waits.settle_seconds
        # An open span may be the root of what comes in next.
        if is_quiet and not (trace.readings or trace.lost or trace.unended):
            self._buffer.retire(trace_id)

    # --- a group of steps becomes calls -------------------------------------------------------------------------------

    def _assemble(self, ready: Sequence[_ReadyGroup]) -> list[AssembledCall]:
        """Remove the steps of some groups from the buffer, and return the RAG calls that they form."""
        ready = [each for each in ready if self._take_out(each)]
        drafts = [(each, draft) for each in ready for draft in each.calls]
        made: dict[CallDraft, AssembledCall | LeftOutReason] = {}
        for each, draft in sorted(drafts, key=lambda item: detail_of(item[1]), reverse=True):
            made[draft] = self._build(each, draft)
        for each in ready:
            self._note_gone_root(each, [made[draft] for draft in each.calls])
        return [call for _, draft in drafts if isinstance(call := made[draft], AssembledCall)]

    def _take_out(self, ready: _ReadyGroup) -> bool:
        """Remove the steps of a group from the buffer, and leave out those that are in no call.

        Return False if the group could not be divided, so that all of its steps are left out.
        """
        group = ready.group
        self._buffer.hand_over(ready.trace, group.readings)
        ready.trace.forget_lost(group.lost_ids)
        try:
            in_divided, in_calls = _span_ids(ready.divided), _span_ids(ready.calls)
        except Exception as error:
            faults.record("division of spans into calls", error)
            self._leave_out("failed", group.readings)
            return False
        self._leave_out_without_call([each for each in group.readings if each.span_id not in in_divided], "no_call")
        doubled = in_divided - in_calls
        self._leave_out("duplicates", [each for each in group.readings if each.span_id in doubled])
        return True

    def _note_gone_root(self, ready: _ReadyGroup, made: Collection[AssembledCall | LeftOutReason]) -> None:
        """Remember the spans above a group that may still come in, if it has left the buffer with what they would need.

        Args:
            ready: the group.
            made: its calls, and why others of its steps are in none.
        """
        group = ready.group
        if not group.parent_id:
            return
        if any(isinstance(each, AssembledCall) for each in made):
            why: WhyGone = "late"
        elif "duplicates" in made and "incomplete" not in made:
            why = "duplicates"
        elif "incomplete" in made or any(each.step.kind in FINDING_KINDS for each in group.readings):
            why = "incomplete"
        else:
            return
        parts = [top for top in group.tops if not top.begins_call]
        self._gone_roots.note((group.parent_id, *ready.trace.ancestor_ids(group.parent_id)), parts, why)

    def _build(self, ready: _ReadyGroup, draft: CallDraft) -> AssembledCall | LeftOutReason:
        """Build a RAG call from steps of a group, or leave the steps out and return why."""
        readings = list(draft.readings.values())
        try:
            result = self._call_or_reason(ready, draft, readings)
        except Exception as error:  # such as one of a user's subclass of str: the steps have left the buffer already
            faults.record("assembly of a call from spans", error)
            result = "failed"
        if isinstance(result, AssembledCall):
            self._recorded_twice.note_returned(result, readings, self._clock())
        elif result == "no_call" or result == "unfinished":
            self._leave_out_without_call(readings, result)
        else:
            self._leave_out(result, readings)
        return result

    def _call_or_reason(
        self, ready: _ReadyGroup, draft: CallDraft, readings: list[SpanReading]
    ) -> AssembledCall | LeftOutReason:
        """Return the RAG call of *readings*, the steps of *draft*, or why they are in none. Changes nothing."""
        if self._recorded_twice.is_returned(readings):
            return "duplicates"
        if ready.incomplete_times.touch(time_span(readings)) or ready.group.has_lost_step(draft.top_ids):
            return "incomplete"
        call = build_call(draft)
        if call is None:
            return "unfinished" if ready.is_cut_off else "no_call"
        return "duplicates" if self._recorded_twice.is_returned_failure(call, self._clock()) else call


class _WaitingCalls:
    """Drafts of the calls that waiting steps would form now, made once for each trace that is asked about."""

    def __init__(self, buffer: SpanBuffer) -> None:
        self._buffer = buffer
        self._of_trace: dict[int, dict[int, CallDraft]] = {}

    def has(self, span: SpanContext) -> bool:
        """Return whether a span waits."""
        trace = self._buffer.live_trace(span.trace_id)
        return trace is not None and span.span_id in trace.readings

    def shows_more(self, span: SpanContext, draft: CallDraft) -> bool:
        """Return whether the call that a span belongs to shows more than *draft*. False if it is in no call."""
        trace_id = span.trace_id
        if trace_id not in self._of_trace:
            trace = self._buffer.live_trace(trace_id)
            drafts = [each for group in group_steps(trace) for each in _calls_of(divide(group))] if trace else []
            self._of_trace[trace_id] = {span_id: each for each in drafts for span_id in each.readings}
        found = self._of_trace[trace_id].get(span.span_id)
        return found is not None and detail_of(found) > detail_of(draft)


def _calls_of(divided: Iterable[CallDraft]) -> list[CallDraft]:
    """Return the calls among the parts of a group: of each, what ragtrace itself recorded of it, or else the whole."""
    return [own for draft in divided for own in keep_own_workflows(draft)]


def _ids(span: SpanContext) -> tuple[int, int]:
    """Return the ids of a span's trace and of the span; span contexts themselves have no hash."""
    return span.trace_id, span.span_id


def _span_ids(drafts: Iterable[CallDraft]) -> set[int]:
    """Return the span ids of all steps of *drafts*."""
    return {span_id for draft in drafts for span_id in draft.readings}
