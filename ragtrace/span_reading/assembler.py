"""Assembly of RAG calls from the finished spans of a trace, whatever instrumentation has created the spans.

A *reading* (`SpanReading`) is the step of a RAG call that was read from one finished span, together with that span.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args

from opentelemetry.trace import NonRecordingSpan, SpanContext

from ragtrace.capture.prompt_parts import split_prompt
from ragtrace.core import semconv
from ragtrace.core.step import FINDING_KINDS, NO_USAGE, CallBuilder, Step
from ragtrace.core.types import Document, Usage
from ragtrace.span_reading.finished_span import FinishedSpan, SpanReading, from_sdk_span
from ragtrace.span_reading.intake import LostSpan, is_genai
from ragtrace.span_reading.readers import read_span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_SPAN_BYTES: Final = 1_000
"""Memory of a reading without the texts."""
_SEARCH_CHARS: Final = 80
"""Number of first characters of a document that are searched for in a prompt."""
_LEAST_LIMIT: Final = 32
"""Shortest limit on the length of texts that is concluded from the texts."""
_EQUAL_LENGTHS: Final = 4
"""Fewest different texts, all as long as the longest text, that show a limit on the length of texts."""
_ABANDONED_SECONDS: Final = 30.0
"""Time without a new span after which a call whose root has ended no longer waits for spans below the root that have
started but not ended. Only `CallAssembler.observe` sees starts, so the gateway, which uses `add`, waits for none."""
_KEPT_SECONDS: Final = 60.0
"""Time for which a model call is kept, so that the same call is recognised in another instrumentation's spans."""
_MOST_REMEMBERED: Final = 20_000
"""Most look-up keys of model calls that are kept (`_ModelCall.keys`)."""
_MOST_EQUAL: Final = 64
"""Most model calls with the same answer that are kept, as many have an answer such as "I do not know."."""
_MOST_TRACES: Final = 20_000
"""Most traces that are kept at a time, unless the caller sets another limit."""
_MOST_PARENTS: Final = 40_000
"""Most spans of one trace whose parents are kept."""
_MOST_LOST: Final = 4_096
"""Most lost steps of one trace that are kept; with more, no call in the trace can be complete."""
_POLL_SECONDS: Final = 0.2
"""Least pause before a trace is checked for complete calls again."""
_POLL_SECONDS_PER_SPAN: Final = 0.000_2
"""The same pause for each reading in the trace, as a check of many readings takes longer."""
_LEAST_ANSWER: Final = 12
"""Fewest characters of an answer that is searched for in a prompt."""
_MOST_BEHIND: Final = 32
"""Most model calls whose prompts are searched for the documents behind an answer."""
_MOST_AGENTS: Final = 256
"""Most tools of one call whose results are compared with the answers of models."""
_MOST_COMPARED: Final = 64
"""Most groups with missing spans in a trace whose times are compared with each other."""
_MOST_STEPS: Final = 2_000
"""Most steps of one call; beyond, the first ones are left out."""


class AssembledCall(NamedTuple):
    """RAG call that was assembled from spans, and the steps read from the spans."""

    builder: CallBuilder
    readings: tuple[SpanReading, ...]


@dataclass(slots=True, eq=False)
class _Trace:
    parents: dict[int, int] = field(default_factory=dict[int, int])
    """Parent's span id, 0 for none, of each span of the trace, started or ended, by span id."""
    unended: dict[int, tuple[bool, float]] = field(default_factory=dict[int, tuple[bool, float]])
    """Started spans that have not ended, by span id: whether of generative AI, and the monotonic start time. Only
    `observe` sees starts, so there are none where spans come in by `add`, as in the gateway."""
    readings: dict[int, SpanReading] = field(default_factory=dict[int, SpanReading])
    """Readings that wait in the buffer, by span id."""
    lost: dict[int, float] = field(default_factory=dict[int, float])
    """Monotonic time of the loss of each step whose ended span did not fit into the queue (`lose`), by span id."""
    handled: dict[int, None] = field(default_factory=dict[int, None])
    """Span ids of the readings that have left the buffer, in a call or left out, in order."""
    seen: dict[int, float] = field(default_factory=dict[int, float])
    """Monotonic time of arrival of each of `readings`, by span id."""
    remote: set[int] = field(default_factory=set[int])
    """Span ids of spans whose parent is in another process."""
    touched: float = 0.0
    """Monotonic time at which a span of the trace last came in, or was lost."""
    due: float = 0.0
    """Monotonic time from which the trace is checked for complete calls again."""
    bytes: int = 0


@dataclass(slots=True, eq=False)
class _ModelCall:
    """Record of a model call, to recognise the same call in spans of another instrumentation."""

    span: SpanContext
    source: tuple[str, str]
    """Instrumentation scope and attribute convention of the span."""
    times: tuple[int, int]
    """Start and end, in nanoseconds since the epoch."""
    response_id: str | None
    answer: int | None
    """Hash of the answer; None for a model call without answer."""
    at: float
    """Monotonic time of arrival."""
    is_in_call: bool = False
    """Whether a RAG call that contains this model call was assembled."""

    @classmethod
    def of(cls, reading: SpanReading, at: float) -> _ModelCall:
        """Create a `_ModelCall` from a span that was read as a step of a RAG call."""
        span, step = reading.span, reading.step
        answer = hash(step.answer) if step.answer else None
        source, times = (span.scope, reading.convention), (span.start_ns, span.end_ns)
        return cls(span.context, source, times, step.response_id, answer, at)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Look-up keys of the model call: the provider's response id and the hash of the answer."""
        keys = [("id", self.response_id)] if self.response_id else []
        return keys if self.answer is None else [*keys, ("answer", str(self.answer))]

    def is_same_call(self, other: _ModelCall) -> bool:
        """Return whether *other* is the same model call, recorded by another instrumentation."""
        if self.source == other.source or not _intervals_overlap(self.times, other.times):
            return False
        if self.response_id and other.response_id:
            return self.response_id == other.response_id
        return self.answer is not None and self.answer == other.answer


