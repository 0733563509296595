"""Pydantic Logfire: traces, metrics and evaluation events by OTLP.

Variables: `LOGFIRE_TOKEN` (a write token; its region is part of it), `LOGFIRE_BASE_URL`. OTLP over HTTP only. Source:
logfire.pydantic.dev/docs/how-to-guides/alternative-clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import ALL, Preset, required, url


def logfire(environ: Mapping[str, str]) -> Signals:
    """Traces, metrics and events for Logfire.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    return _preset(environ).signals_of(environ)


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the signals go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    token = required(environ, "logfire", "LOGFIRE_TOKEN", advice="create a write token in the settings of the project")
    named = re.match(r"pylf_v\d+_(us|eu)_", token)
    region = named.group(1) if named else "us"
    base = url(environ, "LOGFIRE_BASE_URL", default=f"https://logfire-{region}.pydantic.dev")
    return Preset(base, {"Authorization": token}, ALL, where=("LOGFIRE_BASE_URL",))
