"""`python -m docs.make_command_line`: writes the table of commands and the options in docs/command-line.md anew.

Both are those of the parser; what a command does beyond its help text is written by hand.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ragtrace.cli import command_line_parser

PAGE: Final = Path(__file__).with_name("command-line.md")
_COMMANDS: Final = "| Command | Does |\n|---|---|\n"
_OPTIONS: Final = "| Option | Meaning |\n|---|---|\n"
_WRITTEN: Final = re.compile(r"Options(?: of `\w+`)?:\n\n\| Option \|(?:.*\n)+?\n")
_BLOCK: Final = re.compile(
    r"^(?:Environment|Times|Judges|Expressions|Output|Examples|Exit status)\b[^\n]*", re.MULTILINE
)
"""The first of these begins what follows the options in the section of a command."""
_HIDDEN: Final = argparse.SUPPRESS


def render(page: str) -> str:
    """Return the text of *page*, docs/command-line.md, with the table of commands and all options written anew.

    Raises:
        ValueError: a command has no section.
    """
    before, _, rest = page.partition(_COMMANDS)
    head, *sections = re.split(r"(?m)^(?=## )", rest.partition("\n\n")[2])
    listed = _subparsers(command_line_parser())
    by_command = {section.partition("\n")[0].removeprefix("## ragtrace "): section for section in sections}
    if missing := listed.choices.keys() - by_command.keys():
        raise ValueError(f"docs/command-line.md has no section for {', '.join(sorted(missing))}")
    rows = [f"| [`ragtrace {each.dest}`](#ragtrace-{each.dest}) | {each.help} |\n" for each in listed._choices_actions]
    written = [_with_options(section, listed.choices.get(name)) for name, section in by_command.items()]
    return "".join((before, _COMMANDS, *rows, "\n", head, *written))


def _subparsers(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))


def _with_options(section: str, parser: argparse.ArgumentParser | None) -> str:
    section = _WRITTEN.sub("", section)
    following = _BLOCK.search(section)
    if parser is None or following is None:
        return section
    return section[: following.start()] + "".join(_tables(parser)) + section[following.start() :]


def _tables(parser: argparse.ArgumentParser, action: str = "") -> Iterator[str]:
    """Yield the options of a command, and of each of its actions, as tables."""
    rows = [
        f"| `{_spelled(each)}` | {_meaning(each)} |\n"
        for each in parser._actions
        if each.option_strings and each.help not in (_HIDDEN, None)
    ]
    if rows:
        yield f"Options{f' of `{action}`' if action else ''}:\n\n{_OPTIONS}{''.join(rows)}\n"
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            for name, of_action in each.choices.items():
                yield from _tables(of_action, name)


def _spelled(option: argparse.Action) -> str:
    metavar = option.metavar or (None if option.nargs == 0 else option.dest.upper())
    return f"{', '.join(option.option_strings)}{f' {metavar}' if metavar else ''}"


def _meaning(option: argparse.Action) -> str:
    return ((option.help or "") % {**vars(option), "prog": "ragtrace"}).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
