"""Calls with human labels of good or bad, read from a file of any origin."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.offline.call_records import call_from_record

_BAD: Final = frozenset({"bad", "1", "true", "yes"})
_GOOD: Final = frozenset({"good", "0", "false", "no"})
_UNDECIDED: Final = frozenset({"unsure", "", "none"})
_ADVICE: Final = "write such a file with `ragtrace labels export HISTORY.db`"


@dataclass(frozen=True, slots=True)
class LabelledFileCall:
    """Call of a file with the label that most of its reviewers gave."""

    call: RagCall
    bad: bool

    @property
    def question(self) -> str:
        """Question without case and spacing, which calls that are not independent have in common."""
        return " ".join((self.call.query or "").casefold().split())


@dataclass(frozen=True, slots=True)
class LabelledFile:
    """Labelled calls of a file, and the number of those that count nowhere."""

    calls: tuple[LabelledFileCall, ...]
    undecided: int
    """Number of calls without a label, or that reviewers are unsure about or divided on."""


def read_labelled_calls(path: Path, metric: str) -> LabelledFile:
    """Read calls with human labels from JSON lines, or from CSV by the suffix .csv.

    A line has the keys of a call as for `ragtrace score` (`query`, `contexts`, `answer` ...; in CSV, `contexts` is a
    JSON list), and `label`: bad or good, 1 or 0, true or false. Lines with another `metric` are left out. Lines with
    the same `call` are of several reviewers: the majority counts.

    Raises:
        SettingsError: the file cannot be read, has a wrong line, or no labelled call.
    """
    calls: dict[object, RagCall] = {}
    votes: dict[object, int] = {}
    for line, row in _rows(path):
        if row.get("metric") not in (None, "", metric):
            continue
        if "label" not in row:
            raise SettingsError(f"line {line} of {path} has no label; write bad or good, or {_ADVICE}")
        label = str(row["label"]).strip().casefold()
        if label not in _BAD | _GOOD | _UNDECIDED:
            raise SettingsError(f"line {line} of {path}: label must be bad, good or unsure, got {row['label']!r}")
        try:
            call = call_from_record({key: value for key, value in row.items() if key not in ("label", "call")})
        except SettingsError as error:
            raise SettingsError(f"line {line} of {path}: {error}") from error
        key = row.get("call") or ("", line)
        calls.setdefault(key, call)
        votes[key] = votes.get(key, 0) + (label in _BAD) - (label in _GOOD)
    found = tuple(LabelledFileCall(calls[key], vote > 0) for key, vote in votes.items() if vote)
    if not found:
        raise SettingsError(f"{path} has no labelled call for {metric!r}; {_ADVICE}, or say which --metric is meant")
    return LabelledFile(found, len(votes) - len(found))


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".csv":
                for row in (reader := csv.DictReader(file)):
                    yield reader.line_num, {**row, "contexts": json.loads(row.get("contexts") or "null")}
                return
            for line, text in enumerate(file, 1):
                if text.strip():
                    record: object = json.loads(text)
                    if not isinstance(record, dict):
                        raise SettingsError(f"line {line} of {path} is no JSON object; {_ADVICE}")
                    yield line, cast("dict[str, Any]", record)
    except SettingsError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise SettingsError(f"the labelled calls {path} cannot be read: {error}; {_ADVICE}") from error
