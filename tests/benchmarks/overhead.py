"""What watching costs the application, next to OpenTelemetry by hand, in one run.

    python tests/benchmarks/overhead.py [--rounds 9] [--calls 500] [--only request,states,threads,spread,peers,lag]
                                        [--peers PYTHON,...] [--quick] [--strict]

Three functions (retrieve, generate, and the workflow around them), a query of 80 characters, 5 contexts of 800, an
answer of 400. How the rounds are taken and why every subject has a process of its own: `support.py`. The garbage
collector is off while anything is timed, flushes are outside, and a subject that counts its spans must have exported
three for each call (in a provider that holds nothing back, a fourth carries the scores).

- request: CPU time of the thread that serves the request, calls one right after the other.
- states: the same while something behind it is broken, divided by the healthy state.
- threads: CPU time of all threads until everything is exported over OTLP/HTTP to another process; no scoring.
- spread: as request, with 2 ms before each call: the background works in between, and the caches are cold.
- peers: other libraries, where they can be imported (`peers.txt`; `--peers`: interpreters that have them).
- lag: how late an asyncio loop runs what is due, 99th percentile, at 100 calls a second.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

from tests.benchmarks.support import ROOT, Line, Row, interleaved, lines, show, started

HAND, HAND_ASYNC, HEALTHY, BARE = "OpenTelemetry by hand", "by hand, async", "healthy", "undecorated"
OFF: Final = {"OTEL_TRACES_SAMPLER": "always_off"}
PARENT_OFF: Final = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}

REQUEST: Final = (
    Row(HAND, "handwritten:sync"),
    Row("the same again (noise)", "handwritten:sync", HAND),
    Row("undecorated", "application:bare", HAND),
    Row("ragtrace, switched off", "ours:unconfigured", HAND),
    Row("ragtrace", "ours:light", HAND, 0.25),
    Row("ragtrace, no scoring", "ours:light_unscored", HAND, 0.25),
    Row(HAND_ASYNC, "handwritten:asynchronous", HAND),
    Row("ragtrace, async", "ours:light_async", HAND_ASYNC, 0.25),
    Row("ragtrace in a user's provider", "ours:standard", HAND, 1.1, spans=4.0),
    Row("  the same, no scoring", "ours:standard_unscored", HAND, 1.1),
    Row("  with HoldProcessor", "ours:standard_hold", HAND, 1.1),
    Row("  with a processor that sees starts", "ours:standard_watched", HAND),
    Row("by hand, always_off", "handwritten:sync", HAND, environ=OFF, spans=None),
    Row("ragtrace, always_off", "ours:light", HAND, 0.05, environ=OFF, spans=None),
    Row("ragtrace, parentbased_always_off", "ours:light", HAND, 0.05, environ=PARENT_OFF, spans=None),
    Row("  in a user's provider, always_off", "ours:standard", HAND, environ=OFF, spans=None),
)
STATES: Final = (
    Row(HEALTHY, "ours:healthy"),
    Row("healthy again (noise)", "ours:healthy", HEALTHY),
    Row("judge takes 30 s", "ours:judge_hangs", HEALTHY, 1.1, spans=None),
    Row("queue full", "ours:queue_full", HEALTHY, 1.1, spans=None),
    Row("exporter hangs", "ours:exporter_hangs", HEALTHY, 1.1, spans=None),
    Row("exporter refused", "ours:exporter_refused", HEALTHY, 1.1, spans=None),
)
THREADS: Final = (
    Row(HAND, "handwritten:otlp"),
    Row("the same again (noise)", "handwritten:otlp", HAND),
    Row("ragtrace, spans", "ours:otlp_spans", HAND, 0.7),
    Row("  with OpenTelemetry's exporter", "ours:otlp_spans_sdk", HAND),
    Row("ragtrace, spans and metrics", "ours:otlp", HAND, 1.0),
)
SPREAD: Final = tuple(row for row in REQUEST if "async" not in row.label)
PEERS: Final = {
    "traceloop": Row("traceloop-sdk", "peers:traceloop", HAND),
    "openinference.instrumentation": Row("openinference-instrumentation", "peers:openinference", HAND),
    "langfuse": Row("langfuse", "peers:langfuse", HAND),
    "logfire": Row("logfire", "peers:logfire", HAND),
    "pydantic_evals.online": Row("pydantic-evals online, with logfire", "peers:pydantic_evals", HAND, spans=None),
}
"""By the module that must be there."""
LAG: Final = (
    Row(BARE, "application:bare_paced"),
    Row("the same again (noise)", "application:bare_paced", BARE),
    Row("ragtrace, no scoring", "ours:light_paced_unscored", BARE),
    Row("ragtrace, every call screened", "ours:light_paced", BARE),
)
LAG_BOUND_US: Final = 2_000.0
GROUPS: Final = ("request", "states", "threads", "spread", "peers", "lag")


@contextmanager
def receiver() -> Iterator[dict[str, str]]:
    """An OTLP/HTTP receiver in another process; gives the environment that sends everything there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.subjects.receiver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{int(process.stdout.readline())}"}
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=10)


