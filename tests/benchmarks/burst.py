"""What a burst and an overload leave behind: where every span went, how much memory it took, how long a flush takes.

    python -m tests.benchmarks.burst [--calls 10000] [--seconds 60] [--only burst,overload,flush]

- *burst*: so many calls at once over OTLP/HTTP to another process. Every span must be delivered or counted as lost, and
  every call be accounted for.
- *overload*: one thread makes calls with large contexts as fast as it can, for a minute, while the judge takes 30 s for
  each. Resident memory, beyond what the process had before, must stay within 2.5 times `queue_bytes`: what is alive is
  within it, but the allocator keeps much of what is freed.
- *flush*: 900 calls, a judge that answers at once. Bound: 1 s.

Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

from tests.benchmarks.support import ROOT

QUEUE_BYTES: Final = 64 << 20
SLACK_BYTES: Final = QUEUE_BYTES * 3 // 2
FLUSH_CALLS: Final = 900
FLUSH_BOUND_S: Final = 1.0
LARGE_CHARS: Final = 20_000


def resident_bytes() -> int:
    """Memory that this process has now (Linux), or has had at most (elsewhere)."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * 4096
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def burst(calls: int, _: float) -> dict[str, Any]:
    """Make *calls* calls, one right after the other, and wait until all is delivered or lost."""
    import ragtrace
    from tests.benchmarks.subjects.ours import ask
    from tests.support.otlp import HttpReceiver

    with HttpReceiver() as receiver:
        import os

        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{receiver.endpoint}/v1/traces"
        ragtrace.configure(service="burst", exporter="otlp")
        began = monotonic()
        made = _make(ask, calls)
        flushed = ragtrace.flush(120.0)
        took = monotonic() - began
        stats = ragtrace.stats()
        delivered = len(receiver.spans)
        ragtrace.shutdown()
    lost = sum(count for place, count in stats.faults.items() if place.startswith("lost spans"))
    tally = next(iter(stats.evaluators.values()))
    return {
        "calls": calls,
        "made_s": made,
        "settled_s": took,
        "spans": 3 * calls,
        "delivered": delivered,
        "lost": lost,
        "scored": tally.scored + tally.partial,
        "dropped": dict(tally.dropped),
        "kept": flushed and delivered + lost == 3 * calls and tally.offered == tally.settled == calls,
    }


def _make(ask: Callable[[str], object], calls: int) -> float:
    from itertools import cycle, islice

    from tests.benchmarks.subjects.application import QUERIES

    began = monotonic()
    for query in islice(cycle(QUERIES), calls):
        ask(query)
    return monotonic() - began


def overload(_: int, seconds: float) -> dict[str, Any]:
    """Make calls with large texts for *seconds*, while nothing is judged; the largest growth of memory."""
    import ragtrace
    from tests.benchmarks.subjects.handwritten import Forgetting
    from tests.benchmarks.subjects.ours import SlowJudge

    @ragtrace.generate
    def answer(question: str, contexts: list[str]) -> str:
        return "In " + question

    every = ragtrace.Sampling(rate=1.0)
    ragtrace.configure(
        exporter=Forgetting(),
        screen=None,
        judge=SlowJudge(30.0),
        sampling=every,
        limits=ragtrace.Limits(queue_bytes=QUEUE_BYTES),
    )
    answer("warm up", ["x"])
    before, most, calls = resident_bytes(), 0, 0
    ends = monotonic() + seconds
    while monotonic() < ends:
        for _number in range(50):
            calls += 1
            answer(f"question {calls}", [f"{calls} " + "x" * LARGE_CHARS for _text in range(5)])
        most = max(most, resident_bytes() - before)
    stats = ragtrace.stats()
    tally = next(iter(stats.evaluators.values()))
    bound = QUEUE_BYTES + SLACK_BYTES
    return {
        "calls": calls,
        "pending": tally.pending,
        "dropped": dict(tally.dropped),
        "grew_mib": most / (1 << 20),
        "bound_mib": bound / (1 << 20),
        "kept": most <= bound and tally.offered == tally.settled + tally.pending,
    }


def flush(_: int, __: float) -> dict[str, Any]:
    """Seconds that a flush takes after 900 calls, with a judge that answers at once."""
    import ragtrace
    from tests.benchmarks.subjects.handwritten import Forgetting
    from tests.benchmarks.subjects.ours import SlowJudge, ask

    every = ragtrace.Sampling(rate=1.0)
    ragtrace.configure(exporter=Forgetting(), screen=None, judge=SlowJudge(0.0), sampling=every)
    _make(ask, 30)
    ragtrace.flush(30.0)
    _make(ask, FLUSH_CALLS)
    began = monotonic()
    done = ragtrace.flush(30.0)
    took = monotonic() - began
    return {"calls": FLUSH_CALLS, "seconds": took, "bound_s": FLUSH_BOUND_S, "kept": done and took < FLUSH_BOUND_S}


SUBJECTS: Final[Mapping[str, Callable[[int, float], dict[str, Any]]]] = {
    "burst": burst,
    "overload": overload,
    "flush": flush,
}


def measured(name: str, calls: int, seconds: float) -> dict[str, Any]:
    """Run one of `SUBJECTS` in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.burst", "--inside", name]
    command += ["--calls", str(calls), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=seconds + 300, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000, help="calls of the burst")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the overload lasts")
    parser.add_argument("--only", default=",".join(SUBJECTS), help=f"of {','.join(SUBJECTS)}")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(SUBJECTS[options.inside](options.calls, options.seconds)), flush=True)
        return 0
    kept = True
    for name in options.only.split(","):
        result = measured(name, options.calls, options.seconds)
        kept = kept and bool(result["kept"])
        told = ", ".join(
            f"{key} {value:.2f}" if type(value) is float else f"{key} {value}" for key, value in result.items()
        )
        print(f"{name}: {told}", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