@dataclass(slots=True, eq=False)
class _Group:
    """Group of RAG steps, read from spans, that lie below the same parent span.

    It contains every step whose outermost enclosing step has this parent span.

    They wait for one another. When they are complete, they become one RAG call, several or none: two workflows of one
    request, say, are two calls (`_split_into_calls`).
    """

    parent: int
    tops: list[SpanReading] = field(default_factory=list[SpanReading])
    """Topmost readings, in order of start."""
    readings: list[SpanReading] = field(default_factory=list[SpanReading])
    """All readings of the group, in order of start."""
    n_unended: int = 0
    """Number of spans of generative AI that have not ended and are not below a reading."""
    n_unended_below: int = 0
    """Number of spans of generative AI that have not ended, below a reading."""
    seen: float = 0.0
    """Monotonic time of the last arrival or loss of a step of the group."""
    is_duplicate: bool = False
    """Whether another group of the trace has the same model calls."""
    incomplete_times: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Start and end, in nanoseconds since the epoch, of each group at the same time whose parent span is missing."""
    lost_ids: list[int] = field(default_factory=list[int])
    """Span ids of the steps whose spans were lost."""
    lost_top_ids: set[int] = field(default_factory=set[int])
    """Span ids of the topmost steps above the lost steps, or of the lost steps themselves."""

    def has_lost_step(self, tops: Collection[SpanReading]) -> bool:
        """Return whether a span of a RAG call was lost, or may have been lost.

        *tops* are the outermost steps of the call.

        A lost step without any other above it may belong to each call of the group.
        """
        # A lost step below a topmost one concerns the call of that one alone. Any other id is that of a lost step
        # itself, with no step above it that would say to which call of the group it belongs.
        without_top = self.lost_top_ids - {top.span.context.span_id for top in self.tops}
        return bool(without_top) or any(top.span.context.span_id in self.lost_top_ids for top in tops)

    @property
    def has_answer(self) -> bool:
        """Whether these steps of a trace contain a finished workflow, or a retrieval followed by a generation."""
        if any(top.step.kind == "trace" for top in self.tops):  # this kind is a workflow, an agent or a chain
            return True
        found = any(top.step.kind in FINDING_KINDS for top in self.tops)
        return found and self.tops[-1].step.kind == "generate"


LossReason: TypeAlias = Literal["incomplete", "evicted", "late"]
LeftOutReason: TypeAlias = Literal[LossReason, "duplicates", "no_call"]


class CallAssembler:
    """Bounded buffer of finished spans, which combines the spans of a RAG call once all of them have arrived.

    A call begins at the topmost workflow, agent or chain, or else at a generation together with the retrievals and
    tools under the same parent span. It is returned when its root has ended and nothing below it has come in for a
    moment.

    Not safe for use from several threads. `SpanCalls.collect` calls `observe` with the spans of this process, which it
    takes from a queue in the worker's periodic work or in a flush, and holds a lock meanwhile. The gateway and the
    reader of span files call `add`.

    **A root that never ends.** In the process that makes the spans, `observe` has seen its start: the steps below it
    wait until `open_seconds` after that start, and then form calls without it. In the gateway, spans come in by `add`
    when they have ended, so the root is not known at all: the steps below it lack a parent, wait `parent_seconds` and
    are left out as `incomplete`. In a file, where parents are not waited for, they form calls without it.

    Args:
        settle_seconds: seconds without news after which a call whose root has ended is returned.
        parent_seconds: seconds without news for which steps wait for spans above or beside them. Contexts without a
            generation, or a generation without contexts, wait while the span above them, such as that of a web server,
            has not ended. With *needs_parents*, steps above which a span is missing wait for that span.
        open_seconds: seconds after its start at which a span that has not ended is no longer waited for.
        most_spans: readings that are kept at a time; for one more, the oldest trace is evicted.
        most_bytes: memory that their texts may take.
        most_traces: traces that are kept at a time.
        needs_parents: whether spans come from other processes, so that some may be missing. A call then waits for the
            parent spans of its steps for `parent_seconds`, and is `incomplete` without one that its own process has
            made.
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
        settle_seconds: float = 2.0,
        parent_seconds: float = 5.0,
        open_seconds: float = 600.0,
        most_spans: int = 50_000,
        most_bytes: int = 32 << 20,
        most_traces: int = _MOST_TRACES,
        needs_parents: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._settle, self._parent_seconds, self._open_seconds = settle_seconds, parent_seconds, open_seconds
        self._most_spans, self._most_bytes, self._clock = most_spans, most_bytes, clock
        self._include_own, self._most_traces, self._needs_parents = include_own, most_traces, needs_parents
        self.reset()

    def reset(self) -> None:
        """Remove all spans from the buffer and set the counts to zero."""
        self._traces: OrderedDict[int, _Trace] = OrderedDict()
        self._ended: OrderedDict[int, _Trace] = OrderedDict()
        """Traces without readings that have just ended, kept to recognise late spans."""
        self._spans = self._bytes = 0
        self._model_calls: OrderedDict[tuple[str, str], list[_ModelCall]] = OrderedDict()
        self._left_out: list[SpanContext] = []
        self.counts: Counter[str] = Counter()
        """Number of `spans` that were read, of `calls`, and of the readings that are in none (`LEFT_OUT`): `evicted`
        for lack of room, `late` after their call was returned, `duplicates` of another instrumentation's, `incomplete`
        because other spans of their call are missing or were lost, `no_call`."""

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
            trace.unended[context.span_id] = is_genai(span), self._clock()
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
        if self._is_below_handled(trace, span_id):
            self._leave_out("late", [reading])
            return None
        reading.step.span = NonRecordingSpan(span.context)
        trace.readings[span_id], trace.seen[span_id] = reading, self._clock()
        self._account(trace, reading, 1)
        if reading.step.kind == "generate":
            self._remember(_ModelCall.of(reading, self._clock()))
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
        if span.is_genai and not is_read and not self._is_below_handled(trace, span_id):
            trace.lost[span_id] = self._clock()
        if len(trace.lost) > _MOST_LOST:
            self._evict(span.context.trace_id)

    def _trace(self, trace_id: int) -> _Trace:
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = self._ended.pop(trace_id, _Trace())
            while len(self._traces) > self._most_traces:
                self._evict()
        if len(trace.parents) > _MOST_PARENTS:  # a trace that never ends
            used = trace.readings.keys() | trace.unended.keys() | trace.lost.keys()
            trace.parents, trace.handled = {key: trace.parents[key] for key in used if key in trace.parents}, {}
            trace.remote &= trace.parents.keys()
        trace.touched = self._clock()
        return trace

    def take_left_out(self) -> list[SpanContext]:
        """Return the ended spans that belong to no RAG call, and forget them."""
        left_out, self._left_out = self._left_out, []
        return left_out

    def _leave_out(self, why: LeftOutReason, readings: Collection[SpanReading]) -> None:
        self.counts[why] += len(readings)
        self._left_out += [reading.span.context for reading in readings]

    def _leave_out_without_call(self, readings: list[SpanReading]) -> None:
        """Leave out the steps of a group without a RAG call.

        Where ragtrace's own calls are not assembled, its own steps are those of calls that were submitted otherwise.
        """
        recorded = [] if self._include_own else [each for each in readings if each.span.scope == semconv.SCOPE]
        self._left_out += [reading.span.context for reading in recorded]
        self._leave_out("no_call", [each for each in readings if each not in recorded])

    def _account(self, trace: _Trace, reading: SpanReading, sign: int) -> None:
        size = _SPAN_BYTES + reading.step.text_bytes() + reading.span.text_bytes
        trace.bytes += sign * size
        self._bytes += sign * size
        self._spans += sign

    def _evict(self, trace_id: int | None = None) -> None:
        """Remove the trace *trace_id*, or else the oldest trace, from the buffer and count its steps as evicted."""
        trace = self._traces.pop(next(iter(self._traces)) if trace_id is None else trace_id)
        self._spans -= len(trace.readings)
        self._bytes -= trace.bytes
        self._leave_out("evicted", trace.readings.values())

    def _is_below_handled(self, trace: _Trace, span_id: int) -> bool:
        return any(above in trace.handled for above in _ancestor_ids(trace, span_id))

    # --- calls come out -----------------------------------------------------------------------------------------------

    def take_complete(self, *, everything: bool = False) -> list[AssembledCall]:
        """Remove the RAG calls whose spans are complete from the buffer, and return them.

        Called again and again: a trace is checked only when its next check is due.

        Args:
            everything: check all traces now, and wait for no more spans of the calls whose root has ended.
        """
        now = self._clock()
        calls: list[AssembledCall] = []
        for trace_id, trace in list(self._traces.items()):
            if not everything and now < trace.due:
                continue
            for span_id in [key for key, (_, since) in trace.unended.items() if now - since > self._open_seconds]:
                del trace.unended[span_id]
            groups = self._groups(trace)
            lacking = [each for each in groups if _missing_parent(trace, each)] if self._needs_parents else []
            for group in groups:
                if self._is_complete(trace, group, now, everything=everything) and not (
                    lacking and self._waits_for_spans(trace, group, lacking, now, everything=everything)
                ):
                    calls += self._assemble(trace, group)
            trace.due = now + max(_POLL_SECONDS, len(trace.readings) * _POLL_SECONDS_PER_SPAN)
            is_over = everything or (not trace.unended and now - trace.touched > self._settle)
            if is_over and not trace.readings and not trace.lost:
                self._ended[trace_id] = self._traces.pop(trace_id)
        self._forget(now)
        self.counts["calls"] += len(calls)
        return calls

    def _groups(self, trace: _Trace) -> list[_Group]:
        """Group the steps of a trace by the parent span of their outermost steps.

        Spans of generative AI that have not ended are counted in the groups.
        """
        groups: dict[int, _Group] = {}
        for span_id in (*trace.readings, *(key for key, (genai, _) in trace.unended.items() if genai), *trace.lost):
            top = span_id
            outer: SpanReading | None = None
            for above in _ancestor_ids(trace, span_id):
                if above in trace.readings:
                    if _is_separate_call(trace.readings.get(top), trace.readings[above]):
                        break
                    top = above
                    outer = trace.readings[above] if outer is None else outer
                elif above in trace.lost or trace.unended.get(above, (False, 0.0))[0]:
                    top = above
            group = groups.setdefault(trace.parents.get(top, 0), _Group(trace.parents.get(top, 0)))
            if span_id in trace.lost:
                group.lost_ids.append(span_id)
                group.lost_top_ids.add(top)
                group.seen = max(group.seen, trace.lost[span_id])
                continue
            if span_id not in trace.readings:
                if top in trace.readings:
                    group.n_unended_below += 1
                else:
                    group.n_unended += 1
                continue
            reading = trace.readings[span_id]
            group.seen = max(group.seen, trace.seen[span_id])
            reading.step.parent = None if outer is None else outer.step
            if outer is None:
                group.tops.append(reading)
            group.readings.append(reading)
        _adopt_orphans(trace, groups)
        for group in groups.values():
            group.tops.sort(key=_begin)
            group.readings.sort(key=_begin)
        return list(groups.values())

    def _is_complete(self, trace: _Trace, group: _Group, now: float, *, everything: bool) -> bool:
        """Return whether all spans in *group* have ended and no further span is expected."""
        quiet = now - group.seen
        if group.n_unended or (group.n_unended_below and quiet < _ABANDONED_SECONDS):
            return False
        if everything:
            return True
        waits = group.parent in trace.unended and not group.has_answer
        return quiet >= (self._parent_seconds if waits else self._settle)

    def _waits_for_spans(
        self, trace: _Trace, group: _Group, lacking: list[_Group], now: float, *, everything: bool
    ) -> bool:
        """Return whether *group* has to wait for missing parent spans.

        The spans may be missing above the group's own steps, or above other steps at the same time.

        If a parent has not come in after `parent_seconds`, the calls at the time of the steps below it are incomplete,
        unless the missing span is in another process than these steps: that process may export nothing.

        Args:
            lacking: the groups of the trace above which a span is missing.
        """
        times = _time_span(group.readings)
        if len(lacking) <= _MOST_COMPARED:
            lacking = [
                each
                for each in lacking
                if each is group or _intervals_overlap_or_touch(_time_span(each.readings), times)
            ]
        if lacking and not everything and now - group.seen < self._parent_seconds:
            return True
        group.incomplete_times = [
            _time_span(each.readings) for each in lacking if _missing_parent(trace, each) == "local"
        ]
        return False

    def _assemble(self, trace: _Trace, group: _Group) -> list[AssembledCall]:
        """Remove the steps of *group* from the buffer, and return the RAG calls that they form."""
        for reading in group.readings:
            span_id = reading.span.context.span_id
            del trace.readings[span_id], trace.seen[span_id]
            trace.handled[span_id] = None
            self._account(trace, reading, -1)
        for span_id in group.lost_ids:
            del trace.lost[span_id]
        calls: list[AssembledCall] = []
        if group.is_duplicate:
            self._leave_out("duplicates", group.readings)
            return calls
        found = [
            (tops, [each for each in group.readings if _top_of(each, group) in tops])
            for tops in _split_into_calls(group)
        ]
        for tops, readings in [own for each in found for own in self._prefer_own_spans(*each)]:
            if self._is_duplicate(readings):
                self._leave_out("duplicates", readings)
                continue
            times = _time_span(readings)
            is_incomplete = any(_intervals_overlap_or_touch(each, times) for each in group.incomplete_times)
            if is_incomplete or group.has_lost_step(tops):
                self._leave_out("incomplete", readings)
                continue
            call = build_call(tops, readings)
            if call is None:
                self._leave_out_without_call(readings)
            elif self._is_known_failure(call):
                self._leave_out("duplicates", readings)
            else:
                calls.append(call)
                for model_call in self._model_calls_of(readings):
                    model_call.is_in_call = True
        return calls

    def _prefer_own_spans(
        self, tops: list[SpanReading], readings: list[SpanReading]
    ) -> list[tuple[list[SpanReading], list[SpanReading]]]:
        """Return the RAG calls that ragtrace itself recorded, without duplicates from other instrumentations.

        If ragtrace itself has recorded no workflow, the call is returned unchanged.

        Ragtrace's listener in a framework and an instrumentation of that framework record the same steps side by side.
        What stands beside ragtrace's own workflow, inside a workflow with the same answer, is left out.
        """
        own = [each for each in readings if each.span.scope == semconv.SCOPE and each.step.kind == "trace"]
        outer = tops[0].step
        answers = {each.step.answer for each in own}
        if not own or tops[0] in own or (outer.answer is not None and outer.answer not in answers):
            return [(tops, readings)]
        steps = {id(each.step) for each in own}
        calls: list[tuple[list[SpanReading], list[SpanReading]]] = []
        for root in own:
            if any(id(step) in steps for step in root.step.enclosing()):
                continue
            inside = [each for each in readings if each is root or root.step in each.step.enclosing()]
            root.step.parent = None
            calls.append(([root], inside))
        kept = {id(each) for _, inside in calls for each in inside}
        self._leave_out("duplicates", [each for each in readings if id(each) not in kept])
        return calls

    # --- the same model call, seen by two instrumentations ------------------------------------------------------------

    def _remember(self, model_call: _ModelCall) -> None:
        for key in model_call.keys:
            kept = [each for each in self._model_calls.pop(key, ()) if model_call.at - each.at <= _KEPT_SECONDS]
            self._model_calls[key] = [*kept[-_MOST_EQUAL:], model_call]
        while len(self._model_calls) > _MOST_REMEMBERED:
            self._model_calls.popitem(last=False)

    def _forget(self, now: float) -> None:
        """Forget the model calls and the traces that ended more than a minute ago."""
        while self._ended and (
            len(self._ended) > self._most_traces or now - next(iter(self._ended.values())).touched > _KEPT_SECONDS
        ):
            self._ended.popitem(last=False)
        while self._model_calls:
            key, found = next(iter(self._model_calls.items()))
            if now - found[-1].at <= _KEPT_SECONDS or any(each.span.trace_id in self._traces for each in found):
                break
            del self._model_calls[key]

    def _model_calls_of(self, readings: Iterable[SpanReading]) -> Iterator[_ModelCall]:
        """Yield the stored records of the model calls among some steps, to recognise duplicates."""
        for reading in readings:
            if reading.step.kind == "generate":
                for key in _ModelCall.of(reading, 0.0).keys:
                    yield from (each for each in self._model_calls.get(key, ()) if each.span == reading.span.context)

    def _is_duplicate(self, readings: list[SpanReading]) -> bool:
        """Return whether another RAG call with the same model call takes precedence.

        A call takes precedence if it was returned before, or has more detail.

        Args:
            readings: the steps of the call, as read from its spans.
        """
        richness = _detail_counts(readings)
        own = {reading.span.context.span_id for reading in readings}
        for model_call in self._model_calls_of(readings):
            for key in model_call.keys:
                for other in self._model_calls.get(key, ()):
                    if other.span.span_id in own or not model_call.is_same_call(other):
                        continue
                    if other.is_in_call or _detail_counts(self._steps_around(other.span)) > richness:
                        return True
        return False

    def _is_known_failure(self, call: AssembledCall) -> bool:
        """Return whether *call* failed without an answer and was returned before, from another instrumentation's spans.

        There is no answer by which to recognise it: the two have the same question at the same time.
        """
        step = call.builder.root
        has_answer = any(
            each.step.answer for each in call.readings if each.step is step or each.step.kind == "generate"
        )
        if step.error is None or step.query is None or has_answer:
            return False
        root = next(each for each in call.readings if each.step is step)
        failure = replace(
            _ModelCall.of(root, self._clock()), response_id=None, answer=hash((step.query, None)), is_in_call=True
        )
        if any(failure.is_same_call(other) for key in failure.keys for other in self._model_calls.get(key, ())):
            return True
        self._remember(failure)
        return False

    def _steps_around(self, span: SpanContext) -> list[SpanReading]:
        """Return the buffered steps of the RAG call that a span belongs to.

        Return an empty list if there are none.
        """
        trace = self._traces.get(span.trace_id)
        reading = None if trace is None else trace.readings.get(span.span_id)
        if trace is None or reading is None:
            return []
        found = [group.readings for group in self._groups(trace) if reading in group.readings]
        return found[0] if found else []


