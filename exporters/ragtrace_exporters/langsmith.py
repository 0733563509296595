"""LangSmith: traces by OTLP; scores are attributes of the spans.

Variables: `LANGSMITH_API_KEY`, `LANGSMITH_PROJECT`, `LANGSMITH_ENDPOINT` (default https://api.smith.langchain.com; for
Europe https://eu.api.smith.langchain.com). It takes neither metrics nor logs. Source:
docs.langchain.com/langsmith/trace-with-opentelemetry.
"""

from ragtrace_exporters.preset import OPENINFERENCE, Backend, Environ, preset, required, text, url


@preset("LANGSMITH_ENDPOINT")
def langsmith(environ: Environ) -> Backend:
    """Send traces to LangSmith."""
    base = url(environ, "LANGSMITH_ENDPOINT", default="https://api.smith.langchain.com")
    key = required(environ, "langsmith", "LANGSMITH_API_KEY", advice="create one in the settings of LangSmith")
    project = text(environ, "LANGSMITH_PROJECT")
    headers = {"x-api-key": key, **({"Langsmith-Project": project} if project else {})}
    return Backend(f"{base}/otel", headers, dialects=OPENINFERENCE)
