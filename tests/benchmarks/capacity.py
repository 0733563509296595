"""Capacity of gateways and workers: how many a number of spans a day needs, and how long calls wait for a judge.

    python tests/benchmarks/capacity.py [--spans-a-day 1e9] [--judged 0.01] [--judge-seconds 2]

The first table multiplies measured constants (`CONSTANTS`, with where each was measured). The second one simulates the
queue: calls arrive at random, each takes a place of a worker for as long as the judge needs (log-normal), seeds are
fixed. Both tables are in docs/scale.md for the default arguments; a test compares them.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from dataclasses import dataclass, replace
from typing import Final

DAY_SECONDS: Final = 86_400.0
SIMULATED_CALLS: Final = 50_000
SEED: Final = 20_261_123


@dataclass(frozen=True)
class Constants:
    """Measured costs of a gateway and of a worker."""

    request_cpu_seconds: float = 0.000_7
    """Processor time of forwarding one request by HTTP (gateway.py --calls 10)."""
    forward_span_cpu_seconds: float = 0.000_002_6
    """Processor time of forwarding one span of 800 bytes, beside that of its request (gateway.py)."""
    read_span_cpu_seconds: float = 0.000_2
    """Processor time of reading one span of a RAG call and putting the call together (gateway.py --subjects read)."""
    screen_cpu_seconds: float = 0.000_5
    """Processor time of the embedded judge for one call (docs/scale.md)."""
    judge_cpu_seconds: float = 0.003_3
    """Processor time of judging one call with all metrics, without that of the broker's client (judge_cpu.py)."""
    message_bytes: int = 2_240
    """Size of a call with 1.1 kB of texts in the broker."""


CONSTANTS: Final = Constants()


@dataclass(frozen=True)
class Traffic:
    """Spans of a fleet's applications, and what is asked of gateways and judge."""

    spans_a_day: float = 1e9
    spans_per_call: float = 3.0
    spans_per_request: float = 100.0
    judged: float = 0.01
    """Share of the calls that the judge sees."""
    judge_seconds: float = 2.0
    """Time that the judge takes for a call."""
    gateway_load: float = 0.6
    """Share of its processor that a gateway may use in the mean: the rest is for peaks."""
    worker_load: float = 0.75
    """Share of its places that a worker may use in the mean: the simulation shows what calls then wait."""
    places: int = 64
    """Calls that a worker has under way at a time."""


@dataclass(frozen=True)
class Capacity:
    """What a traffic needs."""

    spans: float
    """Spans a second."""
    forward_cores: float
    scoring_cores: float
    gateways: int
    judged_calls: float
    """Calls a second that the judge sees."""
    under_way: float
    """Mean number of calls at the judge."""
    workers: int
    backlog_bytes_an_hour: float
    """Growth of the queue while no worker runs."""


def capacity(traffic: Traffic, constants: Constants = CONSTANTS) -> Capacity:
    """Return what *traffic* needs. One gateway is one process, and uses one processor."""
    spans = traffic.spans_a_day / DAY_SECONDS
    calls = spans / traffic.spans_per_call
    forward = spans * (constants.forward_span_cpu_seconds + constants.request_cpu_seconds / traffic.spans_per_request)
    scoring = spans * constants.read_span_cpu_seconds + calls * constants.screen_cpu_seconds
    judged = calls * traffic.judged
    under_way = judged * traffic.judge_seconds
    by_places = under_way / (traffic.places * traffic.worker_load)
    by_cpu = judged * constants.judge_cpu_seconds / traffic.worker_load
    return Capacity(
        spans=spans,
        forward_cores=forward,
        scoring_cores=scoring,
        gateways=max(1, math.ceil((forward + scoring) / traffic.gateway_load)),
        judged_calls=judged,
        under_way=under_way,
        workers=max(1, math.ceil(max(by_places, by_cpu))),
        backlog_bytes_an_hour=judged * constants.message_bytes * 3_600,
    )


@dataclass(frozen=True)
class Waiting:
    """Time that calls wait for a place at a worker."""

    load: float
    """Share of the places that are taken; from 1 on the queue grows."""
    mean_seconds: float
    p99_seconds: float


def simulate(calls_a_second: float, judge_seconds: float, places: int, *, calls: int = SIMULATED_CALLS) -> Waiting:
    """Simulate *calls* that arrive at random and take one of *places* each, first come first served."""
    chance = random.Random(SEED)
    spread = 0.5
    center = math.log(judge_seconds) - spread**2 / 2
    free_at = [0.0] * places
    now, waits = 0.0, []
    for _ in range(calls):
        now += chance.expovariate(calls_a_second)
        begin = max(now, heapq.heappop(free_at))
        heapq.heappush(free_at, begin + chance.lognormvariate(center, spread))
        waits.append(begin - now)
    waits.sort()
    return Waiting(calls_a_second * judge_seconds / places, sum(waits) / calls, waits[calls * 99 // 100])


def capacity_table(traffic: Traffic) -> str:
    """Return the needs of *traffic*, of a hundredth and a tenth of it, and of ten times as much, as Markdown."""
    lines = [
        "| spans a day | spans a second | processors to forward | to read and screen | gateways "
        "| judged calls a second | at the judge | workers | queue grows in an hour without workers |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for factor in (0.01, 0.1, 1, 10):
        found = capacity(replace(traffic, spans_a_day=traffic.spans_a_day * factor))
        lines.append(
            f"| {traffic.spans_a_day * factor:,.0f} | {found.spans:,.0f} | {found.forward_cores:.2f} "
            f"| {found.scoring_cores:.1f} | {found.gateways} | {found.judged_calls:.1f} | {found.under_way:.0f} "
            f"| {found.workers} | {found.backlog_bytes_an_hour / 1e6:,.0f} MB |"
        )
    return "\n".join(lines)


def waiting_table(traffic: Traffic) -> str:
    """Return how long calls of *traffic* wait for a place at the workers, by the number of places, as Markdown."""
    judged = capacity(traffic).judged_calls
    lines = ["| places of all workers | taken | mean wait | 99th percentile |", "|--:|--:|--:|--:|"]
    for factor in (1.0, 1.25, 1.375, 1.5, 2.0):
        places = round(factor * traffic.places)
        found = simulate(judged, traffic.judge_seconds, places)
        waits = f"{found.mean_seconds:.2f} s | {found.p99_seconds:.2f} s" if found.load < 1 else "grows | grows"
        lines.append(f"| {places} | {found.load:.0%} | {waits} |")
    return "\n".join(lines)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Traffic()
    parser.add_argument("--spans-a-day", type=float, default=default.spans_a_day)
    parser.add_argument("--spans-per-call", type=float, default=default.spans_per_call)
    parser.add_argument("--spans-per-request", type=float, default=default.spans_per_request)
    parser.add_argument("--judged", type=float, default=default.judged, help="share of the calls that the judge sees")
    parser.add_argument("--judge-seconds", type=float, default=default.judge_seconds)
    parser.add_argument("--places", type=int, default=default.places, help="--concurrency of a worker")
    traffic = Traffic(**vars(parser.parse_args()))
    print(f"{capacity_table(traffic)}\n\n{waiting_table(traffic)}")


if __name__ == "__main__":
    main()