def _begin(reading: SpanReading) -> tuple[int, int]:
    return reading.span.start_ns, reading.span.end_ns


def _adopt_orphans(trace: _Trace, groups: dict[int, _Group]) -> None:
    """Move generations whose parent span is missing into the preceding workflow that has no answer.

    Some instrumentations never end the span around a stream, so that no file has it.
    """
    for orphan in [group for parent, group in groups.items() if parent and parent not in trace.parents]:
        if orphan.n_unended or orphan.n_unended_below or not all(map(_is_part_of_an_answer, orphan.tops)):
            continue
        answers = {reading.step.answer for reading in orphan.readings if reading.step.answer}
        for group in groups.values():
            if group is orphan:
                continue
            if any(reading.step.answer in answers for reading in group.readings):
                orphan.is_duplicate = True
                break
            waiting = [top for top in group.tops if _begin(top) < _begin(orphan.tops[0]) and _lacks_answer(top, group)]
            if waiting:
                for top in orphan.tops:
                    top.step.parent = max(waiting, key=_begin).step
                group.readings += orphan.readings
                group.seen = max(group.seen, orphan.seen)
                del groups[orphan.parent]
                break


def _lacks_answer(top: SpanReading, group: _Group) -> bool:
    """Return whether the workflow *top* has neither an answer nor a generation after the last retrieval in it."""
    if top.step.kind != "trace" or top.step.answer:
        return False
    readings = [each for each in group.readings if _top_of(each, group) is top]
    found = max((_begin(each) for each in readings if each.step.kind in FINDING_KINDS), default=(0, 0))
    return not any(
        each.step.kind == "generate" and each.step.answer and _begin(each) > found and not each.calls_tools
        for each in readings
    )


