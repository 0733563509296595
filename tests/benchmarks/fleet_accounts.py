"""Accounts of a whole fleet under chaos: senders, `ragtrace serve`, a broker, workers, a judge and an OTLP backend.

`python -m tests.benchmarks.fleet_accounts redis|rabbitmq [--calls 5000] [--seed N] [--kill-gateway 1] ...` sends the
spans of the calls by OTLP/HTTP and OTLP/gRPC. At random moments workers are killed (SIGKILL) and started again, the
broker is stopped, or killed, and started again, the gateway is ended (SIGTERM), or killed, and started again; the judge
answers 429 and 500 to a twentieth of the requests each. At the end it recomputes from what the backend and the dead
letters have what became of every call, and says which statements of the accounting identity hold.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.brokers import rabbitmq_broker, redis_broker
from tests.support.fleet_chaos import Fault, Plan, run_chaos, unreliable
from tests.support.judge_server import JudgeServer
from tests.support.otlp import HttpReceiver

FAULTS: dict[Fault, int] = {
    "kill worker": 8,
    "restart broker": 2,
    "kill broker": 0,
    "restart gateway": 3,
    "kill gateway": 0,
}
"""Number of faults of each kind."""


def main() -> int:
    """Run the experiment, print what was found, and return 0 if every statement holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("broker", choices=["redis", "rabbitmq"])
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    for fault, times in FAULTS.items():
        parser.add_argument(f"--{fault.replace(' ', '-')}", type=int, default=times, metavar="TIMES")
    options = vars(parser.parse_args())
    logging.disable()  # the exporters' lines on requests that they try again
    chances = random.Random(options["seed"])
    faults: list[tuple[float, Fault]] = [
        (chances.uniform(0.05, 0.95), fault) for fault in FAULTS for _ in range(options[fault.replace(" ", "_")])
    ]
    plan = Plan(options["calls"], faults, options["workers"])
    folder = Path(tempfile.mkdtemp())
    make = {"redis": redis_broker, "rabbitmq": rabbitmq_broker}[options["broker"]]
    judge, began = JudgeServer(unreliable(options["seed"], after=0.2)), time.monotonic()
    with make(folder) as broker, judge, HttpReceiver(keep_alive=True) as otlp:
        fleet, found = run_chaos(folder, broker, judge.url, otlp, plan, options["seed"])
    print(f"{options['broker']}, seed {options['seed']}, {plan.workers} workers, {time.monotonic() - began:.0f} s")
    print(f"faults: {dict(fleet.inflicted)}; exit statuses after SIGTERM: {dict(fleet.exits)}")
    dead = dict(Counter(found.dead.values()))
    print(f"accepted {len(found.accepted)}, scored {len(found.scored)}, dead letters {dead}", end=", ")
    print(f"left out {found.left_out}, missing {found.missing}, given to the judge {len(judge.requests)} times")
    print(f"events {found.events}, score ids {len(found.scores)}, counted again {found.counted_again}")
    print(f"open at killed gateways {found.open_at_gateways}, at killed workers {found.open_at_workers}")
    for counts in (found.gateway, found.fleet, found.judge, found.claims):
        print("  ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for statement, holds in found.statements().items():
        print(f"{'holds' if holds else 'BROKEN'}: {statement}")
    return bool(found.broken)


if __name__ == "__main__":
    sys.exit(main())
