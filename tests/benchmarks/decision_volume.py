"""Whether a process keeps its memory and loses nothing when a decision model judges every one of many calls.

    python -m tests.benchmarks.decision_volume [--calls 1000000] [--in-flight 64] [--store PATH]

One process makes calls and judges each by a `DecisionJudge`, over HTTP, at a server in a process of its own that gives
every request the same reply. Calls are made as fast as they are judged: no more than a queue's length waits.

Printed at each twentieth of the run: calls scored, resident memory, and the minutes so far; at the end what became of
the calls, and what the exporters received. The exit status is 1 if a call was lost, or if the memory grew by more than
a twentieth in the second half of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import openai
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace import DecisionJudge, JudgeLimits
from ragtrace.testing import DecisionServer, Reply
from tests.benchmarks.judge_cpu import CALL

PARTS: Final = 20
MOST_GROWTH: Final = 1.05
"""Most memory at the end, of that after half of the calls, when every queue, cache and buffer has been filled."""
WAITING: Final = 1_000
"""Calls that may wait for the judge before the next one is made."""


class CountingSpans(SpanExporter):
    """Counts the spans of calls that it is given, and apart from them the carriers of late scores."""

    def __init__(self) -> None:
        self.count = self.carriers = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count *spans*."""
        late = sum(bool(span.links) for span in spans)  # a carrier has a link to the span that was not held so long
        self.carriers += late
        self.count += len(spans) - late
        return SpanExportResult.SUCCESS


class CountingLogs(LogRecordExporter):
    """Counts the evaluation events that it is given."""

    def __init__(self) -> None:
        self.count = 0

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Count the events of *batch*."""
        self.count += len(batch)
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing waits."""
        return True

    def shutdown(self) -> None:
        """Nothing is open."""


def serve() -> None:
    """Serve the reply that is read from standard input until it ends; print the requests that came."""
    with DecisionServer(Reply(body=sys.stdin.readline().encode())) as server:
        print(server.url, flush=True)
        sys.stdin.readline()


async def reply() -> str:
    """Return a decision server's reply to the request that the judge makes for the call, as JSON."""
    server = DecisionServer()
    with server:
        judge = DecisionJudge("judge", base_url=server.url, api_key="any")
        await judge.judge(CALL)
        await judge.aclose()
        client = openai.AsyncOpenAI(base_url=server.url, api_key="any")
        got = await client.post("/decisions", cast_to=str, body=server.decisions[0].body)
        await client.close()
    return got


def memory_mib() -> float:
    """Resident memory of this process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) / 1024


def run(url: str, calls: int, in_flight: int, store: str | None) -> bool:
    """Make and judge the calls, print what became of them, and return whether all is well."""
    spans, events = CountingSpans(), CountingLogs()
    ragtrace.configure(
        service="volume",
        screen=None,
        judge=DecisionJudge("judge", base_url=url, api_key="any", limits=JudgeLimits(concurrency=in_flight)),
        sampling=ragtrace.Sampling(rate=1.0),
        exporter=ragtrace.types.Signals(spans=spans, logs=events),
        store=store,
    )
    chunks, answer = [document.text for document in CALL.contexts or ()], CALL.answer or ""

    @ragtrace.retrieve
    def search(question: str) -> list[str]:
        return chunks

    @ragtrace.trace
    def ask(question: str) -> str:
        search(question)
        return answer

    began, cpu, pause = perf_counter(), process_time(), threading.Event()
    seen = list[float]()
    print("| calls scored | memory | minutes |\n|--:|--:|--:|", flush=True)
    for number in range(1, calls + 1):
        ask(f"{CALL.query} ({number})")
        if number % 100 == 0:
            while ragtrace.stats().pending > WAITING:
                pause.wait(0.01)
        if number % (calls // PARTS) == 0:
            seen.append(memory_mib())
            minutes = (perf_counter() - began) / 60
            print(f"| {ragtrace.stats().scored:,} | {seen[-1]:.0f} MiB | {minutes:.1f} |", flush=True)
    flushed = ragtrace.flush(timeout=120.0)
    stats, last = ragtrace.stats(), memory_mib()
    ragtrace.shutdown(timeout=120.0)
    took = process_time() - cpu
    print(
        f"\nscored {stats.scored:,} of {calls:,}; dropped {dict(stats.dropped)}, failed {dict(stats.failed)};", end=" "
    )
    print(f"faults {dict(stats.faults)}; spans {spans.count:,}, evaluation events {events.count:,}")
    print(f"{spans.carriers:,} calls were judged after their spans had been held for long enough, and have carriers")
    print(f"{1e3 * took / calls:.2f} ms CPU a call, of the application, the judge's requests and the export")
    half = seen[PARTS // 2 - 1]
    print(f"memory {last / half:.2f} of that after half of the calls, {last / seen[0]:.2f} of that after a twentieth")
    return flushed and stats.scored == calls and spans.count == 2 * calls and last <= MOST_GROWTH * half


def main() -> int:
    """Start the server, run, and return 1 if a call was lost or the memory grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--store", help="history file to keep the calls in (default: none)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    body: Any = asyncio.run(reply())
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.decision_volume", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(body.replace("\n", " ") + "\n")
        server.stdin.flush()
        try:
            well = run(server.stdout.readline().strip(), options.calls, options.in_flight, options.store)
        finally:
            server.kill()
    return 0 if well else 1


if __name__ == "__main__":
    os.environ["OTEL_METRICS_EXPORTER"] = "none"
    sys.exit(main())
