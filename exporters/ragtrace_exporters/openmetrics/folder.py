"""Where the processes of an application put their metrics together: a folder on their machine.

Every process keeps a lock on a file of its own while it lives (the system lets go of it however the process ends) and
writes its metrics beside it every few seconds. The one process that serves the page adds them up. What an ended process
had counted is folded into the past, so no sum ever falls, not even when all processes are started anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ragtrace.core.errors import SettingsError
from ragtrace_exporters.openmetrics.snapshot import Snapshot, from_json, lasting, to_json, total

try:
    import fcntl
except ImportError:  # Windows: one process
    fcntl = None  # type: ignore[assignment]


class Lock:
    """A lock on a file, held by one process at most; let go when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it."""
        return self._file is not None

    def take(self) -> bool:
        """Take it; whether it is held now."""
        if self._file is not None:
            return True
        file = self._path.open("ab")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Let go of it; in a forked child: of the copy alone."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class Folder:
    """The metrics of the processes of the application *service*."""

    def __init__(self, path: Path, service: str) -> None:
        self._path = path
        self._group = hashlib.sha256(service.encode()).hexdigest()[:12]
        self._id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.serving = Lock(self._file("page", "serving"))
        # Locked before it has its name: nobody takes it for that of an ended process.
        unnamed = self._file(self._id, "locked")
        self.alive = Lock(unnamed)
        self.alive.take()
        unnamed.rename(self._file(self._id, "alive"))

    def publish(self, snapshot: Snapshot) -> None:
        """Let the process that serves the page know of *snapshot*."""
        self._write(self._file(self._id, "metrics"), to_json(snapshot))

    def together(self, own: Snapshot) -> Snapshot:
        """The sum over this process, all others, and those that have ended. For the process that serves alone."""
        self._fold()
        return total([own, *self._others(), self._past()[0]])

    def shown(self) -> set[str]:
        """The series that were on the page before."""
        return set(self._read(self._file("page", "shown")) or ())

    def show(self, series: set[str]) -> None:
        """Remember them."""
        self._write(self._file("page", "shown"), sorted(series))

    def close(self) -> None:
        """This process counts no more."""
        self.serving.release()
        self.alive.release()

    def _others(self) -> Iterator[Snapshot]:
        folded = self._past()[1]
        for file in sorted(self._path.glob(f"{self._group}.*.metrics")):
            if self._id_of(file) != self._id and self._id_of(file) not in folded:
                yield _snapshot(self._read(file))

    def _fold(self) -> None:
        """Add what the ended had counted to the past. The past is written first: nothing counts twice or not at all."""
        past, folded = self._past()
        ended = [file for file in self._path.glob(f"{self._group}.*.alive") if self._has_ended(file)]
        if not ended:
            return
        names = {self._id_of(file) for file in ended}
        more = [_snapshot(self._read(self._file(name, "metrics"))) for name in sorted(names - folded)]
        self._write(self._file("page", "past"), [to_json(total([past, *map(lasting, more)])), sorted(names)])
        for name in names:
            for file in (self._file(name, "metrics"), *self._path.glob(f"*.{name}.part")):
                file.unlink(missing_ok=True)
            # Last: of one that we are killed while deleting, the next to do this finds that it is in the past already.
            self._file(name, "alive").unlink(missing_ok=True)

    def _has_ended(self, file: Path) -> bool:
        if self._id_of(file) == self._id:
            return False
        lock = Lock(file)
        try:
            return lock.take()
        except OSError:
            return False
        finally:
            lock.release()

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
        part.replace(file)  # at once: nobody reads half a file


def _snapshot(content: Any) -> Snapshot:
    try:
        return from_json(content or ())
    except (TypeError, ValueError):
        return {}  # of another release


def is_private(path: Path) -> bool:
    """Return whether *path* is missing, or a folder of this user that nobody else can write to; a link is neither.

    Raises:
        OSError: *path* cannot be looked at.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (
        found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def prepared(path: Path, origin: str) -> Path:
    """Make *path* a folder that only this user can write to, and return it.

    Raises:
        SettingsError: it cannot be one.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(path):
            raise PermissionError("it is a link, or others own it or can write to it")
    except OSError as error:
        raise SettingsError(
            f"the processes of this application put their metrics together in {path} ({origin}), which cannot be: "
            f"{error}; set RAGTRACE_PROMETHEUS_DIR to a folder of your own"
        ) from error
    return path
