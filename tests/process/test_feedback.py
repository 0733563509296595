"""Feedback from other processes than the one that made the call: it finds the call by its id, in one history."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 240.0
CALL: Final = """
import ragtrace

ragtrace.configure(store="history.db", exporter="none")

@ragtrace.trace(name="guide")
def ask(question: str) -> str:
    print(ragtrace.call_id())
    return "It is in Paris."

ask("Where is it?")
"""
RATE: Final = """
import sys
import ragtrace

ragtrace.configure(store="history.db", exporter="none")
assert ragtrace.feedback(sys.argv[2] == "good", call=sys.argv[1])
"""


def _run(code: str, where: Path, *arguments: str) -> str:
    """Run *code* in a process of its own, which ends without flush or shutdown of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_"))}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=where,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_feedback_of_two_later_processes_is_one_row_of_the_call(tmp_path: Path) -> None:
    """The last opinion counts, and it is sent at the exit of the process."""
    token = _run(CALL, tmp_path)
    for opinion in ("good", "bad"):
        _run(RATE, tmp_path, token, opinion)
    with closing(sqlite3.connect(tmp_path / "history.db")) as database:
        rows = database.execute("SELECT workflow, score, label FROM calls JOIN feedback USING (identity)").fetchall()
    assert rows == [("guide", 0.0, "thumbs_down")]
