"""RabbitMQ as the broker of a fleet: quorum queues with publisher confirms, a delivery limit and dead letters."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ragtrace.fleet.broker import (
    CALLS,
    DEAD_LETTERS,
    MOST_CALLS,
    MOST_TRIES,
    WORKER_LOST,
    DeadLetter,
    Handle,
    QueueDepths,
    QueueFullError,
)
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

_TIMEOUT_SECONDS: Final = 5.0
"""Seconds for a connection, and for the confirmations of a batch."""
_PAUSE_SECONDS: Final = 1.0
"""Pause in seconds before a worker connects again."""
_LOOK_SECONDS: Final = 2.0
"""Seconds after which a worker looks whether RabbitMQ has cancelled its consumer, because the queue was deleted."""
_SENT_AT_ONCE: Final = 16
"""Number of messages that are sent before the event loop runs other tasks."""
_LOGGERS: Final = ("aiormq.connection", "aiormq.channel", "aio_pika.message")
"""Loggers to which the client library writes about connections that fail."""
_is_ours: ContextVar[bool] = ContextVar("ragtrace_rabbitmq", default=False)
"""Whether the running task is one of a connection of a fleet."""
_REASON: Final = "x-ragtrace-reason"
_DETAIL: Final = "x-ragtrace-detail"
_TRIES: Final = "x-ragtrace-tries"


def _queue_arguments(most_calls: int) -> dict[str, dict[str, Any]]:
    """Return the arguments with which each queue is declared.

    RabbitMQ itself moves a call to the dead letters if workers were lost with it too often.
    """
    calls = {
        "x-queue-type": "quorum",
        "x-delivery-limit": MOST_TRIES - 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": DEAD_LETTERS,
        "x-dead-letter-strategy": "at-least-once",
        "x-max-length": most_calls,
        "x-overflow": "reject-publish",
    }
    # RabbitMQ 4 would delete a letter that has been looked at twenty times.
    return {CALLS: calls, DEAD_LETTERS: {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}}


class RabbitBroker:
    """Client of a fleet's RabbitMQ. The methods are those of `ragtrace.fleet.broker.Broker`.

    Args:
        url: `amqp://` or `amqps://`; the broker's certificate and the name in it are verified.
        most_calls: calls that the queue holds at most, if it is declared here.
    """

    def __init__(self, url: str, most_calls: int = MOST_CALLS) -> None:
        self.url, self._arguments = url, _queue_arguments(most_calls)
        self._opening = asyncio.Lock()
        self._connection: AbstractConnection | None = None
        self._publishing: AbstractChannel | None = None
        """Channel with publisher confirms; None: none is open."""

    async def publish(self, texts: Sequence[str]) -> list[Exception | None]:
        """Put messages into the queue of calls, and wait until RabbitMQ has confirmed or refused each one."""
        return await self.send(CALLS, [_message(text.encode()) for text in texts])

    async def send(self, queue: str, messages: Sequence[Any]) -> list[Exception | None]:
        """Put messages into a queue, and wait until RabbitMQ has confirmed or refused each one."""
        from aio_pika.exceptions import DeliveryError, PublishError

        try:
            exchange = (await asyncio.wait_for(self._open(), 2 * _TIMEOUT_SECONDS)).default_exchange
        except Exception as error:
            await self.aclose()
            return [error] * len(messages)
        sent: list[asyncio.Task[object]] = []
        try:
            for number, message in enumerate(messages, 1):
                # Mandatory: a message comes back if its queue was deleted meanwhile.
                sent.append(asyncio.ensure_future(exchange.publish(message, queue, mandatory=True)))
                if number % _SENT_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if sent:
                await asyncio.wait(sent, timeout=_TIMEOUT_SECONDS)
        finally:
            late = [each for each in sent if not each.done()]
            for each in late:
                each.cancel()
        errors: list[Exception | None] = []
        for each in sent:
            unconfirmed = each in late or each.cancelled()
            found = TimeoutError("RabbitMQ has not confirmed a message") if unconfirmed else each.exception()
            if isinstance(found, DeliveryError) and not isinstance(found, PublishError):
                found = QueueFullError(f"the queue {queue} is full")
            errors.append(found if found is None or isinstance(found, Exception) else ConnectionError(repr(found)))
        if any(error is not None and not isinstance(error, QueueFullError) for error in errors):
            await self.aclose()
        return errors

    async def consume(self, places: int, handle: Handle, stop: asyncio.Event, started: Callable[[], object]) -> None:
        """Have calls of the queue handled until *stop* is set; all that RabbitMQ has delivered are handled then."""
        handling: set[asyncio.Task[None]] = set()
        while not stop.is_set():
            try:
                # A connection of its own: RabbitMQ may hold up the one that publishes, when its memory is full.
                connection = await self._connect()
                try:
                    await self._consume(connection, places, handle, stop, started, handling)
                finally:
                    await _close(connection)
            except Exception as error:
                faults.warn_once(
                    "fleet: taking calls",
                    "the broker of the fleet delivers no calls (%s): the worker tries again every second; every "
                    "further failure is counted in ragtrace.stats().faults",
                    type(error).__name__,
                )
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), _PAUSE_SECONDS)
        if handling:  # of a connection that was lost: RabbitMQ has delivered these calls again
            await asyncio.wait(handling)

    async def _consume(
        self,
        connection: AbstractConnection,
        places: int,
        handle: Handle,
        stop: asyncio.Event,
        started: Callable[[], object],
        handling: set[asyncio.Task[None]],
    ) -> None:
        """Take calls over *connection* until it is lost, or until *stop* is set and the calls are handled."""

        async def take(message: AbstractIncomingMessage) -> None:
            task = asyncio.ensure_future(handle(RabbitDelivery(self, message)))
            handling.add(task)
            task.add_done_callback(handling.discard)

        async def subscribe() -> tuple[Any, Any, str]:
            for name in self._arguments:
                await self._declare(connection, name)
            channel: Any = await connection.channel()
            await channel.set_qos(prefetch_count=places)
            queue = await channel.get_queue(CALLS)
            return channel, queue, await queue.consume(take)

        # A RabbitMQ that has just started may leave a consumer without an answer.
        channel, queue, tag = await asyncio.wait_for(subscribe(), 2 * _TIMEOUT_SECONDS)
        consumers: Any = (await channel.get_underlay_channel()).consumers
        started()
        stopped, closed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(channel.closed())
        try:
            while tag in consumers and not (stopped.done() or closed.done()):
                await asyncio.wait({stopped, closed}, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                raise ConnectionError("the connection to RabbitMQ is lost")
            if not stopped.done():
                raise ConnectionError("RabbitMQ has cancelled the consumer")
            await queue.cancel(tag)
            if handling:
                await asyncio.wait(handling)
        finally:
            stopped.cancel()
            closed.cancel()

    async def depths(self) -> QueueDepths:
        """Return the number of messages in both queues; a queue that is not declared yet holds none."""
        return QueueDepths((await self._look(CALLS))[0], (await self._look(DEAD_LETTERS))[0])

    async def worker_count(self) -> int:
        """Return the number of consumers of the queue of calls."""
        return (await self._look(CALLS))[1]

    async def oldest(self) -> None:
        """Return None: RabbitMQ shows no message without delivering it."""
        return

    async def visit_dead_letters(self, most: int, visit: Callable[[DeadLetter], Awaitable[bool]]) -> None:
        """Show dead letters to *visit*, oldest first; those that are not deleted go back into the queue at the end."""
        connection = await self._connection_of_publisher()
        await self._declare(connection, DEAD_LETTERS)
        async with connection.channel() as channel:
            queue = await channel.get_queue(DEAD_LETTERS)
            for _ in range(most):
                message = await queue.get(fail=False)
                if message is None:
                    return
                if await visit(_letter_of(message)):
                    await message.ack()

    async def aclose(self) -> None:
        """Close the connection. The next message opens another one."""
        connection, self._connection, self._publishing = self._connection, None, None
        if connection is not None:
            await _close(connection)

    # --- connections -------------------------------------------------------------------------------------------------

    async def _connect(self) -> AbstractConnection:
        import aio_pika

        _is_ours.set(True)  # the tasks of the connection, which are begun here, inherit it
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_is_of_the_application)
        context = None
        if self.url.startswith("amqps"):  # reads files; verifies the certificate and the name, whatever the URL says
            context = await asyncio.to_thread(ssl.create_default_context)

        class Connection(aio_pika.Connection):
            async def connect(self, timeout: float | None = None) -> None:
                try:
                    await super().connect(timeout)
                except BaseException:
                    await _close(self)
                    raise

        return await aio_pika.connect(
            self.url, connection_class=Connection, ssl_context=context, timeout=_TIMEOUT_SECONDS
        )

    async def _connection_of_publisher(self) -> AbstractConnection:
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._connect()
        return self._connection

    async def _open(self) -> AbstractChannel:
        """Return the channel that publishes, after both queues have been declared."""
        async with self._opening:
            if self._publishing is None or self._publishing.is_closed:
                connection = await self._connection_of_publisher()
                for name in self._arguments:
                    await self._declare(connection, name)
                self._publishing = await connection.channel(on_return_raises=True)
            return self._publishing

    async def _declare(self, connection: AbstractConnection, name: str) -> None:
        """Create a queue, if there is none. One that was declared with other arguments is used as it is."""
        from aio_pika.exceptions import ChannelPreconditionFailed

        try:
            async with connection.channel() as channel:
                await channel.declare_queue(
                    name, durable=True, arguments=self._arguments[name], timeout=_TIMEOUT_SECONDS
                )
        except ChannelPreconditionFailed as error:  # RabbitMQ closes the channel
            faults.warn_once(
                f"fleet: queue {name}",
                "the queue %s of RabbitMQ was declared with other arguments, and is used as it is (%s); delete it when "
                "it is empty",
                name,
                error,
            )

    async def _look(self, name: str) -> tuple[int, int]:
        """Return the number of messages and of consumers of a queue, which need not exist."""
        from aio_pika.exceptions import ChannelNotFoundEntity

        try:
            async with self._opening:
                connection = await self._connection_of_publisher()
            async with connection.channel() as channel:
                found: Any = await channel.declare_queue(name, passive=True, timeout=_TIMEOUT_SECONDS)
                return found.declaration_result.message_count, found.declaration_result.consumer_count
        except ChannelNotFoundEntity:  # RabbitMQ closes the channel
            return 0, 0
        except BaseException:
            await self.aclose()
            raise


class RabbitDelivery:
    """Message that RabbitMQ has delivered to a worker. The methods are those of `ragtrace.fleet.broker.Delivery`."""

    lost_workers = 0

    def __init__(self, broker: RabbitBroker, message: AbstractIncomingMessage) -> None:
        self._broker, self._message = broker, message
        self.id = message.message_id or uuid4().hex
        self.body, self.redelivered = message.body, bool(message.redelivered)

    async def acknowledge(self) -> None:
        """Delete the message; if its connection is lost, RabbitMQ has delivered it again."""
        with suppress(Exception):
            await self._message.ack()

    async def replace(self, text: str) -> None:
        """Put *text* into the queue, and delete the message when RabbitMQ has confirmed that."""
        await self._move(CALLS, _message(text.encode()))

    async def bury(self, letter: DeadLetter) -> None:
        """Put *letter* into the queue of dead letters, and delete the message when RabbitMQ has confirmed that."""
        headers = {_REASON: letter.reason, _DETAIL: letter.detail, _TRIES: letter.tries}
        await self._move(DEAD_LETTERS, _message(letter.body, headers))

    async def _move(self, queue: str, message: Any) -> None:
        (error,) = await self._broker.send(queue, [message])
        if error is not None:
            raise error
        await self.acknowledge()

    async def give_back(self) -> None:
        """Put the message back into the queue, which RabbitMQ counts as a delivery."""
        with suppress(Exception):
            await self._message.nack(requeue=True)


def _is_of_the_application(record: logging.LogRecord) -> bool:
    """Return whether a log record is about a connection that is not one of a fleet.

    The library logs every failure, with a traceback, as often as a publisher tries again; a fleet logs the first one,
    and counts the others.
    """
    return not _is_ours.get()


async def _close(connection: AbstractConnection) -> None:
    """Close a connection, also one to a broker that does not answer.

    The library closes a connection that was not closed when it is collected, which may be on a thread without a loop.
    """
    try:
        with suppress(Exception):
            await asyncio.wait_for(connection.close(), _TIMEOUT_SECONDS)
    finally:  # after a time limit: marks the connection as closed, without waiting for the broker again
        with suppress(Exception):
            await connection.close()


def _message(body: bytes, headers: dict[str, Any] | None = None) -> Any:
    import aio_pika

    return aio_pika.Message(
        body,
        headers=headers,
        content_type="application/json",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=uuid4().hex,  # without an id, a message that comes back would be taken for one that is stored
    )


def _letter_of(message: AbstractIncomingMessage) -> DeadLetter:
    """Return a dead letter of a worker, or one that RabbitMQ has moved, as workers were lost with it."""
    headers: dict[str, Any] = dict(message.headers)
    tries = headers.get(_TRIES, 0)
    return DeadLetter(
        message.body,
        str(headers.get(_REASON, WORKER_LOST if "x-death" in headers else "unknown")),
        str(headers.get(_DETAIL, "")),
        tries if isinstance(tries, int) else 0,
    )
