"""Draws docs/dashboard.png: the shipped dashboard, from its own JSON, with data of a real run in a real Prometheus.

Run at the top of the sources, with prometheus and chromium installed:
    python -m tests.benchmarks.dashboard_picture run DATA.json     six minutes of the demo with its simulated release
    python -m tests.benchmarks.dashboard_picture draw DATA.json docs/dashboard.png
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from exporters.make_kits.dashboard import text_of
from exporters.make_kits.rules import Timing, files
from tests.benchmarks.dashboard_drawing import html
from tests.support.kits import filled_in, marks, panels
from tests.support.monitoring import Prometheus, prometheus
from tests.support.otlp import HttpReceiver
from tests.support.services import free_ports

TIMING: Final = Timing(interval="2s", spike="1m", slow="3m", quiet="20s", patience="10s", memory="10m", trouble="1m")
VARIABLES: Final = {
    "window": "1m",
    "service": "docs-assistant",
    "workflow": "ask-documents",
    "metric": "faithfulness",
    "evaluator": "small-judge",
    "__rate_interval": "20s",
    "__range": "6m",
}
PHASES: Final = (("healthy", 130.0), ("release", 110.0), ("healthy", 120.0))
STEP_S: Final = 4.0
WIDTH, HEIGHT = 1600, 2222
"""Up to the row of the application."""


def run(data: Path) -> None:
    """The demo under traffic: healthy, then the release, then taken back; every target's answer goes to *data*."""
    with tempfile.TemporaryDirectory() as folder, free_ports(1) as (port,), HttpReceiver() as receiver:
        work = Path(folder)
        variables = {"RAGTRACE_PROMETHEUS_PORT": str(port)}
        with prometheus(work, [f"127.0.0.1:{port}"], files(TIMING), interval="2s", job="docs-assistant") as server:
            command = [sys.executable, "-m", "tests.support.demo_service"]
            environ = {**os.environ, **receiver.environ, **variables}
            with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, text=True) as application:
                assert application.stdin is not None
                server.wait_for("ragtrace:1m:value", 120)
                for model, seconds in PHASES:
                    print(f"{model}: {seconds:g} s", flush=True)
                    application.stdin.write(f"{model}\n")
                    application.stdin.flush()
                    threading.Event().wait(seconds)
                data.write_text(json.dumps(_collected(server)))
                application.stdin.close()
                application.wait(timeout=30)


def _shown() -> dict[str, Any]:
    """The shipped dashboard, for rules whose windows are as short as the run."""
    found: dict[str, Any] = json.loads(text_of(TIMING))
    return found


def _collected(server: Prometheus) -> dict[str, Any]:
    """What a panel or a mark asks for, with the answers."""
    board = _shown()
    found = [
        {"panel": panel, "answers": [_answer(server, target) for target in panel.get("targets") or ()]}
        for panel in panels(board)
    ]
    return {"panels": found, "marks": [_answer(server, mark) for mark in marks(board)]}


def _answer(server: Prometheus, target: dict[str, Any]) -> dict[str, Any]:
    expr = filled_in(target["expr"], VARIABLES)
    series = server.range(expr, sum(each for _, each in PHASES), STEP_S)
    exemplars = server.exemplar_points(expr) if target.get("exemplar") else []
    return {"target": target, "series": series, "exemplars": exemplars}


def draw(data: Path, picture: Path) -> None:
    """A screenshot of the page that the panels are drawn on."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        rows = [panel for panel in _shown()["panels"] if panel["type"] == "row"]
        page.write_text(html(json.loads(data.read_text()), VARIABLES, rows), encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={folder}/profile", f"--screenshot={picture}"]
        subprocess.run([*command, page.as_uri()], check=True, timeout=120, capture_output=True)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    else:
        draw(Path(sys.argv[2]), Path(sys.argv[3]).resolve())
