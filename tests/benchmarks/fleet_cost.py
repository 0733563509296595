"""What a fleet costs: processor time of handing a call over to the broker, and of judging one in a worker.

    python -m tests.benchmarks.fleet_cost publish [--calls 1000] [--rounds 5] [--rates 20 200]
    python -m tests.benchmarks.fleet_cost judge [--seconds 8] [--latency 0.2] [--concurrency 16 64] [--workers 1]

Needs redis-server and rabbitmq-server. Every broker, application, worker and judge is a process of its own.

`publish`: an application makes calls with four documents of 500 characters at a steady rate. The processor time of all
its threads is compared with that of one whose calls the sampler leaves out: the difference is what handing over costs.
`judge`: workers empty a queue; the judge answers each request after the latency. It prints the calls a second, their
share of the ideal (concurrency * workers / latency), and the processor time of a worker for a call.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import ragtrace
from ragtrace.core.types import Document
from ragtrace.fleet.call_message import CallMessage
from tests.benchmarks.subjects.handwritten import Forgetting
from tests.support.brokers import Broker, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over, running_worker
from tests.support.judge_server import JudgeServer, Reply, Request, labels

BROKERS: Final = {"RabbitMQ": rabbitmq_broker, "Redis": redis_broker}
LEFT_OUT: Final = "not sampled"
DOCUMENTS: Final = tuple(f"Document {number}. ".ljust(500, "x") for number in range(4))
TICKS: Final = os.sysconf("SC_CLK_TCK")
SETTLE_S: Final = 2.0
"""Time between the start of the workers and that of the measurement."""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("publish", "judge"))
    parser.add_argument("--brokers", nargs="+", choices=list(BROKERS), default=list(BROKERS))
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=[20.0, 200.0], help="calls a second")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        for kind in options.brokers:
            folder = Path(name) / kind
            folder.mkdir()
            broker = stack.enter_context(BROKERS[kind](folder))
            # Redis as docs/scale.md has it configured; writing each command to the disk, the disk would be measured.
            broker.argv = ["everysec" if word == "always" else word for word in broker.argv]
            brokers[kind] = stack.enter_context(broker.started())
        if options.what == "publish":
            publishing(brokers, options.rates, options.calls, options.rounds)
        else:
            for kind, broker in brokers.items():
                for concurrency in options.concurrency:
                    for workers in options.workers:
                        judging(kind, broker, options.latency, concurrency, workers, options.seconds, Path(name))


# --- publishing ------------------------------------------------------------------------------------------------------


def publishing(brokers: dict[str, Broker], rates: Sequence[float], calls: int, rounds: int) -> None:
    """Print what handing a call over costs an application, in turns with one that leaves its calls out."""
    print("| calls a second | broker | calls | ms of processor time for handing over a call: median (extremes) |")
    print("|--:|---|--:|--:|")
    with ExitStack() as stack:
        left_out = stack.enter_context(application(next(iter(brokers.values())).url, 0.0))
        handing = {kind: stack.enter_context(application(broker.url, 1.0)) for kind, broker in brokers.items()}
        for rate in rates:
            count = min(calls, round(10 * rate))
            seen: dict[str, list[float]] = {kind: [] for kind in brokers}
            for _ in range(rounds):
                base = left_out(count, rate)
                for kind, broker in brokers.items():
                    seen[kind].append((handing[kind](count, rate) - base) / count * 1e3)
                    broker.purge()
            for kind, times in seen.items():
                print(
                    f"| {rate:g} | {kind} | {count * rounds} | {statistics.median(times):.2f} "
                    f"({min(times):.2f} to {max(times):.2f}) |",
                    flush=True,
                )


@contextmanager
def application(url: str, rate: float) -> Iterator[Callable[[int, float], float]]:
    """Run an application that hands over that share of its calls; yields the function that has it make some."""
    argv = [sys.executable, "-c", "from tests.benchmarks.fleet_cost import run_application as run; run()"]
    with subprocess.Popen([*argv, url, str(rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def make_calls(count: int, calls_a_second: float) -> float:
            requests.write(f"{count} {calls_a_second}\n")
            requests.flush()
            return float(answers.readline())

        make_calls(100, 200.0)
        yield make_calls
        requests.close()


def run_application() -> None:
    """Make as many calls as a line of the standard input says, and write the processor seconds that they took."""
    url, rate = sys.argv[1:]
    ragtrace.configure(
        fleet=url,
        screen=None,
        sampling=ragtrace.Sampling(rate=float(rate)),
        exporter=Forgetting(),
        limits=ragtrace.Limits(capacity=10_000),
    )

    @ragtrace.retrieve
    def search(question: str) -> list[str]:
        return list(DOCUMENTS)

    @ragtrace.trace
    def ask(question: str) -> str:
        search(question)
        return "The tower is 330 m tall, and was the tallest building of the world for 41 years."

    for line in sys.stdin:
        count, calls_a_second = line.split()
        began, used = time.monotonic(), time.process_time()
        for number in range(int(count)):
            time.sleep(max(0.0, began + number / float(calls_a_second) - time.monotonic()))
            ask(f"How tall is tower {number}?")
        assert ragtrace.flush(30)
        print(time.process_time() - used, flush=True)
    counts = ragtrace.stats().evaluators["fleet"]
    assert not counts.dropped, counts


# --- judging ---------------------------------------------------------------------------------------------------------


def judging(
    kind: str, broker: Broker, latency: float, concurrency: int, workers: int, seconds: float, folder: Path
) -> None:
    """Print how fast workers judge, beside the ideal, and what a call costs them."""
    ideal = concurrency * workers / latency
    publish(broker, min(9_500, round(ideal * (seconds + 2 * SETTLE_S)) + 8 * concurrency * workers))
    with ExitStack() as stack:
        url, count = stack.enter_context(judge(latency))
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url.removesuffix("/judge"),
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        processes = [
            stack.enter_context(
                running_worker(folder, broker.url, url, environ, name=f"{kind}{number}", concurrency=concurrency)
            )
            for number in range(workers)
        ]
        time.sleep(SETTLE_S)
        began, asked, used = time.monotonic(), count(), sum(cpu_seconds(each.pid) for each in processes)
        time.sleep(seconds)
        took, asked = time.monotonic() - began, count() - asked
        used = sum(cpu_seconds(each.pid) for each in processes) - used
        left = broker.depths().calls
    broker.empty()
    print(
        f"{kind}, {workers} workers of {concurrency}: {asked / took:.0f} calls a second = {asked / took / ideal:.2f} "
        f"of {ideal:.0f}; {used / asked * 1e3:.2f} ms of processor time a call, {used / took:.2f} processors; "
        f"{left} calls left; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def publish(broker: Broker, count: int) -> None:
    """Put calls into the queue."""
    contexts = tuple(map(Document, DOCUMENTS))
    messages: list[CallMessage] = []
    first = random.getrandbits(60)  # workers remember what they have judged
    for number in range(first, first + count):
        message = handed_over(number)
        call = replace(message.unscored.call, contexts=contexts)
        messages.append(message._replace(unscored=message.unscored._replace(call=call)))
    for start in range(0, count, 500):
        assert not any(broker.publish(messages[start : start + 500]))


@contextmanager
def judge(latency: float) -> Iterator[tuple[str, Callable[[], int]]]:
    """Run a judge, which takes OTLP exports too; yields its URL, and the function that counts what it was asked."""
    argv = [sys.executable, "-c", "from tests.benchmarks.fleet_cost import run_judge as run; run()", str(latency)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def count() -> int:
            requests.write("\n")
            requests.flush()
            return int(answers.readline())

        yield answers.readline().strip(), count
        requests.close()


def run_judge() -> None:
    """Answer judge requests after the latency, and OTLP exports at once."""
    asked, judged = 0, labels(after=float(sys.argv[1]))

    def rule(request: Request) -> Reply:
        nonlocal asked
        if not request.body.startswith(b"{"):
            return Reply()
        asked += 1
        return judged

    with JudgeServer(rule) as server:
        print(server.url, flush=True)
        for _ in sys.stdin:
            print(asked, flush=True)
            server.requests.clear()


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
