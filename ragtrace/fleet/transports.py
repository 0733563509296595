"""Broker connections that publish messages in batches and report for each message whether it was stored.

Celery's `send_task` and kombu's `Producer` send one message at a time and wait for it, which takes more processor time.
The messages are those that they would send: Celery's protocol 2, in Redis in kombu's envelope.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

_PERSISTENT: Final = 2
_PUSH_SCRIPT: Final = """
local room = #ARGV - 1
if ARGV[1] ~= '' then room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1]) end
local pushed = 0
while pushed < room and pushed < #ARGV - 1 do
    pushed = pushed + 1
    redis.call('LPUSH', KEYS[1], ARGV[pushed + 1])
end
return pushed
"""


class Outgoing(NamedTuple):
    """Message that is to be published to a broker."""

    id: str
    body: str
    headers: Mapping[str, object]

    @classmethod
    def task(cls, name: str, **arguments: str) -> Outgoing:
        """Create a message of Celery's protocol 2 that asks a worker to run the task *name*."""
        id = str(uuid4())  # noqa: A001 - its name in the protocol
        headers = {"lang": "py", "task": name, "id": id, "root_id": id, "parent_id": None, "group": None}
        embedded = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'
        return cls(id, f"[[], {json.dumps(arguments)}, {embedded}]", headers)


class Transport(Protocol):
    """Interface of a broker connection that publishes batches of messages."""

    def send(self, queue: str, messages: Sequence[Outgoing], stored: dict[str, bool], most: int | None = None) -> None:
        """Put messages into a queue, and wait until the broker has answered for all of them.

        Args:
            queue: name of the queue.
            messages: the messages.
            stored: is filled with what the broker has answered by a message's id: whether it has stored the message, or
                has refused it because the queue is full.
            most: messages that a queue of Redis may hold; that of RabbitMQ has its own limit.

        Raises:
            Exception: the broker is away; messages without an answer may be in the queue or not.
        """
        ...

    def close(self) -> None:
        """Close the connection to the broker."""


class RabbitTransport:
    """RabbitMQ connection that sends all messages of a batch, then waits for the publisher confirms.

    Args:
        connection: connection of kombu, without its option `confirm_publish`, which waits after each message.
        timeout: seconds to wait for the confirmations of a batch.
    """

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._channel: Any = connection.default_channel
        self._channel.confirm_select()
        self._channel.events["basic_ack"].add(self._on_ack)
        self._channel.events["basic_nack"].add(self._on_nack)
        self._sent = 0
        self._unanswered: dict[int, str] = {}
        """Ids of messages that are neither confirmed nor refused yet, by RabbitMQ's delivery tag."""
        self._stored: dict[str, bool] = {}

    def send(self, queue: str, messages: Sequence[Outgoing], stored: dict[str, bool], most: int | None = None) -> None:
        """Put messages into a queue, and wait until RabbitMQ has confirmed or refused each one."""
        self._stored = stored
        for message in messages:
            self._sent += 1
            self._unanswered[self._sent] = message.id
            properties = {"delivery_mode": _PERSISTENT, "correlation_id": message.id, "reply_to": ""}
            packed = self._channel.prepare_message(
                message.body, 0, "application/json", "utf-8", message.headers, properties
            )
            # Mandatory: a message comes back, and raises, if the queue was deleted meanwhile.
            self._channel.basic_publish(packed, exchange="", routing_key=queue, mandatory=True)
        until = monotonic() + self._timeout
        while self._unanswered:
            self._connection.drain_events(timeout=max(0.001, until - monotonic()))

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self._answer(tag, multiple, stored=True)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self._answer(tag, multiple, stored=False)

    def _answer(self, tag: int, multiple: bool, *, stored: bool) -> None:
        for each in [each for each in self._unanswered if each <= tag] if multiple else [tag]:
            self._stored[self._unanswered.pop(each)] = stored

    def close(self) -> None:
        """Close the connection to RabbitMQ."""
        self._connection.release()


class RedisTransport:
    """Redis connection that adds a batch of messages to a list with one command.

    Messages for which the list has no room are left out.

    Args:
        client: client of redis-py.
        prefix: start of the names of the keys.
    """

    def __init__(self, client: Any, prefix: str) -> None:
        self._client, self._prefix = client, prefix
        self._push: Any = client.register_script(_PUSH_SCRIPT)

    def send(self, queue: str, messages: Sequence[Outgoing], stored: dict[str, bool], most: int | None = None) -> None:
        """Put messages into a queue as long as the queue has room."""
        bodies = [_envelope(message, queue) for message in messages]
        pushed = int(self._push(keys=[self._prefix + queue], args=["" if most is None else most, *bodies]))
        stored.update((message.id, number < pushed) for number, message in enumerate(messages))

    def close(self) -> None:
        """Close the connection to Redis."""
        self._client.close()


def _envelope(message: Outgoing, queue: str) -> str:
    """Encode *message* in kombu's message format for Redis."""
    return json.dumps(
        {
            "body": b64encode(message.body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": message.headers,
            "properties": {
                "correlation_id": message.id,
                "reply_to": "",
                "delivery_mode": _PERSISTENT,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
