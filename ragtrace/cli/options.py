"""Helpers for all commands: adding a command to the parser, parsing option values, reporting a failure."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ragtrace.system.terminal import FAILURE, USAGE, print_error

_LONGEST_S = 1e9  # longer waits overflow in the threading module


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, description: str, notes: str
) -> argparse.ArgumentParser:
    """Add the command *name* to the command-line parser, and return the command's own parser.

    *notes* follow the options in the help of the command.
    """
    layout = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=description, epilog=notes, formatter_class=layout
    )
    parser.set_defaults(run=run)
    return parser


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --json to the parser of a command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else on standard output")


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser for option values that must be a whole number from *least* to *most*."""
    wanted = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"must be a whole number {wanted}, got {text!r}")
        return number

    return parse


def positive_seconds(text: str) -> float:
    """Parse the value of an option that takes a positive number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < _LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return number


def report_failure(error: Exception, output: str) -> int:
    """Print why a command could not read a history, and return the command's exit status.

    *output* names what the command was to write.
    """
    from ragtrace.core.errors import SettingsError

    if isinstance(error, SettingsError):
        print_error(str(error))
        return USAGE
    if isinstance(error, OSError):
        print_error(f"the {output} cannot be written: {error}")
    else:
        print_error(f"the history cannot be read: {error}")
    return FAILURE
