"""Broker of a fleet: what applications, workers and operators ask of it, whether it is RabbitMQ or Redis.

The queues, acknowledgement, redelivery and the limits are the broker's own (`ragtrace.fleet.rabbitmq`,
`ragtrace.fleet.redis_streams`). A message is the text of a RAG call (`ragtrace.fleet.call_message`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import parse_qs, urlsplit

from ragtrace.core.errors import RagtraceError, SettingsError
from ragtrace.system.urls import displayed_url

CALLS: Final = "ragtrace.calls"
"""Name of the queue of calls that are to be judged."""
DEAD_LETTERS: Final = "ragtrace.dead_letters"
"""Name of the queue of calls that could not be judged, each with its reason."""
MOST_TRIES: Final = 3
"""Number of failures after which a call becomes a dead letter: of the judge, or of workers that end while judging.

RabbitMQ also has the number in its queue, as `x-delivery-limit`, which is fixed when the queue is declared: to change
the number, delete the existing queue of calls when it is empty."""
WORKER_LOST: Final = "worker_lost"
"""Reason of a dead letter whose call workers were lost with."""
MOST_CALLS: Final = 10_000
"""Most calls in the queue; sampling probabilities fall long before."""
STORE_VARIABLE: Final = "RAGTRACE_FLEET_STORE"
"""Environment variable with the URL of the Redis that workers share; without it the broker, if that is Redis."""
_LIBRARIES: Final = {"amqp": "aio_pika", "amqps": "aio_pika", "redis": "redis", "rediss": "redis"}
"""Module of the client library by the scheme of a broker's URL."""


class QueueFullError(RagtraceError):
    """Raised when the queue of a fleet has no room for another call."""


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """Number of messages in the queues of a fleet that no worker has received yet."""

    calls: int
    dead_letters: int


class DeadLetter(NamedTuple):
    """Message that could not be judged, with the reason."""

    body: bytes
    """The message as it was delivered."""
    reason: str
    detail: str = ""
    """What went wrong, without any text of the call."""
    tries: int = 0
    """Number of failed attempts to judge the call."""


class Delivery(Protocol):
    """Message that a worker has got from the queue of calls, and has to settle by one of the methods."""

    @property
    def id(self) -> str:
        """Id of the message, which is the same at each of its deliveries."""
        ...

    @property
    def body(self) -> bytes:
        """The message as it was published."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether a worker has got the message before."""
        ...

    @property
    def lost_workers(self) -> int:
        """Number of workers that have got the message before and have not settled it.

        RabbitMQ counts them itself, and moves a message to the dead letters (`x-delivery-limit`); it is 0 there.
        """
        ...

    async def acknowledge(self) -> None:
        """Delete the message from the queue, unless another worker has got it meanwhile."""

    async def replace(self, text: str) -> None:
        """Put *text* into the queue in place of the message.

        Raises:
            Exception: the broker did not take it; the message is not settled.
        """

    async def bury(self, letter: DeadLetter) -> None:
        """Put *letter* into the queue of dead letters in place of the message.

        Raises:
            Exception: the broker did not take it; the message is not settled.
        """

    async def give_back(self) -> None:
        """Leave the message to another worker; it counts as one with which a worker was lost."""


Handle: TypeAlias = Callable[[Delivery], Awaitable[None]]
"""Function of a worker that has a delivered call judged and settles the delivery. It never raises an `Exception`."""


