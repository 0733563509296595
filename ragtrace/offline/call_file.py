"""JSON Lines files of recorded calls: each line read as a call, or as an error that says what is wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.judges.llm.json_reading import finite, without_repeats
from ragtrace.offline.call_records import KEYS, call_from_record, rename_aliases

MOST_LINE_BYTES: Final = 64 * 2**20
_BOM: Final = b"\xef\xbb\xbf"
_MOST_KEYS: Final = 100


@dataclass(frozen=True, slots=True)
class CallLine:
    """Line that describes a call."""

    number: int
    """Number of the line, from 1."""
    id: str | int | float | None
    """Value of the key `id`."""
    call: RagCall
    key: bytes
    """Hash of 16 bytes; equal for lines that describe the same call."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """Line that cannot be read as a call."""

    number: int
    error: str


class CallFile:
    """Lines of a file of calls, read while they are iterated, once. Blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = max(1, path.stat().st_size)
        self._read = 0
        self.unread_keys: Counter[str] = Counter()
        """Number of lines by key that describes nothing known here; it may be misspelt."""

    @property
    def share_read(self) -> float:
        """Share of the file that has been read."""
        return min(1.0, self._read / self._size)

    def __iter__(self) -> Generator[CallLine | BadLine, None, None]:
        with self._path.open("rb") as file:
            number = 0
            while raw := file.readline(MOST_LINE_BYTES):
                number += 1
                self._read += len(raw)
                if number == 1:
                    raw = raw.removeprefix(_BOM)
                line: CallLine | BadLine | None
                try:
                    self._check_length(raw, file)
                    line = self._parse(number, raw) if raw.strip() else None
                except SettingsError as error:
                    line = BadLine(number, str(error))
                if line is not None:
                    yield line

    def _check_length(self, raw: bytes, file: IO[bytes]) -> None:
        if len(raw) < MOST_LINE_BYTES or raw.endswith(b"\n"):
            return
        while (more := file.readline(MOST_LINE_BYTES)) and not more.endswith(b"\n"):
            self._read += len(more)
        raise SettingsError(f"longer than {MOST_LINE_BYTES} bytes; split it")

    def _parse(self, number: int, raw: bytes) -> CallLine:
        record = rename_aliases(_record(raw))
        call = call_from_record(record)
        name = record.get("id")
        if not (name is None or isinstance(name, (str, int, float))):
            raise SettingsError(f"id must be a string or a number, got {type(name).__name__}")
        for key in record:
            if key not in KEYS and key != "id" and (key in self.unread_keys or len(self.unread_keys) < _MOST_KEYS):
                self.unread_keys[key] += 1
        description = json.dumps({key: record[key] for key in KEYS if key in record}, sort_keys=True)
        return CallLine(number, name, call, hashlib.blake2b(description.encode(), digest_size=16).digest())


def _record(raw: bytes) -> dict[str, object]:
    try:
        text = raw.decode("utf-8")
        record: object = json.loads(
            text, parse_constant=_reject_constant, parse_float=finite, object_pairs_hook=without_repeats
        )
    except UnicodeDecodeError as error:
        raise SettingsError(f"not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except RecursionError:
        raise SettingsError("nested too deeply to be read") from None
    except ValueError as error:
        raise SettingsError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise SettingsError(f"not a JSON object, got {type(record).__name__}")
    return cast("dict[str, object]", record)


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")
