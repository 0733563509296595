"""MLflow: traces by OTLP, scores as assessments.

Variables: `MLFLOW_TRACKING_URI` (of the tracking server), `MLFLOW_EXPERIMENT_ID` (default 0), `MLFLOW_TRACKING_TOKEN`
or `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`. It takes neither metrics nor logs, and OTLP over HTTP
only. Sources: mlflow.org/docs/latest/genai/tracing/opentelemetry; observed with 3.17.2.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import OPENINFERENCE, Preset, client, text, url
from ragtrace_exporters.sinks.mlflow import MlflowScores


def mlflow(environ: Mapping[str, str]) -> Signals:
    """Traces and scores for MLflow.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    preset = _preset(environ)
    return preset.signals_of(environ, MlflowScores(client(environ, preset.base, _credentials(environ))))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    base = url(environ, "MLFLOW_TRACKING_URI", advice="write for instance http://localhost:5000")
    experiment, name = text(environ, "MLFLOW_EXPERIMENT_ID"), text(environ, "MLFLOW_EXPERIMENT_NAME")
    if name and not experiment:
        raise SettingsError(
            f"exporter 'mlflow' needs the number of an experiment, got only its name {name!r} (from "
            "MLFLOW_EXPERIMENT_NAME); set MLFLOW_EXPERIMENT_ID to what `mlflow experiments search` shows"
        )
    headers = {"x-mlflow-experiment-id": experiment or "0", **_credentials(environ)}
    return Preset(base, headers, dialects=OPENINFERENCE, where=("MLFLOW_TRACKING_URI",))


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    token, user = text(environ, "MLFLOW_TRACKING_TOKEN"), text(environ, "MLFLOW_TRACKING_USERNAME")
    if token:
        return {"authorization": f"Bearer {token}"}
    if not user:
        return {}
    pair = f"{user}:{text(environ, 'MLFLOW_TRACKING_PASSWORD')}".encode()
    return {"authorization": f"Basic {b64encode(pair).decode()}"}
