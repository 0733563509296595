"""What is lost when things around ragtrace fail: a backend that is away, a slow judge, kills, signals, forks.

    python -m tests.benchmarks.reliability [--seconds 60] [--rounds 60] [--only outage,judge,kills,signals,forks]

- *outage*: 150 calls a second while the collector refuses every connection. Every call must be scored, kept in the
  history and seen by the observer that alerts are; spans and events may be lost, and are then counted.
- *judge*: 70 calls a second, all for a judge that takes 2 s. Every call must have its screen score.
- *kills*: processes that score the calls of a spool are killed at a random moment. The score of every call must have
  been exported in the end, at least once, always under the same id. The history may lack what was kept in the last
  second before a kill.
- *signals*: processes with calls that wait for their judge get SIGTERM twice, up to half a second apart; the handler
  calls `sys.exit`. Every call must be scored, or in the spool.
- *forks*: children are forked from a process that has the history open, and a process refuses a second `configure`.
  Every row must be in the history.

Each part runs in processes of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

from ragtrace.core import semconv
from ragtrace.core.labels import Claim
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from tests.benchmarks.support import ROOT

OUTAGE_RATE: Final = 150.0
JUDGE_RATE: Final = 70.0
JUDGE_SECONDS: Final = 2.0
SPOOLED: Final = 20
"""Calls of each process that is told to end."""
KILLED_CALLS: Final = 400
_MODULE: Final = "tests.benchmarks.reliability"


def _count(path: Path, query: str) -> int:
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute(query).fetchone()[0])


def _at_a_rate(call: Callable[[int], object], rate: float, seconds: float) -> int:
    """Make calls for so many *seconds*, on time where the machine allows it."""
    began, made = monotonic(), 0
    while (now := monotonic() - began) < seconds:
        while made < now * rate:
            call(made)
            made += 1
        threading.Event().wait(1 / rate)
    return made


def outage(seconds: float, rate: float = OUTAGE_RATE) -> dict[str, Any]:
    """Refuse every connection for *seconds* while calls are made."""
    import ragtrace
    from ragtrace.alerts import Alerting
    from tests.support.otlp import HttpReceiver
    from tests.support.watched import ask

    seen, watch = [0], Alerting.__call__

    def count(alerting: Alerting, call: Any, evaluations: Any, decision: Any = None) -> None:
        seen[0] += bool(evaluations)
        watch(alerting, call, evaluations, decision)

    setattr(Alerting, "__call__", count)  # noqa: B010 - there is nothing public that counts what an alert has seen
    with HttpReceiver() as receiver, tempfile.TemporaryDirectory() as folder:
        os.environ.update(receiver.environ)
        path = Path(folder, "history.db")
        ragtrace.configure(service="s", store=path, alerts=[ragtrace.Alert("answered", below=0.5)])
        with receiver.refusing():
            made = _at_a_rate(lambda number: ask(f"question {number}?"), rate, seconds)
            ragtrace.flush(2.0)
            stats = ragtrace.stats()
            kept = _count(path, "SELECT count(*) FROM calls")
        ragtrace.shutdown(5.0)
    lost = {place: number for place, number in stats.faults.items() if place.startswith("lost")}
    dropped = stats.dropped.get("queue_full", 0)
    return {"calls": made, "scored": stats.scored, "kept": kept, "alerted": seen[0], "dropped": dropped, **lost}


def slow_judge(seconds: float, rate: float = JUDGE_RATE) -> dict[str, Any]:
    """Have every call judged by a judge that takes two seconds."""
    import ragtrace
    from ragtrace.testing import Captured
    from tests.support.scored import EVERY
    from tests.support.watched import ask

    ragtrace.configure(exporter=Captured().signals, judge=SlowJudge(JUDGE_SECONDS), sampling=EVERY)
    made = _at_a_rate(lambda number: ask(f"question {number}?"), rate, seconds)
    ragtrace.flush(5.0)
    screened, judged = (ragtrace.stats().evaluators[name] for name in ("embedded", "slow"))
    ragtrace.shutdown(5.0)
    return {
        "calls": made,
        "screened": screened.scored,
        "lost to the screen": screened.offered - screened.scored,
        "judged": judged.scored,
        "judge queue full": judged.dropped.get("queue_full", 0),
        "judge pending": judged.pending,
    }


class SlowJudge:
    """A judge that takes its time."""

    id, version = "slow", "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def offers(self, metric: Metric) -> bool:
        return metric.name == "faithfulness"

    async def judge(self, call: RagCall) -> Judgement:
        await asyncio.sleep(self._seconds)
        return Judgement(claims=(Claim(call.answer or "", 0, len(call.answer or ""), "supported", evidence=(0,)),))


class Journal(LogRecordExporter):
    """Writes the score ids of the judge's evaluations to a file, one system call each: it outlives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        for each in batch:
            of = each.log_record.attributes or {}
            if of.get(semconv.EVALUATION_NAME) == "faithfulness":
                os.write(self._file, f"{each.log_record.trace_id:032x} {of[semconv.EVAL_SCORE_ID]}\n".encode())
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        os.close(self._file)


# --- processes that end ---------------------------------------------------------------------------------------------


