"""`python -m docs.make_attributes`: writes docs/attributes.md, what ragtrace puts on spans, events and metrics.

Names and meanings are those of `ragtrace/core/semconv.py`, metrics those of the instruments that the library makes, and
the example is a call that is traced while the page is made.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from opentelemetry.metrics import NoOpMeter

import ragtrace
from ragtrace.core import semconv
from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.gateway.gateway import Gateway
from ragtrace.telemetry.scores.instruments import Instruments
from tests.support.all_metrics import observations

PAGE: Final = Path(__file__).with_name("attributes.md")
_SHOWN_CHARS: Final = 100
_NO_ATTRIBUTES: Final = ("METRIC_", "EVENT_", "STATUS_", "CARRIER_")
"""Beginnings of the names of constants with the prefix `ragtrace.` that are no attributes, or are values of one."""
_INTRO: Final = """\
# Attributes, events and metrics

What ragtrace puts on spans, into events and into metrics. Names that begin with `ragtrace.` are its own; all others
follow the GenAI conventions of OpenTelemetry, or those of `TelemetryOptions(dialects=)`: `openinference`, `langfuse`.
This page is generated from the source by `python -m docs.make_attributes`.

## A call as it is exported

A function with `@ragtrace.trace`, in it one with `@ragtrace.retrieve` and one with `@ragtrace.generate`, traced while
this page was made: with `TelemetryOptions(evidence=True)`, ids left out, and the screen as the only evaluator.
"""
_ATTRIBUTES: Final = """\
## Attributes of its own

