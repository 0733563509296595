"""What evaluating other instrumentations' spans costs the application's thread, beside what these cost themselves.

    python tests/benchmarks/spans.py [--rounds 15] [--calls 150]

Needs openinference-instrumentation-openai or opentelemetry-instrumentation-openai (OpenLLMetry), or both. A request is
a call of the openai client to a local server, inside a span of the application. In each round every subject makes its
calls, in an order that turns. The processor time of the application's thread is measured, and of each subject the least
over the rounds is taken, as all else is disturbance:

    share = (instrumented and evaluated - instrumented) / (instrumented - plain)

The bound is 0.1. The median of the shares within the rounds is printed beside it: where the two differ much, the
machine was not quiet.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from importlib import import_module
from time import thread_time
from typing import Any, Final

import openai
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import ragtrace
from ragtrace.testing import OpenAIServer

BOUND: Final = 0.1
_INSTRUMENTORS: Final = {
    "OpenInference": ("openinference.instrumentation.openai", "openinference-instrumentation-openai"),
    "OpenLLMetry": ("opentelemetry.instrumentation.openai", "opentelemetry-instrumentation-openai"),
}
_ANSWER: Final = "The Eiffel Tower is 330 metres tall."
_PASSAGE: Final = "The Eiffel Tower in Paris is 330 metres tall. It opened in 1889 for a fair. " * 5
_PROMPT: Final = f"Context:\n{_PASSAGE}\n\nQuestion: How tall is the Eiffel Tower?"


class _NoExporter(SpanExporter):
    """Exporter that drops its spans, so that only making and queueing them is measured."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _measure(client: openai.OpenAI, provider: TracerProvider, calls: int) -> float:
    """Return the processor time of this thread for one request, in seconds."""
    tracer = provider.get_tracer("application")
    began = thread_time()
    for _ in range(calls):
        with tracer.start_as_current_span("request"):
            client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": _PROMPT}])
    return (thread_time() - began) / calls


def _provider(*, evaluate: bool) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    exporting = BatchSpanProcessor(_NoExporter(), max_queue_size=100_000)
    provider.add_span_processor(ragtrace.HoldProcessor(exporting, evaluate=True) if evaluate else exporting)
    return provider


def _rounds(instrumentor: Any, client: openai.OpenAI, rounds: int, calls: int) -> list[dict[str, float]]:
    """Return the time of a request in seconds, for each round and by subject."""
    plain, evaluated = _provider(evaluate=False), _provider(evaluate=True)
    ragtrace.configure(tracer_provider=evaluated, screen=None)

    def run(provider: TracerProvider, *, instrumented: bool) -> float:
        if instrumented:
            instrumentor.instrument(tracer_provider=provider)
        try:
            return _measure(client, provider, calls)
        finally:
            if instrumented:
                instrumentor.uninstrument()

    subjects: dict[str, Callable[[], float]] = {
        "plain": lambda: run(plain, instrumented=False),
        "instrumented": lambda: run(plain, instrumented=True),
        "evaluated": lambda: run(evaluated, instrumented=True),
    }
    found: list[dict[str, float]] = []
    for number in range(rounds + 1):  # the first one warms up
        order = list(subjects)[number % 3 :] + list(subjects)[: number % 3]
        found.append({name: subjects[name]() for name in order})
        ragtrace.flush()
    ragtrace.shutdown()
    return found[1:]


def _share(took: dict[str, float]) -> float:
    return (took["evaluated"] - took["instrumented"]) / (took["instrumented"] - took["plain"])


def main() -> int:
    """Run the benchmark and print its table; return 1 if no instrumentation is installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=150)
    options = parser.parse_args()
    rows: list[str] = []
    for name, (module, distribution) in _INSTRUMENTORS.items():
        try:
            instrumentor = import_module(module).OpenAIInstrumentor()
        except ImportError:
            sys.stdout.write(f"{name}: not installed (pip install {distribution})\n")
            continue
        with OpenAIServer(_ANSWER) as server:
            client = openai.OpenAI(api_key="none", base_url=server.url)
            found = _rounds(instrumentor, client, options.rounds, options.calls)
        least = {subject: min(each[subject] for each in found) for subject in ("plain", "instrumented", "evaluated")}
        times = " ".join(f"{least[subject] * 1e6:>12.0f}" for subject in least)
        median = statistics.median(map(_share, found))
        rows.append(f"{name:<14} {times} {_share(least):>8.3f} {median:>8.3f} {BOUND:>6}")
    if rows:
        header = f"{'us a request':<14} {'plain':>12} {'instrumented':>12} {'evaluated':>12}"
        sys.stdout.write(f"{header} {'share':>8} {'median':>8} {'bound':>6}\n")
        sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 0 if rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
