"""Folder in which the processes of an application on one machine share their metrics.

Every process keeps a lock on a file of its own while it lives (the system releases it however the process ends) and
writes its metrics beside that file every few seconds. The one process that serves the page adds all of them up. The
counts of an ended process are folded into the past, so no sum ever falls, not even when all processes are restarted.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ragtrace_exporters.openmetrics.snapshot import Snapshot, from_json, to_json, total, without_gauges

try:
    import fcntl
except ImportError:  # Windows: one process
    fcntl = None  # type: ignore[assignment]


def _locked(path: Path) -> IO[bytes] | None:
    """Open and lock the file at *path* until it is closed or this process ends; None: another process has locked it."""
    file = path.open("ab")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


class Folder:
    """Metrics of all processes of the application *service*."""

    def __init__(self, path: Path, service: str) -> None:
        self._path = path
        self._group = hashlib.sha256(service.encode()).hexdigest()[:12]
        self._id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._serving: IO[bytes] | None = None
        # Locked before it has its name: no other process takes it for that of an ended process.
        unnamed = self._file(self._id, "locked")
        self._alive = _locked(unnamed)
        unnamed.rename(self._file(self._id, "alive"))

    @property
    def serves(self) -> bool:
        """Whether this process serves the page."""
        return self._serving is not None

    def try_to_serve(self) -> bool:
        """Reserve the page for this process if no other one serves it; return whether this process serves it."""
        if self._serving is None:
            self._serving = _locked(self._file("page", "serving"))
        return self.serves

    def stop_serving(self) -> None:
        """Leave the page to another process; in a forked child, close only the child's copy of the lock."""
        file, self._serving = self._serving, None
        if file is not None:
            file.close()

    def publish(self, snapshot: Snapshot) -> None:
        """Write *snapshot* for the process that serves the page."""
        self._write(self._file(self._id, "metrics"), to_json(snapshot))

    def total_with(self, own: Snapshot) -> Snapshot:
        """Return the sum of this process's metrics (*own*), those of all other processes, and of ended ones.

        Only the process that serves the page may call it.
        """
        self._fold()
        return total([own, *self._others(), self._past()[0]])

    def read_shown(self) -> set[str]:
        """Return the keys of the series that the page has shown to Prometheus."""
        return set(self._read(self._file("page", "shown")) or ())

    def write_shown(self, series: set[str]) -> None:
        """Write to the folder that the page has shown *series*, by key, to Prometheus."""
        self._write(self._file("page", "shown"), sorted(series))

    def close(self) -> None:
        """Release the locks: this process counts nothing more."""
        self.stop_serving()
        if self._alive is not None:
            self._alive.close()

    def _others(self) -> Iterator[Snapshot]:
        folded = self._past()[1]
        for file in sorted(self._path.glob(f"{self._group}.*.metrics")):
            if self._id_of(file) != self._id and self._id_of(file) not in folded:
                yield _snapshot(self._read(file))

    def _fold(self) -> None:
        """Add the counts of ended processes to the file of past counts, then delete their files.

        A process that is killed in between leaves files whose counts are in the past already, which is known by name.
        """
        past, folded = self._past()
        ended = [file for file in self._path.glob(f"{self._group}.*.alive") if self._has_ended(file)]
        if not ended:
            return
        names = {self._id_of(file) for file in ended}
        more = [_snapshot(self._read(self._file(name, "metrics"))) for name in sorted(names - folded)]
        self._write(self._file("page", "past"), [to_json(total([past, *map(without_gauges, more)])), sorted(names)])
        for name in names:
            for file in (self._file(name, "metrics"), *self._path.glob(f"*.{name}.part")):
                file.unlink(missing_ok=True)
            # Last: if we are killed while deleting, the next process finds that these counts are in the past already.
            self._file(name, "alive").unlink(missing_ok=True)

    def _has_ended(self, file: Path) -> bool:
        if self._id_of(file) == self._id:
            return False
        with suppress(OSError):
            lock = _locked(file)
            if lock is not None:
                lock.close()
                return True
        return False

    def _past(self) -> tuple[Snapshot, set[str]]:
        found = self._read(self._file("page", "past"))
        return (_snapshot(found[0]), set(found[1])) if found else ({}, set())

    def _file(self, name: str, kind: str) -> Path:
        return self._path / f"{self._group}.{name}.{kind}"

    def _id_of(self, file: Path) -> str:
        return file.name.split(".")[1]

    def _read(self, file: Path) -> Any:
        with suppress(OSError, ValueError):
            return json.loads(file.read_bytes())
        return None

    def _write(self, file: Path, content: Any) -> None:
        part = file.with_name(f"{file.name}.{self._id}.part")
        part.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
        part.replace(file)  # at once: no process reads half a file


def _snapshot(content: Any) -> Snapshot:
    try:
        return from_json(content or ())
    except (TypeError, ValueError):
        return {}  # of another release
