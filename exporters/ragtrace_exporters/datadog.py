"""Datadog LLM Observability: traces by OTLP without an agent, scores as evaluations.

Variables: `DD_API_KEY`, `DD_SITE` (default datadoghq.com), `DD_LLMOBS_ML_APP` (default: name of the service). The
traces go to `https://otlp.<site>/v1/traces`; if the documentation names another address for your site, put that into
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`. Its metrics intake wants delta sums: send metrics through an agent or a collector.
Sources: docs.datadoghq.com/llm_observability/instrumentation/otel_instrumentation and .../instrumentation/api.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import Preset, client, required, text
from ragtrace_exporters.sinks.datadog import DatadogScores


def datadog(environ: Mapping[str, str]) -> Signals:
    """Traces and scores for Datadog.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    api = client(environ, f"https://api.{_site(environ)}", {"dd-api-key": _key(environ)})
    return _preset(environ).signals_of(environ, DatadogScores(api, text(environ, "DD_LLMOBS_ML_APP")))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    return Preset(
        f"https://otlp.{_site(environ)}", {"dd-api-key": _key(environ), "dd-otlp-source": "llmobs"}, where=("DD_SITE",)
    )


def _key(environ: Mapping[str, str]) -> str:
    return required(environ, "datadog", "DD_API_KEY", advice="copy it from the settings of the organization")


def _site(environ: Mapping[str, str]) -> str:
    site = text(environ, "DD_SITE") or "datadoghq.com"
    if not re.fullmatch(r"[a-z0-9.-]+", site):
        raise SettingsError(f"DD_SITE must be the name of a site, got {site!r}; write datadoghq.eu, for example")
    return site
