"""Whether the scores of certain calls have left this process: what a queue before an exporter alone can tell.

A flush says of everything together that it went well, or nothing. Who keeps a call in a file until its scores have been
delivered must know it of that call, at the latest when the process ends: a score that was never sent may be sent by
another process, one that may have arrived must not be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from ragtrace.core import semconv
from ragtrace.system.faults import guarded

Identity: TypeAlias = tuple[int, int]
"""Trace id and span id of the call that scores belong to."""
State: TypeAlias = Literal["waiting", "sending", "refused", "delivered"]
"""Of one part. sending: the exporter has it and has not come back, so that it may have arrived."""
CARRIER: Final = "carrier"
"""The part of a call's telemetry that is its carrier span; the others are named by their score ids."""


class Receipts:
    """Follows the events and carrier spans of watched calls through the queues before our exporters.

    Items may come on any thread. With nobody watching, an item costs the test of an empty dictionary.
    """

    def __init__(self) -> None:
        self._tell: Callable[[], object] | None = None
        self.reset()

    def when_delivered(self, tell: Callable[[], object]) -> None:
        """Call *tell* on an exporter's thread whenever parts of watched calls have been delivered."""
        self._tell = tell

    def reset(self) -> None:
        """Watch nothing: after a fork the items are the parent's, and its lock may be held for ever."""
        # Re-entrant: a stream collected as garbage ends its spans wherever this thread happens to be, here included.
        self._lock = threading.RLock()
        self._watched: dict[Identity, dict[str, State]] = {}
        self._closed = False

    def watch(self, call: Identity) -> None:
        """Follow what comes for *call* from now on."""
        with self._lock:
            self._watched[call] = {}

    def forget(self, call: Identity) -> None:
        """Nobody wants to know about *call* any more."""
        with self._lock:
            self._watched.pop(call, None)

    def parts(self, call: Identity) -> dict[str, State]:
        """How far each part of *call* has come; none, if they go another way than through our exporters."""
        with self._lock:
            return dict(self._watched.get(call, {}))

    def entered(self, item: Any, *, room: bool) -> None:
        """*item* has come to a queue; if there was no *room*, in vain."""
        if self._watched:
            self._note([item], "waiting" if room else "refused")

    def sending(self, batch: Sequence[Any]) -> Sequence[Any]:
        """The exporter is about to send *batch*; returns what it may send."""
        if not self._watched:
            return batch
        with self._lock:
            if self._closed:
                return [item for item in batch if _call_of(item) not in self._watched]
            self._note(batch, "sending")
        return batch

    def sent(self, batch: Sequence[Any], *, delivered: bool) -> None:
        """The exporter came back with it."""
        if self._watched and self._note(batch, "delivered" if delivered else "refused") and delivered:
            with guarded("spool"):
                if self._tell is not None:
                    self._tell()

    def close(self) -> None:
        """From now on nothing of the watched calls is sent: what waits is left to another process."""
        with self._lock:
            self._closed = True

    def waiting(self, *, carriers: bool) -> int:
        """How many carrier spans, or else events, of watched calls were never sent."""
        with self._lock:
            parts = [(part, state) for parts in self._watched.values() for part, state in parts.items()]
        return sum((part == CARRIER) is carriers and state == "waiting" for part, state in parts)

    @property
    def any_sending(self) -> bool:
        """Whether an exporter has something of a watched call and has not come back."""
        with self._lock:
            return any("sending" in parts.values() for parts in self._watched.values())

    def _note(self, items: Sequence[Any], state: State) -> bool:
        """Whether any was of a watched call."""
        noted = False
        with self._lock:
            for item in items:
                parts = self._watched.get(_call_of(item))
                if parts is not None:
                    parts[_part_of(item)] = state
                    noted = True
        return noted


def _call_of(item: Any) -> Identity:
    """The call that a log record or a span tells of: of a carrier span, the one that it links to."""
    record = getattr(item, "log_record", None)
    if record is not None:
        return record.trace_id or 0, record.span_id or 0
    links = getattr(item, "links", None)
    return (links[0].context.trace_id, links[0].context.span_id) if links else (0, 0)


def _part_of(item: Any) -> str:
    record = getattr(item, "log_record", None)
    if record is None:
        return CARRIER
    attributes: Mapping[str, object] = record.attributes or {}
    return str(attributes.get(semconv.EVAL_SCORE_ID, ""))