def _is_part_of_an_answer(top: SpanReading) -> bool:
    return top.step.kind == "generate" or (top.step.kind == "trace" and top.step.query is None)


def _is_separate_call(inner: SpanReading | None, outer: SpanReading) -> bool:
    """Return whether a workflow below another workflow's span is a separate RAG call.

    *inner* is the lower workflow, and *outer* the upper one.

    That is so if *inner* began after the end of *outer*, or if the instrumentation marks *inner* as a root.

    Instrumentations that leave a context attached make the next request of a task a child of the one before. A workflow
    without a question is no request: the stream of an answer may be read after the workflow has returned.
    """
    if inner is None or inner.step.kind != "trace" or outer.step.kind != "trace":
        return False
    if inner.begins_call:
        return True
    return inner.span.start_ns > outer.span.end_ns and inner.step.query is not None


def _ancestor_ids(trace: _Trace, span_id: int) -> Iterator[int]:
    """Yield the span ids of the known ancestors of a span, from its parent upwards."""
    met = {span_id}
    above = trace.parents.get(span_id, 0)
    while above and above not in met:  # hostile data may have circles
        yield above
        met.add(above)
        above = trace.parents.get(above, 0)


def _time_span(readings: Iterable[SpanReading]) -> tuple[int, int]:
    """Return the earliest start and the latest end of the spans of some steps, in nanoseconds since the epoch."""
    spans = [reading.span for reading in readings]
    return min((each.start_ns for each in spans), default=0), max((each.end_ns for each in spans), default=0)