def ending(folder: str) -> None:
    """A process whose calls wait for their judge, until SIGTERM."""
    import ragtrace
    from tests.support.scored import EVERY
    from tests.support.watched import ask, limited, watch

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(3)

    signal.signal(signal.SIGTERM, end)
    name = os.getpid()
    watch(
        judge=limited(SlowJudge(30.0), concurrency=4),
        sampling=EVERY,
        limits=ragtrace.Limits(spool=Path(folder, "spool.db")),
        store=Path(folder, "history.db"),
        metrics=["faithfulness", "answered"],
    )
    for number in range(SPOOLED):
        ask(f"question {name} {number}?")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ragtrace.flush(0.2)
    while True:
        signal.pause()


def scoring(folder: str) -> None:
    """A process that scores what is in the spool, until it is killed or nothing is left."""
    import ragtrace
    from ragtrace.core.types import Signals
    from ragtrace.fleet.spool import Spool
    from tests.support.scored import EVERY
    from tests.support.watched import limited

    path, journal = Path(folder, "spool.db"), Journal(Path(folder, "journal"))
    ragtrace.configure(
        exporter=Signals(None, None, journal, immediate=True),
        judge=limited(SlowJudge(0.05), concurrency=4),
        sampling=EVERY,
        limits=ragtrace.Limits(spool=path),
        store=Path(folder, "history.db"),
        metrics=["faithfulness", "answered"],
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while Spool(str(path)).contents().calls:
        ragtrace.flush(1.0)
    ragtrace.shutdown(5.0)


def _started(role: str, folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", _MODULE, role, folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _told_to_end(folder: str, pause: float) -> None:
    with _started("ending", folder) as process:
        for wait in (pause, 0.0):
            process.send_signal(signal.SIGTERM)
            threading.Event().wait(wait)
        process.wait(30)


def signals(rounds: int) -> dict[str, Any]:
    """Tell *rounds* processes to end, each of them twice."""
    chance, lost = random.Random(3), 0
    with tempfile.TemporaryDirectory() as folder:
        spool, store = Path(folder, "spool.db"), Path(folder, "history.db")
        for round_ in range(rounds):
            _told_to_end(folder, chance.uniform(0.0, 0.5))
            lost = SPOOLED * (round_ + 1) - _count(spool, "SELECT count(*) FROM calls")
        screened = _count(store, "SELECT count(*) FROM calls")
    return {"calls": rounds * SPOOLED, "not in the spool": lost, "not in the history": rounds * SPOOLED - screened}


def kills(rounds: int) -> dict[str, Any]:
    """Kill *rounds* processes that score the calls of a spool, and let a last one come to its end."""
    chance = random.Random(5)
    with tempfile.TemporaryDirectory() as folder:
        spool, store = Path(folder, "spool.db"), Path(folder, "history.db")
        filled = max(1, KILLED_CALLS // SPOOLED)
        for _ in range(filled):
            _told_to_end(folder, 0.0)
        before, killed = _count(spool, "SELECT count(*) FROM calls"), 0
        for _ in range(rounds):
            with _started("scoring", folder) as process:
                threading.Event().wait(chance.uniform(0.0, 0.6))
                killed += process.poll() is None
                process.kill()
        with _started("scoring", folder) as process:
            process.wait(120)
        lines = Path(folder, "journal").read_text().split("\n")[:-1]
        judged = "SELECT count(DISTINCT number) FROM evaluations JOIN evaluators ON evaluator = id WHERE name = 'slow'"
        return {
            "calls": before,
            "killed": killed,
            "exported": len({line.split()[0] for line in lines}),
            "twice under one id": len(lines) - len(set(lines)),
            "under two ids": len(set(lines)) - len({line.split()[0] for line in lines}),
            "left in the spool": _count(spool, "SELECT count(*) FROM calls"),
            "in the history": _count(store, judged),
        }


def forks(rounds: int) -> dict[str, Any]:
    """Fork children from a process that has the history open; refuse a second `configure`."""
    wanted = found = 0
    for experiment in ("forked", "refused") * rounds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "history.db")
            done = subprocess.run(
                [sys.executable, "-m", "tests.support.store_workers", experiment, str(path)],
                capture_output=True, text=True, cwd=ROOT, check=True, timeout=300,
            )  # fmt: skip
            wanted, found = wanted + int(done.stdout), found + _count(path, "SELECT count(*) FROM calls")
    return {"rows": wanted, "in the history": found}


def main() -> None:
    """Run the parts that were asked for, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="outage,judge,kills,signals,forks")
    chosen = parser.parse_args()
    parts: Mapping[str, Callable[[], Mapping[str, Any]]] = {
        "outage": lambda: _in_a_process("outage", chosen.seconds),
        "judge": lambda: _in_a_process("slow_judge", chosen.seconds),
        "kills": lambda: kills(chosen.rounds),
        "signals": lambda: signals(chosen.rounds),
        "forks": lambda: forks(max(1, chosen.rounds // 3)),
    }
    for name in chosen.only.split(","):
        figures = ", ".join(f"{what}: {figure}" for what, figure in parts[name]().items())
        print(f"{name:8} {figures}", flush=True)


def _in_a_process(role: str, seconds: float) -> Mapping[str, Any]:
    import json

    done = subprocess.run(
        [sys.executable, "-m", _MODULE, role, str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    figures: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("ending", "scoring"):
        {"ending": ending, "scoring": scoring}[sys.argv[1]](sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] in ("outage", "slow_judge"):
        import json

        print(json.dumps({"outage": outage, "slow_judge": slow_judge}[sys.argv[1]](float(sys.argv[2]))))
    else:
        main()
