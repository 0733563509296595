"""Command `ragtrace labels`, which exports the calls picked for human labelling, and imports the labels."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from ragtrace.cli.options import add_command, add_json_option, report_failure
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.labels.label_store import Label, LabelValue

_COLUMNS: Final = (
    "call", "metric", "workflow", "query", "contexts", "answer", "label", "reviewer", "comment", "statements",
)  # fmt: skip
_TOOLS: Final = ("langfuse", "phoenix", "mlflow")
_LISTED: Final = 10
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_MOST_CHARS: Final = 1_000_000
_LABELS: Final = """\
`ragtrace labels export HISTORY.db` writes the calls that `ragtrace calibrate pick` has picked, with the labels that
they have, one line for each reviewer of a call. What the judge said is not written, as it would sway the reviewers.

`ragtrace labels import HISTORY.db FILE` reads labels from such a file, of which it needs `call`, `label` (bad, good or
unsure), `metric` (or --metric) and `reviewer` (or --reviewer). Lines without a label are left out. A label replaces the
earlier one of that reviewer. One wrong line, and nothing is imported.

`ragtrace labels import HISTORY.db FILE --from langfuse|phoenix|mlflow --metric M` reads the scores that people gave in
another tool from its export (JSON, JSON lines, CSV). They are matched by trace id. What a score means must be stated.
"""
_NOTES: Final = """\
Files that end in .csv are CSV, all others JSON lines: one object a line. `contexts` is a list of texts (in CSV, JSON),
`statements` a list of objects with the key `label` (supported, not or unsure) and whatever tells the statement. In CSV
a text that a spreadsheet would take for a formula begins with an apostrophe.

examples:
  ragtrace labels export history.db --out to_label.csv
  ragtrace labels import history.db labelled.csv --reviewer ada
  ragtrace labels export history.db --metric hallucinated > labels.jsonl

  ragtrace labels import history.db scores.json --from langfuse --metric hallucinated --name quality --bad-below 0.5
  ragtrace labels import history.db traces.jsonl --from mlflow --metric hallucinated --bad true --good false

keys of the JSON object (import --from):
  imported, unmatched (ids of scores whose call the history does not hold), ambiguous (the trace has several calls),
  other_names, other_sources (number of scores by another name, or that no person gave)

keys of the JSON object (import):
  imported, without_label, unknown_calls (labels of calls that the history does not hold; they are kept)