def _intervals_overlap_or_touch(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two time intervals, each given by its start and its end, have at least one moment in common."""
    return one[0] <= other[1] and other[0] <= one[1]


def _missing_parent(trace: _Trace, group: _Group) -> Literal["local", "remote"] | None:
    """Return whether the closest missing ancestor span of *group* is local or remote.

    "local" is the process that made the span below it, "remote" another one. Return None if no ancestor span of the
    group is missing.
    """
    below = group.tops[0].span.context.span_id if group.tops else group.parent
    for above in _ancestor_ids(trace, below):
        if above not in trace.parents:
            return "remote" if below in trace.remote else "local"
        below = above
    return None


def _top_of(reading: SpanReading, group: _Group) -> SpanReading:
    steps = {id(top.step): top for top in group.tops}
    step = reading.step
    while id(step) not in steps and step.parent is not None:
        step = step.parent
    return steps.get(id(step), reading)


# --- which spans make up one call -------------------------------------------------------------------------------------


def _split_into_calls(group: _Group) -> list[list[SpanReading]]:
    """Divide the outermost steps of *group* into lists, one for each RAG call.

    A workflow is a separate call. Retrievals and tools belong to the call of the next generation. A generation before a
    retrieval, which rewrites the question, and a generation that asks for tools belong to the call that follows.
    """
    calls: list[list[SpanReading]] = []
    pending: list[SpanReading] = []
    for number, top in enumerate(group.tops):
        kind = top.step.kind
        if kind == "trace":
            calls.append([top])
            continue
        pending.append(top)
        if kind != "generate" or top.calls_tools:
            continue
        later = group.tops[number + 1 :]
        has_found = any(each.step.kind != "generate" for each in pending)
        if has_found or not any(each.step.kind in FINDING_KINDS for each in later):
            if has_found or not _add_to_last_call(calls, top):
                calls.append(pending)
            pending = []
    if pending:
        calls.append(pending)
    return _assign_by_prompt(calls)


def _add_to_last_call(calls: list[list[SpanReading]], top: SpanReading) -> bool:
    """Add a generation to the last RAG call if the generation's prompt contains the call's documents.

    Return whether it was added.
    """
    if not calls or calls[-1][0].step.kind == "trace" or _ran_concurrently(calls[-1][-1].span, top.span):
        return False
    retrieved = [each for each in calls[-1] if each.step.kind in FINDING_KINDS]
    if any(_is_in_prompt(each, top) for each in retrieved):
        calls[-1].append(top)
        return True
    return False


def _assign_by_prompt(calls: list[list[SpanReading]]) -> list[list[SpanReading]]:
    """Assign each retrieval to the concurrent generation whose prompt contains the retrieved documents."""
    answering = [call for call in calls if call[-1].step.kind == "generate"]
    found = [top for call in answering for top in call if top.step.kind in FINDING_KINDS]
    overlap = any(
        _ran_concurrently(one[-1].span, other[0].span) or _ran_concurrently(one[0].span, other[-1].span)
        for number, one in enumerate(answering)
        for other in answering[number + 1 :]
    )
    if len(answering) < 2 or not found or not overlap:
        return calls
    for top in found:
        homes = [call for call in answering if _is_in_prompt(top, call[-1])]
        home = next((call for call in answering if top in call), None)
        if len(homes) == 1 and home is not homes[0] and home is not None:
            home.remove(top)
            homes[0].insert(0, top)
        elif not homes and home is not None:  # no telling which generation has used the retrieval
            home.remove(top)
            for call in answering:
                call[-1].is_ambiguous = call[-1].is_ambiguous or _ran_concurrently(call[-1].span, home[-1].span)
    return [call for call in calls if call]


def _ran_concurrently(one: FinishedSpan, other: FinishedSpan) -> bool:
    """Return whether the time intervals of two spans overlap."""
    return _intervals_overlap((one.start_ns, one.end_ns), (other.start_ns, other.end_ns))


def _intervals_overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two time intervals, each given by its start and its end, have more than one moment in common."""
    return one[0] < other[1] and other[0] < one[1]


def _is_in_prompt(found: SpanReading, generation: SpanReading) -> bool:
    """Return whether a generation's prompt contains the text of a retrieved document."""
    prompt = _prompt_text(generation.step)
    return any(document.text[:_SEARCH_CHARS] in prompt for document in found.step.documents or () if document.text)


def _prompt_text(step: Step) -> str:
    return "" if step.prompt is None else "\n".join(message.text for message in step.prompt.messages)


def _detail_counts(readings: list[SpanReading]) -> tuple[int, int, int]:
    """Return how many documents, workflows and steps a RAG call has.

    Of two recordings of the same call, the one with more of them is kept.

    Args:
        readings: the steps of the call, as read from its spans.
    """
    documents = sum(len(each.step.documents or ()) for each in readings)
    return documents, sum(each.step.kind == "trace" for each in readings), len(readings)


# --- one call ---------------------------------------------------------------------------------------------------------


def build_call(tops: list[SpanReading], readings: list[SpanReading]) -> AssembledCall | None:
    """Build a RAG call from steps that were read from spans, or return None if the steps form no RAG call.

    Steps without an answer and a generation form no call, unless the workflow around them failed, and nor does a model
    call outside any workflow that has no documents.

    Args:
        tops: the outermost steps, in the order in which they began: one workflow, or a generation and what belongs to
            it.
        readings: all steps, in the order in which they began.
    """
    _copy_nested_results(readings)
    generations = [each for each in readings if each.step.kind == "generate" and _may_be_final_answer(each)]
    root = next((top for top in tops if top.step.kind == "trace"), None)
    if root is None:
        root = next((top for top in reversed(tops) if top in generations), None)
    if root is not None and not root.step.answer:
        generations = [each for each in generations if not _ended_before_unanswered_workflow(each, readings)]
    if root is None or not (generations or root.step.answer is not None or _failed_on_the_way(root, readings)):
        return None
    step = root.step
    answering = {id(each) for each in generations}
    steps = [
        each.step for each in readings if each is not root and (each.step.kind != "generate" or id(each) in answering)
    ][-_MOST_STEPS:]
    found = [each for each in readings if each.step.kind in FINDING_KINDS]
    step.workflow = step.workflow or step.name or root.span.name
    final = max((each.step for each in generations), key=lambda each: each.end_ns, default=step)
    if not step.answer and final is not step and _ended_before_retrieval(final, root, readings):
        final.answer, final.answer_found = None, False
    if not step.answer and final.answer:  # the root of a stream that had not been read yet
        step.answer = None
        if _contains_earlier_answer(final, generations):
            final.answer = None
    step.query = _query(root, [each.step for each in generations], [each.step for each in found])
    _find_in_prompt(step, final, found)
    is_ambiguous = any(each.is_ambiguous for each in readings)
    if step.kind == "generate" and not (found or is_ambiguous or step.prompt_documents or _has_tool_results(final)):
        return None  # a model call without documents, such as one that makes a title
    for each in {id(step): step, id(final): final}.values():
        each.answer_found = each.answer is not None if each.answer_found is None else each.answer_found
    if step.conversation_id is None:
        step.conversation_id = next((s.conversation_id for s in steps if s.conversation_id is not None), None)
    step.total_usage = _total_usage(readings) if step.kind == "trace" else None
    step.defect = _defect(readings, found) or ("contexts_ambiguous" if is_ambiguous else "")
    if step.defect == "contexts_without_text":
        for reading in found:
            reading.step.documents = None
    _drop_unused_documents(found, final, readings)
    _drop_agent_results(found, readings)
    return AssembledCall(CallBuilder(step, [step, *steps]), tuple(readings))


def _failed_on_the_way(root: SpanReading, readings: list[SpanReading]) -> bool:
    """Return whether the workflow *root* failed after a retrieval, a tool or a model call had begun in it.

    It is a RAG call of which there is no answer. A workflow in which nothing of that kind began may be anything.
    """
    return (
        root.step.kind == "trace"
        and root.step.error is not None
        and any(each.step.kind != "trace" for each in readings)
    )


def _copy_nested_results(readings: list[SpanReading]) -> None:
    """Copy a missing result from a nested step to its parent step, where both describe the same operation.

    Of two instrumentations, the outer one may have content switched off.
    """
    by_step = {id(each.step): each for each in readings}
    children = Counter(id(each.step.parent) for each in readings)
    for reading in reversed(readings):  # innermost first
        inner, around = reading.step, by_step.get(id(reading.step.parent))
        if around is None or around.step.kind != inner.kind:
            continue
        outer = around.step
        if inner.kind == "generate" and outer.answer is None and not around.calls_tools:
            around.calls_tools = reading.calls_tools
            outer.answer, outer.answer_found = inner.answer, inner.answer_found
            outer.query = inner.query if outer.query is None else outer.query
            outer.prompt = inner.prompt if outer.prompt is None else outer.prompt
            outer.response_id = outer.response_id or inner.response_id
            outer.usage = inner.usage if outer.usage == NO_USAGE else outer.usage
        elif inner.kind == "retrieve" and outer.documents is None and not around.documents_without_text:
            around.documents_without_text = reading.documents_without_text
            outer.documents, outer.reranked = inner.documents, inner.reranked
            outer.rerank = inner.rerank
        elif inner.kind == "trace" and outer.query is None and outer.answer is None and children[id(outer)] == 1:
            # OpenLLMetry has a span without texts around the workflow of a LangGraph graph.
            outer.query, outer.prompt = inner.query, inner.prompt
            outer.answer, outer.answer_found = inner.answer, inner.answer_found
            outer.documents = inner.documents if outer.documents is None else outer.documents
            outer.user_id = outer.user_id or inner.user_id


def _ended_before_retrieval(generation: Step, root: SpanReading, readings: list[SpanReading]) -> bool:
    """Return whether *generation* ended before some documents of the RAG call were retrieved.

    Such a generation cannot be the final answer.

    The model call that wrote the answer has no span here, such as that of a stream after its workflow has ended.
    """
    found = (each for each in readings if each is not root and each.step.documents and each.step.kind != "generate")
    return any(each.span.start_ns >= generation.end_ns for each in found)


def _drop_unused_documents(found: list[SpanReading], final: Step, readings: list[SpanReading]) -> None:
    """Drop retrieved documents that appear in no prompt, and sort the others in the order of the prompts.

    If no retrieved document is in a prompt, all are kept.

    A re-ranker or a filter between the retrieval and the prompt need not have a span. The documents of a retrieval
    inside a tool are kept where the prompts show the tool's result alone, which was made from these documents.
    """
    prompts = _prompts_behind(final, found, readings)
    if not prompts:
        return
    kept = {
        id(each.step): [document for document in each.step.documents or () if _offset_in_prompt(prompts, document) >= 0]
        for each in found
    }
    if not any(kept.values()):
        return
    for step in (each.step for each in found):
        is_of_tool = any(outer.kind == "tool" and kept.get(id(outer)) for outer in step.enclosing())
        if step.documents is not None and (kept[id(step)] or not is_of_tool):
            step.documents = tuple(sorted(kept[id(step)], key=lambda each: _offset_in_prompt(prompts, each)))


def _prompts_behind(final: Step, found: list[SpanReading], readings: list[SpanReading]) -> str:
    """Join the final generation's prompt with the prompts of earlier model calls that contributed to it.

    An earlier model call has contributed if a later one of these prompts contains its answer.

    A synthesizer gives its first answer to the model together with further documents, to refine it; an agent is given
    what a tool's model wrote of the documents.
    """
    documents = [
        _one_line(document.text)
        for reading in found
        if reading.step.kind == "retrieve"
        for document in reading.step.documents or ()
        if document.text.strip()
    ]
    others = [
        each.step for each in readings if each.step.kind == "generate" and len(each.step.answer or "") >= _LEAST_ANSWER
    ]
    behind = [final]
    for step in behind:  # grows
        given = [
            each
            for each in others[-_MOST_BEHIND:]
            if each not in behind
            and each.end_ns <= step.end_ns
            and _contains_answer(each.answer or "", step, documents)
        ]
        behind += given[: _MOST_BEHIND - len(behind)]
    return " ".join(_one_line(_prompt_text(step)) for step in sorted(behind, key=lambda each: each.end_ns)).strip()


def _contains_answer(answer: str, step: Step, documents: list[str]) -> bool:
    """Return whether the prompt of *step* contains the answer of another model call.

    An answer that occurs only within the text of *documents* does not count.
    """
    answer, prompt = _one_line(answer), _one_line(_prompt_text(step))
    if answer not in prompt:
        return False
    for text in documents:  # documents, of which an answer may be a sentence
        prompt = prompt.replace(text, " ")
    return answer in prompt


def _drop_agent_results(found: list[SpanReading], readings: list[SpanReading]) -> None:
    """Drop the result of a tool that ran an agent, if steps inside the tool returned documents.

    Such a result is only the answer of the agent's model.
    """
    generations = [each for each in readings if each.step.kind == "generate"]
    around = {id(outer) for each in generations for outer in each.step.enclosing()}
    # OpenLLMetry makes the spans of an agent in a tool children of the workflow.
    answers: defaultdict[str, list[SpanReading]] = defaultdict(list)
    for each in generations:
        if each.step.answer and len(same := answers[_one_line(each.step.answer)]) < _MOST_EQUAL:
            same.append(each)
    documents = [each for each in found if each.step.documents]
    for tool in [each for each in documents if each.step.kind == "tool"][-_MOST_AGENTS:]:
        said = (each for document in tool.step.documents or () for each in answers.get(_one_line(document.text), ()))
        is_agent = id(tool.step) in around or any(_is_during(each, tool) for each in said)
        if is_agent and any(_is_during(each, tool) for each in documents if each is not tool):
            tool.step.documents = None


def _is_during(inner: SpanReading, outer: SpanReading) -> bool:
    return outer.span.start_ns <= inner.span.start_ns and inner.step.end_ns <= outer.step.end_ns


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _offset_in_prompt(prompt: str, document: Document) -> int:
    """Return the last offset of *document* in *prompt*, or -1 if the prompt does not contain it."""
    return prompt.rfind(_one_line(document.text)[:_SEARCH_CHARS]) if document.text.strip() else -1


def _total_usage(readings: list[SpanReading]) -> Usage:
    """Return the total token counts of a RAG call's model calls.

    If several instrumentations have recorded them, the total with the most input tokens is taken.

    Two instrumentations would count the same calls twice, and so would a model call inside another one.

    Args:
        readings: the steps of the call, as read from its spans.
    """
    used: dict[str, list[Usage]] = {}
    for reading in readings:
        step = reading.step
        if step.kind == "generate" and not step.inside("generate") and step.usage is not NO_USAGE:
            used.setdefault(reading.span.scope, []).append(step.usage)
    totals = [
        Usage(_sum([each.input_tokens for each in usages]), _sum([each.output_tokens for each in usages]))
        for usages in used.values()
    ]
    return max(totals, key=lambda each: each.input_tokens or 0, default=NO_USAGE)


def _sum(counts: list[int | None]) -> int | None:
    """Return the sum of *counts*, or None if one of them is unknown."""
    return None if None in counts else sum(filter(None, counts))


def _may_be_final_answer(reading: SpanReading) -> bool:
    """Return whether a generation may have written the final answer: it calls no tools and is not nested in another
    step.
    """
    step = reading.step
    return not reading.calls_tools and not any(step.inside(kind) for kind in ("generate", "retrieve", "tool"))


def _ended_before_unanswered_workflow(generation: SpanReading, readings: list[SpanReading]) -> bool:
    """Return whether *generation* ended before the start of a workflow that has documents but no answer.

    Such a generation may have ranked the documents, while the answer is a stream without a span in the call.
    """
    return any(
        each.step.kind == "trace"
        and each.step.documents
        and not each.step.answer
        and each.span.start_ns > generation.span.end_ns
        for each in readings
    )


def _contains_earlier_answer(final: Step, generations: list[SpanReading]) -> bool:
    """Return whether the prompt of the *final* generation contains the answer of an earlier generation.

    The spans do not show whether it grades or improves that answer, so that the answer of the call is not known.
    """
    prompt = _prompt_text(final)
    # An equal answer is the same model call in another instrumentation's spans; documents may contain the answer, too.
    answers = [each.step.answer for each in generations if each.step.answer != final.answer]
    return any(answer in prompt for answer in answers if answer and len(answer) >= _LEAST_ANSWER)


def _query(root: SpanReading, generations: list[Step], found: list[Step]) -> str | None:
    """Return the user's question: the input of the workflow, else the question in the prompt, else the search text."""
    if root.step.kind == "trace" and root.step.query is not None:
        return root.step.query
    documents = [document.text[:_SEARCH_CHARS] for step in found for document in step.documents or () if document.text]
    for step in generations:
        asked = step.query
        if asked is not None and not any(text in asked for text in documents):
            parts = split_prompt(asked)
            if parts is None or parts.question is not None:
                return asked if parts is None else parts.question
    for step in generations:
        parts = None if step.query is None else split_prompt(step.query)
        if parts is not None and parts.question is not None:
            return parts.question
    return next((step.query for step in found if step.query is not None), None)


def _has_tool_results(step: Step) -> bool:
    return step.prompt is not None and any(message.role == "tool" for message in step.prompt.messages)


def _find_in_prompt(root: Step, final: Step, found: list[SpanReading]) -> None:
    """Extract the contexts from the prompt of the final generation, if no retrieval and no tool has returned any."""
    if any(each.step.documents is not None or each.documents_without_text for each in found):
        return
    if root.documents or final.prompt is None or final.prompt_documents or _has_tool_results(final):
        return
    for message in reversed(final.prompt.messages):
        parts = split_prompt(message.text) if message.role in ("user", "system") else None
        if parts is not None and parts.documents:
            root.prompt_documents = parts.documents
            return


def _texts_look_truncated(readings: list[SpanReading]) -> bool:
    """Return whether the longest texts on the spans all have the same length, which suggests that a length limit has
    cut them.

    Documents may have been cut into passages of one length, but then other texts are longer than these.
    """
    texts = [
        (name, value) for each in readings for name, value in each.span.attributes.items() if isinstance(value, str)
    ]
    longest = max((len(value) for _, value in texts), default=0)
    equal = {value: name for name, value in texts if len(value) == longest}
    return (
        longest >= _LEAST_LIMIT
        and len(equal) >= _EQUAL_LENGTHS
        and any("document" not in name for name in equal.values())
    )


def _defect(readings: list[SpanReading], found: list[SpanReading]) -> str:
    if any(each.is_cut for each in readings) or _texts_look_truncated(readings):
        return "texts_truncated"
    return "contexts_without_text" if any(each.documents_without_text for each in found) else ""
