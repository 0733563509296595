"""A fleet under chaos: what becomes of every call while workers are killed and the broker is restarted.

`python -m tests.benchmarks.fleet_chaos redis|rabbitmq [CALLS] [WORKERS] [BROKER_KILLS]` publishes the calls, kills a
worker (SIGKILL) every few seconds and starts another, kills and restarts the broker as often as is said (once), and has
the judge answer 429 and 500 to a twentieth of the requests each. It prints how many calls were scored, and which are
dead letters; the sum must be all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

from ragtrace.pipeline.fleet_broker import CALLS, DEAD_LETTERS, CallBroker
from tests.support.brokers import Broker, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over, running_worker
from tests.support.judge_server import FAILED, JudgeServer, Reply, Request, labels, too_many
from tests.support.otlp import HttpReceiver

KILL_EVERY_S = 4.0
LIMIT_S = 240.0


def rule(request: Request) -> Reply:
    """Answer 429 and 500 to a twentieth of the requests each."""
    chance = random.random()
    return FAILED if chance < 0.05 else too_many(0.2) if chance < 0.1 else labels(after=0.05)


def scored(otlp: HttpReceiver) -> Counter[int]:
    """Return how many scores each call has."""
    return Counter(int(log.trace_id, 16) for log in otlp.logs if "gen_ai.evaluation.score.value" in log.attributes)


def publish(broker: Broker, calls: int) -> None:
    """Put the calls into the queue, each until the broker has confirmed it."""
    publisher = CallBroker(broker.url)
    for number in range(1, calls + 1):
        while True:
            try:
                publisher.publish(handed_over(number))
                break
            except Exception:
                time.sleep(0.2)


def lengths(broker: Broker) -> dict[str, int]:
    """Return the lengths of the queues; none while the broker is away."""
    with suppress(Exception):
        return CallBroker(broker.url).lengths()
    return {CALLS: -1, DEAD_LETTERS: 0}


def run(kind: str, calls: int, workers: int, broker_kills: int) -> bool:
    """Run the experiment, and return whether every call is accounted for."""
    folder = Path(tempfile.mkdtemp())
    make = {"redis": redis_broker, "rabbitmq": rabbitmq_broker}[kind]
    with make(folder) as broker, JudgeServer(rule) as judge, HttpReceiver() as otlp, ExitStack() as stack:
        brokers = stack.enter_context(ExitStack())
        brokers.enter_context(broker.started())
        publishing = Thread(target=publish, args=(broker, calls), daemon=True)
        publishing.start()

        def start(name: str) -> object:
            worker = running_worker(folder, broker.url, judge.url, otlp.environ, name=name, judge_timeout=2.0)
            return stack.enter_context(worker)

        alive = [start(f"worker{number}") for number in range(workers)]
        began, killed, restarts = time.monotonic(), 0, 0
        next_kill = began + KILL_EVERY_S
        while time.monotonic() - began < LIMIT_S:
            found = len(scored(otlp))
            if not publishing.is_alive() and found + lengths(broker)[DEAD_LETTERS] >= calls:
                break
            if time.monotonic() >= next_kill and found < 0.8 * calls:
                victim = alive.pop(0)
                os.kill(victim.pid, signal.SIGKILL)  # type: ignore[attr-defined]
                killed += 1
                alive.append(start(f"worker{workers + killed}"))
                next_kill = time.monotonic() + KILL_EVERY_S
            if restarts < broker_kills and found > calls * (restarts + 1) / (broker_kills + 2):
                restarts += 1
                broker.kill()
                brokers.close()
                brokers.enter_context(broker.started())
            time.sleep(0.2)
        took, counts, dead = time.monotonic() - began, scored(otlp), lengths(broker)[DEAD_LETTERS]
        missing = calls - len(counts) - dead
        print(
            f"{kind}: {calls} calls, {workers} workers, {killed} killed, broker killed {restarts} times, {took:.0f} s"
        )
        print(f"scored {len(counts)}, dead letters {dead}, missing {max(0, missing)}")
        print(f"scored more than once {sum(count > 1 for count in counts.values())}, judge asked {len(judge.requests)}")
        return missing <= 0


if __name__ == "__main__":
    arguments = [*sys.argv[1:], *("redis", "5000", "4", "1")[len(sys.argv) - 1 :]]
    sys.exit(not run(arguments[0], *map(int, arguments[1:])))
