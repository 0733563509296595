"""A process that forks in the middle of a call: the call stays the parent's, and the child has calls of its own.

A `StepRecorder` (`ragtrace/recording/recorder.py`) remembers the process that it began in, and records the end of its
step only there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.otlp import HttpReceiver

ROOT: Final = Path(__file__).parents[2]
# Within a call, the process forks. The child makes five calls inside of that call, and both go on with it to its end.
PROGRAM: Final = """
import json, os
import ragtrace
from tests.support.watched import ask

@ragtrace.trace(name="outer")
def outer(question):
    child = os.fork()
    if child == 0:
        for _ in range(5):
            ask(question)
    else:
        os.waitpid(child, 0)
    return ask(question)

ragtrace.configure(service="s")
outer("where?")
assert ragtrace.shutdown(20)
[tally] = ragtrace.stats().evaluators.values()
os.write(1, (json.dumps([tally.offered, tally.scored, tally.pending]) + "\\n").encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_call_that_was_forked_in_ends_once(http_receiver: HttpReceiver) -> None:
    """Both processes return from it; the six calls that the child makes count there, and everything goes out once."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM],
        env={**os.environ, **http_receiver.environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    books = sorted(json.loads(line) for line in done.stdout.splitlines())
    assert books == [[1, 1, 0], [6, 6, 0]], done.stderr
    roots = Counter(span.name for span in http_receiver.spans if "ragtrace.eval.status" in span.attributes)
    assert roots == {"invoke_workflow outer": 1, "invoke_workflow guide": 6}
