"""What tests of the command line share: model servers, a manual for the demo, and the demo's arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.model_server import ModelServer


@contextmanager
def model_servers() -> Generator[Callable[..., ModelServer]]:
    """Context manager that gives a function which starts model servers, and stops them at its end."""
    running: list[ModelServer] = []

    def start(**options: Any) -> ModelServer:
        server = ModelServer(**options)
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    try:
        yield start
    finally:
        for server in running:
            server.shutdown()
            server.server_close()


def write_manual(folder: Path) -> Path:
    """Write a short manual, quick to read, into *folder*; return the folder."""
    sections = (
        f"# Part {name}\n\nThe {name} part lasts {number} years. Clean the {name} part with water.\n"
        for number, name in enumerate(("pump", "valve", "filter", "motor", "gauge", "hose"), start=2)
    )
    (folder / "manual.md").write_text("\n".join(sections), encoding="utf-8")
    return folder


def demo_arguments(docs: Path, *options: str) -> list[str]:
    """Return the arguments of a short demo over *docs*."""
    return ["demo", "--docs", str(docs), "--questions", "8", *options]
