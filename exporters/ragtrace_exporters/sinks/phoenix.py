"""Phoenix shows all scores as annotations of the trace, and the headline scores as annotations of the call's span.

Of the annotations in a row of its lists it shows as many as the column is wide, in alphabetical order, and only a count
if the first of them is too long: with all scores on the span, a row would say `+7`. Observed with 20.26.1.

`POST /v1/span_annotations?sync=false`, `/v1/trace_annotations?sync=false`: queued by the server until the span or the
trace is there, for ten minutes; the same span or trace, name and identifier again replaces what was posted before.
Source: Phoenix's REST API, "Create span annotations", and its source, phoenix/server/api/routers/v1/spans.py and
phoenix/db/insertion (20.26.1, also observed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.sinks.http import JsonClient, all_of, metadata_of

_RESERVED: Final = "note"
"""A name that Phoenix keeps for itself, and refuses the whole request for."""


class PhoenixScores:
    """Posts annotations of spans and of traces.

    Args:
        client: of its API, with headers to show who we are, where Phoenix asks.
    """

    name = "phoenix"
    most_at_once = 100

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    @property
    def where(self) -> str:
        """URL of its API."""
        return self._client.where

    def probe(self, timeout: float) -> Refusal | None:
        """Ask for the list of projects."""
        return self._client.probe("/v1/projects", timeout, limit="1")

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """The headline scores as annotations of their spans, then all as those of their traces: a request each."""
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
