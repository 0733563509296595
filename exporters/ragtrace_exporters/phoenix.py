"""Arize Phoenix: traces by OTLP, scores as span annotations.

Variables: `PHOENIX_COLLECTOR_ENDPOINT` (default http://localhost:6006; the HTTP address, as annotations go there too),
`PHOENIX_API_KEY`, `PHOENIX_PROJECT_NAME` (default: the name of the service, as all services would be one list in the
project that Phoenix chooses), `PHOENIX_CLIENT_HEADERS`. It takes neither metrics nor logs. Sources:
arize.com/docs/phoenix, "Environment variables" and "REST API"; observed with 20.26.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.preset import OPENINFERENCE, Backend, Environ, client, preset, text, url
from ragtrace_exporters.score_api import ScoreApi, all_of, metadata_of

_WHERE: Final = "PHOENIX_COLLECTOR_ENDPOINT"
_RESERVED: Final = "note"
"""A metric name that Phoenix keeps for itself, and refuses the whole request for."""


@preset(_WHERE)
def phoenix(environ: Environ) -> Backend:
    """Send traces and scores to Phoenix."""
    from opentelemetry.util.re import parse_env_headers

    base = url(environ, _WHERE, default="http://localhost:6006").removesuffix("/v1/traces")
    if urlsplit(base).port == 4317:
        raise SettingsError(
            f"{_WHERE} must be the HTTP address of Phoenix, as scores go there too, got port 4317, which is "
            "that of gRPC; write for instance http://localhost:6006"
        )
    key, project = text(environ, "PHOENIX_API_KEY"), text(environ, "PHOENIX_PROJECT_NAME")
    headers = dict(parse_env_headers(text(environ, "PHOENIX_CLIENT_HEADERS"), liberal=True))
    if key:
        headers["authorization"] = f"Bearer {key}"
    resource = {semconv.OI_PROJECT: project} if project else {}
    scores = PhoenixScores(client(environ, base, headers))
    return Backend(
        base,
        headers,
        dialects=OPENINFERENCE,
        resource=resource,
        service_attribute=semconv.OI_PROJECT,
        scores=scores,
    )


class PhoenixScores(ScoreApi):
    """Score sink for Phoenix, which posts scores as annotations of spans and of traces.

    All scores are annotations of the trace; the headline scores are also annotations of the call's span. Of the
    annotations in a row of its lists Phoenix shows as many as the column is wide, in alphabetical order, and only a
    count if the first of them is too long: with all scores on the span, a row would say `+7`.

    `POST /v1/span_annotations?sync=false` and `/v1/trace_annotations?sync=false` are queued by the server until the
    span or the trace is there, for ten minutes. The same span or trace, name and identifier again replaces what was
    posted before. Source: Phoenix's REST API, "Create span annotations", and its source,
    phoenix/server/api/routers/v1/spans.py and phoenix/db/insertion (20.26.1, also observed).
    """

    name, most_at_once = "phoenix", 100
    probe_path, probe_query = "/v1/projects", {"limit": "1"}

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """Post *scores* as annotations of traces, the main ones also of spans. Return the refusals by score id."""
        deadline = monotonic() + timeout
        of_spans = [{"span_id": f"{score.span_id:016x}", **_annotation(score)} for score in scores if score.headline]
        of_traces = [{"trace_id": f"{score.trace_id:032x}", **_annotation(score)} for score in scores]
        for path, data in (("/v1/span_annotations", of_spans), ("/v1/trace_annotations", of_traces)):
            if data:
                reply = self._client.send("POST", path, deadline - monotonic(), {"data": data}, sync="false")
                if not reply.ok:  # also if the first part was taken: by their identifiers it is kept once
                    return all_of(scores, self._client.refusal(reply))
        return {}


def _annotation(score: ScoreRecord) -> dict[str, Any]:
    result = {"score": score.value, "label": score.label, "explanation": score.explanation}
    return {
        "name": f"{score.name}_" if score.name == _RESERVED else score.name,
        "annotator_kind": score.annotator,
        "identifier": score.id,
        "result": {key: value for key, value in result.items() if value is not None},
        "metadata": {**metadata_of(score), "span_id": f"{score.span_id:016x}"},  # of a trace with several calls: whose
    }
