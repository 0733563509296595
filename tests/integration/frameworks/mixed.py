"""Run an application that a listener of ragtrace and an instrumentation both see, with the spans evaluated.

`mixed.py APPLICATION INSTRUMENTATION MODE...` prints a line of JSON for each mode, with the calls that ragtrace gave to
a judge, what the application logged, and the scopes of the spans that carry scores. Without arguments it does so for
each line of its standard input, see `record.serve`.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

from corpus import DOCUMENTS
from environment import framework_of
from framework_tracers import import_ragtrace
from instrumentations import instrument
from model_server import ModelServer
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from record import CallLog, serve


def main(application: str, instrumentation: str, *modes: str) -> None:
    """Run *application* in each of *modes* and print what was judged."""
    os.environ["RAGTRACE_EXPORTER"] = "none"
    ragtrace = import_ragtrace()
    from ragtrace.core.types import Judgement
    from ragtrace.testing import FakeJudge

    framework = framework_of(application)
    judge, exporter, provider = FakeJudge(Judgement(consistency=1.0)), InMemorySpanExporter(), TracerProvider()
    vars(judge)["computes"] = True  # asked without a cache: calls are the same in each mode
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter), evaluate=True))
    trace.set_tracer_provider(provider)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=judge)
    with ModelServer([document.text for document in DOCUMENTS]) as server:
        os.environ.update(OPENAI_BASE_URL=server.url, OPENAI_API_BASE=server.url, OPENAI_API_KEY="none")
        instrument(instrumentation, framework, provider, LoggerProvider())
        ragtrace.instrument(framework)
        for mode in modes:
            log = CallLog(server)
            judge.calls.clear()
            exporter.clear()
            import_module(f"applications.{application}").run(mode, log)
            ragtrace.flush()
            ragtrace.flush()  # calls of other spans are closed by the first
            _print_result(judge.calls, log, exporter, ragtrace.stats().faults)


def _print_result(calls: list[Any], log: CallLog, exporter: InMemorySpanExporter, faults: Any) -> None:
    scored: list[Any] = [span for span in exporter.get_finished_spans() if "ragtrace.eval.status" in span.attributes]
    judged = [
        (call.query, [document.text for document in call.contexts or ()], call.answer, call.conversation_id)
        for call in calls
    ]
    result = {
        "judged": judged,
        "logged": [(call["query"], call["contexts"], call["answer"], call["session"]) for call in log.calls],
        "scored": [span.instrumentation_scope.name for span in scored],
        "faults": faults,
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        serve(main)
    else:
        main(*sys.argv[1:])
