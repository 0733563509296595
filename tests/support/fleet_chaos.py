"""A whole fleet under chaos: spans go through a gateway and a broker to workers, which are killed and started again.

The audit afterwards knows only what the senders were told, and what an OTLP backend and the dead letters have.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragtrace.core import semconv
from ragtrace.core.ledger import FLEET
from ragtrace.fleet.broker import QueueDepths
from ragtrace.fleet.call_message import read_message
from tests.support.brokers import Broker
from tests.support.fleet import ROOT, running_worker
from tests.support.gateway import trace_calls
from tests.support.judge_server import FAILED, Reply, Request, labels, too_many
from tests.support.otlp import HttpReceiver
from tests.support.redis_server import redis_server
from tests.support.services import free_ports, running

Fault: TypeAlias = Literal["kill worker", "restart broker", "kill broker", "restart gateway", "kill gateway"]
METRIC: Final = "faithfulness"
SPANS_OF_A_CALL: Final = 3
CONCURRENCY: Final = 4
HELD: Final = 4 * CONCURRENCY
"""Most calls that a worker holds, and may leave counted but not confirmed when it is killed."""
JUDGE_TIMEOUT_S: Final = 2.0
EXIT_S: Final = 60.0
_GATEWAY: Final = (semconv.METRIC_GATEWAY_SPANS, semconv.METRIC_GATEWAY_SCORING_SPANS, semconv.METRIC_GATEWAY_CALLS)
_EXPORT_S: Final = 20.0
_CONFIG: Final = """\
screen = "none"
judge = "of the workers"
[sampling]
rate = {rate:g}
"""


@dataclass(frozen=True)
class Plan:
    """What is sent to a fleet, and what happens to the fleet meanwhile."""

    calls: int
    faults: Sequence[tuple[float, Fault]]
    """Each with the share of the calls that have been accepted when it happens."""
    workers: int = 2
    calls_per_second: float = 50.0
    calls_per_request: int = 5
    rate: float = 0.9
    settle_seconds: float = 2.0
    quiet_seconds: float = 30.0
    """Time without a new score after which no further one is expected, though calls are missing."""


def unreliable(seed: int, *, after: float) -> Callable[[Request], Reply]:
    """Return a judge that answers 429 and 500 to a twentieth of the requests each, and else the same to each call."""
    chances = random.Random(seed)

    def rule(request: Request) -> Reply:
        chance = chances.random()
        if chance < 0.1:
            return FAILED if chance < 0.05 else too_many(0.2)
        number = int(request.json()["query"].rpartition("(")[2].rstrip(")"))
        return labels("supported" if number % 3 else "contradicted", after=after)

    return rule


class Senders:
    """Applications that export the spans of calls to the gateway, one by OTLP/HTTP and one by OTLP/gRPC.

    Each request is tried until it is accepted: by the retries of OpenTelemetry's exporter, and again when it gives up.
    """

    def __init__(self, plan: Plan, http_url: str, grpc_url: str) -> None:
        self._plan = plan
        self._requests = deque(_requests(plan))
        self._exporters: tuple[SpanExporter, ...] = (
            HttpSpanExporter(endpoint=http_url, timeout=_EXPORT_S),
            GrpcSpanExporter(endpoint=grpc_url, insecure=True, timeout=_EXPORT_S),
        )
        self.accepted: set[str] = set()
        """Trace ids of the calls that the gateway has acknowledged."""
        self.given_up = 0
        """Requests that an exporter has given up, and that were exported again."""
        self._changed, self._allowed = threading.Condition(), 0.0
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in self._exporters]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with self._changed:
            self._allowed = inf
            self._changed.notify_all()
        for exporter in self._exporters:
            exporter.shutdown()
        for thread in self._threads:
            thread.join()

    def wait_for(self, share: float) -> None:
        """Let the senders go on until this share of the calls is accepted, and wait until it is."""
        with self._changed:
            self._allowed = share * self._plan.calls
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self.accepted) >= self._allowed)

    def _run(self, exporter: SpanExporter) -> None:
        pause = len(self._exporters) * self._plan.calls_per_request / self._plan.calls_per_second
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self.accepted) < self._allowed)
                if self._stopped.is_set() or not self._requests:
                    return
                spans = self._requests.popleft()
            while exporter.export(spans) is not SpanExportResult.SUCCESS:
                self.given_up += 1
                if self._stopped.wait(1.0):
                    return
            with self._changed:
                self.accepted |= {format(span.context.trace_id, "032x") for span in spans if span.context}
                self._changed.notify_all()
            self._stopped.wait(pause)


def _requests(plan: Plan) -> Iterator[tuple[ReadableSpan, ...]]:
    memory = InMemorySpanExporter()
    trace_calls(memory, plan.calls)
    spans = memory.get_finished_spans()
    size = plan.calls_per_request * SPANS_OF_A_CALL
    for first in range(0, len(spans), size):
        yield spans[first : first + size]


class Fleet:
    """Gateway, broker and workers, each a child process of its own, which `inflict` harms and starts again."""

    def __init__(self, folder: Path, broker: Broker, judge_url: str, otlp: HttpReceiver, plan: Plan, seed: int) -> None:
        self._folder, self._broker, self._judge_url, self._otlp, self._plan = folder, broker, judge_url, otlp, plan
        self._chances = random.Random(seed)
        with free_ports(2) as ports:
            self._http_port, self._grpc_port = ports
        self._names = count(1)
        self._workers: list[_Process] = []
        self._gateway: _Process | None = None
        self._brokers, self._stores = ExitStack(), ExitStack()
        self._store: tuple[str, ...] = ()
        self._pool = ThreadPoolExecutor()
        self._restarts: dict[str, Future[None]] = {}
        self.inflicted: Counter[Fault] = Counter()
        self.exits: Counter[int] = Counter()
        """Exit statuses of the processes that were ended by SIGTERM."""

    @property
    def http_url(self) -> str:
        """Address of OTLP/HTTP."""
        return f"http://127.0.0.1:{self._http_port}/v1/traces"

    @property
    def grpc_url(self) -> str:
        """Address of OTLP/gRPC."""
        return f"127.0.0.1:{self._grpc_port}"

    def __enter__(self) -> Fleet:
        with ExitStack() as stack:
            stack.push(self)
            self._brokers.enter_context(self._broker.started())
            if not self._broker.url.startswith("redis"):
                self._store = ("--store", self._stores.enter_context(redis_server(self._folder)))
            starts = [self._start_gateway, *[self._start_worker] * self._plan.workers]
            for started in [self._pool.submit(start) for start in starts]:
                started.result()
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for process, stack in [*self._workers, *([self._gateway] if self._gateway else [])]:
            process.kill()
            stack.close()
        self._brokers.close()
        self._stores.close()

    def inflict(self, fault: Fault) -> None:
        """Harm one process at once, and have it started again meanwhile; several kinds may be away at a time."""
        act, _, kind = fault.partition(" ")
        if kind in self._restarts or not self._workers:
            wait(self._restarts.values())
        if kind == "worker":
            victim = self._workers.pop(self._chances.randrange(len(self._workers)))
            victim.process.kill()
            restart: Callable[[], None] = partial(self._replace_worker, victim)
        elif kind == "gateway":
            assert self._gateway is not None
            os.kill(self._gateway.process.pid, signal.SIGKILL if act == "kill" else signal.SIGTERM)
            restart = partial(self._restart_gateway, graceful=act == "restart")
        else:
            if act == "kill":
                self._broker.kill()
            restart = self._restart_broker
        # Under a name of its own each: all of them are waited for.
        name = kind if kind != "worker" else f"worker {sum(self.inflicted.values())}"
        self._restarts[name] = self._pool.submit(restart)
        self.inflicted[fault] += 1

    def end_gateway(self) -> None:
        """Wait until everything runs again, and end the gateway by SIGTERM: it publishes the calls that it has."""
        for restarted in self._restarts.values():
            restarted.result()
        if self._gateway is not None:
            self._end(self._gateway)
            self._gateway = None

    def end_workers(self) -> None:
        """End the workers by SIGTERM, and wait until they have finished."""
        while self._workers:
            self._end(self._workers.pop())

    def _end(self, ending: _Process) -> None:
        ending.process.terminate()
        self.exits[ending.process.wait(EXIT_S)] += 1
        ending.stack.close()

    def _replace_worker(self, killed: _Process) -> None:
        killed.stack.close()
        self._start_worker()

    def _restart_gateway(self, *, graceful: bool) -> None:
        assert self._gateway is not None
        status = self._gateway.process.wait(EXIT_S)
        if graceful:
            self.exits[status] += 1
        self._gateway.stack.close()
        self._start_gateway()

    def _restart_broker(self) -> None:
        self._brokers.close()
        self._brokers.enter_context(self._broker.started())

    def _start_worker(self) -> None:
        stack = ExitStack()
        worker = running_worker(
            self._folder,
            self._broker.url,
            self._judge_url,
            self._otlp.environ,
            name=f"worker-{next(self._names)}",
            concurrency=CONCURRENCY,
            judge_timeout=JUDGE_TIMEOUT_S,
            options=self._store,
        )
        self._workers.append(_Process(stack.enter_context(worker), stack))

    def _start_gateway(self) -> None:
        stack = ExitStack()
        name = f"gateway-{next(self._names)}"
        config, log = self._folder / f"{name}.toml", self._folder / f"{name}.log"
        config.write_text(_CONFIG.format(rate=self._plan.rate))
        argv = [sys.executable, "-m", "ragtrace", "serve", "--broker", self._broker.url, "--config", str(config)]
        argv += ["--http-port", str(self._http_port), "--grpc-port", str(self._grpc_port), "--drain-seconds", "30"]
        argv += ["--settle-seconds", f"{self._plan.settle_seconds:g}", "--parent-seconds", "5"]
        environ = {"PYTHONPATH": str(ROOT), "OTEL_METRIC_EXPORT_INTERVAL": "500", **self._otlp.environ}
        started = running(argv, environ=environ, log=log, ready=lambda: "OTLP/HTTP on" in log.read_text())
        self._gateway = _Process(stack.enter_context(started), stack)


class _Process(NamedTuple):
    process: subprocess.Popen[bytes]
    stack: ExitStack


@dataclass
class Audit:
    """What became of the calls, and the counts that all processes have exported, the killed ones included."""

    accepted: set[str]
    """Trace ids of the calls that the gateway has acknowledged."""
    killed_workers: int
    scored: set[str] = field(default_factory=set[str])
    """Trace ids with a score, or with a reason why there is none, from the judge."""
    dead: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons of the dead letters, by trace id."""
    events: int = 0
    scores: dict[str, set[float]] = field(default_factory=dict[str, set[float]])
    """Values of each score id."""
    spans: Counter[str] = field(default_factory=Counter[str])
    """Spans of each call that reached the backend; one that was sent again counts again."""
    gateway: Counter[str] = field(default_factory=Counter[str])
    """Spans and calls in the gateways' own counts, by metric and outcome."""
    fleet: Counter[str] = field(default_factory=Counter[str])
    """`ragtrace.calls` of the gateways at the evaluator `fleet`, by outcome."""
    judge: Counter[str] = field(default_factory=Counter[str])
    """`ragtrace.calls` of the workers at the judge, by outcome."""
    claims: Counter[str] = field(default_factory=Counter[str])
    moments: Counter[str] = field(default_factory=Counter[str])
    """Moments of the metric faithfulness, which has one score a call, rounded."""

    @property
    def left_out(self) -> int:
        """Calls that the gateways have counted as not handed over."""
        return self.fleet["sampled_out"] + self.fleet["dropped"] + self.fleet["failed"]

    @property
    def missing(self) -> int:
        """Accepted calls that are neither scored, nor dead letters, nor counted as left out."""
        return len(self.accepted - self.scored - self.dead.keys()) - self.left_out

    @property
    def open_at_gateways(self) -> int:
        """Calls whose spans are in the backend, and whose end no gateway has counted: those that a killed one held."""
        pending = 2 * self.fleet["offered"] - self.fleet.total()
        return self.spans.total() // SPANS_OF_A_CALL - self.gateway["calls: submitted"] + pending

    @property
    def open_at_workers(self) -> int:
        """Calls offered to the judge without an outcome: those that a killed worker was judging at its last export."""
        return 2 * self.judge["offered"] - self.judge.total()

    @property
    def counted_again(self) -> int:
        """Scores that are in the sums of more than one worker: of one that was killed before it confirmed the call."""
        return self.moments["c"] - len(self.scores)

    def statements(self) -> dict[str, bool]:
        """Return each statement of the identity over the fleet, and whether it holds."""
        gateway, fleet, repeats = self.gateway, self.fleet, self.spans.total() // SPANS_OF_A_CALL - len(self.spans)
        ended, held = self.open_at_gateways == 0, HELD * self.killed_workers
        return {
            "every accepted call is scored, a dead letter, counted, or was held by a killed gateway": (
                -repeats <= self.missing <= self.open_at_gateways
            ),
            "no score id has two values": all(len(values) == 1 for values in self.scores.values()),
            "received = forwarded + refused": not ended
            or gateway["spans: received"] == gateway["spans: forwarded"] + gateway["spans: refused"],
            "forwarded = read + dropped": not ended
            or gateway["spans: forwarded"] == gateway["scoring.spans: read"] + gateway["scoring.spans: dropped"],
            "forwarded = spans in the backend": not ended or gateway["spans: forwarded"] == self.spans.total(),
            "submitted = offered = sampled out + handed over + dropped + failed": not ended
            or gateway["calls: submitted"] == fleet["offered"] == fleet.total() - fleet["offered"],
            "handed over = scored + dead letters, repeated calls once": not ended
            or 0 <= fleet["handed_over"] - len(self.scored | self.dead.keys()) <= repeats,
            "killed workers leave no more calls open than they held": 0 <= self.open_at_workers <= held,
            "scores are counted once, but for those a killed worker held": 0 <= self.counted_again <= held,
        }

    @property
    def broken(self) -> list[str]:
        """Statements that do not hold."""
        return [statement for statement, holds in self.statements().items() if not holds]


