"""Server of the site, which listens on this machine alone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from ragtrace.labels.label_store import LabelStore
from ragtrace.system.freed_memory import use_one_heap
from ragtrace.web.kept_reports import KeptReports
from ragtrace.web.rendering import SiteSettings


def serve_site(settings: SiteSettings, announce: Callable[[str], None]) -> None:
    """Serve the site until Ctrl-C.

    Args:
        settings: settings of the page; a port of 0 stands for any free port.
        announce: called with the address of the page once the port is open.

    Raises:
        OSError: the port cannot be listened on.
        SQLiteFileError, sqlite3.Error: the history cannot be used.
    """
    use_one_heap()
    with closing(LabelStore(settings.history)):  # creates the tables of labels in a history that has none
        pass
    with (
        socket.create_server(("127.0.0.1", settings.port)) as listening,
        closing(KeptReports(settings.history)) as reports,
    ):
        if settings.start == "/":
            reports.begin_first()  # while modules and templates are read, the server starts and the browser opens
        import uvicorn

        from ragtrace.web.site import create_application

        # Connections inherit the option, without which each page waits 40 ms for the browser's acknowledgement.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = replace(settings, port=listening.getsockname()[1])
        config = uvicorn.Config(
            create_application(settings, reports),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
        announce(f"http://127.0.0.1:{settings.port}/?token={settings.token}")
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after its last requests
            uvicorn.Server(config).run(sockets=[listening])
