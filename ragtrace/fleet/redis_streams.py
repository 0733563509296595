"""Redis as the broker of a fleet: a stream of calls with a consumer group, and a stream of dead letters.

A worker is a consumer of the group. Redis gives an entry to one consumer, and keeps it until that one has acknowledged
it. A worker renews its entries every second; another one claims those that nobody has renewed for ten seconds.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any, Final, cast
from uuid import uuid4

from ragtrace.fleet.broker import MOST_CALLS, DeadLetter, Handle, QueueDepths, QueueFullError
from ragtrace.system.faults import faults

REDIS_PREFIX: Final = "ragtrace:"
"""Prefix of all keys in Redis."""
CALLS_KEY: Final = f"{REDIS_PREFIX}calls"
"""Key of the stream of calls that are to be judged or are being judged."""
DEAD_LETTERS_KEY: Final = f"{REDIS_PREFIX}dead_letters"
GROUP: Final = "workers"
"""Name of the consumer group of the stream of calls."""
HOLD_SECONDS: Final = 10.0
"""Time after which Redis gives a call to another worker, unless the holder renews the hold on the call."""
_RENEWAL_SECONDS: Final = 1.0
_SETTLING_SECONDS: Final = 0.25
"""Pause between two deletions of acknowledged entries, so that one deletes many."""
_BLOCK_SECONDS: Final = 0.5
"""Time for which Redis lets a worker wait for a call. A worker that ends waits as long."""
_PAUSE_SECONDS: Final = 1.0
"""Pause before a worker tries again, when Redis does not answer."""
_TIMEOUT_SECONDS: Final = 5.0
_ALIVE_SECONDS: Final = HOLD_SECONDS
"""Time since its last command for which a worker counts as alive: for as long, its calls are not given to another."""
_FORGOTTEN_MS: Final = 3_600_000
"""Time in milliseconds after which the consumer of a worker that was killed is deleted."""
_MOST_AT_ONCE: Final = 16
"""Most calls that a worker takes from the queue in one step; taking more would leave other workers without calls."""
_BODY: Final = b"message"
_KEEPING: Final = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")
"""Settings of Redis that decide whether it keeps what is in its queues."""

# Entries that workers hold are in the stream, too, but take no place of the queue.
_PUBLISH_SCRIPT: Final = """
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1])
local room = tonumber(ARGV[2]) - redis.call('XLEN', KEYS[1]) + (held.err and 0 or held[1])
local stored = 0
while stored < room and stored < #ARGV - 2 do
    stored = stored + 1
    redis.call('XADD', KEYS[1], '*', 'message', ARGV[stored + 2])
end
return stored
"""
# A worker that was paused must not take back, or delete, what another one has claimed meanwhile: each of these scripts
# looks first who holds an entry.
_RENEWAL_SCRIPT: Final = """
for i = 3, #ARGV do
    local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
    if held and held[2] == ARGV[2] then
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    end
end
"""
_SETTLING_SCRIPT: Final = """
for i = 3, #ARGV do
    local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
    if held and held[2] == ARGV[2] then
        redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
        redis.call('XDEL', KEYS[1], ARGV[i])
    end
end
"""
_MOVE_SCRIPT: Final = """
local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
if held and held[2] == ARGV[2] then
    redis.call('XADD', KEYS[2], '*', unpack(ARGV, 4))
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
    redis.call('XDEL', KEYS[1], ARGV[3])
end
"""
# Deleting a consumer would lose the entries that it holds.
_FORGETTING_SCRIPT: Final = """
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local consumer = {}
    for i = 1, #fields, 2 do consumer[fields[i]] = fields[i + 1] end
    local ended = consumer['name'] == ARGV[2] or consumer['idle'] > tonumber(ARGV[3])
    if ended and consumer['pending'] == 0 then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
    end
end
"""


def redis_risks(settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the Redis settings that can lose queued calls, each with an explanation and advice."""
    risks: list[tuple[str, str]] = []
    if settings.get("appendonly") == "no":
        lost = "calls that wait are lost when Redis restarts, with snapshots those since the last one"
        risks.append(("appendonly no", f"{lost}: set appendonly yes and appendfsync always"))
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory") != "0":  # without a limit nothing is deleted
        keys = "the claims of calls, which are then judged twice," if policy.startswith("volatile") else "the queue"
        lost = f"Redis deletes keys, {keys} among them, when its memory is full"
        risks.append((f"maxmemory-policy {policy}", f"{lost}: set maxmemory-policy noeviction"))
    return risks