def audit(otlp: HttpReceiver, broker: Broker, accepted: set[str], killed_workers: int = 0) -> Audit:
    """Recompute what became of the calls from the backend's telemetry and the dead letters."""
    found = Audit(accepted, killed_workers, dead=dict(_dead_letters(broker)))
    for log in otlp.logs:
        if log.attributes.get(semconv.EVALUATION_NAME) == METRIC and semconv.ERROR_TYPE not in log.attributes:
            found.events += 1
            found.scored.add(log.trace_id)
            if semconv.EVALUATION_SCORE in log.attributes:
                values = found.scores.setdefault(log.attributes[semconv.EVAL_SCORE_ID], set())
                values.add(log.attributes[semconv.EVALUATION_SCORE])
    found.spans.update(span.trace_id for span in otlp.spans if span.resource["service.name"] == "shop")
    last: dict[tuple[str, ...], tuple[float, Mapping[str, Any]]] = {}
    for metric in otlp.metrics:
        for point in metric.points:
            if point.value is not None:
                series = json.dumps(point.attributes, sort_keys=True)
                last[str(metric.resource["service.instance.id"]), metric.name, series] = point.value, point.attributes
    for (_, name, _), (value, at) in last.items():
        outcome = str(at.get(semconv.OUTCOME))
        if name == semconv.METRIC_CALLS:
            (found.fleet if at[semconv.EVALUATOR_ID] == FLEET else found.judge)[outcome] += int(value)
        elif name in _GATEWAY and outcome != "left_out":
            found.gateway[f"{name.removeprefix('ragtrace.gateway.')}: {outcome}"] += int(value)
        elif name == semconv.METRIC_FLEET_CLAIMS:
            found.claims[outcome] += int(value)
        elif name == semconv.METRIC_MOMENT and at[semconv.EVALUATION_NAME] == METRIC:
            found.moments[str(at[semconv.MOMENT])] += round(value)
    return found


