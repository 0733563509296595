"""Processes that claim the same calls at the same time, and print those that they have claimed.

`python -m tests.support.claim_worker URL WORKERS CALLS SECONDS`, where each question is asked again for some seconds if
the store does not answer.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from time import monotonic
from typing import Final, TypeVar

from ragtrace.fleet.claims import RedisClaims
from tests.support.fleet import claim

T = TypeVar("T")
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.05


def claims_of_workers(
    url: str, workers: int, calls: int, interrupt: Callable[[], object] | None = None
) -> Counter[int]:
    """Run the processes; return how often each call was claimed.

    Args:
        url: the Redis with the claims.
        workers: number of processes.
        calls: number of calls that each of them tries to claim.
        interrupt: called when a quarter of the calls are claimed; the store need not answer for as long as it takes.
    """
    seconds = "0" if interrupt is None else str(_PATIENCE_S)
    argv = [sys.executable, "-m", __name__, url, str(workers), str(calls), seconds]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        claimed = [int(line) for line in islice(process.stdout, calls // 4)]
        if interrupt is not None:
            interrupt()
        claimed += map(int, process.stdout)
    assert process.returncode == 0
    return Counter(claimed)


def _claim(number: int, url: str, calls: int, seconds: float) -> None:
    claims = RedisClaims(url)
    _started.wait()
    for call in range(calls):
        if _asked(partial(claim, claims, f"{call:032x}", str(number)), seconds) == "claimed":
            os.write(1, b"%d\n" % call)  # one write: the processes share the pipe
            _asked(partial(claims.confirm, f"{call:032x}"), seconds)


def _asked(ask: Callable[[], T], seconds: float) -> T:
    """Return what the store answers, and ask it again for some seconds while it does not."""
    until = monotonic() + seconds
    while True:
        try:
            return ask()
        except Exception:  # noqa: PERF203 - what may fail is the one step of the loop
            if monotonic() > until:
                raise
            threading.Event().wait(_PAUSE_S)  # the store needs the processors to come back


if __name__ == "__main__":
    _url, _workers, _calls, _seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    _forking = multiprocessing.get_context("fork")  # one import for all workers
    _started = _forking.Barrier(_workers)
    _processes = [_forking.Process(target=_claim, args=(number, _url, _calls, _seconds)) for number in range(_workers)]
    for _process in _processes:
        _process.start()
    for _process in _processes:
        _process.join()
    sys.exit(max(abs(_process.exitcode or 0) for _process in _processes))
