"""Thousands of calls of many tenants at a time: each tenant's exporter gets its calls, whole, and nothing of others."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

import ragtrace
from ragtrace.core.types import Signals
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from tests.support.guards import ReadingJudge, guard
from tests.support.otlp import HttpReceiver
from tests.support.tenants import Backend, Hanging, Refusing, signals_of
from tests.support.watched import GOOD, WAIT_S

IN_MEMORY: Final = [f"t{number}" for number in range(17)]
TENANTS: Final = [*IN_MEMORY, "otlp", "hangs", "refuses", "unknown"]
"""Those in memory, one with a real server, one whose backend hangs, one whose refuses, one without a route."""
CALLS: Final = 10_000
THREADS: Final = 50


class Offered:
    """Which trace is whose, and how many spans each tenant's calls have begun."""

    def __init__(self) -> None:
        self.traces: dict[int, str] = {}
        self.roots: dict[str, set[int]] = defaultdict(set)
        self.spans = Counter[str]()
        self._lock = threading.Lock()

    def begun(self, tenant: str, *, root: bool = False) -> None:
        """Note the span that is current."""
        context = trace.get_current_span().get_span_context()
        with self._lock:
            self.traces[context.trace_id] = tenant
            self.spans[tenant] += 1
            if root:
                self.roots[tenant].add(context.span_id)


offered = Offered()


@ragtrace.retrieve
def search(tenant: str) -> list[str]:
    offered.begun(tenant)
    return [f"The tower of {tenant} is in Paris."]


@ragtrace.generate(model="tiny")
def generate(question: str, docs: list[str], tenant: str) -> str:
    offered.begun(tenant)
    if "fail" in question:
        raise LookupError(tenant)
    return f"In Paris, {tenant}."


@ragtrace.trace(tags={"tenant": "tenant"})
def plain(question: str, tenant: str) -> str:
    offered.begun(tenant, root=True)
    return generate(question, search(tenant), tenant)


@ragtrace.trace
def streamed(question: str, tenant: str) -> Iterator[str]:
    offered.begun(tenant, root=True)
    search(tenant)
    yield "In "
    yield f"Paris, {tenant}."


def guarded_function() -> Callable[[str, str], str]:
    """Made where it is used: every configuration checks the guards of all functions that there are."""

    @ragtrace.trace(guard=guard("retry"))
    def guarded(question: str, tenant: str) -> str:
        offered.begun(tenant, root=True)
        search(tenant)
        return f"On Mars, {tenant}."

    return guarded


@ragtrace.trace(tags={"tenant": "tenant"})
async def cancelled(question: str, tenant: str) -> str:
    offered.begun(tenant, root=True)
    search(tenant)
    await asyncio.Event().wait()
    return ""


@ragtrace.trace
async def streamed_async(question: str, tenant: str) -> AsyncIterator[str]:
    offered.begun(tenant, root=True)
    await asyncio.sleep(0)
    search(tenant)
    yield f"In Paris, {tenant}."


def on_thread(number: int, guarded: Callable[[str, str], str]) -> None:
    tenant, other = TENANTS[number % len(TENANTS)], TENANTS[(number + 1) % len(TENANTS)]
    kind = number // len(TENANTS) % 8
    if kind == 0:
        with ragtrace.tags(tenant=tenant):
            stream = streamed("Where?", tenant)
        with ragtrace.tags(tenant=other):  # read outside its block, inside another's
            assert "".join(stream)
    elif kind == 1:
        try:
            plain("Where? fail", tenant)
        except LookupError:
            return
        raise AssertionError
    elif kind == 2 and number % 5 == 0:
        with ragtrace.tags(tenant=tenant):
            guarded("Where?", tenant)
    elif kind == 3:
        with ragtrace.call("Where?", tags={"tenant": tenant}) as call:
            offered.begun(tenant, root=True)
            call.answered(generate("Where?", search(tenant), tenant))
    else:
        plain("Where?", tenant)


