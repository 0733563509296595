"""Files of human labels, as CSV or JSON Lines with named columns: picked calls for reviewers, and labels of reviewers.

A file to read may have other names for the columns, and other texts for good and bad, as exports of other tools do.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, TextIO, cast

from ragtrace.history.reading import HistoryReader
from ragtrace.labels.label_store import (
    LABELS,
    STATEMENT_LABELS,
    Label,
    LabelStore,
    LabelValue,
    call_of_identity,
    identity_of_call,
)

COLUMNS: Final = (
    "call", "metric", "workflow", "query", "contexts", "answer", "label", "reviewer", "comment", "statements",
)  # fmt: skip
"""Columns of a written file."""
READ_COLUMNS: Final = (
    "call", "trace_id", "span_id", "metric", "label", "reviewer", "comment", "statements",
)  # fmt: skip
"""Columns of which a read file may have others in their place."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_MOST_CHARS: Final = 1_000_000
_TRACE_ID: Final = re.compile(r"(?:^|[^0-9a-fA-F])([0-9a-fA-F]{32})$")
"""Pattern of a trace id, which some tools write after a prefix such as `tr-`."""


class LabelFileError(ValueError):
    """Raised for an invalid line in a file of labels, with the line number and the problem in the message."""


# --- writing ----------------------------------------------------------------------------------------------------------


def picked_calls(history: str, metric: str | None) -> Iterator[dict[str, Any]]:
    """Yield the calls picked for labelling, one row for each label, or one row for a call without labels."""
    with closing(LabelStore(history)) as store:
        picks, numbers = store.picks(metric), {identity: number for number, identity in store.identities().items()}
        given: dict[tuple[bytes, str], list[Label]] = {}
        for label in store.labels(metric):
            given.setdefault((label.identity, label.metric), []).append(label)
    with closing(HistoryReader(history)) as reader:
        for pick in picks:
            number = numbers.get(pick.identity)
            body: Mapping[str, Any] = reader.texts([number])[number].body if number is not None else {}
            row: dict[str, Any] = {
                "call": call_of_identity(pick.identity),
                "metric": pick.metric,
                "workflow": reader.workflow(number) if number is not None else "",
                "query": body.get("query"),
                "contexts": [each.get("text") for each in body.get("contexts") or ()],
                "answer": body.get("answer"),
            }
            labels = given.get((pick.identity, pick.metric), [])
            for label in labels:
                said = {"label": label.label, "reviewer": label.reviewer, "comment": label.comment}
                yield {**row, **said, "statements": list(label.statements)}
            if not labels:
                yield {**row, "label": None, "reviewer": None, "comment": None, "statements": []}


def write_rows(rows: Iterable[Mapping[str, Any]], file: TextIO, *, as_csv: bool) -> int:
    """Write *rows* as CSV or JSON Lines, and return their number."""
    number = 0
    writer: csv.DictWriter[str] | None = csv.DictWriter(file, COLUMNS) if as_csv else None
    if writer is not None:
        writer.writeheader()
    for row in rows:
        number += 1
        if writer is None:
            file.write(json.dumps(row) + "\n")
        else:
            writer.writerow({name: _cell(value) for name, value in row.items()})
    return number


def _cell(value: object) -> str:
    """Return *value* as the text of a CSV cell that no spreadsheet treats as a formula."""
    if value is None or value == []:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(_FORMULA) else text


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFormat:
    """Names and texts of a file of labels, where they differ from those of ragtrace.

    Args:
        columns: name of a column in the file, by the name in `READ_COLUMNS` that it stands for. In JSON Lines a name
            with dots (`result.label`) is a key in an object.
        labels: label that a text in the column of labels stands for, by the text in lower case.
        where: value of each column that a line must have to be read, by the column.
        metric: metric of lines that name none.
        reviewer: reviewer of lines that name none.
    """

    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, LabelValue] = field(default_factory=dict[str, LabelValue])
    where: Mapping[str, str] = field(default_factory=dict[str, str])
    metric: str | None = None
    reviewer: str | None = None

    def value(self, row: Mapping[str, Any], name: str) -> Any:
        """Return the value in the column of *row* that stands for the column *name*."""
        return _value_at(row, self.columns.get(name, name))

    def text(self, row: Mapping[str, Any], name: str) -> str:
        """Return the value in the column of *row* that stands for the column *name*, as a text."""
        return _text(self.value(row, name))

    def is_wanted(self, row: Mapping[str, Any]) -> bool:
        """Return whether *row* has the values that `where` requires."""
        return all(_text(_value_at(row, column)) == value for column, value in self.where.items())


@dataclass(frozen=True, slots=True)
class ReadLabels:
    """Labels of a file, and counts of the lines that gave none."""

    labels: tuple[Label, ...]
    without_label: int
    unwanted: int
    """Number of lines that do not have the required values (`LabelFormat.where`)."""
    unknown_calls: int
    """Number of labels of calls that the history does not hold."""


