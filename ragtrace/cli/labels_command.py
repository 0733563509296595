"""Command `ragtrace labels`, which exports the calls picked for human labelling, and imports the labels."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from ragtrace.cli.command_options import add_command, add_json_option, report_failure
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.labels.label_files import LabelFormat
    from ragtrace.labels.label_store import LabelValue

_LABELS: Final = """\
`export` writes the calls that `ragtrace calibrate pick` has picked, as JSON
Lines or CSV (*.csv). `import` reads labels from such a file, or another tool's.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace labels` to the parser of the command line."""
    parser = add_command(
        commands,
        "labels",
        run,
        "write picked calls for reviewers, read their labels",
        "labels (export|import) HISTORY.db [FILE] [options]",
        _LABELS,
    )
    parser.add_argument("action", choices=["export", "import"], help=argparse.SUPPRESS)
    parser.add_argument("history", help=argparse.SUPPRESS)
    parser.add_argument("file", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--metric", metavar="M", help="export: that one alone; import: where a line has none")
    parser.add_argument("--reviewer", metavar="NAME", help="import: where a line has none")
    parser.add_argument("--out", metavar="PATH", help="export: file (default: standard output)")
    parser.add_argument(
        "--column", type=_pair, action="append", default=[], metavar="OURS=NAME", help="import: name of a column"
    )
    parser.add_argument(
        "--label", type=_pair, action="append", default=[], metavar="TEXT=LABEL", help="import: what a text means"
    )
    parser.add_argument(
        "--where", type=_pair, action="append", default=[], metavar="NAME=TEXT", help="import: these lines alone"
    )
    add_json_option(parser)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (equals and name.strip() and value.strip()):
        raise argparse.ArgumentTypeError(f"must be two names with = between them, got {text!r}")
    return name.strip(), value.strip()


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace labels`, and return the exit status."""
    import sqlite3

    from ragtrace.core.errors import SettingsError
    from ragtrace.labels.label_files import LabelFileError
    from ragtrace.system.sqlite_files import SQLiteFileError

    if (options.action == "import") != (options.file is not None):
        print_error("name the history, and for import one file; write exports with --out")
        return USAGE
    try:
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


def _export(options: argparse.Namespace) -> int:
    from ragtrace.labels.label_files import picked_calls, write_rows

    rows = picked_calls(options.history, options.metric)
    if options.out is None:
        write_rows(rows, sys.stdout, as_csv=False)
        return OK
    with open(options.out, "w", encoding="utf-8", newline="", opener=_owner_only) as file:
        number = write_rows(rows, file, as_csv=_is_csv(options.out))
    sys.stdout.write(
        f"{json.dumps({'path': options.out, 'rows': number})}\n" if options.json else f"{number} rows: {options.out}\n"
    )
    return OK


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _is_csv(path: str) -> bool:
    return path.lower().endswith(".csv")


def _import(options: argparse.Namespace) -> int:
    from ragtrace.labels.label_files import read_labels_for
    from ragtrace.labels.label_store import LabelStore

    form = _format(options)
    with ExitStack() as stack:
        file: TextIO = sys.stdin
        if options.file != "-":
            file = stack.enter_context(Path(options.file).open(encoding="utf-8-sig", newline=""))
        found = read_labels_for(options.history, file, form, as_csv=_is_csv(options.file), at=time())
    with closing(LabelStore(options.history)) as store:
        store.add(found.labels)
    counts = {
        "imported": len(found.labels),
        "without_label": found.without_label,
        "unwanted": found.unwanted,
        "unknown_calls": found.unknown_calls,
    }
    if options.json:
        sys.stdout.write(f"{json.dumps(counts)}\n")
        return OK
    parts = [f"{counts['imported']} labels imported", f"{counts['without_label']} lines without a label"]
    if found.unwanted:
        parts.append(f"{found.unwanted} other lines than --where asks for")
    of_unknown = f"; {found.unknown_calls} of calls that the history does not hold" if found.unknown_calls else ""
    sys.stdout.write(f"{', '.join(parts)}{of_unknown}\n")
    return OK


def _format(options: argparse.Namespace) -> LabelFormat:
    """Return the format of the file to import.

    Raises:
        SettingsError: an option names a column or a label that there is not.
    """
    from ragtrace.core.errors import SettingsError
    from ragtrace.labels.label_files import READ_COLUMNS, LabelFormat
    from ragtrace.labels.label_store import LABELS

    for ours, name in options.column:
        if ours not in READ_COLUMNS:
            raise SettingsError(
                f"--column names one of {', '.join(READ_COLUMNS)} and the column of the file, got {ours}={name}"
            )
    for text, label in options.label:
        if label not in LABELS:
            raise SettingsError(f"--label says which of {', '.join(LABELS)} a text means, got {text}={label}")
    return LabelFormat(
        columns=dict(options.column),
        labels={text.lower(): cast("LabelValue", label) for text, label in options.label},
        where=dict(options.where),
        metric=options.metric,
        reviewer=options.reviewer,
    )