class Broker(Protocol):
    """Interface of a broker's client, for use in one event loop. It connects on first use, and again after a failure.

    Its methods raise the exceptions of the library behind it if the broker cannot be reached.
    """

    @property
    def url(self) -> str:
        """URL of the broker, with its credentials."""
        ...

    async def publish(self, texts: Sequence[str]) -> list[Exception | None]:
        """Put messages into the queue of calls, and wait until the broker has answered for each one.

        Returns:
            For each message None if the broker has stored it, else why it did not: a `QueueFullError`, or that the
            broker is away. A message that the broker has not answered for may be in the queue nevertheless.
        """
        ...

    async def consume(self, places: int, handle: Handle, stop: asyncio.Event, started: Callable[[], object]) -> None:
        """Have calls of the queue handled until *stop* is set, then wait until those that were delivered are handled.

        While the broker is away it tries again.

        Args:
            places: calls that are handled at a time.
            handle: handles a call.
            stop: set when no further call is to be taken.
            started: called each time that the broker begins to deliver calls.
        """

    async def depths(self) -> QueueDepths:
        """Return the number of messages in both queues."""
        ...

    async def worker_count(self) -> int:
        """Return the number of workers that take calls from the queue."""
        ...

    async def oldest(self) -> bytes | None:
        """Return the message that has waited longest in the queue of calls, or None if the broker does not show it."""
        ...

    async def visit_dead_letters(self, most: int, visit: Callable[[DeadLetter], Awaitable[bool]]) -> None:
        """Show dead letters to *visit*, oldest first, and delete those for which it returns True.

        Args:
            most: most letters to look at.
            visit: decides about a letter.
        """

    async def aclose(self) -> None:
        """Close the connections to the broker."""


def open_broker(url: str, *, most_calls: int = MOST_CALLS) -> Broker:
    """Return the client of the broker at *url*, which connects on first use.

    Args:
        url: the broker, as `check_broker_url` accepts it.
        most_calls: calls that the queue holds at most; RabbitMQ keeps the limit that a queue was first declared with.
    """
    if is_redis(url):
        from ragtrace.fleet.redis_streams import RedisBroker

        return RedisBroker(url, most_calls)
    from ragtrace.fleet.rabbitmq import RabbitBroker

    return RabbitBroker(url, most_calls)


def check_broker_url(url: str, origin: str) -> str:
    """Check that a fleet can use the broker at *url*, and return the URL.

    The error message shows no credentials.

    Args:
        url: the URL.
        origin: where it came from, for the message.

    Raises:
        SettingsError: the scheme is unknown, a part of the URL cannot be read, or the broker's library is not
            installed.
    """
    library = _LIBRARIES.get(url.partition("://")[0]) if "://" in url else None
    if library is None:
        raise SettingsError(
            f"expected the URL of a broker (from {origin}): {', '.join(f'{each}://...' for each in _LIBRARIES)}; write "
            "for instance amqp://user:password@rabbitmq:5672// or redis://redis:6379/0"
        )
    return _check_url(url, library, f"the broker (from {origin})")


def check_store_url(url: str, origin: str) -> str:
    """Check that the workers of a fleet can share the Redis at *url*, and return the URL.

    The error message shows no credentials.

    Args:
        url: the URL.
        origin: where it came from, for the message.

    Raises:
        SettingsError: it is not the URL of a Redis, a part of it cannot be read, or the library of Redis is not
            installed.
    """
    if not url.startswith(("redis://", "rediss://")):
        raise SettingsError(
            f"expected the URL of the Redis that workers share (from {origin}): redis://... or rediss://..., got "
            f"{displayed_url(url)!r}; write for instance redis://redis:6379/0, or leave it out: then workers share the "
            "broker, if it is Redis, and nothing if it is RabbitMQ"
        )
    return _check_url(url, "redis", f"the store (from {origin})")


def _check_url(url: str, library: str, server: str) -> str:
    if find_spec(library) is None:
        raise SettingsError(
            f"{library.replace('_', '-')} is not installed, for {server}; write: pip install 'ragtrace-otel[fleet]'"
        )
    if not _is_readable(url):
        raise SettingsError(  # what is wrong stays out of the message: it may be a part of the password
            f"the URL of {server} cannot be read, {displayed_url(url)!r}: check port and options, "
            "and write special characters of a password as %XX; for instance redis://:pass%2Fword@redis:6379/0"
        )
    return url


def _is_readable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.port == 0:
            return False
        if is_redis(url) and parts.query:  # of which only the library knows the types
            from redis.asyncio import ConnectionPool

            cast("Any", ConnectionPool).from_url(url)
        elif not is_redis(url):
            # The library takes 0, which is none, for a number of seconds that it cannot read.
            options = parse_qs(parts.query, keep_blank_values=True)
            for seconds in (*options.get("heartbeat", ()), *options.get("timeout", ())):
                int(seconds)
    except ValueError:
        return False
    return True


def is_redis(url: str) -> bool:
    """Return whether the broker at *url* is Redis."""
    return url.startswith("redis")
