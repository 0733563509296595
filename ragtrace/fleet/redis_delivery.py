"""Delivery of RAG calls from a Redis queue, without loss even if a worker, or Redis itself, is killed.

kombu's own transport takes a message out of Redis, and notes in a second step that a worker has it. Another worker gets
it after a fixed time, whether or not the first one lives. Here Redis moves a message in one step, and a worker renews
its hold of its calls as long as it lives.
"""

from __future__ import annotations

import json
import threading
from importlib import import_module
from queue import Empty
from time import monotonic
from typing import Any, ClassVar, Final
from uuid import uuid4

from ragtrace.fleet.broker import CALLS, HOLD_SECONDS, REDIS_PREFIX, WORKER_NAME, CallBroker
from ragtrace.system.faults import faults

_kombu: Any = import_module("kombu.transport")
_redis: Any = import_module("kombu.transport.redis")
_virtual: Any = import_module("kombu.transport.virtual")

_RENEWAL_SECONDS: Final = 1.0
_NEVER_SECONDS: Final = 1e9
_MOST_AT_ONCE: Final = 16
"""Most calls that a worker takes from the queue in one step; taking more would leave other workers without calls."""
_WAITING: Final = f"{REDIS_PREFIX}{CALLS}"
_MOVING: Final = f"{REDIS_PREFIX}moving"
"""Key of the list of messages that Redis has sent to a worker and that the worker does not hold yet."""
_HELD: Final = f"{REDIS_PREFIX}held"
"""Key of the sorted set of deliveries that workers hold, by the time of their last renewal."""
_MESSAGES: Final = f"{REDIS_PREFIX}held_messages"
"""Key of the hash with the message of each held delivery, as taken from the queue."""
# The scripts use the time of Redis, as the clocks of the workers may differ.
# Beside the moved message, this script takes at most a sixteenth of the queue, so that workers share a short queue.
_TAKE_SCRIPT: Final = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then return {} end
local items = {ARGV[1]}
for i = 3, math.min(#ARGV, 2 + math.floor(redis.call('LLEN', KEYS[2]) / 16)) do
    local item = redis.call('RPOP', KEYS[2])
    if not item then break end
    items[i - 1] = item
end
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
for i, item in ipairs(items) do
    redis.call('ZADD', KEYS[3], now, ARGV[i + 1])
    redis.call('HSET', KEYS[4], ARGV[i + 1], item)
end
return items
"""
# A message whose worker is gone goes back with the key "redelivered" in front. One that goes back again has the key
# twice, which decoders of JSON accept.
_RENEWAL_SCRIPT: Final = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now, ARGV[i]) end
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1])) do
    local message = redis.call('HGET', KEYS[2], tag)
    if message then redis.call('RPUSH', KEYS[3], (string.gsub(message, '^{', '{"redelivered": true, '))) end
    redis.call('ZREM', KEYS[1], tag)
    redis.call('HDEL', KEYS[2], tag)
end
return redis.call('LRANGE', KEYS[4], 0, -1)
"""
# A message that no worker has noted yet goes back as it is.
_PUT_BACK_SCRIPT: Final = """
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[1]) end
"""


class HeldCalls:
    """Thread that tells Redis every second which delivered calls this worker is still judging.

    It also puts the calls of dead workers back into the queue.

    It does not depend on Celery's loop, which stands still while a worker ends or connects anew.

    Args:
        broker: the broker, a Redis.
        most_seconds: longest time for which a call is renewed.
    """

    def __init__(self, broker: CallBroker, most_seconds: float) -> None:
        self._redis, self._most_seconds = broker.redis(), most_seconds
        self._lock = threading.Lock()
        self._held: dict[str, float] = {}
        self._released: set[str] = set()
        self._returned: set[str] = set()
        self._moving: dict[bytes, float] = {}
        self._looks_after_others_from = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ragtrace-fleet-held", daemon=True)

    def start(self) -> None:
        """Start the thread that keeps delivered calls registered in Redis."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop the thread within *timeout* seconds, and requeue the calls that this worker has not finished."""
        self._stopped.set()
        self._thread.join(timeout)

    def take(self, item: bytes, most: int) -> list[tuple[str, bytes]]:
        """Take messages from the Redis queue for this worker, beginning with *item*.

        Args:
            item: the moved message, as it is in Redis.
            most: largest number of messages to take.

        Returns:
            The tag and the message of each delivery; none if another worker has put *item* back meanwhile.
        """
        tags = [str(uuid4()) for _ in range(most)]
        keys = (_MOVING, _WAITING, _HELD, _MESSAGES)
        deliveries = list(zip(tags, self._redis.eval(_TAKE_SCRIPT, len(keys), *keys, item, *tags), strict=False))
        now = monotonic()
        with self._lock:
            self._held.update((tag, now) for tag, _ in deliveries)
        return deliveries

    def release(self, tag: str, *, put_back: bool = False) -> None:
        """Release a delivery, so that its message is deleted or put back into the queue within a second."""
        with self._lock:
            if self._held.pop(tag, None) is not None:
                (self._returned if put_back else self._released).add(tag)

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._stopped.wait(_RENEWAL_SECONDS)
            with self._lock:
                if ended:
                    self._returned.update(self._held)
                    self._held.clear()
                latest = monotonic() - self._most_seconds
                renewed = [tag for tag, since in self._held.items() if since > latest]
                released, returned = list(self._released), list(self._returned)
            try:
                self._update(renewed, released, returned)
            except Exception as error:
                faults.record("fleet: renewing of calls in Redis", error)
                # Calls of the other workers look abandoned now, as these workers could not renew their holds either.
                self._looks_after_others_from = monotonic() + HOLD_SECONDS
            else:
                with self._lock:
                    self._released.difference_update(released)
                    self._returned.difference_update(returned)

    def _update(self, renewed: list[str], released: list[str], returned: list[str]) -> None:
        now = monotonic()
        expiry = HOLD_SECONDS if now >= self._looks_after_others_from else _NEVER_SECONDS
        keys = (_HELD, _MESSAGES, _WAITING, _MOVING)
        with self._redis.pipeline() as pipe:
            if released:
                pipe.zrem(_HELD, *released)
                pipe.hdel(_MESSAGES, *released)
            if returned:  # sets the time of an existing entry to 0, so that the script finds the call abandoned
                pipe.zadd(_HELD, dict.fromkeys(returned, 0), xx=True)
            pipe.eval(_RENEWAL_SCRIPT, 4, *keys, expiry, *renewed)
            moving: list[bytes] = pipe.execute()[-1]
        self._moving = {item: self._moving.get(item, now) for item in moving}
        for item, since in self._moving.items():
            if now - since >= HOLD_SECONDS:
                self._redis.eval(_PUT_BACK_SCRIPT, 2, _MOVING, _WAITING, item)


class CallQoS(_virtual.QoS):  # type: ignore[misc]
    """Unacknowledged deliveries of a kombu channel, which are registered in Redis by `HeldCalls`."""

    restore_at_shutdown = False  # a channel also ends with its connection, while its calls are still being judged

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a delivery, so that its message is deleted."""
        qos: Any = super()
        self.channel.held.release(delivery_tag)
        qos.ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a delivery, so that its message is deleted or put back into the queue."""
        qos: Any = super()
        self.channel.held.release(delivery_tag, put_back=requeue)
        qos.ack(delivery_tag)


class CallChannel(_redis.Channel):  # type: ignore[misc]
    """kombu channel of a worker to Redis, which takes calls out of the queue in one atomic step."""

    QoS = CallQoS
    client_name = WORKER_NAME
    held: ClassVar[HeldCalls]
    _moves = False

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Ask Redis to move the next call from the queue to the list of calls in delivery."""
        self._moves = self.active_queues == [CALLS]
        if not self._moves:  # another queue, for the replies of remote control
            channel: Any = super()
            channel._brpop_start(timeout)
            return
        connection = self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        connection.send_command("BLMOVE", _WAITING, _MOVING, "RIGHT", "LEFT", timeout or self.brpop_timeout)

    def _brpop_read(self, **options: Any) -> bool:
        """Deliver the call that Redis has moved out of the queue, and further ones if the worker has room."""
        if not self._moves:
            channel: Any = super()
            return bool(channel._brpop_read(**options))
        connection = self.client.connection
        try:
            item: bytes | None = self.client.parse_response(connection, "BLMOVE", **options)
        except self.connection_errors:
            connection.disconnect()  # the next round of the event loop connects again
            raise
        finally:
            self._in_poll = None
        if item is None:
            raise Empty
        deliveries = self.held.take(item, min(self.qos.can_consume_max_estimate() or 1, _MOST_AT_ONCE))
        if not deliveries:
            raise Empty
        for tag, taken in deliveries:
            self.connection._deliver(self._read(taken, tag), CALLS)
        return True

    def _read(self, item: bytes, tag: str) -> dict[str, Any]:
        """Decode a Redis entry as a kombu message.

        If it cannot be decoded, its raw text becomes the body of the message.
        """
        try:
            message: dict[str, Any] = json.loads(item)
            properties: dict[str, Any] = message["properties"]
            # The tag in the message is the same at each delivery.
            properties["delivery_tag"], properties["delivery_info"] = tag, dict(properties.get("delivery_info") or {})
            if message.get("redelivered") is True:
                properties["delivery_info"]["redelivered"] = True
            self.Message(message, channel=self)
        except Exception:
            text = item.decode("utf-8", "backslashreplace")
            message = {"body": text, "headers": {}, "properties": {"delivery_tag": tag, "delivery_info": {}}}
        return message


class CallTransport(_redis.Transport):  # type: ignore[misc]
    """kombu transport for the workers of a fleet with Redis as broker."""

    Channel = CallChannel


def use_held_calls(held: HeldCalls) -> None:
    """Make Celery use `CallTransport` for Redis, with *held* as the record of delivered calls."""
    CallChannel.held = held
    path = f"{__name__}:{CallTransport.__name__}"
    _kombu.TRANSPORT_ALIASES.update(redis=path, rediss=path)
