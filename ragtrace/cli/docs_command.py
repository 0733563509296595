"""Command `ragtrace docs`, which says where the documentation is, or prints the text for coding agents."""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import ragtrace
from ragtrace.cli.command_options import add_command
from ragtrace.system.installation import documentation_url, installed_version
from ragtrace.system.terminal import OK

FOR_AGENTS: Final = files("ragtrace.cli") / "llms-full.txt"
"""Text for coding agents; `docs/make_llms.py` of the source writes it."""
_FIRST_PAGE: Final = "for-agents.md"
_DOCS: Final = """\
Says where the documentation of the installed version is. With --for-agents it
prints what a coding agent needs to add ragtrace to an application.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace docs` to the parser of the command line."""
    parser = add_command(commands, "docs", run, "where the documentation is; text for agents", "docs [options]", _DOCS)
    parser.add_argument("--for-agents", action="store_true", help="print the text for coding agents (Markdown)")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace docs` and return the exit status."""
    if options.for_agents:
        sys.stdout.write(FOR_AGENTS.read_text(encoding="utf-8"))
        return OK
    sys.stdout.write(
        f"ragtrace {installed_version()}\n"
        f"documentation      {_place()}\n"
        f"for coding agents  ragtrace docs --for-agents ({FOR_AGENTS})\n"
        "names              help(ragtrace), help(ragtrace.configure) in Python\n"
        "commands           ragtrace COMMAND --help\n"
    )
    return OK


def _place() -> str:
    """Return the address of the documentation, or its folder in a checkout, or what has it."""
    folder = Path(ragtrace.__file__).parents[1] / "docs"
    if (folder / _FIRST_PAGE).is_file():
        return str(folder)
    return documentation_url() or "the folder docs/ of the source distribution"
