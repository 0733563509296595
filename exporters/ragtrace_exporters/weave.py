"""W&B Weave: traces by OTLP; scores are attributes of the spans.

Variables: `WANDB_API_KEY`, `WANDB_ENTITY`, `WANDB_PROJECT`, `WF_TRACE_SERVER_URL` (default https://trace.wandb.ai). It
takes neither metrics nor logs, and OTLP over HTTP only. Source: docs.wandb.ai/weave/guides/tracking/otel.
"""

from ragtrace.core import semconv
from ragtrace_exporters.preset import OPENINFERENCE, Backend, Environ, preset, required, url


@preset("WF_TRACE_SERVER_URL")
def weave(environ: Environ) -> Backend:
    """Send traces to Weave."""
    base = url(environ, "WF_TRACE_SERVER_URL", default="https://trace.wandb.ai")
    key = required(environ, "weave", "WANDB_API_KEY", advice="copy it from wandb.ai/authorize")
    resource = {
        semconv.WANDB_ENTITY: required(environ, "weave", "WANDB_ENTITY", advice="write the name of your team"),
        semconv.WANDB_PROJECT: required(environ, "weave", "WANDB_PROJECT", advice="write the name of your project"),
    }
    return Backend(f"{base}/otel", {"wandb-api-key": key}, dialects=OPENINFERENCE, resource=resource)
