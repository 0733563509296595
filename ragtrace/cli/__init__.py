"""Command line of ragtrace, with one module for each command.

Each module has a function `register` that adds its command to the parser.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ragtrace.cli import (
    baseline_command,
    calibrate_command,
    dataset_command,
    demo_command,
    docs_command,
    doctor_command,
    exporters_command,
    fleet_command,
    judges_command,
    labels_command,
    open_command,
    report_command,
    run_command,
    score_command,
    serve_command,
    worker_command,
)
from ragtrace.cli.command_options import HelpLayout
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
    demo_command,
    run_command,
    serve_command,
    worker_command,
    fleet_command,
    score_command,
    report_command,
    open_command,
    baseline_command,
    calibrate_command,
    labels_command,
    judges_command,
    dataset_command,
    doctor_command,
    exporters_command,
    docs_command,
)
"""Subcommands of `ragtrace`, in the order of the help text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of ragtrace and return its exit status.

    *arguments* default to those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments[:1]) != [run_command.NAME]:  # the output of a user's program is left unchanged
        replace_unencodable_characters()
    parser = command_line_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    if options.command == run_command.NAME and not options.list:
        return run_command.run(options)  # the exceptions and the output are those of the user's program
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


def command_line_parser() -> argparse.ArgumentParser:
    """Create the parser of the command line, with every command."""
    parser = argparse.ArgumentParser(
        prog="ragtrace",
        usage="ragtrace (COMMAND [options] | --version)",
        description="Evaluates live RAG calls on their own traces.",
        formatter_class=HelpLayout,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    version = f"ragtrace {installed_version()}"
    parser.add_argument("--version", action="version", version=version, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND [options]")
    for command in _COMMANDS:
        command.register(commands)
    return parser
