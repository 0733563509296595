"""Bounded store of the turns of ongoing conversations, for judges that are shown the turns before a query.

Metrics that judge a whole conversation read them, too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from ragtrace.core.labels import Turn
from ragtrace.core.types import Metric, RagCall
from ragtrace.evaluation.earlier_turns import MOST_CHARS, shorten
from ragtrace.system.faults import faults

_MOST_INCOMPLETE: Final = 8_192
"""Most ids of incomplete conversations that are kept."""


@dataclass(slots=True, eq=False, repr=False)
class _Conversation:
    turns: list[Turn] = field(default_factory=list[Turn])
    chars: int = 0
    at: float = 0.0
    """Time of the last turn, in monotonic seconds."""


def needs_turns(metric: Metric) -> bool:
    """Return whether the metric *metric* needs all turns of the conversation, as `completeness` does.

    So does a rating that declares the field `turns`.
    """
    return "intentions" in metric.needs or "turns" in getattr(metric, "fields", ())


class Conversations:
    """Bounded store of the turns of ongoing conversations, by conversation id.

    It holds only the calls of this process: where requests of one conversation go to several processes, give the
    turns to `ragtrace.score` offline instead. Turns stand in the order in which their calls were finished. After
    *seconds* of silence a conversation is forgotten, and what follows under its id is a new one. The turns of calls
    that head sampling or a full queue dropped are missing.

    A conversation that is only known in part (too long, or displaced by others) has no `RagCall.turns` at all rather
    than some, and is unscored (`needs_conversation`). Of such a conversation the latest turns are still known, and
    shown to the judge (`RagCall.earlier_turns`).

    Args:
        whole: keep all turns of a conversation, for metrics that need them.
        latest: number of latest turns that a judge is shown before a query; only these are kept if not *whole*.
        capacity: conversations kept at a time; the one silent for longest is given up for a new one.
        turns: most turns of one conversation.
        chars: most characters of all conversations together; one may have an eighth of them.
        seconds: seconds of silence after which a conversation is over.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        whole: bool = True,
        latest: int = 0,
        capacity: int = 4_096,
        turns: int = 200,
        chars: int = 8_000_000,
        seconds: float = 3_600.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._whole, self._latest = whole, latest
        self._capacity, self._turns, self._chars, self._seconds = capacity, turns, chars, seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Conversation] = OrderedDict()
        self._incomplete: OrderedDict[str, float] = OrderedDict()
        self._given_up: OrderedDict[str, float] = OrderedDict()
        """Conversations that made room for others, by the time: only those that go on have lost anything."""
        self._total = 0

    def __len__(self) -> int:
        return len(self._open)

    def follow(self, call: RagCall) -> RagCall:
        """Add *call* to its conversation, and return the call with the known turns of the conversation.

        The known turns are all turns up to its answer, or the latest ones before its query. A call that brings its
        turns, or has no conversation id, is returned as it is.
        """
        name = call.conversation_id
        if not name or call.turns is not None:
            return call
        exchange = Turn("user", call.query or ""), Turn("assistant", call.answer or "")
        said = tuple(turn for turn in exchange if turn.text.strip())
        with self._lock:
            before, turns = self._add(name, said)
        if turns is not None:
            return replace(call, turns=turns)
        return replace(call, earlier_turns=call.earlier_turns or before or None)

    def _add(self, name: str, said: tuple[Turn, ...]) -> tuple[tuple[Turn, ...], tuple[Turn, ...] | None]:
        """Add the turns *said* to the conversation *name*.

        Return the latest turns before *said*, and all turns including *said*, or None in place of all turns if they are
        not known or not kept.
        """
        now = self._clock()
        self._expire(now)
        if self._given_up.pop(name, None) is not None:
            self._warn_of_given_up()
            if self._whole:
                _remember(self._incomplete, name, now)
        if name in self._incomplete:
            self._incomplete[name] = now
            self._incomplete.move_to_end(name)
            if not self._latest:
                return (), None
        known = self._open.setdefault(name, _Conversation())
        self._open.move_to_end(name)
        known.at = now
        before = tuple(known.turns[-self._latest :]) if self._latest else ()
        whole = self._whole and name not in self._incomplete
        self._set_turns(known, [*known.turns, *said] if whole else self._latest_of(before, said))
        if whole and (len(known.turns) > self._turns or known.chars > self._chars // 8):
            self._forget(name)
            _remember(self._incomplete, name, now)
            self._warn_of_incomplete()
            whole = False
            if self._latest:
                known = self._open[name] = _Conversation(at=now)
                self._set_turns(known, self._latest_of(before, said))
        turns = tuple(known.turns) if whole else None
        while len(self._open) > self._capacity or self._total > self._chars:
            oldest = next(iter(self._open))
            self._forget(oldest)
            _remember(self._given_up, oldest, now)
        return before, turns

    def _latest_of(self, before: tuple[Turn, ...], said: tuple[Turn, ...]) -> list[Turn]:
        """Return the latest turns of a conversation, with long texts shortened in the middle."""
        latest = (*before, *said)[-self._latest :]
        return [Turn(turn.role, shorten(turn.text, MOST_CHARS)) for turn in latest]

    def _set_turns(self, known: _Conversation, turns: list[Turn]) -> None:
        """Set the turns of the conversation *known*, and update the total number of characters."""
        chars = sum(len(turn.text) for turn in turns)
        self._total += chars - known.chars
        known.turns, known.chars = turns, chars

    def _expire(self, now: float) -> None:
        while self._open:
            name, oldest = next(iter(self._open.items()))
            if oldest.at >= now - self._seconds:
                break
            self._forget(name)
        for ended in (self._incomplete, self._given_up):
            while ended and next(iter(ended.values())) < now - self._seconds:
                ended.popitem(last=False)

    def _warn_of_given_up(self) -> None:
        if self._whole:
            self._warn_of_incomplete()
            return
        faults.warn_once(
            "earlier turns",
            "more conversations run at a time than are kept (%d, with %d characters in all): of those that were "
            "silent for longest, the judge is not shown the earlier turns (JudgeLimits(turns=))",
            self._capacity,
            self._chars,
        )

    def _warn_of_incomplete(self) -> None:
        faults.warn_once(
            "conversations",
            "a conversation has more turns or characters than are kept (%d turns, %d characters in all conversations): "
            "metrics that need the whole conversation (completeness) are not scored for it",
            self._turns,
            self._chars,
        )

    def _forget(self, name: str) -> None:
        self._total -= self._open.pop(name).chars


def _remember(names: OrderedDict[str, float], name: str, now: float) -> None:
    names[name] = now
    names.move_to_end(name)
    while len(names) > _MOST_INCOMPLETE:
        names.popitem(last=False)
