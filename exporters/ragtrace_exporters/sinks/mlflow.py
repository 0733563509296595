"""MLflow shows a score as an assessment of a trace.

`POST /api/3.0/mlflow/traces/{trace}/assessments`, one a request. A trace that has not arrived yet is a 404: the score
waits for it. An assessment goes by an id that we give, so a repeat breaks a constraint of the database and adds
nothing. Source: MLflow's tracking server (3.17.2: mlflow/protos/assessments.proto, mlflow/store/tracking/
sqlalchemy_store.py, `create_assessment`; also observed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final

from ragtrace.core.score_sink import Refusal, ScoreRecord
from ragtrace_exporters.sinks.http import JsonClient, Reply, metadata_of

_SOURCE: Final = {"LLM": "LLM_JUDGE", "CODE": "CODE", "HUMAN": "HUMAN"}
_UNKNOWN_TRACE: Final = Refusal("unknown_trace", again=True, detail="the trace has not arrived")


class MlflowScores:
    """Posts assessments.

    Args:
        client: of its API, with headers to show who we are, where the server asks.
    """

    name = "mlflow"
    most_at_once = 20
    first_after_s = 6.0
    """Spans go out every five seconds, and before them there is nothing to attach an assessment to."""

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    @property
    def where(self) -> str:
        """URL of its API."""
        return self._client.where

    def probe(self, timeout: float) -> Refusal | None:
        """Ask for the list of experiments."""
        return self._client.probe("/api/2.0/mlflow/experiments/search", timeout, max_results="1")

    def post(self, scores: Sequence[ScoreRecord], timeout: float) -> Mapping[str, Refusal]:
        """One after the other; of an unknown trace, only the first is tried."""
        deadline = monotonic() + timeout
        refusals: dict[str, Refusal] = {}
        unknown: set[int] = set()
        busy: Refusal | None = None
        for score in scores:
            if score.trace_id in unknown:
                refusals[score.id] = _UNKNOWN_TRACE
            elif busy is not None:
                refusals[score.id] = busy
            elif (refusal := self._post(score, deadline - monotonic())) is not None:
                refusals[score.id] = refusal
                busy = refusal if refusal.busy else None
                if refusal is _UNKNOWN_TRACE:
                    unknown.add(score.trace_id)
        return refusals

    def _post(self, score: ScoreRecord, timeout: float) -> Refusal | None:
        if timeout <= 0:
            return Refusal("unavailable", again=True, detail="out of time")
        path = f"/api/3.0/mlflow/traces/{_trace(score)}/assessments"
        reply = self._client.send("POST", path, timeout, {"assessment": _assessment(score)})
        if reply.ok:
            return None
        if reply.status == 404 and "RESOURCE_DOES_NOT_EXIST" in reply.text:
            return _UNKNOWN_TRACE
        if self._is_there(score, reply, timeout):
            return None
        return self._client.refusal(reply)

    def _is_there(self, score: ScoreRecord, reply: Reply, timeout: float) -> bool:
        """Whether the server failed because it has this assessment already."""
        if reply.status < 400 or "constraint" not in reply.text.lower():
            return False
        path = f"/api/3.0/mlflow/traces/{_trace(score)}/assessments/{_id(score)}"
        return self._client.send("GET", path, timeout).ok


def _trace(score: ScoreRecord) -> str:
    return f"tr-{score.trace_id:032x}"


def _id(score: ScoreRecord) -> str:
    return f"a-{score.id}"


def _assessment(score: ScoreRecord) -> dict[str, Any]:
    metadata = {key: str(value) for key, value in metadata_of(score).items()}
    assessment = {
        "assessment_id": _id(score),
        "assessment_name": score.name,
        "trace_id": _trace(score),
        "span_id": f"{score.span_id:016x}",
        "source": {"source_type": _SOURCE[score.annotator], "source_id": score.evaluator},
        "feedback": {"value": score.value},
        "rationale": score.explanation,
        "metadata": {**metadata, **({"label": score.label} if score.label else {})},
    }
    return {key: value for key, value in assessment.items() if value is not None}
