"""Langfuse: traces by OTLP, scores by its API.

Variables: `LANGFUSE_PUBLIC_KEY`, `LANGFUSE_SECRET_KEY`, `LANGFUSE_HOST` or `LANGFUSE_BASE_URL` (default
https://cloud.langfuse.com; for the United States https://us.cloud.langfuse.com), `LANGFUSE_TRACING_ENVIRONMENT`. It
takes neither metrics nor logs, and OTLP over HTTP only. Source: langfuse.com/integrations/native/opentelemetry.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from ragtrace.core import semconv
from ragtrace.core.endpoints import Endpoint
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import OPENINFERENCE, Preset, client, required, text, url
from ragtrace_exporters.sinks.langfuse import LangfuseScores


def langfuse(environ: Mapping[str, str]) -> Signals:
    """Traces and scores for Langfuse.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    scores = LangfuseScores(client(environ, _base(environ), _credentials(environ)), _environment(environ))
    return _preset(environ).signals_of(environ, scores)


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    environment = _environment(environ)
    # Without the version, traces are shown some ten minutes later.
    headers = {**_credentials(environ), "x-langfuse-ingestion-version": "4"}
    resource = {semconv.LANGFUSE_ENVIRONMENT: environment} if environment else {}
    return Preset(
        f"{_base(environ)}/api/public/otel",
        headers,
        dialects=(*OPENINFERENCE, "langfuse"),
        resource=resource,
        where=("LANGFUSE_HOST", "LANGFUSE_BASE_URL"),
    )


def _base(environ: Mapping[str, str]) -> str:
    return url(environ, "LANGFUSE_HOST", "LANGFUSE_BASE_URL", default="https://cloud.langfuse.com")


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    advice = "copy it from the settings of the project"
    public, secret = (
        required(environ, "langfuse", name, advice=advice) for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
    )
    return {"authorization": f"Basic {b64encode(f'{public}:{secret}'.encode()).decode()}"}


def _environment(environ: Mapping[str, str]) -> str:
    return text(environ, "LANGFUSE_TRACING_ENVIRONMENT")
