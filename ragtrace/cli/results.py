"""Results of commands, which are frozen dataclasses, as JSON and as text in columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast


def write_result(record: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Write a result to standard output: *record* as one JSON object, or *lines* of text."""
    sys.stdout.write(f"{json.dumps(plain(record))}\n" if as_json else "".join(f"{line}\n" for line in lines))


def plain(value: Any) -> Any:
    """Return *value* for JSON, with each dataclass and named tuple in it as an object of its fields."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("Sequence[Any]", value)]
    return value


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return *rows* as lines of text, in columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
