"""Memory of a process whose spans are evaluated: bounded, whatever spans there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak memory of a process to read")

ROOT: Final = Path(__file__).parents[2]
MOST_MIB: Final = 160
"""Growth of the process at the default of `queue_bytes`: 16 MiB of texts wait to be read, 16 MiB to be assembled, 16
MiB are held back and 64 spans wait that were not measured. The allocator keeps up to twice that."""
APPLICATION: Final = """
import ragtrace
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD


class Nowhere(SpanExporter):
    def export(self, spans):
        return None

    def shutdown(self):
        pass


KIND = "openinference.span.kind"
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(Nowhere()), evaluate=True))
ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=FakeJudge(GOOD))
tracer = provider.get_tracer("openinference.instrumentation.langchain")
unended = []


def ask(number, *, n_spans, ends):
    root = tracer.start_span("chain", attributes={KIND: "CHAIN", "input.value": "Why?"})
    below = trace.set_span_in_context(root)
    for step in range(n_spans):
        with tracer.start_as_current_span("retriever", context=below, attributes={KIND: "RETRIEVER"}) as span:
            span.set_attribute("retrieval.documents.0.document.content", f"{number} {step} " + "x" * 50_000)
    root.end() if ends else unended.append(root)


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


ask(0, n_spans=1, ends=True)
ragtrace.flush(60)
before = peak()
for number in range(1_000):
    ask(number, n_spans=4, ends=False)
ask(1_000, n_spans=10_000, ends=True)
ragtrace.flush(60)
print(peak() - before)
print(sum(count for place, count in ragtrace.stats().faults.items() if place.startswith("spans not evaluated")))
"""


def test_memory_is_bounded_under_traces_that_never_end_and_one_of_ten_thousand_spans() -> None:
    """700 MB of texts in spans of 1,001 traces; what is not read of them is counted."""
    found = subprocess.run(
        [sys.executable, "-c", APPLICATION], capture_output=True, text=True, timeout=400, check=False, cwd=ROOT
    )
    assert found.returncode == 0, found.stderr
    growth_mib, n_lost = map(float, found.stdout.split())
    assert growth_mib < MOST_MIB
    assert n_lost > 10_000
