"""`import ragtrace` is cheap: what is heavy is imported on use."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "openai",
    "numpy",
    "grpc",
    "requests",
    "rich",
    "httpx",
    "pydantic",
    "asyncio",
    "opentelemetry.exporter",
    "opentelemetry.sdk._logs",
    "ragtrace.cli",
    "ragtrace_exporters",
)


@pytest.fixture(scope="module")
def imported() -> list[str]:
    """Names of the modules that `import ragtrace` loads in a fresh interpreter, in order."""
    argv = [sys.executable, "-X", "importtime", "-c", "import ragtrace"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=True)
    return [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]


@pytest.mark.parametrize("name", HEAVY)
def test_import_does_not_load(imported: list[str], name: str) -> None:
    """The heavy module is not among what `import ragtrace` loads."""
    assert "ragtrace" in imported
    assert not [module for module in imported if module == name or module.startswith(f"{name}.")]


def test_import_starts_nothing() -> None:
    """Importing starts no thread, reads no setting and leaves the global OpenTelemetry providers alone."""
    program = (
        "import threading, ragtrace\n"
        "from opentelemetry import trace, metrics\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert type(trace.get_tracer_provider()).__name__ == 'ProxyTracerProvider'\n"
        "assert 'Proxy' in type(metrics.get_meter_provider()).__name__\n"
    )
    environ = {"RAGTRACE_DIALECTS": "no such dialect", "OTEL_EXPORTER_OTLP_PROTOCOL": "no such protocol"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, env=environ)
    assert done.returncode == 0, done.stderr


def test_configure_without_alerts_loads_no_alert_code() -> None:
    """An application without alerts does not wait for detectors and notifiers to be imported."""
    program = (
        "import sys, ragtrace\n"
        "ragtrace.configure(exporter='none')\n"
        "assert not [name for name in sys.modules if name.startswith('ragtrace.alerts')]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
