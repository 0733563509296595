"""Processes that claim the same calls at the same time, and print those that they have claimed.

`python -m tests.support.claim_worker URL WORKERS CALLS`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections import Counter

from ragtrace.fleet.claims import open_claims
from tests.support.fleet import claim


def claims_of_workers(url: str, workers: int, calls: int) -> Counter[int]:
    """Run the processes; return how often each call was claimed."""
    argv = [sys.executable, "-m", __name__, url, str(workers), str(calls)]
    output = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Counter(map(int, output.split()))


def _claim(number: int, url: str, calls: int) -> None:
    claims = open_claims(url)
    _started.wait()
    for call in range(calls):
        if claim(claims, f"{call:032x}", str(number)) == "claimed":
            os.write(1, b"%d\n" % call)  # one write: the processes share the pipe
            claims.confirm(f"{call:032x}")


if __name__ == "__main__":
    _url, _workers, _calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _forking = multiprocessing.get_context("fork")  # one import for all workers
    _started = _forking.Barrier(_workers)
    _processes = [_forking.Process(target=_claim, args=(number, _url, _calls)) for number in range(_workers)]
    for _process in _processes:
        _process.start()
    for _process in _processes:
        _process.join()
    sys.exit(max(abs(_process.exitcode or 0) for _process in _processes))
