"""Bounded store of the turns of running conversations, for metrics that judge a whole conversation."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from ragtrace.core.labels import Turn
from ragtrace.core.types import Metric, RagCall
from ragtrace.system.faults import faults
from ragtrace.system.forks import call_in_child

_LOST: Final = 8_192
"""Most ids of incomplete conversations that are remembered."""


@dataclass(slots=True, eq=False, repr=False)
class _Conversation:
    turns: list[Turn] = field(default_factory=list[Turn])
    chars: int = 0
    at: float = 0.0
    """Monotonic seconds of its last turn."""


def needs_turns(metric: Metric) -> bool:
    """Return whether *metric* needs the turns of the whole conversation, as `completeness` does.

    So does a rating that declares the field `turns`.
    """
    return "intentions" in metric.needs or "turns" in getattr(metric, "fields", ())


class Conversations:
    """Bounded store of the turns of running conversations, by conversation id.

    It holds only the calls of this process: where requests of one conversation go to several processes, give the
    turns to `ragtrace.score` offline instead. Turns stand in the order in which their calls were finished. After
    *seconds* of silence a conversation is forgotten, and what follows under its id is a new one. A conversation that is
    only known in part (too long, or displaced by others) gets no turns at all rather than some, and is unscored
    (`needs_conversation`). The turns of calls that head sampling or a full queue dropped are missing.

    Args:
        capacity: conversations kept at a time; the one silent for longest is given up for a new one.
        turns: most turns of one conversation.
        chars: most characters of all conversations together; one may have an eighth of them.
        seconds: seconds of silence after which a conversation is over.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        capacity: int = 4_096,
        turns: int = 200,
        chars: int = 8_000_000,
        seconds: float = 3_600.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._capacity, self._turns, self._chars, self._seconds = capacity, turns, chars, seconds
        self._clock = clock
        self.reset()
        call_in_child(self.reset)

    def reset(self) -> None:
        """Remove all conversations; in a forked child also the lock, which may have been copied while it was held."""
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Conversation] = OrderedDict()
        self._lost: OrderedDict[str, float] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return len(self._open)

    def follow(self, call: RagCall) -> RagCall:
        """Add *call* to its conversation; return the call with all turns of the conversation up to its answer.

        A call without a conversation id, or that brings its turns, is returned as it is.
        """
        name = call.conversation_id
        if not name or call.turns is not None:
            return call
        exchange = Turn("user", call.query or ""), Turn("assistant", call.answer or "")
        said = tuple(turn for turn in exchange if turn.text.strip())
        with self._lock:
            turns = self._add(name, said)
        return replace(call, turns=turns)

    def _add(self, name: str, said: tuple[Turn, ...]) -> tuple[Turn, ...] | None:
        now = self._clock()
        self._expire(now)
        if name in self._lost:
            self._lost[name] = now
            self._lost.move_to_end(name)
            return None
        known = self._open.setdefault(name, _Conversation())
        self._open.move_to_end(name)
        known.turns += said
        chars = sum(len(turn.text) for turn in said)
        known.chars, known.at = known.chars + chars, now
        self._total += chars
        if len(known.turns) > self._turns or known.chars > self._chars // 8:
            self._lose(name, now)
            return None
        turns = tuple(known.turns)
        while len(self._open) > self._capacity or self._total > self._chars:
            self._lose(next(iter(self._open)), now)
        return turns

    def _expire(self, now: float) -> None:
        while self._open:
            name, oldest = next(iter(self._open.items()))
            if oldest.at >= now - self._seconds:
                break
            self._forget(name)
        while self._lost and next(iter(self._lost.values())) < now - self._seconds:
            self._lost.popitem(last=False)

    def _lose(self, name: str, now: float) -> None:
        """Drop the turns of a running conversation, and remember that it is incomplete from now on."""
        self._forget(name)
        self._lost[name] = now
        while len(self._lost) > _LOST:
            self._lost.popitem(last=False)
        faults.warn_once(
            "conversations",
            "a conversation has more turns or characters than are kept (%d turns, %d characters in all conversations): "
            "metrics that need the whole conversation (completeness) are not scored for it",
            self._turns,
            self._chars,
        )

    def _forget(self, name: str) -> None:
        self._total -= self._open.pop(name).chars
