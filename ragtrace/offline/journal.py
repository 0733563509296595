"""`Journal`: what has been judged so far, on disk, so that a run that is killed goes on where it was.

A file of JSON Lines that is only appended to, in the order in which calls are finished: a header that says what is
judged how, then one entry a call, `{"key": ..., "again": ..., "row": ...}`. An entry goes to the operating system in
one write as soon as its call is judged, so that a killed process loses nothing but the calls in flight, and to the disk
once a second, which bounds what a power failure costs. The last entry may be torn; it is cut off and its call judged
again. In memory is a few dozen bytes for each line of the input.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

from ragtrace.core.errors import SettingsError
from ragtrace.offline.rows import Row, encoded

_SYNC_EVERY_S: Final = 1.0
_NOWHERE: Final = -1


class Journal:
    """The journal of one run, open for as long as it is entered.

    Args:
        header: what must be the same for a run to be continued.
        restart: forget what is there.

    Raises:
        SettingsError: the journal is of other metrics or another judge, or another process is writing it.
        OSError: it cannot be read or written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], *, restart: bool = False) -> None:
        self._path, self._header = path, header
        self._offsets = array("q")
        """By line number."""
        self._keys = array("Q")
        self._current = bytearray()
        """Whether the line, as it is now, has this entry."""
        self._lines_by_key: dict[int, int] = {}
        self._synced = monotonic()
        self._file = _opened(path)
        # Writing is unbuffered, so that nothing is lost with the process; reading that way would be byte by byte.
        self._reader = path.open("rb")
        try:
            _lock(self._file, path)
            if restart:
                self._file.truncate(0)
            self._load()
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._reader.close()
        self._file.close()

    def has(self, number: int, key: bytes) -> bool:
        """Whether line *number* has been judged, and described the same call then."""
        if number >= len(self._offsets) or self._offsets[number] == _NOWHERE or self._keys[number] != _short(key):
            return False
        self._current[number] = True
        return True

    def twin(self, key: bytes) -> Row | None:
        """The row of another line that describes the same call, if there is one."""
        number = self._lines_by_key.get(_short(key))
        if number is None:
            return None
        entry = self._entry(number)
        return entry["row"] if entry["key"] == key.hex() else None

    def add(self, key: bytes, row: Row, *, again: bool = False) -> None:
        """Write down that a line has been judged.

        Args:
            again: it failed for a reason that may pass: a later run judges it again.
        """
        offset = self._file.seek(0, os.SEEK_END)
        try:
            _write(self._file, encoded({"key": key.hex(), "again": again, "row": row}))
        except OSError:
            self._file.truncate(offset)  # half an entry would spoil the next one
            raise
        self._remember(row["line"], key.hex(), offset, again=again)
        self._current[row["line"]] = True
        if monotonic() - self._synced >= _SYNC_EVERY_S:
            os.fsync(self._file.fileno())
            self._synced = monotonic()

    def rows(self) -> Iterator[Row]:
        """The rows of the lines that this run has seen, in the order of the input."""
        for number, current in enumerate(self._current):
            if current:
                yield self._entry(number)["row"]

    def remove(self) -> None:
        """Nothing is left to go on with."""
        self._path.unlink(missing_ok=True)

    def _entry(self, number: int) -> dict[str, Any]:
        self._reader.seek(self._offsets[number])
        entry: dict[str, Any] = json.loads(self._reader.readline())
        return entry

    def _load(self) -> None:
        """Read what is there, cut off a torn end, and write the header if there is none."""
        first = self._reader.readline()
        if not first.endswith(b"\n"):  # empty, or killed while the header was being written
            self._file.truncate(0)
            self._reader.seek(0)  # which forgets what it has read ahead
            _write(self._file, encoded(self._header))
            return
        self._check_header(first)
        offset = len(first)
        for raw in self._reader:
            if not raw.endswith(b"\n"):
                self._file.truncate(offset)
                break
            self._load_entry(raw, offset)
            offset += len(raw)

    def _check_header(self, raw: bytes) -> None:
        try:
            found: object = json.loads(raw)
        except ValueError:
            found = None
        if found != json.loads(encoded(self._header)):
            raise SettingsError(
                f"{self._path} is the journal of a run that is not this one: it says {_said(found)}, this run is "
                f"{_said(self._header)}; give the same options to go on with it, or --restart to judge all anew"
            )

    def _load_entry(self, raw: bytes, offset: int) -> None:
        try:
            entry = json.loads(raw)
            if not entry["again"]:
                self._remember(entry["row"]["line"], entry["key"], offset, again=False)
        except (ValueError, KeyError, TypeError):  # damaged on disk: its line is judged again
            return

    def _remember(self, number: int, key: str, offset: int, *, again: bool) -> None:
        missing = number + 1 - len(self._offsets)
        if missing > 0:
            self._offsets.extend([_NOWHERE] * missing)
            self._keys.extend([0] * missing)
            self._current.extend(bytes(missing))
        short = _short(bytes.fromhex(key))
        self._offsets[number], self._keys[number] = offset, short
        if not again:
            self._lines_by_key.setdefault(short, number)


def _short(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def _said(header: object) -> str:
    return json.dumps(header, ensure_ascii=False) if isinstance(header, Mapping) else "nothing readable"


def _opened(path: Path) -> IO[bytes]:
    """Open for reading and writing, unbuffered; made if missing, and left as it is if not."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+b", buffering=0)


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of *data*: a full disk takes a part of it and says so only at the next attempt."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes out until this one ends; where the system has no such locks, nobody is kept out."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingsError(f"{path} is being written by another run; wait for it, or choose another output") from None
