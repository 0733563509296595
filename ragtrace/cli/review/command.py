"""Command `ragtrace review`, which serves a web page for labelling stored RAG calls on this machine."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import Any, Final

from ragtrace.cli.options import add_command, report_failure, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, flush, print_error

_REVIEW: Final = """\
Serves a web page on this machine on which people label the calls of a history: first those that `ragtrace calibrate
pick` has picked, then the others, newest first. A call is good, bad or unsure, and each statement of its answer is
supported, not supported or unsure. What the judge said is shown when the label is given, as it would sway the reviewer.
Every label is written to the history at once. Needs the extra `review`.
"""
_NOTES: Final = """\
The page can be opened with the printed address alone: it has a token in it, and only this machine can connect. On
another machine's history, forward the port: ssh -L 8378:127.0.0.1:8378 HOST.

environment:
  RAGTRACE_TRACE_URL   address of a trace in your backend's user interface, with {trace_id} in it

examples:
  ragtrace calibrate pick history.db -n 100 --metric hallucinated
  ragtrace review history.db --reviewer ada
  ragtrace calibrate fit history.db --metric hallucinated

exit status: 0 ended by Ctrl-C, 1 the history cannot be used or the port cannot be listened on, 2 wrong usage
"""
_NEEDED: Final = ("starlette", "uvicorn", "jinja2")


def add(commands: Any) -> None:
    """Add the command `ragtrace review` to the parser of the command line."""
    parser = add_command(commands, "review", run, "label calls on a local web page", _REVIEW, _NOTES)
    parser.add_argument("history", metavar="HISTORY.db", help="the history that configure(store=PATH) keeps")
    parser.add_argument("--metric", metavar="M", help="metric to label (default: the latest picked, else hallucinated)")
    parser.add_argument("--reviewer", metavar="NAME", help="name of the reviewer (default: the page asks for it)")
    parser.add_argument(
        "--show-marks", action="store_true", help="show what the judge said before the label is given, too"
    )
    parser.add_argument(
        "--trace-url", metavar="URL", default=os.environ.get("RAGTRACE_TRACE_URL", ""),
        help="address of a trace in your backend, with {trace_id} in it (default: RAGTRACE_TRACE_URL)",
    )  # fmt: skip
    port = whole_number(0, 65_535)
    parser.add_argument("--port", type=port, default=8378, metavar="N", help="default 8378; 0: any free port")
    parser.add_argument("--open", action="store_true", help="open the page in the web browser")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace review` until it is interrupted, and return the exit status."""
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

    import uvicorn

    from ragtrace.cli.review.site import ReviewSettings, create_application
    from ragtrace.labels.label_store import LabelStore

    with closing(LabelStore(options.history)):  # creates the tables of labels in a history that has none
        pass
    with socket.create_server(("127.0.0.1", options.port)) as listening:
        # Connections inherit the option, without which each page waits 40 ms for the browser's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port: int = listening.getsockname()[1]
        settings = ReviewSettings(
            history=options.history,
            token=secrets.token_urlsafe(32),
            port=port,
            metric=options.metric,
            reviewer=options.reviewer,
            is_blind=not options.show_marks,
            trace_url=options.trace_url,
        )
        config = uvicorn.Config(
            create_application(settings),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        address = f"http://127.0.0.1:{port}/?token={settings.token}"
        sys.stdout.write(f"ragtrace: review {address}\nCtrl-C ends it; every label is already in {options.history}\n")
        flush(sys.stdout)
        if options.open:
            import webbrowser

            webbrowser.open(address)
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after its last requests
            uvicorn.Server(config).run(sockets=[listening])
    return OK
