"""Assembly of RAG calls from the finished spans of a trace, whatever instrumentation has created the spans.

A *reading* (`SpanReading`) is the step of a RAG call that was read from one finished span, together with that span. No
part of the assembly changes a reading, but that it gets its span. It goes through these files:

1. `step_groups.py`: the steps of a trace become groups, one for each span that has steps right below it. The steps of a
   group wait for one another; `group_waits.py` says for what, and how long.
2. `call_division.py`: a complete group is divided into calls by `DIVISION`, below.
3. `model_calls.py`: a call that another instrumentation shows, too, is left out. If that one shows more and is not
   complete yet, the call waits for it.
4. `call_passes.py`: each call goes through `PASSES`, below, and is then built (`CallDraft.build`).

Every pass says in its docstring which instrumentations need it, in which recording of `tests/files/recorded` it can be
seen, and why it stands where it stands. `test_call_division.py` and `test_call_passes.py` in `tests/unit/span_reading`
take each pass out, and let each two neighbours change places: the recording is then read otherwise, unless the
docstring says that the two could change places.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from opentelemetry.trace import NonRecordingSpan, SpanContext

from ragtrace.core import semconv
from ragtrace.span_reading import call_passes
from ragtrace.span_reading.call_division import (
    Division,
    assign_by_prompt,
    drafts_of,
    keep_own_workflows,
    split_at_answers,
)
from ragtrace.span_reading.call_draft import AssembledCall, CallDraft, overlap_or_touch, time_span
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading, from_sdk_span
from ragtrace.span_reading.gone_roots import GoneRoots
from ragtrace.span_reading.group_waits import DEFAULT_WAITS, Extent, WaitLimits, at_the_time_of
from ragtrace.span_reading.intake import LostSpan, is_genai
from ragtrace.span_reading.model_calls import KEPT_SECONDS, ModelCall, ModelCalls
from ragtrace.span_reading.readers import read_span
from ragtrace.span_reading.step_groups import OpenSpan, StepGroup, TraceSpans, group_steps, missing_parent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

Pass: TypeAlias = Callable[[CallDraft], CallDraft | None]
"""Function that concludes one thing from the steps of a RAG call. It returns None if they form no RAG call."""

DIVISION: Final[tuple[Callable[[Division], Division], ...]] = (split_at_answers, assign_by_prompt)
"""Passes that divide the outermost steps of a group into RAG calls, in the order of use."""

PASSES: Final[tuple[Pass, ...]] = (
    call_passes.merge_nested_results,
    call_passes.choose_root,
    call_passes.leave_out_rankings,
    call_passes.require_answer,
    call_passes.choose_final_answer,
    call_passes.forget_answer_before_documents,
    call_passes.take_streamed_answer,
    call_passes.forget_graded_answer,
    call_passes.find_question,
    call_passes.find_documents_in_prompt,
    call_passes.require_evidence,
    call_passes.sum_usage,
    call_passes.find_defect,
    call_passes.keep_used_documents,
    call_passes.drop_agent_results,
)
"""Passes over the steps of one RAG call, in the order of use."""

_MOST_TRACES: Final = 20_000
"""Most traces that are kept at a time, unless the caller sets another limit."""
_MOST_EVICTED: Final = 20_000
"""Evicted traces whose times are kept, for calls of the same trace that end later."""
_LATEST_NS: Final = 2**63
"""Later than every span, in nanoseconds since the epoch."""

LossReason: TypeAlias = Literal["incomplete", "evicted", "late", "unfinished"]
LeftOutReason: TypeAlias = Literal[LossReason, "duplicates", "no_call"]


class _ReadyGroup(NamedTuple):
    """Group of steps that waits for no further span, with what is known to be missing."""

    group: StepGroup
    is_cut_off: bool
    """Whether the process ends while spans below a reading of the group have not ended."""
    incomplete_times: Sequence[tuple[int, int]]
    """Start and end, in nanoseconds since the epoch, of each group at the same time whose parent span is missing, and
    of the steps that were evicted."""


class _Detail(NamedTuple):
    """How much a recording of a RAG call shows. Of two recordings of the same call, the one that shows more is kept:
    the numbers of documents decide, and if they are equal those of workflows, then those of steps."""

    documents: int
    workflows: int
    steps: int


class CallAssembler:
    """Bounded buffer of finished spans, which combines the spans of a RAG call once all of them have arrived.

    A call begins at the topmost workflow, agent or chain, or else at a generation together with the retrievals and
    tools under the same parent span. It is returned when its root has ended and nothing below it has come in for a
    moment.

    Not safe for use from several threads. `SpanCalls.collect` calls `observe` with the spans of this process, which it
    takes from a queue in the worker's periodic work or in a flush, and holds a lock meanwhile. The gateway and the
    reader of span files call `add`.

    What a group of steps waits for, and until when, is decided by `WaitLimits` (`group_waits.py`).

    **The order in `_take`.** A group that waits for nothing becomes calls at once, unless another instrumentation
    shows one of them in more detail and that recording is still in the buffer: such groups come last, when the
    recordings that are ready have become calls. A call that is returned marks its model calls (`ModelCall.is_in_call`),
    by which a later recording of it is known as a duplicate.

    A span above steps that have left the buffer is no call without them, should it come in after all (`gone_roots.py`).

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
        most_traces: int = _MOST_TRACES,
        needs_parents: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._waits = WaitLimits(settle_seconds, parent_seconds, open_seconds)
        self._most_spans, self._most_bytes, self._clock = most_spans, most_bytes, clock
        self._include_own, self._most_traces, self._needs_parents = include_own, most_traces, needs_parents
        self._traces: OrderedDict[int, TraceSpans] = OrderedDict()
        self._ended: OrderedDict[int, TraceSpans] = OrderedDict()
        """Traces without readings that have just ended, kept for a minute to recognise late spans."""
        self._evicted: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """Start and end of the evicted steps of each trace: a call that was going on meanwhile would lack them."""
        self._gone_roots = GoneRoots()
        self._spans = self._bytes = 0
        self._model_calls = ModelCalls()
        self._left_out: list[SpanContext] = []
        self.counts: Counter[str] = Counter()
        """Number of `spans` that were read, of `calls`, and of the readings that are in none (`LEFT_OUT`): `evicted`
        for lack of room, `late` after their call was returned, as a part of it or above it, `duplicates` of another
        instrumentation's, `incomplete` because other spans of their call are missing or were lost, `unfinished` when
        the process ended, `no_call`."""

    def __len__(self) -> int:
        return self._spans

    # --- spans come in ------------------------------------------------------------------------------------------------

    def observe(self, span: ReadableSpan) -> SpanReading | None:
        """Add a started or ended span of the SDK to the buffer.

        Return the step that was read from it if the span has ended and is a step of a RAG call.
        """
        context = span.context
        if context is None:
            return None
        if span.end_time is None:
            trace = self._trace(context.trace_id)
            trace.parents[context.span_id] = 0 if span.parent is None else span.parent.span_id
            trace.unended[context.span_id] = OpenSpan(is_genai(span), self._clock())
            return None
        finished = from_sdk_span(span)
        return None if finished is None else self.add(finished)

    def add(self, span: FinishedSpan) -> SpanReading | None:
        """Add a finished span to the buffer, and return the RAG step read from it.

        Return None for a span that is left out, such as one that is no step of a RAG call.
        """
        span_id = span.context.span_id
        trace = self._trace(span.context.trace_id)
        trace.parents[span_id] = 0 if span.parent is None else span.parent.span_id
        trace.unended.pop(span_id, None)
        trace.lost.pop(span_id, None)  # another processor had room for it
        if self._needs_parents and span.parent is not None and span.parent.is_remote:
            trace.remote.add(span_id)
        if span_id in trace.readings or span_id in trace.handled:  # exported twice, or ended by two processors
            return None
        reading = read_span(span)
        if reading is None:
            self._left_out.append(span.context)
            return None
        if not self._include_own and span.scope == semconv.SCOPE and reading.step.kind in ("trace", "generate"):
            trace.handled[span_id] = None
            self._left_out.append(span.context)
            return None
        self.counts["spans"] += 1
        why = "late" if trace.is_below_handled(span_id) else self._gone_roots.why_too_late(reading)
        if why is not None:
            trace.handled[span_id] = None
            self._leave_out(why, [reading])
            return None
        reading.step.span = NonRecordingSpan(span.context)
        trace.readings[span_id], trace.seen[span_id] = reading, self._clock()
        self._account(trace, reading, 1)
        if reading.step.kind == "generate":
            self._model_calls.remember(ModelCall.of(reading, self._clock()))
        while self._spans > self._most_spans or self._bytes > self._most_bytes:
            self._evict()
        return reading

    def lose(self, span: LostSpan) -> None:
        """Record that the contents of an ended span are lost.

        The RAG call that the span belongs to is incomplete.
        """
        span_id = span.context.span_id
        trace = self._trace(span.context.trace_id)
        trace.parents[span_id] = span.parent_id
        trace.unended.pop(span_id, None)
        is_read = span_id in trace.readings or span_id in trace.handled  # the span had ended when its start was read
        if span.is_genai and not is_read and not trace.is_below_handled(span_id):
            trace.lost[span_id] = self._clock()
        if len(trace.lost) > 4_096:  # so many that no call in the trace can be complete
            self._evict(span.context.trace_id)

    def _trace(self, trace_id: int) -> TraceSpans:
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = self._ended.pop(trace_id, TraceSpans())
            while len(self._traces) > self._most_traces:
                self._evict()
        if len(trace.parents) > trace.most_parents:
            trace.forget_handled()
        trace.touched = self._clock()
        return trace

    def take_left_out(self) -> list[SpanContext]:
        """Return the ended spans that belong to no RAG call, and forget them."""
        left_out, self._left_out = self._left_out, []
        return left_out

    def _leave_out(self, why: LeftOutReason, readings: Collection[SpanReading]) -> None:
        if readings:
            self.counts[why] += len(readings)
        self._left_out += [reading.span.context for reading in readings]

    def _leave_out_without_call(
        self, readings: Collection[SpanReading], why: Literal["no_call", "unfinished"] = "no_call"
    ) -> None:
        """Leave out steps that form no RAG call.

        Where ragtrace's own calls are not assembled, its own steps are those of calls that were submitted otherwise.
        """
        recorded = [] if self._include_own else [each for each in readings if each.span.scope == semconv.SCOPE]
        self._left_out += [reading.span.context for reading in recorded]
        self._leave_out(why, [each for each in readings if each not in recorded])

    def _account(self, trace: TraceSpans, reading: SpanReading, sign: int) -> None:
        size = 1_000 + reading.step.text_bytes() + reading.span.text_bytes  # a reading without texts takes about 1 kB
        trace.bytes += sign * size
        self._bytes += sign * size
        self._spans += sign

    def _evict(self, trace_id: int | None = None) -> None:
        """Remove the trace *trace_id*, or else the oldest trace, from the buffer and count its steps as evicted."""
        trace_id = next(iter(self._traces)) if trace_id is None else trace_id
        trace = self._traces.pop(trace_id)
        self._spans -= len(trace.readings)
        self._bytes -= trace.bytes
        self._leave_out("evicted", trace.readings.values())
        times = [time_span(trace.readings.values())] if trace.readings else []
        times += [(0, _LATEST_NS)] if trace.lost else []  # when those steps were is not known
        times += [self._evicted.pop(trace_id)] if trace_id in self._evicted else []
        if times:
            self._evicted[trace_id] = min(start for start, _ in times), max(end for _, end in times)
        while len(self._evicted) > _MOST_EVICTED:
            self._evicted.popitem(last=False)

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
        for trace in self._traces.values():
            self._leave_out_without_call(trace.readings.values(), "unfinished")
        self._traces.clear()
        self._spans = self._bytes = 0
        return calls

    def _take(self, extent: Extent) -> list[AssembledCall]:
        now = self._clock()
        calls: list[AssembledCall] = []
        yielding: list[tuple[TraceSpans, _ReadyGroup]] = []
        for trace_id, trace in list(self._traces.items()):
            if extent == "settled" and now < trace.due:
                continue
            self._waits.forget_overdue(trace, now)
            for ready in self._ready_groups(trace, now, extent, self._evicted.get(trace_id)):
                if self._has_fuller_recording(ready.group):
                    yielding.append((trace, ready))
                else:
                    calls += self._assemble(trace, ready)
            # The next check of a trace is the later, the more readings it has, as it takes longer.
            trace.due = now + max(0.2, len(trace.readings) * 0.000_2)
            # An open span may be the root of what comes in next.
            is_over = not trace.unended and (extent != "settled" or now - trace.touched > self._waits.settle_seconds)
            if is_over and not trace.readings and not trace.lost:
                self._ended[trace_id] = self._traces.pop(trace_id)
        for trace, ready in yielding:  # now that the fuller recordings that are ready have become calls, or none
            if extent == "all" or not self._has_fuller_recording(ready.group):
                calls += self._assemble(trace, ready)
        self._forget(now)
        self.counts["calls"] += len(calls)
        return calls

    def _ready_groups(
        self, trace: TraceSpans, now: float, extent: Extent, evicted: tuple[int, int] | None
    ) -> list[_ReadyGroup]:
        """Return the groups of steps in a trace that wait for nothing any more. Changes nothing.

        Args:
            trace: the trace.
            now: monotonic seconds.
            extent: which calls are to be returned.
            evicted: start and end of the steps of the trace that were evicted earlier; None: none were.
        """
        groups = group_steps(trace)
        lacking = [each for each in groups if missing_parent(trace, each)] if self._needs_parents else []
        ready: list[_ReadyGroup] = []
        for group in groups:
            if self._waits.wait_of(trace, group, lacking, now, extent) is not None:
                continue
            lacking_now = at_the_time_of(group, lacking)
            missing = [time_span(each.readings) for each in lacking_now if missing_parent(trace, each) == "local"]
            missing += [] if evicted is None else [evicted]
            ready.append(_ReadyGroup(group, extent == "all" and group.n_unended_below > 0, missing))
        return ready

    def _assemble(self, trace: TraceSpans, ready: _ReadyGroup) -> list[AssembledCall]:
        """Remove the steps of a group from the buffer, and return the RAG calls that they form."""
        group = ready.group
        self._remove(trace, group)
        if group.is_duplicate:
            self._leave_out("duplicates", group.readings)
            return []
        drafts = self._divide(group)
        made = [self._build(ready, own) for draft in drafts for own in self._prefer_own_workflows(draft)]
        calls = [call for call in made if isinstance(call, AssembledCall)]
        if group.parent_id and (calls or "incomplete" in made):
            parts = [top for top in group.tops if not top.begins_call]
            above = (group.parent_id, *trace.ancestor_ids(group.parent_id))
            self._gone_roots.note(above, parts, "late" if calls else "incomplete")
        return calls

    def _remove(self, trace: TraceSpans, group: StepGroup) -> None:
        """Remove the steps of *group* from the buffer."""
        for reading in group.readings:
            del trace.readings[reading.span_id], trace.seen[reading.span_id]
            trace.handled[reading.span_id] = None
            self._account(trace, reading, -1)
        for span_id in group.lost_ids:
            del trace.lost[span_id]

    def _divide(self, group: StepGroup) -> list[CallDraft]:
        """Divide the steps of *group* into RAG calls, and leave out the steps that belong to none."""
        drafts = divide(group)
        self._leave_out("no_call", _without(group.readings, drafts))
        return drafts

    def _prefer_own_workflows(self, draft: CallDraft) -> list[CallDraft]:
        """Return the RAG calls that ragtrace itself recorded among the steps of *draft*, or else the whole call."""
        kept = keep_own_workflows(draft)
        self._leave_out("duplicates", _without(draft.readings.values(), kept))
        return kept

    def _build(self, ready: _ReadyGroup, draft: CallDraft) -> AssembledCall | LeftOutReason:
        """Build a RAG call from steps of a group, or leave the steps out and return why."""
        readings = list(draft.readings.values())
        result = self._call_or_reason(ready, draft, readings)
        if isinstance(result, AssembledCall):
            self._remember_returned(result, readings)
        elif result == "no_call" or result == "unfinished":
            self._leave_out_without_call(readings, result)
        else:
            self._leave_out(result, readings)
        return result

    def _call_or_reason(
        self, ready: _ReadyGroup, draft: CallDraft, readings: list[SpanReading]
    ) -> AssembledCall | LeftOutReason:
        """Return the RAG call of *readings*, the steps of *draft*, or why they are in none. Changes nothing."""
        if self._is_duplicate(readings):
            return "duplicates"
        times = time_span(readings)
        is_incomplete = any(overlap_or_touch(each, times) for each in ready.incomplete_times)
        if is_incomplete or ready.group.has_lost_step(draft.top_ids):
            return "incomplete"
        call = build_call(draft)
        if call is None:
            return "unfinished" if ready.is_cut_off else "no_call"
        failure = ModelCall.of_failure(call, self._clock())
        if failure is not None and any(self._model_calls.same_as(failure)):
            return "duplicates"
        return call

    def _remember_returned(self, call: AssembledCall, readings: list[SpanReading]) -> None:
        """Remember a RAG call that is returned, so that another instrumentation's recording of it is a duplicate.

        Args:
            call: the call.
            readings: its steps as read from its spans, by which its model calls are known.
        """
        for model_call in self._model_calls.of(readings):
            model_call.is_in_call = True
        failure = ModelCall.of_failure(call, self._clock())
        if failure is not None:
            self._model_calls.remember(failure)

    # --- the same model call, seen by two instrumentations ------------------------------------------------------------

    def _is_duplicate(self, readings: list[SpanReading]) -> bool:
        """Return whether a RAG call with the same model call was returned before.

        Args:
            readings: the steps of the call, as read from its spans.
        """
        return any(other.is_in_call for other in self._recorded_otherwise(readings, readings))

    def _has_fuller_recording(self, group: StepGroup) -> bool:
        """Return whether the buffer has a call of *group* in more detail, which becomes the call if it becomes any.

        The steps of *group* stay in the buffer until that is known.
        """
        if all(other.is_in_call for other in self._recorded_otherwise(group.readings, group.readings)):
            return False
        drafts = (own for draft in divide(group) for own in keep_own_workflows(draft))
        for readings in (list(draft.readings.values()) for draft in drafts):
            others = list(self._recorded_otherwise(readings, group.readings))
            detail = _detail_of(readings)
            if not any(other.is_in_call for other in others) and any(
                _detail_of(self._steps_around(other.span)) > detail for other in others
            ):
                return True
        return False

    def _recorded_otherwise(
        self, readings: list[SpanReading], apart_from: Collection[SpanReading]
    ) -> Iterator[ModelCall]:
        """Yield the records of the model calls among *readings* in spans other than those of *apart_from*."""
        own = {reading.span_id for reading in apart_from}
        for model_call in self._model_calls.of(readings):
            yield from (other for other in self._model_calls.same_as(model_call) if other.span.span_id not in own)

    def _steps_around(self, span: SpanContext) -> list[SpanReading]:
        """Return the buffered steps of the RAG call that a span belongs to.

        Return an empty list if there are none.
        """
        trace = self._traces.get(span.trace_id)
        reading = None if trace is None else trace.readings.get(span.span_id)
        if trace is None or reading is None:
            return []
        found = [group.readings for group in group_steps(trace) if reading in group.readings]
        return found[0] if found else []

    def _forget(self, now: float) -> None:
        """Forget the model calls and the traces that ended more than a minute ago."""
        while self._ended and (
            len(self._ended) > self._most_traces or now - next(iter(self._ended.values())).touched > KEPT_SECONDS
        ):
            self._ended.popitem(last=False)
        self._model_calls.forget_old(now, self._traces.keys())


