"""Reader of RAG calls from a file of spans, as lines for `score_file`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from ragtrace.core.types import RagCall
from ragtrace.offline.call_records import BadLine, CallLine
from ragtrace.span_reading.assembler import CallAssembler
from ragtrace.span_reading.call_draft import AssembledCall
from ragtrace.span_reading.otlp_json import UnreadableSpan
from ragtrace.span_reading.span_file import SpanFile

_SPANS_PER_TICK: Final = 1_000
"""Number of spans that count as one second of the assembler's clock. The times in a file do not show where the other
spans of a trace are; with this clock, a trace may be spread over `_SETTLE_TICKS` thousand spans, and memory stays
bounded."""
_SETTLE_TICKS: Final = 20.0
_LOOK_EVERY: Final = 500
_MOST_SPANS: Final = 200_000
_MOST_BYTES: Final = 256 << 20


class SpanFileCalls:
    """Iterable of the RAG calls in a file of spans, which is read during iteration.

    It can be iterated once.

    A call is yielded when the file has ended, or when no span of its trace has come among the last 20,000.
    """

    def __init__(self, path: Path) -> None:
        self._file = SpanFile(path)
        self._n_read = 0
        self._assembler = CallAssembler(
            settle_seconds=_SETTLE_TICKS,
            parent_seconds=_SETTLE_TICKS,
            most_spans=_MOST_SPANS,
            most_bytes=_MOST_BYTES,
            clock=lambda: self._n_read / _SPANS_PER_TICK,
        )

    @property
    def share_read(self) -> float:
        """Share of the span file that has been read so far, from 0 to 1."""
        return self._file.share_read

    @property
    def span_counts(self) -> dict[str, int]:
        """Counts of the spans that were read: all `spans`, `steps` of calls, and steps that are in no call.

        These are `no_call` (nothing was generated there), `duplicates` (the same model call seen by another
        instrumentation), `late` (the rest of their trace is more than 20,000 spans before), `evicted` (too many spans
        were waiting), `incomplete` (steps below them had been given up 20,000 spans before), `failed` (building their
        call raised) and `unfinished` (always 0 in a file, which shows no starts of spans). `other_signals` are lines of
        logs and metrics, `unread_attributes` values that are none of OTLP's.
        """
        counts = self._assembler.counts
        steps = {reason: counts[reason] for reason in CallAssembler.LEFT_OUT}
        other = {
            "other_signals": self._file.reader.n_other_signals,
            "unread_attributes": self._file.reader.n_unread_attributes,
        }
        return {"spans": self._file.n_spans, "steps": counts["spans"], **steps, **other}

    def __iter__(self) -> Generator[CallLine | BadLine, None, None]:
        number = 0
        for found in self._assembled():
            if isinstance(found, UnreadableSpan):
                yield BadLine(found.line, found.error, "spans on line")
                continue
            number += 1
            yield _line(number, found)

    def _assembled(self) -> Iterator[AssembledCall | UnreadableSpan]:
        for span in self._file:
            if isinstance(span, UnreadableSpan):
                yield span
                continue
            self._n_read += 1
            self._assembler.add(span)
            if self._n_read % _LOOK_EVERY == 0:
                yield from self._assembler.take_complete()
                self._assembler.take_left_out()
        yield from self._assembler.take_complete(everything=True)


def _line(number: int, assembled: AssembledCall) -> CallLine:
    call = assembled.builder.build()
    root = assembled.readings[0].span.context if call.span is None else call.span
    assembled.builder.close()
    return CallLine(number, f"{root.trace_id:032x}-{root.span_id:016x}", call, _key(call), "call")


def _key(call: RagCall) -> bytes:
    """Return a hash that is equal for calls with equal texts."""
    contexts = None if call.contexts is None else [(each.text, each.id) for each in call.contexts]
    turns = None if call.turns is None else [(turn.role, turn.text) for turn in call.turns]
    earlier = [(turn.role, turn.text) for turn in call.earlier_turns or ()]
    texts = (call.query, contexts, call.answer, turns, call.answer_captured, call.defect, call.cut_chars)
    description = json.dumps([*texts, call.conversation_id, call.workflow, call.model, *earlier])
    return hashlib.blake2b(description.encode(), digest_size=16).digest()