def read_labels_for(history: str, file: TextIO, form: LabelFormat, *, as_csv: bool, at: float) -> ReadLabels:
    """Read the labels in *file* for the calls of a history, without storing them.

    A line names its call by the column `call`, or by `trace_id`, `span_id` or both.

    Args:
        at: time of the labels, in seconds since the epoch.

    Raises:
        LabelFileError: a line is wrong.
    """
    with closing(LabelStore(history)) as store:
        calls = _Calls(store.identities().values())
    labels, without_label, unwanted, unknown = list[Label](), 0, 0, 0
    for line, row in _rows(file, as_csv=as_csv):
        if not form.is_wanted(row):
            unwanted += 1
        elif not form.text(row, "label"):
            without_label += 1
        else:
            identity = calls.identity(line, *(form.text(row, name) for name in ("call", "trace_id", "span_id")))
            label = _label(line, row, identity or b"", form, at)
            unknown += identity not in calls.known
            labels += [label] if identity is not None else []
    return ReadLabels(tuple(labels), without_label, unwanted, unknown)


def _rows(file: TextIO, *, as_csv: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a label file, each with its line number."""
    if as_csv:
        csv.field_size_limit(_MOST_CHARS)
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, row
        return
    for line, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            found: object = json.loads(text)
        except ValueError as error:
            raise LabelFileError(
                f"line {line} is no JSON: {error}; write one object a line, or name it *.csv"
            ) from error
        if not isinstance(found, dict):
            raise LabelFileError(f"line {line} is no JSON object")
        yield line, cast("dict[str, Any]", found)


class _Calls:
    """Calls of a history, which lines of a file name by call id, trace id or span id."""

    def __init__(self, identities: Iterable[bytes]) -> None:
        self.known = frozenset(identities)
        self._by_id: dict[str, list[bytes]] = {}
        for identity in self.known:
            self._by_id.setdefault(identity[:16].hex(), []).append(identity)
            self._by_id.setdefault(identity[16:].hex(), []).append(identity)

    def identity(self, line: int, call: str, trace: str, span: str) -> bytes | None:
        """Return the identity of the call that a line names; None if the history has no call of that trace or span.

        Raises:
            LabelFileError: the line names no call, or one of several.
        """
        if call or not (trace or span):
            found = identity_of_call(call)
            if found is None:
                raise LabelFileError(
                    f"line {line}: call must be the id of a call, got {call!r}; keep the column of the export, or name "
                    "the column of the trace ids: --column trace_id=NAME"
                )
            return found
        of_trace = _TRACE_ID.search(trace)
        if trace and of_trace is None:
            raise LabelFileError(f"line {line}: trace_id must end with 32 hexadecimal digits, got {trace!r}")
        matches = self._by_id.get(of_trace[1].lower() if of_trace else span.lower(), [])
        if len(matches) > 1:
            matches = [identity for identity in matches if identity[16:].hex() == span.lower()]
            if not matches:
                raise LabelFileError(
                    f"line {line}: trace {trace} has several calls; name the column of the call's span id: "
                    "--column span_id=NAME"
                )
        return matches[0] if matches else None


def _label(line: int, row: Mapping[str, Any], identity: bytes, form: LabelFormat, at: float) -> Label:
    """Return the label in a row of a label file.

    Raises:
        LabelFileError: the row is wrong.
    """
    text = form.text(row, "label")
    of, by = form.text(row, "metric") or form.metric, form.text(row, "reviewer") or form.reviewer
    known: Mapping[str, LabelValue] = {**{each: each for each in LABELS}, **form.labels}
    label = known.get(text.lower())
    if label is None:
        raise LabelFileError(
            f"line {line}: label must be one of {', '.join(LABELS)}, got {text!r}; say what it means: "
            f"--label {text!r}=bad"
        )
    if not of or not by:
        missing = "reviewer" if of else "metric"
        raise LabelFileError(f"line {line} has no {missing}; add it, or pass --{missing}")
    return Label(identity, of, by, label, form.text(row, "comment") or None, _statements(line, form, row), at)


def _value_at(row: Mapping[str, Any], name: str) -> Any:
    """Return the value in the column *name* of *row*, or at the path *name* in its objects."""
    if name in row:
        return row[name]
    value: Any = row
    for key in name.split("."):
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
    return value


def _text(value: object) -> str:
    """Return a value of a file as a text, without the apostrophe that keeps a spreadsheet from running it."""
    if value is None:
        return ""
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def _statements(line: int, form: LabelFormat, row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    given: Any = form.value(row, "statements")
    found: Any = given or []
    try:
        found = json.loads(given) if isinstance(given, str) and given.strip() else found
        statements = cast("Sequence[Mapping[str, Any]]", found)
        good = isinstance(found, list) and all(each["label"] in STATEMENT_LABELS for each in statements)
    except (ValueError, TypeError, KeyError):
        statements, good = (), False
    if not good:
        raise LabelFileError(
            f"line {line}: statements must be a list of objects with a label of {', '.join(STATEMENT_LABELS)}"
        )
    return tuple(statements)
