"""RabbitMQ and Redis as child processes of a test, each with a data folder and ports of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis

from ragtrace.fleet.broker import CALLS, DEAD_LETTERS, CallBroker
from tests.support.services import free_ports, require, running

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
        with CallBroker(self.url).connect() as connection:
            for name in (CALLS, DEAD_LETTERS):
                connection.default_channel.queue_delete(name)

    def _ready(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            if self.url.startswith("redis"):
                return True
            connection.settimeout(1)
            connection.sendall(b"AMQP\x00\x00\x09\x01")  # a broker that is ready begins the handshake
            return connection.recv(1) == b"\x01"
        return False


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
