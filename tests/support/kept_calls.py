"""A fleet's broker in memory, which keeps what is published, and a delivery that notes how it was settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ragtrace.fleet.broker import DeadLetter, Handle, QueueDepths


class KeepingBroker:
    """Broker that keeps the texts of the messages.

    Args:
        away: number of batches for which it is away.
        found: the depths of its queues; None: it does not tell.
    """

    url = "memory://"

    def __init__(self, away: int = 0, found: QueueDepths | None = None) -> None:
        self.texts: list[str] = []
        self.closed = False
        self._away, self._found = away, found

    async def publish(self, texts: Sequence[str]) -> list[Exception | None]:
        """Keep the messages, or refuse all of them."""
        if self._away:
            self._away -= 1
            return [ConnectionError("away")] * len(texts)
        self.texts += texts
        return [None] * len(texts)

    async def consume(self, places: int, handle: Handle, stop: asyncio.Event, started: Callable[[], object]) -> None:
        """Have each message handled once."""
        started()
        for text in self.texts:
            await handle(KeptDelivery(text.encode()))

    async def depths(self) -> QueueDepths:
        """Return the depths that the test has given."""
        if self._found is None:
            raise ConnectionError("away")
        return self._found

    async def worker_count(self) -> int:
        """Return that there is no worker."""
        return 0

    async def oldest(self) -> bytes | None:
        """Return the first message."""
        return self.texts[0].encode() if self.texts else None

    async def visit_dead_letters(self, most: int, visit: Callable[[DeadLetter], Awaitable[bool]]) -> None:
        """Show nothing."""

    async def aclose(self) -> None:
        """Note that the connection was closed."""
        self.closed = True


@dataclass
class KeptDelivery:
    """Message that was delivered, and how it was settled."""

    body: bytes
    id: str = "message"
    redelivered: bool = False
    lost_workers: int = 0
    refusals: int = 0
    """Number of messages that the broker does not take."""
    settled: list[object] = field(default_factory=list[object])
    """What was done with the message: "acknowledged", "given back", the text in its place, or a dead letter."""

    async def acknowledge(self) -> None:
        """Note it."""
        self.settled.append("acknowledged")

    async def replace(self, text: str) -> None:
        """Note *text*, unless the broker is away."""
        self._put(text)

    async def bury(self, letter: DeadLetter) -> None:
        """Note *letter*, unless the broker is away."""
        self._put(letter)

    async def give_back(self) -> None:
        """Note it."""
        self.settled.append("given back")

    def _put(self, what: object) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("away")
        self.settled.append(what)