On spans, events or points of metrics; `<metric>` stands for the name of a metric. The values of `ragtrace.eval.status`,
outcomes and reasons are in [operations](operations.md#statuses-outcomes-and-reasons).
"""
_EVENTS: Final = """\
## Events

Those about a call have the trace and span id of one of its spans, mostly of the root span.
"""
_METRICS: Final = """\
## Metrics

Units in braces are annotations: `{call}` counts calls. How Prometheus names them is in
[alerts and dashboards](alerts-and-dashboards.md#dashboard-rules-collector), and which version of the GenAI conventions
the names under `gen_ai.` follow in [configuration](configuration.md#names-of-the-genai-metrics).
"""


class Metric(NamedTuple):
    """Instrument as the library makes it."""

    kind: str
    name: str
    unit: str
    about: str


class _RecordingMeter(NoOpMeter):
    """Meter that notes which instruments are made."""

    def __init__(self) -> None:
        super().__init__(semconv.SCOPE)
        self.made: list[Metric] = []

    def create_counter(self, name: str, unit: str = "", description: str = "", **more: Any) -> Any:
        self.made.append(Metric("counter", name, unit, description))
        return super().create_counter(name, unit, description, **more)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **more: Any) -> Any:
        self.made.append(Metric("histogram", name, unit, description))
        return super().create_histogram(name, unit, description, **more)

    def create_observable_counter(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self.made.append(Metric("counter", name, unit, description))
        return super().create_observable_counter(name, callbacks, unit, description)

    def create_observable_gauge(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self.made.append(Metric("gauge", name, unit, description))
        return super().create_observable_gauge(name, callbacks, unit, description)


class _NothingScored:
    """Counts of a gateway's scorer that has seen nothing."""

    queued_bytes = waiting_spans = 0

    def span_counts(self) -> Mapping[tuple[str, str], int]:
        return {}

    call_counts = span_counts


def metrics() -> list[Metric]:
    """Return every metric that an application, a gateway or a fleet may export, in the order of their names."""
    meter, scorer, reader = _RecordingMeter(), _NothingScored(), object()
    Instruments(lambda: meter, observations, genai_metrics="both").open()
    Gateway(None, scorer, most_body_bytes=1, most_in_flight_bytes=1).add_metrics(meter)  # type: ignore[arg-type]
    FleetMetrics(lambda: None, budget=reader, workers=1).add_to(meter)  # type: ignore[arg-type]
    return sorted(meter.made, key=lambda each: (not each.name.startswith("ragtrace."), each.name))


def documented(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield constant, name on the wire and meaning of each constant in *source* that has a docstring."""
    body = ast.parse(source).body
    for node, after in pairwise(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        literals = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
        name = literals[0] if len(literals) == 1 else None
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(name, str):
            yield node.target.id, name, " ".join(str(after.value.value).split())


def undocumented(source: str) -> list[str]:
    """Return the constants of *source* for attributes and events of ragtrace itself that have no docstring."""
    known = {constant for constant, _, _ in documented(source)}
    ours = re.findall(r'^(\w+): Final = "ragtrace\.[^"]*"', source, re.MULTILINE)
    return [each for each in ours if each not in known and not each.startswith("METRIC_")]


def render(source: str) -> str:
    """Return the page, with the meanings of the constants in *source*, the module of names."""
    lines = [_INTRO, *_example(), _ATTRIBUTES, "| attribute | meaning |", "|---|---|"]
    found = list(documented(source))
    ours = [each for each in found if each[1].startswith("ragtrace.") and not each[0].startswith(_NO_ATTRIBUTES)]
    lines += [_row(shown(constant, name), _meaning(about)) for constant, name, about in ours]
    lines += ["", _EVENTS, "| event | what it is |", "|---|---|"]
    lines += [_row(name, _meaning(about)) for constant, name, about in found if constant.startswith("EVENT_")]
    lines += ["", _METRICS, "| metric | kind | unit | what it measures |", "|---|---|---|---|"]
    lines += [f"| `{each.name}` | {each.kind} | `{each.unit}` | {each.about} |" for each in metrics()]
    return "\n".join(lines) + "\n"


def _row(name: str, meaning: str) -> str:
    return f"| `{name}` | {meaning} |"


def shown(constant: str, name: str) -> str:
    """Return the *name* of *constant* with a word for what is put into it."""
    return name.replace("{}", "<name>" if constant in ("eval_detail", "tag") else "<metric>")


def _meaning(about: str) -> str:
    """Return a docstring as a cell: without the verb of a function, and with names of the wire for constants."""
    about = re.sub(r"^Return the (?:span |event )?attribute for (\w)", lambda start: start[1].upper(), about)
    about = re.sub(r"`([A-Z][A-Z_]+)`", lambda name: f"`{getattr(semconv, name[1], name[1])}`", about)
    return about.replace("|", "\\|")


def _example() -> Iterator[str]:
    """Yield the spans and one event of a call, each as a table of attributes."""
    captured = ragtrace.testing.Captured()
    ragtrace.configure(
        service="support-bot", exporter=captured.signals, telemetry=ragtrace.TelemetryOptions(evidence=True)
    )

    @ragtrace.retrieve(source="handbook", provider="chroma")
    def search(query: str) -> list[dict[str, str]]:
        return [{"id": "returns.md", "text": "Worn shoes may be returned within 14 days."}]

    @ragtrace.generate(model="my-model", provider="openai")
    def answer(question: str, docs: list[dict[str, str]]) -> str:
        ragtrace.usage(input_tokens=52, output_tokens=9)
        return "Worn shoes may be returned within 90 days."

    @ragtrace.trace(name="support", session="conversation", user="customer")
    def ask(question: str, conversation: str, customer: str) -> str:
        return answer(question, search(question))

    ask("When may I return worn shoes?", conversation="c-17", customer="u-4")
    ragtrace.flush()
    spans = {span.name: dict(span.attributes or {}) for span in reversed(captured.spans)}
    events = [each.log_record for each in captured.events]
    event = next(each for each in events if dict(each.attributes or {})[semconv.EVALUATION_NAME] == "consistency")
    ragtrace.shutdown()
    for name, attributes in spans.items():
        yield from _of_one("span", name, attributes)
    yield from _of_one("event", str(event.event_name), dict(event.attributes or {}))


def _of_one(kind: str, name: str, attributes: Mapping[str, object]) -> Iterable[str]:
    shown = {each: value for each, value in attributes.items() if each != semconv.EVAL_SCORE_ID}
    yield f"### {kind.capitalize()} `{name}`\n"
    yield "| attribute | value |"
    yield "|---|---|"
    for each, value in sorted(shown.items()):
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        text = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} ..."
        yield _row(each, f"`{text}`".replace("|", "\\|"))
    yield ""


if __name__ == "__main__":
    sys.stdout.write(render(Path(semconv.__file__).read_text(encoding="utf-8")))
