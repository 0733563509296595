"""Journal of a scoring run: a file of the results so far, with which a killed run can be continued.

The file of JSON Lines is only appended to, in the order in which calls are finished: a header that says what is
judged how, then one entry a call, `{"key": ..., "again": ..., "row": ...}`. An entry goes to the operating system in
one write as soon as its call is judged, so that a killed process loses nothing but the calls in flight, and to the disk
once a second, which bounds what a power failure costs. The last entry may be torn; it is cut off and its call judged
again. The journal takes a few dozen bytes of memory for each line of the input.
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
from ragtrace.offline.score_rows import ScoreRow, json_line

_SYNC_EVERY_S: Final = 1.0
_NOWHERE: Final = -1


class Journal:
    """Append-only file with the results of a scoring run so far, open within its `with` block.

    Args:
        header: description of the run; a journal with another header is refused.
        restart: forget the rows that are there.

    Raises:
        SettingsError: the journal is of other metrics or another judge, or another process is writing it.
        OSError: it cannot be read or written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], *, restart: bool = False) -> None:
        self._path, self._header = path, header
        self._offsets = array("q")
        """Offset of the latest entry for each line number; -1 for a line without an entry."""
        self._keys = array("Q")
        """First eight bytes, as an integer, of the latest entry's key for each line number."""
        self._current = bytearray()
        """Flag for each line number: 1 if the latest entry belongs to the line that is in the input now."""
        self._lines_by_key: dict[int, int] = {}
        self._synced = monotonic()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = open(os.open(path, flags, 0o666), "r+b", buffering=0)  # noqa: SIM115 - closed by _close
        # A second handle to read: the one for writing is unbuffered, so that a killed process loses nothing.
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

    def has_line(self, number: int, key: bytes) -> bool:
        """Return whether the journal has a result for input line *number* and the call with the hash *key*.

        If so, the result is one of those that `rows` yields.
        """
        if (
            number >= len(self._offsets)
            or self._offsets[number] == _NOWHERE
            or self._keys[number] != _first_64_bits(key)
        ):
            return False
        self._current[number] = True
        return True

    def row_of_same_call(self, key: bytes) -> ScoreRow | None:
        """Return the result of another input line that describes the same call, or None if there is none."""
        number = self._lines_by_key.get(_first_64_bits(key))
        if number is None:
            return None
        entry = self._entry(number)
        return entry["row"] if entry["key"] == key.hex() else None

    def add(self, key: bytes, row: ScoreRow, *, again: bool = False) -> None:
        """Append the result of an input line to the journal file.

        Args:
            again: the judge failed for a reason that may pass, so that a later run judges the line again.
        """
        offset = self._file.seek(0, os.SEEK_END)
        try:
            _write(self._file, json_line({"key": key.hex(), "again": again, "row": row}))
        except OSError:
            self._file.truncate(offset)  # half an entry would spoil the next one
            raise
        self._index_entry(row["line"], key.hex(), offset, again=again)
        self._current[row["line"]] = True
        if monotonic() - self._synced >= _SYNC_EVERY_S:
            os.fsync(self._file.fileno())
            self._synced = monotonic()

    def rows(self) -> Iterator[ScoreRow]:
        """Yield the results for the input lines that this run has read, in the order of the input."""
        for number, current in enumerate(self._current):
            if current:
                yield self._entry(number)["row"]

    def remove(self) -> None:
        """Delete the journal file, once the run is complete."""
        self._path.unlink(missing_ok=True)

    def _entry(self, number: int) -> dict[str, Any]:
        self._reader.seek(self._offsets[number])
        entry: dict[str, Any] = json.loads(self._reader.readline())
        return entry

    def _load(self) -> None:
        """Read the journal's entries, remove an incomplete last entry, and write the header if the file is empty."""
        first = self._reader.readline()
        if not first.endswith(b"\n"):  # empty, or killed while the header was being written
            self._file.truncate(0)
            self._reader.seek(0)  # discards the read buffer
            _write(self._file, json_line(self._header))
            return
        self._check_header(first)
        offset = len(first)
        for raw in self._reader:
            if not raw.endswith(b"\n"):
                self._file.truncate(offset)
                break
            try:
                entry = json.loads(raw)
                if not entry["again"]:
                    self._index_entry(entry["row"]["line"], entry["key"], offset, again=False)
            except (ValueError, KeyError, TypeError):  # damaged on disk: the entry's line is judged again
                pass
            offset += len(raw)

    def _check_header(self, raw: bytes) -> None:
        try:
            found: object = json.loads(raw)
        except ValueError:
            found = None
        if found != json.loads(json_line(self._header)):
            seen = json.dumps(found, ensure_ascii=False) if isinstance(found, Mapping) else "nothing readable"
            this = json.dumps(self._header, ensure_ascii=False)
            raise SettingsError(
                f"{self._path} is the journal of another run: it says {seen}, this run is {this}; "
                "give the same options to go on with it, or --restart to judge all anew"
            )

    def _index_entry(self, number: int, key: str, offset: int, *, again: bool) -> None:
        missing = number + 1 - len(self._offsets)
        if missing > 0:
            self._offsets.extend([_NOWHERE] * missing)
            self._keys.extend([0] * missing)
            self._current.extend(bytes(missing))
        short = _first_64_bits(bytes.fromhex(key))
        self._offsets[number], self._keys[number] = offset, short
        if not again:
            self._lines_by_key.setdefault(short, number)


def _first_64_bits(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of *data* to *file*, so that a full disk raises an error.

    A full disk takes a part of the data and reports the error only at the next write.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock the journal file against other processes until this process ends, on systems with such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingsError(f"{path} is being written by another run; wait for it, or choose another output") from None