async def in_task(number: int) -> None:
    tenant, other = TENANTS[number % len(TENANTS)], TENANTS[(number + 1) % len(TENANTS)]
    if number // len(TENANTS) % 2:
        task = asyncio.create_task(cancelled("Where?", tenant))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
    with ragtrace.tags(tenant=tenant):
        stream = streamed_async("Where?", tenant)
    with ragtrace.tags(tenant=other):
        async for piece in stream:
            assert tenant in piece


def in_tasks(numbers: range) -> None:
    async def run() -> None:
        await asyncio.gather(*map(in_task, numbers))

    asyncio.run(run())


def traffic() -> None:
    """Half of the calls on threads, half in the tasks of loops; now and then all are scored, as queues are bounded."""
    runtime, guarded = current(), guarded_function()
    assert runtime is not None
    with ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, CALLS, 2_000):
            jobs: list[Any] = [pool.submit(on_thread, number, guarded) for number in range(first, first + 1_000)]
            jobs += [pool.submit(in_tasks, range(n, n + 250)) for n in range(first + 1_000, first + 2_000, 250)]
            for job in jobs:
                job.result()
            assert runtime.worker.wait_idle(WAIT_S)


def test_no_tenant_sees_anything_of_another_and_each_call_of_a_healthy_one_is_whole(
    http_receiver: HttpReceiver,
) -> None:
    """Spans, events, scores and carriers, by trace ids; what is not delivered is counted under the tenant's name."""
    faults.clear()
    global offered
    offered = Offered()
    backends = {tenant: Backend(posts=number % 3 == 0) for number, tenant in enumerate(IN_MEMORY)}
    default, hanging, refusing = Backend(), Hanging(), Refusing()
    url = http_receiver.endpoint
    otlp = Signals(spans=OTLPSpanExporter(f"{url}/v1/traces"), logs=OTLPLogExporter(f"{url}/v1/logs"))
    route = ragtrace.types.Route(
        "tenant",
        {**signals_of(backends), "otlp": otlp, "hangs": hanging, "refuses": refusing},
        default=default.signals,
    )
    judge = ReadingJudge(GOOD, bad="Mars")
    ragtrace.configure(exporter=route, screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    traffic()
    ragtrace.shutdown(5.0)
    delivered = {tenant: backend.traces() for tenant, backend in {**backends, "unknown": default}.items()}
    delivered["otlp"] = {
        "spans": {int(span.trace_id, 16) for span in http_receiver.spans if not span.name.startswith("evaluate")},
        "events": {int(log.trace_id, 16) for log in http_receiver.logs},
        "scores": set(),
    }
    hanging.gate.set()
    delivered["hangs"] = {"spans": {span.context.trace_id for span in hanging.spans if span.context}}
    for tenant, signals in delivered.items():
        for signal, traces in signals.items():
            assert {offered.traces.get(found) for found in traces} <= {tenant}, (tenant, signal)
    spans = {tenant: [span.context for span in one.spans] for tenant, one in backends.items()}
    spans["unknown"] = [span.context for span in default.spans]
    counts = ragtrace.stats().faults
    lost = {tenant: sum(n for what, n in counts.items() if f"of {tenant}: " in what) for tenant in TENANTS}
    lost["unknown"] = sum(n for what, n in counts.items() if "of default: " in what)
    for tenant, contexts in spans.items():
        found = {context.span_id for context in contexts if context is not None}
        assert offered.roots[tenant] <= found, tenant
        assert len(contexts) == offered.spans[tenant], tenant
        assert lost[tenant] == 0, counts
    assert len(http_receiver.spans) == offered.spans["otlp"]
    assert {int(span.span_id, 16) for span in http_receiver.spans} >= offered.roots["otlp"]
    assert lost["otlp"] == 0
    assert lost["refuses"] == offered.spans["refuses"]
    assert lost["hangs"] == offered.spans["hangs"]
    assert set(counts) <= {what for what in counts if what.startswith("lost ")}, counts
    for tenant, one in backends.items():
        assert delivered[tenant]["events"], tenant
        assert bool(one.sink) == bool(delivered[tenant]["scores"]), tenant
