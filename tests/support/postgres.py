"""A real PostgreSQL as a child process: a data folder and a port of its own, which a test can restart and freeze."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.monitoring import wait_until
from tests.support.services import free_ports, require, running

_DEBIAN: Final = Path("/usr/lib/postgresql")


@dataclass
class Postgres:
    """A running PostgreSQL, which keeps its data and its port when it is restarted."""

    url: str
    """Of the database, as SQLAlchemy writes it."""
    argv: list[str]
    port: int
    folder: Path
    stack: ExitStack = field(repr=False)
    """Stops the server when its block ends."""
    _starts: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the server, and wait until it answers queries."""
        self._starts += 1
        log = self.folder / f"server-{self._starts}.log"
        self._process = self.stack.enter_context(running(self.argv, environ={}, log=log, ready=self._ready))
        self.stack.callback(self._process.send_signal, signal.SIGINT)  # at SIGTERM it would wait for its clients

    def restart(self) -> None:
        """Kill the server with SIGKILL, its children included, and start it again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)  # so that it starts no other process meanwhile
        parent, *children = self._processes()
        for process in (*children, parent):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()
        # A new server refuses to start while a process of the old one still has its memory.
        wait_until(lambda: not any(map(_lives, children)), 60, "the processes of the killed server are gone")
        self.start()

    def empty(self) -> None:
        """Delete the table of claims."""
        with self._connect() as connection:
            connection.execute("DROP TABLE IF EXISTS ragtrace_claims")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server until the block ends: connections stay open, and nothing answers."""
        processes = self._processes()
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def log(self) -> str:
        """Return what the server has written since it was started last."""
        return (self.folder / f"server-{self._starts}.log").read_text(errors="replace")

    def _processes(self) -> list[int]:
        """Return the server's processes; each has a session of its own, so that no signal to a group reaches them."""
        assert self._process is not None
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]

    def _ready(self) -> bool:
        """Whether the server answers queries: after a kill it recovers first, and refuses connections meanwhile."""
        with suppress(import_module("psycopg").OperationalError):
            self._connect().close()
            return True
        return False

    def _connect(self) -> Any:
        psycopg: Any = import_module("psycopg")
        return psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", connect_timeout=2)


def _lives(process: int) -> bool:
    """Return whether a process has not ended. One that has, and that nobody has asked about, has no memory left."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Make a PostgreSQL with an empty database, and run it until the block ends."""
    pytest.importorskip("psycopg", reason="no psycopg; run: make test")
    initdb, program = _program("initdb"), _program("postgres")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    # The temporary folders of pytest belong to the user who runs it, and PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="ragtrace-postgres-"))
    try:
        if as_user:
            shutil.chown(folder, "postgres", "postgres")
        data, log = folder / "data", folder / "initdb.log"
        made = [*as_user, initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
        with log.open("wb") as output:
            done = subprocess.run(made, stdout=output, stderr=output, cwd=folder)
        assert done.returncode == 0, log.read_text(errors="replace")
        with free_ports(1) as (port,):
            pass
        # Nothing waits for the disk: what a killed server had committed is in the system's memory.
        argv = [*as_user, program, "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
        with ExitStack() as stack:
            server = Postgres(f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres", argv, port, folder, stack)
            server.start()
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    """Return the path of a program of the newest PostgreSQL.

    Debian puts the servers beside PATH and `pg_lsclusters`, which lists them, on it.
    """
    if shutil.which("pg_lsclusters") is None:
        return require(name)
    found = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3].partition(".")[0]))
    return str(found[-1]) if found else require(name)
