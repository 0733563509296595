"""Command line of ragtrace, with one module for each command.

Each module has a function that adds the command to the parser.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ragtrace.cli import (
    baseline,
    calibrate,
    dataset,
    doctor,
    exporters,
    fleet,
    labels,
    report,
    run,
    score,
    serve,
    worker,
)
from ragtrace.cli.demo import command as demo_command
from ragtrace.cli.review import command as review_command
from ragtrace.system.installation import installed_version
from ragtrace.system.terminal import (
    INTERRUPTED,
    READER_GONE,
    USAGE,
    discard,
    flush,
    print_error,
    replace_unencodable_characters,
)

__all__ = ["main"]

_COMMANDS = (
    demo_command, run, serve, worker, fleet, score, report, baseline, calibrate, review_command, labels, dataset,
    doctor, exporters,
)  # fmt: skip
"""Subcommands of `ragtrace`, in the order of the help text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of ragtrace and return its exit status.

    *arguments* default to those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) != [run.NAME]:  # the output of a user's program is left unchanged
        replace_unencodable_characters()
    parser = argparse.ArgumentParser(prog="ragtrace", description="Evaluates live RAG calls on their own traces.")
    parser.add_argument("--version", action="version", version=f"ragtrace {installed_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in _COMMANDS:
        command.add(commands)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    if options.command == run.NAME and not options.list:
        return run.run(options)  # the exceptions and the output are those of the user's program
    try:
        status: int = options.run(options)
        flush(sys.stdout)
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        discard(sys.stdout)
        return READER_GONE
    return status
