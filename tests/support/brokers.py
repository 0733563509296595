"""RabbitMQ and Redis as child processes of a test, each with a data folder and ports of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import aio_pika
import redis

from ragtrace.fleet.broker import CALLS, DEAD_LETTERS, MOST_CALLS, DeadLetter, QueueDepths, open_broker
from ragtrace.fleet.broker import Broker as Client
from ragtrace.fleet.call_message import CallMessage, write_message
from ragtrace.fleet.redis_streams import CALLS_KEY
from tests.support.services import free_ports, require, running

T = TypeVar("T")
RABBITMQ: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@dataclass
class Broker:
    """A broker that a test can kill and start again, with the same data and port."""

    url: str
    argv: list[str]
    environ: Mapping[str, str]
    port: int
    folder: Path
    _starts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @contextmanager
    def started(self) -> Iterator[Broker]:
        """Run the broker until the block ends; after `kill`, it may be entered again."""
        self._starts += 1
        log = self.folder / f"broker-{self._starts}.log"
        with running(self.argv, environ=self.environ, log=log, ready=self._ready) as process:
            self.process = process
            yield self

    def kill(self) -> None:
        """Kill the broker with SIGKILL, its children included."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def empty(self) -> None:
        """Delete all keys of a Redis, or the fleet's queues in a RabbitMQ."""
        if self.url.startswith("redis"):
            with redis.Redis.from_url(self.url) as client:
                client.flushall()
            return
        asyncio.run(_delete_queues(self.url))

    def purge(self) -> None:
        """Take all calls out of a queue that clients go on using."""
        if self.url.startswith("redis"):
            self.empty()
        else:
            asyncio.run(_purge_queue(self.url))

    def ask(self, question: Callable[[Client], Awaitable[T]], most_calls: int = MOST_CALLS) -> T:
        """Ask the broker by a client of its own."""
        return ask(self.url, question, most_calls)

    def publish(self, messages: Iterable[CallMessage], most_calls: int = MOST_CALLS) -> list[Exception | None]:
        """Put calls into the queue, and return for each None or why it is not there."""
        texts = [write_message(message) for message in messages]
        return self.ask(lambda client: client.publish(texts), most_calls)

    def depths(self) -> QueueDepths:
        """Return the number of messages in both queues that no worker has."""
        return self.ask(lambda client: client.depths())

    def dead_letters(self) -> list[DeadLetter]:
        """Return all dead letters, which stay in their queue."""
        return dead_letters(self.url)

    def take_all(self) -> list[bytes]:
        """Take all messages out of the queue of calls, in their order."""
        if not self.url.startswith("redis"):
            return asyncio.run(_get_all(self.url))
        with redis.Redis.from_url(self.url) as client:
            found = [fields[b"message"] for _, fields in client.xrange(CALLS_KEY)]
            client.delete(CALLS_KEY)
        return found

    def _ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            if self.url.startswith("redis"):
                return True
            connection.settimeout(1)
            connection.sendall(b"AMQP\x00\x00\x09\x01")  # a broker that is ready begins the handshake
            return connection.recv(1) == b"\x01"
        return False


def ask(url: str, question: Callable[[Client], Awaitable[T]], most_calls: int = MOST_CALLS) -> T:
    """Ask the broker at *url* by a client of its own."""

    async def run() -> T:
        client = open_broker(url, most_calls=most_calls)
        try:
            return await question(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def dead_letters(url: str) -> list[DeadLetter]:
    """Return all dead letters of the broker at *url*, which stay in their queue."""
    found: list[DeadLetter] = []

    async def keep(letter: DeadLetter) -> bool:
        found.append(letter)
        return False

    ask(url, lambda client: client.visit_dead_letters(1_000_000, keep))
    return found


async def _delete_queues(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in (CALLS, DEAD_LETTERS):
            await channel.queue_delete(name)


async def _get_all(url: str) -> list[bytes]:
    async with await aio_pika.connect(url) as connection:
        queue = await (await connection.channel()).get_queue(CALLS)
        found: list[bytes] = []
        while (message := await queue.get(no_ack=True, fail=False)) is not None:
            found.append(message.body)
        return found


async def _purge_queue(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await (await channel.get_queue(CALLS)).purge()


@contextmanager
def redis_broker(folder: Path) -> Iterator[Broker]:
    """Describe a Redis that writes every command to its file before it answers; the block starts it."""
    program = require("redis-server")
    with free_ports(1) as (port,):
        pass
    argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    argv += ["--appendonly", "yes", "--appendfsync", "always"]
    yield Broker(f"redis://127.0.0.1:{port}/0", argv, {}, port, folder)


@contextmanager
def rabbitmq_broker(folder: Path) -> Iterator[Broker]:
    """Describe a RabbitMQ with an `epmd` of its own, which is ended with the block; the block starts the broker."""
    require("rabbitmq-server")
    epmd = require("epmd")
    with free_ports(3) as (port, distribution, mapper):
        pass
    environ = {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"ragtrace{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper),
    }
    mapping = subprocess.Popen(
        [epmd, "-port", str(mapper), "-address", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield Broker(f"amqp://guest:guest@127.0.0.1:{port}//", [str(RABBITMQ)], environ, port, folder)
    finally:
        mapping.terminate()
        mapping.wait()
