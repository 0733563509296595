"""A process that offers numbered calls to a history until it is killed, and says when it offered each."""

from __future__ import annotations

import random
import sys
import threading
import time

from ragtrace.history.history import HistoryRecorder
from tests.support.history import SOURCE, Simulated, made


def main() -> None:
    """Arguments: path, name of the process, calls, pause between two of them in seconds."""
    path, name, calls, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    history, rng, between = HistoryRecorder(path, SOURCE), random.Random(name), threading.Event()
    for number in range(calls):
        offered = made(time.time(), Simulated(workflow=f"{name} {number}", probability=1.0), rng)
        sys.stdout.write(f"{number} {time.time()}\n")
        sys.stdout.flush()
        history(offered.call, offered.evaluations, None)
        between.wait(pause)
    if not history.close(30.0):
        sys.exit(3)


if __name__ == "__main__":
    main()