exit status: 0 done, 1 a file cannot be read or written or has a wrong line, 2 wrong usage, 130 interrupted
"""


class LabelFileError(ValueError):
    """Raised for an invalid line in a file of labels, with the line number and the problem in the message."""


def add(commands: Any) -> None:
    """Add the command `ragtrace labels` to the parser of the command line."""
    parser = add_command(
        commands, "labels", run, "write picked calls for reviewers, read their labels", _LABELS, _NOTES
    )
    parser.add_argument("action", choices=["export", "import"], help="write calls and labels, or read labels")
    parser.add_argument("history", metavar="HISTORY.db", help="the history that configure(store=PATH) keeps")
    parser.add_argument("file", nargs="?", metavar="FILE", help="import: the file with the labels; -: standard input")
    parser.add_argument("--metric", metavar="M", help="export: of that metric alone; import: where a line has none")
    parser.add_argument("--reviewer", metavar="NAME", help="import: where a line has none")
    parser.add_argument("--out", metavar="PATH", help="export: file to write (default: standard output, JSON lines)")
    parser.add_argument("--from", dest="tool", choices=_TOOLS, help="import: FILE is an export of that tool")
    parser.add_argument("--name", metavar="SCORE", help="--from: name of the scores (default: that of the metric)")
    for value in ("bad", "good", "unsure"):
        parser.add_argument(f"--{value}", metavar="A,B", default="", help=f"--from: texts that mean {value}")
    parser.add_argument("--bad-below", type=float, metavar="X", help="--from: numbers below it are bad, others good")
    parser.add_argument("--bad-above", type=float, metavar="X", help="--from: numbers above it are bad, others good")
    parser.add_argument(
        "--source", metavar="A,B", help="--from: sources that are people (default: ANNOTATION of langfuse, else HUMAN)"
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace labels`, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.system.sqlite_files import SQLiteFileError

    if (options.action == "import") != (options.file is not None):
        print_error("name the history, and for import one file; write exports with --out")
        return USAGE
    if options.tool and not options.metric:
        print_error("say for which metric the imported labels are: --metric")
        return USAGE
    try:
        if options.tool:
            return _import_from_tool(options)
        return _export(options) if options.action == "export" else _import(options)
    except BrokenPipeError:
        raise
    except LabelFileError as error:
        print_error(f"nothing was imported: {error}")
        return FAILURE
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        print_error(f"the file of labels cannot be used: {error}")
        return FAILURE
    except (SettingsError, SQLiteFileError, sqlite3.Error) as error:
        return report_failure(error, "labels")


# --- export ----------------------------------------------------------------------------------------------------------


def _export(options: argparse.Namespace) -> int:
    if options.out is None:
        _write(_rows(options.history, options.metric), sys.stdout, as_csv=False)
        return OK
    with open(options.out, "w", encoding="utf-8", newline="", opener=_owner_only) as file:
        number = _write(_rows(options.history, options.metric), file, as_csv=options.out.lower().endswith(".csv"))
    sys.stdout.write(
        f"{json.dumps({'path': options.out, 'rows': number})}\n" if options.json else f"{number} rows: {options.out}\n"
    )
    return OK


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _rows(history: str, metric: str | None) -> Iterator[dict[str, Any]]:
    """Yield the calls picked for labelling, one row for each label, or one row for a call without labels."""
    from ragtrace.history.reading import HistoryReader
    from ragtrace.labels.label_store import LabelStore, call_of_identity

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


def _write(rows: Iterator[dict[str, Any]], file: TextIO, *, as_csv: bool) -> int:
    number = 0
    writer: csv.DictWriter[str] | None = csv.DictWriter(file, _COLUMNS) if as_csv else None
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


# --- import ----------------------------------------------------------------------------------------------------------


def _import(options: argparse.Namespace) -> int:
    from ragtrace.labels.label_store import LabelStore

    now = time()
    csv.field_size_limit(_MOST_CHARS)
    if options.file == "-":
        rows = list(_read(sys.stdin, as_csv=False))
    else:
        with Path(options.file).open(encoding="utf-8-sig", newline="") as file:
            rows = list(_read(file, as_csv=options.file.lower().endswith(".csv")))
    labels = [
        label
        for line, row in rows
        if (label := _label(line, row, metric=options.metric, reviewer=options.reviewer, at=now)) is not None
    ]
    with closing(LabelStore(options.history)) as store:
        known = set(store.identities().values())
        store.add(labels)
    unknown = sum(label.identity not in known for label in labels)
    counts = {"imported": len(labels), "without_label": len(rows) - len(labels), "unknown_calls": unknown}
    if options.json:
        sys.stdout.write(f"{json.dumps(counts)}\n")
        return OK
    of_unknown = f"; {unknown} of calls that the history does not hold" if unknown else ""
    sys.stdout.write(f"{len(labels)} labels imported, {counts['without_label']} lines without a label{of_unknown}\n")
    return OK


def _read(file: TextIO, *, as_csv: bool) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a label file, each with its line number."""
    if as_csv:
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
            raise LabelFileError(f"line {line} is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise LabelFileError(f"line {line} is no JSON object")
        yield line, cast("dict[str, Any]", found)


def _label(line: int, row: Mapping[str, Any], *, metric: str | None, reviewer: str | None, at: float) -> Label | None:
    """Return the label in a row of a label file, or None if the row has no label.

    Raises:
        LabelFileError: the row is wrong.
    """
    from ragtrace.labels.label_store import LABELS, Label, identity_of_call

    value = _text(row, "label").lower()
    if not value:
        return None
    call, of, by = _text(row, "call"), _text(row, "metric") or metric, _text(row, "reviewer") or reviewer
    identity = identity_of_call(call)
    label: LabelValue | None = next((each for each in LABELS if each == value), None)
    if identity is None:
        raise LabelFileError(f"line {line}: call must be the id of a call, got {call!r}; keep the column of the export")
    if label is None:
        raise LabelFileError(f"line {line}: label must be one of {', '.join(LABELS)}, got {value!r}")
    if not of or not by:
        missing = "reviewer" if of else "metric"
        raise LabelFileError(f"line {line} has no {missing}; add it, or pass --{missing}")
    return Label(identity, of, by, label, _text(row, "comment") or None, _statements(line, row), at)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    text = value.strip() if isinstance(value, str) else ""
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def _statements(line: int, row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    from ragtrace.labels.label_store import STATEMENT_LABELS

    given: Any = row.get("statements")
    found: Any = given or []
    try:
        found = json.loads(given) if isinstance(given, str) and given.strip() else found
        statements = cast("list[Mapping[str, Any]]", found)
        good = isinstance(found, list) and all(each["label"] in STATEMENT_LABELS for each in statements)
    except (ValueError, TypeError, KeyError):
        statements, good = [], False
    if not good:
        raise LabelFileError(
            f"line {line}: statements must be a list of objects with a label of {', '.join(STATEMENT_LABELS)}"
        )
    return tuple(statements)


# --- import of another tool's scores ----------------------------------------------------------------------------------


def _import_from_tool(options: argparse.Namespace) -> int:
    from ragtrace.labels.label_imports import HUMAN_SOURCES, Meaning, import_labels, read_scores
    from ragtrace.labels.label_store import LabelStore

    if None not in (options.bad_below, options.bad_above):
        print_error("pass --bad-below or --bad-above, not both")
        return USAGE
    bad, good, unsure = (frozenset(_listed(each)) for each in (options.bad, options.good, options.unsure))
    meaning = Meaning(bad, good, unsure, options.bad_below, options.bad_above)
    scores = read_scores(Path(options.file), options.tool)
    with closing(LabelStore(options.history)) as store:
        found = import_labels(
            scores,
            store.identities().values(),
            name=options.name or options.metric,
            metric=options.metric,
            meaning=meaning,
            sources=frozenset(each.upper() for each in _listed(options.source or HUMAN_SOURCES[options.tool])),
            reviewer=options.reviewer or options.tool,
            now=time(),
        )
        store.add(found.labels)
    unique = len({(label.identity, label.reviewer) for label in found.labels})
    counts = {name: getattr(found, name) for name in ("unmatched", "ambiguous", "other_names", "other_sources")}
    if options.json:
        sys.stdout.write(f"{json.dumps({'imported': unique, **counts})}\n")
        return OK
    lines = [f"{unique} labels imported of {len(scores)} scores"]
    for name, why in (("unmatched", "not in the history"), ("ambiguous", "in traces of several calls")):
        if ids := counts[name]:
            more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
            lines.append(f"{len(ids)} {why}: {', '.join(ids[:_LISTED])}{more}")
    for name, why in (("other_names", "by another name"), ("other_sources", "given by no person")):
        if by_name := counts[name]:
            each = ", ".join(f"{key or '(none)'} {count}" for key, count in by_name.items())
            lines.append(f"{sum(by_name.values())} {why}: {each}")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return OK


def _listed(text: str) -> list[str]:
    return [each.strip().lower() for each in text.split(",") if each.strip()]
