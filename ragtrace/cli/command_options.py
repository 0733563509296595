"""Helpers for all commands: adding a command to the parser, parsing option values, reporting a failure."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ragtrace.system.terminal import FAILURE, USAGE, print_error


class HelpLayout(argparse.RawDescriptionHelpFormatter):
    """Layout of a help text that keeps each option on one line, as a help fits on a screen."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, max_help_position=28, **more)


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, usage: str, description: str
) -> argparse.ArgumentParser:
    """Add the command *name* to the command-line parser, and return the command's own parser.

    Args:
        summary: what the command does, for the list of commands.
        usage: command line without `ragtrace` itself.
        description: what the command does, in at most three lines. All else is in docs/command-line.md.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        usage=f"ragtrace {usage}",
        description=f"{description}All about it: docs/command-line.md#ragtrace-{usage.partition(' ')[0]}",
        formatter_class=HelpLayout,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --json to the parser of a command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_tag_option(parser: argparse.ArgumentParser, of: str = "") -> None:
    """Add the option --tag to the parser of a command that reads the calls of a history.

    Args:
        parser: the command's parser.
        of: what the option is for, where the command reads other files as well.
    """
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"{of}calls with this tag; several: with all",
    )


def chosen_tags(options: argparse.Namespace) -> dict[str, str]:
    """Return the tags that the option --tag names, by name, with the texts of their values.

    Raises:
        SettingsError: one is none, or is named with two values, which no call has.
    """
    from ragtrace.core.errors import SettingsError
    from ragtrace.core.tags import parse_tag

    found: dict[str, str] = {}
    for given in options.tag:
        try:
            name, value = parse_tag(given)
        except SettingsError as error:
            raise SettingsError(f"--tag cannot be used: {error}") from None
        if found.setdefault(name, value) != value:
            raise SettingsError(
                f"--tag names two values of {name}, {found[name]!r} and {value!r}, and a call has one; leave one out"
            )
    return found


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
    # longer waits overflow in the threading module
    if not 0 < number < 1e9:
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
