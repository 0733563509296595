"""Commands `ragtrace open` and `ragtrace review`, which serve web pages on a history file on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from typing import Any, Final

from ragtrace.cli.command_options import add_command, report_failure, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, flush, print_error

_OPEN: Final = """\
Serves web pages on this machine that show a history and follow it: what is
going on now, the calls, what changed, and the labelling of calls. Needs the
extra `review`.
"""
_REVIEW: Final = """\
Serves the pages of `ragtrace open`, beginning with those on which people label
calls: first those that `ragtrace calibrate pick` has picked. What the judge
said is shown when the label is given. Needs the extra `review`.
"""
_NEEDED: Final = ("starlette", "uvicorn", "jinja2")


def register(commands: Any) -> None:
    """Add the commands `ragtrace open` and `ragtrace review` to the parser of the command line."""
    for name, help_text, text, start in (
        ("open", "look at a history on local web pages", _OPEN, "/"),
        ("review", "label calls on a local web page", _REVIEW, "/label"),
    ):
        parser = add_command(commands, name, run, help_text, f"{name} HISTORY.db [options]", text)
        parser.set_defaults(start=start)
        parser.add_argument("history", metavar="HISTORY.db", help=argparse.SUPPRESS)
        parser.add_argument("--metric", metavar="M", help="metric to label (default: the latest picked)")
        parser.add_argument("--reviewer", metavar="NAME", help="name of the reviewer (default: asks for it)")
        parser.add_argument("--show-marks", action="store_true", help="show what the judge said at once")
        parser.add_argument(
            "--trace-url", metavar="URL", default=os.environ.get("RAGTRACE_TRACE_URL", ""),
            help="address of a trace, with {trace_id} in it",
        )  # fmt: skip
        port = whole_number(0, 65_535)
        parser.add_argument("--port", type=port, default=8378, metavar="N", help="default 8378; 0: any free port")
        parser.add_argument("--open", action="store_true", help="open the page in the web browser")


def run(options: argparse.Namespace) -> int:
    """Serve the pages until the command is interrupted, and return the exit status."""
    import sqlite3

    from ragtrace.system.sqlite_files import SQLiteFileError

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        print_error(f"{' and '.join(missing)} is not installed; write: pip install 'ragtrace-otel[review]'")
        return USAGE
    url: str = options.trace_url
    if url and not (url.startswith(("http://", "https://")) and "{trace_id}" in url):
        print_error(f"--trace-url must be an http or https URL with {{trace_id}} in it, got {url!r}")
        return USAGE
    try:
        return _serve(options)
    except (SQLiteFileError, sqlite3.Error) as error:
        return report_failure(error, "labels")
    except OSError as error:
        print_error(f"cannot listen on 127.0.0.1:{options.port}: {error}; choose another port with --port")
        return FAILURE


def _serve(options: argparse.Namespace) -> int:
    import secrets

    from ragtrace.web.rendering import SiteSettings
    from ragtrace.web.server import serve_site

    def announce(address: str) -> None:
        sys.stdout.write(
            f"ragtrace: {options.command} {address}\nCtrl-C ends it; every label is already in {options.history}\n"
        )
        flush(sys.stdout)
        if options.open:
            import webbrowser

            webbrowser.open(address)

    settings = SiteSettings(
        history=options.history,
        token=secrets.token_urlsafe(32),
        port=options.port,
        metric=options.metric,
        reviewer=options.reviewer,
        is_blind=not options.show_marks,
        trace_url=options.trace_url,
        start=options.start,
    )
    serve_site(settings, announce)
    return OK
