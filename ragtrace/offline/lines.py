"""Calls out of a JSON Lines file, one at a time: good lines as calls, bad ones with what is wrong with them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.judges.llm.jsonreading import finite, without_repeats
from ragtrace.offline.calls import KEYS, recorded, renamed

MOST_LINE_BYTES: Final = 64 * 2**20
_BOM: Final = b"\xef\xbb\xbf"
_MOST_KEYS: Final = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One good line."""

    number: int
    """From 1."""
    id: str | int | float | None
    """As the line says."""
    call: RagCall
    key: bytes
    """Of 16 bytes; equal for lines that describe the same call."""


class Lines:
    """The calls of a file, read while they are asked for. Iterate it once.

    Args:
        on_bad: told of each bad line: its number and what is wrong with it.
    """

    def __init__(self, path: Path, on_bad: Callable[[int, str], None]) -> None:
        self._path, self._on_bad = path, on_bad
        self._size = max(1, path.stat().st_size)
        self._read = 0
        self.bad = 0
        self.unread_keys: Counter[str] = Counter()
        """Keys that describe nothing we know, and on how many lines: perhaps misspelt."""

    @property
    def share(self) -> float:
        """How much of the file has been read."""
        return min(1.0, self._read / self._size)

    def __iter__(self) -> Generator[Line, None, None]:
        with self._path.open("rb") as file:
            number = 0
            while raw := file.readline(MOST_LINE_BYTES):
                number += 1
                self._read += len(raw)
                if number == 1:
                    raw = raw.removeprefix(_BOM)
                line = self._line(number, raw, file)
                if line is not None:
                    yield line

    def _line(self, number: int, raw: bytes, file: IO[bytes]) -> Line | None:
        try:
            if len(raw) >= MOST_LINE_BYTES and not raw.endswith(b"\n"):
                self._skip_rest(file)
                raise SettingsError(f"longer than {MOST_LINE_BYTES} bytes; split it")
            return None if not raw.strip() else self._parsed(number, raw)
        except SettingsError as error:
            self.bad += 1
            self._on_bad(number, str(error))
            return None

    def _skip_rest(self, file: IO[bytes]) -> None:
        while (more := file.readline(MOST_LINE_BYTES)) and not more.endswith(b"\n"):
            self._read += len(more)

    def _parsed(self, number: int, raw: bytes) -> Line:
        record = renamed(_record(raw))
        call = recorded(record)
        name = record.get("id")
        if not (name is None or isinstance(name, (str, int, float))):
            raise SettingsError(f"id must be a string or a number, got {type(name).__name__}")
        for key in record:
            if key not in KEYS and key != "id" and (key in self.unread_keys or len(self.unread_keys) < _MOST_KEYS):
                self.unread_keys[key] += 1
        return Line(number, name, call, key_of(record))


def key_of(record: dict[str, object]) -> bytes:
    """A hash of what *record* says of its call."""
    said = {key: record[key] for key in KEYS if key in record}
    text = json.dumps(said, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _record(raw: bytes) -> dict[str, object]:
    try:
        text = raw.decode("utf-8")
        record: object = json.loads(
            text, parse_constant=_no_constant, parse_float=finite, object_pairs_hook=without_repeats
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


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")
