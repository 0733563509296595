"""What evaluating other instrumentations' spans costs the application's thread, beside what these cost themselves.

    python tests/benchmarks/spans.py [--rounds 15] [--calls 150]

Needs openinference-instrumentation-openai or opentelemetry-instrumentation-openai (OpenLLMetry), or both. A request is
a call of the openai client, answered in the process without any network, inside a span of the application. In each
round every subject makes its calls, in a process of its own and in an order that turns. The processor time of the
application's thread is measured, and of each subject the least over the rounds is taken, as all else is disturbance:

    share = (in the span processor, evaluated - in the span processor, instrumented) / (instrumented - plain)

The bound is 0.1. All that evaluation does on the application's thread it does in the span processor, at the start and
at the end of a span; that takes some tens of microseconds, of which the times of whole requests, printed beside it,
show little: two processes of the same code differ by more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import openai
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import ragtrace

if TYPE_CHECKING:
    from opentelemetry.context import Context

BOUND: Final = 0.1
_SUBJECTS: Final = ("plain", "instrumented", "evaluated")
_INSTRUMENTORS: Final = {
    "OpenInference": ("openinference.instrumentation.openai", "openinference-instrumentation-openai"),
    "OpenLLMetry": ("opentelemetry.instrumentation.openai", "opentelemetry-instrumentation-openai"),
}
_REPLY: Final = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": "gpt-4o-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "The Eiffel Tower is 330 metres tall."},
        }
    ],
    "usage": {"prompt_tokens": 80, "completion_tokens": 9, "total_tokens": 89},
}
_PASSAGE: Final = "The Eiffel Tower in Paris is 330 metres tall. It opened in 1889 for a fair. " * 5
_PROMPT: Final = f"Context:\n{_PASSAGE}\n\nQuestion: How tall is the Eiffel Tower?"


class _NoExporter(SpanExporter):
    """Exporter that drops its spans, so that only making and queueing them is measured."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class _Timed(SpanProcessor):
    """Span processor that measures the processor time which another one takes of the application's thread."""

    def __init__(self, inner: SpanProcessor) -> None:
        self.inner, self.seconds = inner, 0.0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        began = thread_time()
        self.inner.on_start(span, parent_context)
        self.seconds += thread_time() - began

    def on_end(self, span: ReadableSpan) -> None:
        began = thread_time()
        self.inner.on_end(span)
        self.seconds += thread_time() - began

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self.inner.force_flush(timeout_millis)

    def shutdown(self) -> None:
        self.inner.shutdown()


class _Took(NamedTuple):
    """Processor time of the application's thread for one request, in seconds."""

    request: float
    in_processor: float


def _client() -> openai.OpenAI:
    """Return a client whose requests are answered at once; the library under it is httpx, or its successor."""
    http: Any = import_module(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])
    transport = http.MockTransport(lambda request: http.Response(200, json=_REPLY))
    return openai.OpenAI(
        api_key="none", base_url="http://model.invalid/v1", http_client=http.Client(transport=transport)
    )


def _measure(client: openai.OpenAI, provider: TracerProvider, processor: _Timed, calls: int) -> _Took:
    tracer = provider.get_tracer("application")
    began, processor.seconds = thread_time(), 0.0
    for _ in range(calls):
        with tracer.start_as_current_span("request"):
            client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": _PROMPT}])
    return _Took((thread_time() - began) / calls, processor.seconds / calls)


def _work(subject: str, module: str, calls: int) -> None:
    """Measure one subject each time that a line comes in; write the times of a request as a line."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporting = BatchSpanProcessor(_NoExporter(), max_queue_size=100_000)
    is_evaluated = subject == "evaluated"
    processor = _Timed(ragtrace.HoldProcessor(exporting, evaluate=True) if is_evaluated else exporting)
    provider.add_span_processor(processor)
    if is_evaluated:
        ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=None)
    if subject != "plain":
        import_module(module).OpenAIInstrumentor().instrument(tracer_provider=provider)
    client = _client()
    _measure(client, provider, processor, calls)  # warms up
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        took = _measure(client, provider, processor, calls)
        sys.stdout.write(f"{took.request} {took.in_processor}\n")
        sys.stdout.flush()
        ragtrace.flush()


def _least(module: str, rounds: int, calls: int) -> dict[str, _Took]:
    """Return the least times of a request over all rounds, by subject, each of which has a process of its own."""
    argv = [sys.executable, "-W", "ignore", __file__, "--calls", str(calls), "--module", module]
    processes = {
        subject: subprocess.Popen(
            [*argv, "--subject", subject], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for subject in _SUBJECTS
    }
    try:
        for process in processes.values():
            _answer(process)
        found: dict[str, list[tuple[float, ...]]] = {subject: [] for subject in _SUBJECTS}
        for number in range(rounds):
            for subject in [*_SUBJECTS[number % 3 :], *_SUBJECTS[: number % 3]]:
                found[subject].append(tuple(map(float, _answer(processes[subject], "go\n").split())))
        return {subject: _Took(*map(min, zip(*times, strict=True))) for subject, times in found.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _answer(process: subprocess.Popen[str], order: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(order)
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a subject ended: {process.args!r}")
    return line


def main() -> int:
    """Run the benchmark and print its table; return 1 if no instrumentation is installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=150)
    for name in ("--subject", "--module"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.subject:
        _work(options.subject, options.module, options.calls)
        return 0
    rows: list[str] = []
    for name, (module, distribution) in _INSTRUMENTORS.items():
        try:
            import_module(module)
        except ImportError:
            sys.stdout.write(f"{name}: not installed (pip install {distribution})\n")
            continue
        least = _least(module, options.rounds, options.calls)
        plain, instrumented, evaluated = (least[subject] for subject in _SUBJECTS)
        added = evaluated.in_processor - instrumented.in_processor
        share = added / (instrumented.request - plain.request)
        times = " ".join(f"{each.request * 1e6:>12.0f}" for each in (plain, instrumented, evaluated))
        rows.append(f"{name:<14} {times} {added * 1e6:>8.1f} {share:>8.3f} {BOUND:>6}")
    if rows:
        header = f"{'us a request':<14} {'plain':>12} {'instrumented':>12} {'evaluated':>12}"
        sys.stdout.write(f"{header} {'added':>8} {'share':>8} {'bound':>6}\n")
        sys.stdout.write("".join(f"{row}\n" for row in rows))
    return 0 if rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