class RedisBroker:
    """Client of a fleet's Redis. The methods are those of `ragtrace.fleet.broker.Broker`.

    Args:
        url: `redis://` or `rediss://`; the certificate of the latter and the name in it are verified.
        most_calls: calls that the queue holds at most, those that workers hold not counted.
    """

    def __init__(self, url: str, most_calls: int = MOST_CALLS) -> None:
        self.url, self._most_calls = url, most_calls
        self._opened: Any = None

    @property
    def client(self) -> Any:
        """Client of redis-py, which connects on first use."""
        if self._opened is None:
            library, retries, backoffs = map(import_module, ("redis.asyncio", "redis.asyncio.retry", "redis.backoff"))
            self._opened = library.Redis.from_url(
                self.url,
                socket_timeout=_TIMEOUT_SECONDS,
                socket_connect_timeout=_TIMEOUT_SECONDS,
                # Whoever calls decides what happens next: a message that is sent again would be stored twice.
                retry=retries.Retry(backoffs.NoBackoff(), 0),
                protocol=2,  # the replies of the other protocol have other shapes
            )
        return self._opened

    async def publish(self, texts: Sequence[str]) -> list[Exception | None]:
        """Put messages into the queue of calls as long as it has room."""
        try:
            stored = int(await self.client.eval(_PUBLISH_SCRIPT, 1, CALLS_KEY, GROUP, self._most_calls, *texts))
        except Exception as error:
            return [error] * len(texts)
        full = QueueFullError(f"the queue {CALLS_KEY} is full")
        return [None if number < stored else full for number in range(len(texts))]

    async def consume(self, places: int, handle: Handle, stop: asyncio.Event, started: Callable[[], object]) -> None:
        """Have calls of the queue handled until *stop* is set, then wait until those that were taken are handled."""
        await _Consumer(self.client, places, handle).run(stop, started)

    async def depths(self) -> QueueDepths:
        """Return the number of messages in both queues, those that workers hold not counted."""
        async with self.client.pipeline(transaction=False) as pipe:
            pipe.xlen(CALLS_KEY)
            pipe.xlen(DEAD_LETTERS_KEY)
            pipe.xpending(CALLS_KEY, GROUP)
            calls, dead_letters, held = await pipe.execute(raise_on_error=False)
        for found in (calls, dead_letters):
            if isinstance(found, Exception):
                raise found
        # There is no group before the first worker has started.
        return QueueDepths(max(0, calls - (0 if isinstance(held, Exception) else held["pending"])), dead_letters)

    async def worker_count(self) -> int:
        """Return the number of consumers of the group that have sent a command in the last seconds."""
        consumers = await self._of_group(self.client.xinfo_consumers(CALLS_KEY, GROUP))
        return sum(each["idle"] < _ALIVE_SECONDS * 1000 for each in consumers)

    async def oldest(self) -> bytes | None:
        """Return the message that has waited longest in the queue of calls, or None if the queue is empty."""
        groups = await self._of_group(self.client.xinfo_groups(CALLS_KEY))
        delivered = next((each["last-delivered-id"] for each in groups if each["name"] == GROUP.encode()), b"0-0")
        found = await self.client.xrange(CALLS_KEY, min=b"(" + delivered, count=1)
        return found[0][1].get(_BODY) if found else None

    @staticmethod
    async def _of_group(asked: Awaitable[Any]) -> list[dict[str, Any]]:
        """Return what Redis tells about the stream's group, or nothing if there is no stream or no group yet."""
        errors: Any = import_module("redis.exceptions")
        try:
            return cast("list[dict[str, Any]]", await asked)
        except errors.ResponseError:
            return []

    async def visit_dead_letters(self, most: int, visit: Callable[[DeadLetter], Awaitable[bool]]) -> None:
        """Show dead letters to *visit*, oldest first, and delete those for which it returns True."""
        after = b"-"
        for _ in range(most):
            found = await self.client.xrange(DEAD_LETTERS_KEY, min=after, count=1)
            if not found:
                return
            id_, fields = found[0]
            after = b"(" + id_
            if await visit(_letter_of(fields)):
                await self.client.xdel(DEAD_LETTERS_KEY, id_)

    async def settings(self) -> dict[str, str]:
        """Return the settings that decide whether Redis keeps queued calls.

        Those that Redis does not show are missing: managed ones often refuse `CONFIG GET`.
        """
        errors: Any = import_module("redis.exceptions")
        try:
            found = {**await self.client.config_get("append*"), **await self.client.config_get("maxmemory*")}
        except errors.ResponseError:
            return {}
        texts = {_text(name): _text(value) for name, value in found.items()}
        return {name: texts[name] for name in _KEEPING if name in texts}

    async def ping(self) -> None:
        """Ask Redis for an answer."""
        await self.client.ping()

    async def aclose(self) -> None:
        """Close the connections to Redis."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(Exception):
                await opened.aclose()


class _Consumer:
    """Consumer of the stream of calls: takes entries, renews its hold on them, and deletes those that are settled.

    Args:
        client: the client of Redis.
        places: calls that are handled at a time.
        handle: handles a call.
    """

    def __init__(self, client: Any, places: int, handle: Handle) -> None:
        self._client, self._places, self._handle = client, places, handle
        self._name = f"{socket.gethostname()}-{uuid4().hex[:12]}"
        self._handling: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self.held: set[bytes] = set()
        """Ids of the entries that are renewed."""
        self.settled: set[bytes] = set()
        """Ids of the entries that are to be deleted."""
        self._renewed = self._looked_at_others = 0.0
        self._looks_at_others_from = 0.0

    async def run(self, stop: asyncio.Event, started: Callable[[], object]) -> None:
        """Take and handle calls until *stop* is set, then wait until those that were taken are handled."""
        ended = asyncio.Event()
        keeping = asyncio.ensure_future(self._keep(ended))
        try:
            while not stop.is_set():
                try:
                    await self._begin()
                    started()
                    while not stop.is_set():
                        await self._take(stop)
                except Exception as error:
                    self._note_failure(error)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(stop.wait(), _PAUSE_SECONDS)
            if self._handling:
                await asyncio.wait(self._handling)
        finally:
            ended.set()
            await keeping

    def _note_failure(self, error: Exception) -> None:
        faults.warn_once(
            "fleet: taking calls",
            "the broker of the fleet delivers no calls (%s): the worker tries again every second; every further "
            "failure is counted in ragtrace.stats().faults",
            type(error).__name__,
        )
        # Calls of the other workers look abandoned now, as these workers could not renew their holds either.
        self._looks_at_others_from = monotonic() + HOLD_SECONDS

    async def _begin(self) -> None:
        """Create the consumer group, if there is none, and delete the consumers of workers that are long gone."""
        errors: Any = import_module("redis.exceptions")
        try:
            await self._client.xgroup_create(CALLS_KEY, GROUP, id="0", mkstream=True)
        except errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        await self._client.xgroup_createconsumer(CALLS_KEY, GROUP, self._name)  # it counts as a worker from here on
        await self._client.eval(_FORGETTING_SCRIPT, 1, CALLS_KEY, GROUP, "", _FORGOTTEN_MS)

    async def _take(self, stop: asyncio.Event) -> None:
        """Take as many calls as there is room for: those of workers that are gone, then those of the queue."""
        self._freed.clear()
        room = min(self._places - len(self._handling), _MOST_AT_ONCE)
        if room <= 0:
            stopped, freed = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._freed.wait())
            await asyncio.wait({stopped, freed}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            freed.cancel()
            return
        now = monotonic()
        if now >= max(self._looks_at_others_from, self._looked_at_others + _RENEWAL_SECONDS):
            self._looked_at_others = now
            room -= await self._take_abandoned(room)
        if room:
            found = await self._client.xreadgroup(
                GROUP, self._name, {CALLS_KEY: ">"}, count=room, block=int(_BLOCK_SECONDS * 1000)
            )
            for id_, fields in found[0][1] if found else ():
                self._begin_to_handle(id_, fields, 0)

    async def _take_abandoned(self, most: int) -> int:
        """Claim calls that nobody has renewed, and return their number."""
        idle_ms = int(HOLD_SECONDS * 1000)
        abandoned = await self._client.xpending_range(CALLS_KEY, GROUP, min="-", max="+", count=most, idle=idle_ms)
        if not abandoned:
            return 0
        deliveries = {each["message_id"]: int(each["times_delivered"]) for each in abandoned}
        # Redis leaves out those that another worker has claimed in between.
        claimed = await self._client.xclaim(CALLS_KEY, GROUP, self._name, idle_ms, list(deliveries))
        found = {id_: fields for id_, fields in claimed if id_ is not None}
        if len(found) < len(claimed):  # before version 7, an entry that was deleted stays pending
            missing = deliveries.keys() - found.keys()
            gone = [id_ for id_ in missing if not await self._client.xrange(CALLS_KEY, id_, id_)]
            await self._client.xack(CALLS_KEY, GROUP, *gone)
        for id_, fields in found.items():
            self._begin_to_handle(id_, fields, deliveries[id_])
        return len(found)

    def _begin_to_handle(self, id_: bytes, fields: Mapping[bytes, bytes], lost_workers: int) -> None:
        self.held.add(id_)
        delivery = RedisDelivery(self, id_, _body_of(fields), lost_workers)
        task = asyncio.ensure_future(self._handle(delivery))
        self._handling.add(task)
        task.add_done_callback(partial(self._end, id_))

    def _end(self, id_: bytes, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self.held.discard(id_)
        self._freed.set()

    async def _keep(self, ended: asyncio.Event) -> None:
        """Renew the held entries every second, and delete the settled ones, until *ended* is set."""
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), _SETTLING_SECONDS)
            last = ended.is_set()
            try:
                await self._delete_settled()
                if self.held and monotonic() >= self._renewed + _RENEWAL_SECONDS:
                    self._renewed = monotonic()
                    await self._client.eval(_RENEWAL_SCRIPT, 1, CALLS_KEY, GROUP, self._name, *self.held)
                if last:
                    await self._client.eval(_FORGETTING_SCRIPT, 1, CALLS_KEY, GROUP, self._name, _FORGOTTEN_MS)
            except Exception as error:
                self._note_failure(error)
            if last:
                return

    async def _delete_settled(self) -> None:
        settled = list(self.settled)
        if settled:
            await self._client.eval(_SETTLING_SCRIPT, 1, CALLS_KEY, GROUP, self._name, *settled)
            self.settled.difference_update(settled)

    async def move(self, id_: bytes, key: str, *fields: bytes | str | int) -> None:
        """Add an entry to the stream at *key* in place of the entry *id_* of the stream of calls, in one step."""
        await self._client.eval(_MOVE_SCRIPT, 2, CALLS_KEY, key, GROUP, self._name, id_, *fields)


class RedisDelivery:
    """Entry that a worker has taken from Redis. The methods are those of `ragtrace.fleet.broker.Delivery`."""

    def __init__(self, consumer: _Consumer, id_: bytes, body: bytes, lost_workers: int) -> None:
        self._consumer, self._id = consumer, id_
        self.id, self.body = id_.decode(), body
        self.redelivered, self.lost_workers = lost_workers > 0, lost_workers

    async def acknowledge(self) -> None:
        """Delete the entry within a fraction of a second, or when Redis answers again."""
        self._consumer.settled.add(self._id)

    async def replace(self, text: str) -> None:
        """Put *text* into the queue in place of the entry, even if the queue is full."""
        await self._consumer.move(self._id, CALLS_KEY, _BODY, text)

    async def bury(self, letter: DeadLetter) -> None:
        """Put *letter* into the stream of dead letters in place of the entry."""
        described = ("reason", letter.reason, "detail", letter.detail, "tries", letter.tries)
        await self._consumer.move(self._id, DEAD_LETTERS_KEY, *described, _BODY, letter.body)

    async def give_back(self) -> None:
        """Renew the entry no longer: another worker claims it."""
        self._consumer.held.discard(self._id)


def _body_of(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the message in a stream entry, or all fields of an entry that is not one of ragtrace's, joined."""
    return fields[_BODY] if _BODY in fields else b" ".join(part for pair in fields.items() for part in pair)


def _letter_of(fields: Mapping[bytes, bytes]) -> DeadLetter:
    tries = _text(fields.get(b"tries", b"0"))
    return DeadLetter(
        _body_of(fields),
        _text(fields.get(b"reason", b"unknown")),
        _text(fields.get(b"detail", b"")),
        int(tries) if tries.isdecimal() else 0,
    )


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
