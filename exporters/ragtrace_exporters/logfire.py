"""Pydantic Logfire: traces, metrics and evaluation events by OTLP.

Variables: `LOGFIRE_TOKEN` (a write token; its region is part of it), `LOGFIRE_BASE_URL`. OTLP over HTTP only. Source:
logfire.pydantic.dev/docs/how-to-guides/alternative-clients.
"""

import re

from ragtrace_exporters.preset import ALL, Backend, Environ, preset, required, url


@preset("LOGFIRE_BASE_URL")
def logfire(environ: Environ) -> Backend:
    """Send traces, metrics and events to Logfire."""
    token = required(environ, "logfire", "LOGFIRE_TOKEN", advice="create a write token in the settings of the project")
    named = re.match(r"pylf_v\d+_(us|eu)_", token)
    region = named.group(1) if named else "us"
    base = url(environ, "LOGFIRE_BASE_URL", default=f"https://logfire-{region}.pydantic.dev")
    return Backend(base, {"Authorization": token}, ALL)