def _dead_letters(broker: Broker) -> Iterator[tuple[str, str]]:
    """Yield trace ids and reasons of all dead letters, which stay in their queue."""
    for letter in broker.dead_letters():
        span = read_message(letter.body).unscored.call.span
        assert span is not None
        yield format(span.trace_id, "032x"), letter.reason


def run_chaos(
    folder: Path, broker: Broker, judge_url: str, otlp: HttpReceiver, plan: Plan, seed: int
) -> tuple[Fleet, Audit]:
    """Send the calls while the faults happen, wait for their scores, end all processes in order, and audit them."""
    with Fleet(folder, broker, judge_url, otlp, plan, seed) as fleet:
        with Senders(plan, fleet.http_url, fleet.grpc_url) as senders:
            for share, fault in sorted(plan.faults):
                senders.wait_for(share)
                fleet.inflict(fault)
            senders.wait_for(1.0)
        fleet.end_gateway()
        _await_scores(otlp, broker, plan)
        fleet.end_workers()
        return fleet, audit(otlp, broker, senders.accepted, fleet.inflicted["kill worker"])


def _await_scores(otlp: HttpReceiver, broker: Broker, plan: Plan) -> None:
    """Wait until every call that was handed over is scored or a dead letter, or nothing more comes."""
    handed_over = audit(otlp, broker, set()).fleet["handed_over"]
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < plan.quiet_seconds:
        scored = {log.trace_id for log in otlp.logs if log.event_name == semconv.EVENT_EVALUATION}
        depths = QueueDepths(-1, 0)
        with suppress(Exception):
            depths = broker.depths()
        if len(scored) + depths.dead_letters >= handed_over and not depths.calls:
            return
        if len(scored) != seen:
            seen, since = len(scored), time.monotonic()
        time.sleep(0.5)
