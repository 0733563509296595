"""Names that metrics of OpenTelemetry get in Prometheus, by its OTLP receiver and on a scraped page."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider

from ragtrace_exporters.prometheus_page import PageReader
from tests.support.services import free_ports

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": ""}
_ENDINGS: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


class Instrument(NamedTuple):
    """What an instrument is made with."""

    kind: Kind
    name: str
    unit: str


def received_names(instrument: Instrument) -> tuple[str, ...]:
    """Return the names of a metric that Prometheus receives by OTLP, or a Collector exports.

    Source: prometheus/otlptranslator, `BuildCompliantMetricName`: annotations in braces are left out of units, known
    units spelled out, and a gauge without a unit of its own is a ratio.
    """
    kind, name, unit = instrument
    suffix = "ratio" if (unit, kind) == ("1", "gauge") else "" if unit.startswith("{") else _UNITS.get(unit, unit)
    plain = re.sub(r"[^0-9A-Za-z_]+", "_", name)
    plain = f"{plain}_{suffix}" if suffix and not plain.endswith(f"_{suffix}") else plain
    return tuple(f"{plain}{ending}" for ending in _ENDINGS[kind])


def scraped_names(instruments: Iterable[Instrument]) -> set[str]:
    """Return the names of metrics on the page that Prometheus fetches from a process."""

    def observe(_: CallbackOptions) -> list[Observation]:
        return [Observation(1)]

    with free_ports(1) as (port,):
        provider = MeterProvider([PageReader("127.0.0.1", port)], shutdown_on_exit=False)
        try:
            meter: Any = provider.get_meter("names")
            for kind, name, unit in instruments:
                if kind == "counter":
                    meter.create_counter(name, unit).add(1)
                elif kind == "histogram":
                    meter.create_histogram(name, unit).record(1)
                else:
                    meter.create_observable_gauge(name, [observe], unit)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
                lines = response.read().decode().splitlines()
        finally:
            provider.shutdown()
    return {re.split(r"[{ ]", line)[0] for line in lines if line and not line.startswith("#")}
