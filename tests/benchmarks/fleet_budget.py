"""Eight workers on one Redis: how much of 600 requests a minute, and of a budget in US dollars, they spend at most.

`python -m tests.benchmarks.fleet_budget [SECONDS]`, 150 s by default; needs redis-server. The judge is a stand-in that
takes 100 ms and costs a random amount; everything else is what a worker runs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support.budget_worker import most_in_window, requests_of_workers
from tests.support.redis_server import redis_server

WORKERS: Final = 8
PER_MINUTE: Final = 600
USD_PER_DAY: Final = 2.0
"""Less than the requests of the run would cost."""


def main(seconds: float) -> None:
    """Run the workers and print the largest spending."""
    limits = {"per_minute": PER_MINUTE, "usd_per_day": USD_PER_DAY}
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder)) as store:
        requests = requests_of_workers(store, WORKERS, seconds, limits)
    most = most_in_window([(one.at, 1.0) for one in requests], 60.0)
    usd = sum(one.usd for one in requests)
    print(
        f"{WORKERS} workers, {seconds:g} s, {len(requests)} requests of {len({one.worker for one in requests})} workers"
    )
    print(f"requests in any 60 s: at most {most:g} = {most / PER_MINUTE:.4f} of {PER_MINUTE}")
    print(f"US dollars: {usd:.4f} = {usd / USD_PER_DAY:.4f} of {USD_PER_DAY}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 150.0)