def measured(title: str, rows: Sequence[Row], rounds: int, **order: Any) -> list[Line]:
    """Measure *rows*, print their table, and return it."""
    with started(rows) as processes:
        table = lines(rows, interleaved(processes, rounds, **order))
    show(title, "us/call" if "lag" not in title else "us", table)
    return table


def all_threads(rounds: int, calls: int) -> list[Line]:
    """The table of all threads' CPU time, with a receiver."""
    with receiver() as environ:
        rows = [replace(row, environ=environ) for row in THREADS]
        return measured(
            "threads: CPU time of all threads, exported over OTLP", rows, rounds, measure="process", calls=calls
        )


def loop_lag(rounds: int, seconds: float) -> bool:
    """The table of the loop's lag; whether ragtrace adds less than the bound."""
    table = measured(
        "lag: 99th percentile of the event loop's lag", LAG, rounds, measure="lag", seconds=seconds, rate=100
    )
    added = table[-1].values[0] - table[0].values[0]
    kept = added <= LAG_BOUND_US
    print(f"added by ragtrace: {added:.0f} us, bound {LAG_BOUND_US:.0f} {'kept' if kept else 'MISSED'}")
    return kept


def has(python: str, module: str) -> bool:
    """Whether that interpreter can import *module*."""
    command = [python, "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0


def peers(pythons: Sequence[str]) -> list[Row]:
    """A row for each peer that one of the interpreters has; the others are printed as skipped."""
    rows: list[Row] = []
    for module, row in PEERS.items():
        python = next((python for python in pythons if has(python, module)), None)
        if python is None:
            print(f"skipped: {row.label} (no module {module}; see peers.txt)")
        else:
            rows.append(replace(row, python=python))
    return rows


def run(groups: Sequence[str], rounds: int, calls: int, seconds: float, pythons: Sequence[str]) -> bool:
    """Measure the groups asked for; whether every bound was kept."""
    tables: list[Line] = []
    kept = True
    if "request" in groups:
        tables += measured("request: CPU time of the request's thread", REQUEST, rounds, measure="thread", calls=calls)
    if "states" in groups:
        title = "states: CPU time of the request's thread while something is broken"
        tables += measured(title, STATES, rounds, measure="thread", calls=calls)
    if "threads" in groups:
        tables += all_threads(rounds, calls)
    if "spread" in groups:
        title = "spread: CPU time of the request's thread, 2 ms before each call"
        tables += measured(title, SPREAD, rounds, measure="spread", calls=calls // 2, pause=0.002)
    if "peers" in groups and (found := peers(pythons)):
        rows = [*REQUEST[:2], *(row for row in REQUEST if row.label == "ragtrace"), *found]
        measured("peers: CPU time of the request's thread", rows, rounds, measure="thread", calls=calls)
    if "lag" in groups:
        kept = loop_lag(rounds, seconds)
    return kept and all(line.kept is not False for line in tables)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=500, help="calls in each round")
    parser.add_argument("--only", default="request,states,threads,peers", help=f"of {','.join(GROUPS)}")
    parser.add_argument("--lag", action="store_true", help="also the loop's lag")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a round of the lag")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON,...", help="interpreters that have them")
    parser.add_argument("--quick", action="store_true", help="a smoke test: two short rounds, figures without meaning")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    groups = [*options.only.split(","), *(["lag"] if options.lag else [])]
    unknown = set(groups) - set(GROUPS)
    if unknown:
        raise SystemExit(f"no such table: {', '.join(sorted(unknown))}; known: {', '.join(GROUPS)}")
    rounds, calls, seconds = (2, 50, 1.0) if options.quick else (options.rounds, options.calls, options.seconds)
    load = "/".join(f"{number:.1f}" for number in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    machine = f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}"
    print(f"{machine}, {rounds} rounds of {calls} calls")
    kept = run(groups, rounds, calls, seconds, options.peers.split(","))
    raise SystemExit(1 if options.strict and not kept else 0)


if __name__ == "__main__":
    main()
