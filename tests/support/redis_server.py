"""A real Redis as a child process: memory only, on a free port of 127.0.0.1, stopped by the test."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.services import free_ports, require, running


@contextmanager
def redis_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """Run a Redis whose log is in *folder*, on *port* or a free one; yields its URL."""
    program = require("redis-server")
    if port is None:
        with free_ports(1) as found:
            (port,) = found
    argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running(argv, environ={}, log=folder / "redis.log", ready=lambda: _answers(port)):
        yield f"redis://127.0.0.1:{port}/0"


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
