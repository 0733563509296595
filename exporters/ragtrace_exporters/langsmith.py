"""LangSmith: traces by OTLP; scores are attributes of the spans.

Variables: `LANGSMITH_API_KEY`, `LANGSMITH_PROJECT`, `LANGSMITH_ENDPOINT` (default https://api.smith.langchain.com; for
Europe https://eu.api.smith.langchain.com). It takes neither metrics nor logs. Source:
docs.langchain.com/langsmith/trace-with-opentelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import OPENINFERENCE, Preset, required, text, url


def langsmith(environ: Mapping[str, str]) -> Signals:
    """Traces for LangSmith.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    return _preset(environ).signals_of(environ)


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    base = url(environ, "LANGSMITH_ENDPOINT", default="https://api.smith.langchain.com")
    key = required(environ, "langsmith", "LANGSMITH_API_KEY", advice="create one in the settings of LangSmith")
    project = text(environ, "LANGSMITH_PROJECT")
    headers = {"x-api-key": key, **({"Langsmith-Project": project} if project else {})}
    return Preset(f"{base}/otel", headers, dialects=OPENINFERENCE, where=("LANGSMITH_ENDPOINT",))