def divide(group: StepGroup, passes: Sequence[Callable[[Division], Division]] = DIVISION) -> list[CallDraft]:
    """Divide the steps of *group* into RAG calls."""
    division: Division = (tuple(group.tops),) if group.tops else ()
    for change in passes:
        division = change(division)
    return drafts_of(group, division)


def build_call(draft: CallDraft, passes: Sequence[Pass] = PASSES) -> AssembledCall | None:
    """Build a RAG call from steps that were read from spans, or return None if the steps form no RAG call.

    Steps without an answer and a generation form no call, unless the workflow around them failed, and nor does a model
    call outside any workflow that has no documents.
    """
    for conclude in passes:
        changed = conclude(draft)
        if changed is None:
            return None
        draft = changed
    return draft.build()


def _without(readings: Collection[SpanReading], drafts: list[CallDraft]) -> list[SpanReading]:
    """Return those of *readings* that are in none of *drafts*."""
    return [each for each in readings if not any(each.span_id in draft.readings for draft in drafts)]


def _detail_of(readings: list[SpanReading]) -> _Detail:
    """Return how much a recording of a RAG call shows.

    Args:
        readings: the steps of the call, as read from its spans.
    """
    documents = sum(len(each.step.documents or ()) for each in readings)
    return _Detail(documents, sum(each.step.kind == "trace" for each in readings), len(readings))
