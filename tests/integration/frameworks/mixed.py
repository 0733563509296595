"""Run an application that ragtrace sees by several routes at once, with the spans of all of them evaluated.

`mixed.py APPLICATION ROUTES MODE...` prints a line of JSON for each mode, with the calls that ragtrace gave to a judge,
what the application logged, the scores of each call, the counts of `ragtrace.stats()`, and the scopes of the spans that
carry scores. Without arguments it does so for each line of its standard input, see `record.serve`.

ROUTES are joined by `+`: `decorators` (decorated.py), `ragtrace` (the listener in the framework), and instrumentations.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from corpus import DOCUMENTS
from decorated import decorate
from environment import framework_of
from framework_tracers import import_ragtrace
from instrumentations import NONE, instrument
from model_server import ModelServer
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from record import CallLog, serve

_OWN_ROUTES: Final = ("decorators", "ragtrace")


def main(application: str, routes: str, *modes: str) -> None:
    """Run *application* in each of *modes* and print what was judged."""
    os.environ["RAGTRACE_EXPORTER"] = "none"
    ragtrace = import_ragtrace()
    from ragtrace.judges.lexical.embedded import EmbeddedJudge

    calls: list[Any] = []

    class Judge(EmbeddedJudge):
        """Judge by words that keeps the calls it was asked about; its scores depend on every text of a call."""

        def steps(self, call: Any) -> Any:
            calls.append(call)
            return super().steps(call)

    framework = framework_of(application)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter), evaluate=True))
    trace.set_tracer_provider(provider)
    options = ragtrace.TelemetryOptions(tracer_provider=provider)
    ragtrace.configure(telemetry=options, screen=Judge(extractive=True))
    names = routes.split("+")
    with ModelServer([document.text for document in DOCUMENTS]) as server:
        os.environ.update(OPENAI_BASE_URL=server.url, OPENAI_API_BASE=server.url, OPENAI_API_KEY="none")
        others = "+".join(name for name in names if name not in _OWN_ROUTES)
        instrument(others or NONE, framework, provider, LoggerProvider())
        if "ragtrace" in names:
            ragtrace.instrument(framework)
        if "decorators" in names:
            decorate(application, ragtrace)
        for mode in modes:
            log, before = CallLog(server), _counts(ragtrace.stats())
            calls.clear()
            exporter.clear()
            import_module(f"applications.{application}").run(mode, log)
            ragtrace.flush()
            gc.collect()  # some instrumentations end the span of a stream when the stream is collected
            ragtrace.flush()  # calls of other spans are closed by the first
            stats = ragtrace.stats()
            counts = {name: count - before[name] for name, count in _counts(stats).items()}
            _print_result(calls, log, exporter, counts, stats.faults)


def _counts(stats: Any) -> dict[str, int]:
    reasons = (stats.sampled_out, stats.failed, stats.dropped)
    others = sum(sum(counts.values()) for counts in reasons)
    not_applicable = sum(stats.not_applicable.values())
    return {"offered": stats.offered, "scored": stats.scored, "not_applicable": not_applicable, "others": others}


def _print_result(
    calls: list[Any], log: CallLog, exporter: InMemorySpanExporter, counts: dict[str, int], faults: Any
) -> None:
    spans: list[Any] = [span for span in exporter.get_finished_spans() if "ragtrace.eval.status" in span.attributes]
    judged = [
        (call.query, [document.text for document in call.contexts or ()], call.answer, call.conversation_id)
        for call in calls
    ]
    result = {
        "judged": judged,
        "logged": [(call["query"], call["contexts"], call["answer"], call["session"]) for call in log.calls],
        "scored": [span.instrumentation_scope.name for span in spans],
        "scores": [_scores(span.attributes) for span in spans],
        "counts": counts,
        "faults": faults,
    }
    sys.stdout.write(json.dumps(result) + "\n")


def _scores(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a call, and each score, label and reason for a missing score."""
    ends = (".score", ".label", ".reason", ".status")
    found = {name: value for name, value in attributes.items() if name.startswith("ragtrace.eval.")}
    return {name.removeprefix("ragtrace.eval."): value for name, value in found.items() if name.endswith(ends)}


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve(main)
    else:
        main(*sys.argv[1:])
