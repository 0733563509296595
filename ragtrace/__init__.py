"""ragtrace: tracing middleware that evaluates live RAG calls.

Decorate retrieval and generation functions; ragtrace records them as OpenTelemetry spans, scores the finished calls in
the background and attaches the scores as span attributes, evaluation events and metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragtrace.carry import carry
from ragtrace.decorators import generate, retrieve, trace
from ragtrace.errors import JudgeError, RagtraceError, SettingsError, UnknownMetricError
from ragtrace.ledger import Stats, Tally
from ragtrace.manual import CallBlock, call
from ragtrace.model import (
    Claim,
    Document,
    Judge,
    Judgement,
    Metric,
    RagCall,
    Score,
    Signals,
    Unscored,
    Usage,
)
from ragtrace.redact import Redact
from ragtrace.runtime import configure, flush, score, shutdown, stats
from ragtrace.sampling import Sampling

if TYPE_CHECKING:
    from ragtrace.attach import HoldProcessor
    from ragtrace.judges import EmbeddedJudge

__all__ = [
    "CallBlock",
    "Claim",
    "Document",
    "EmbeddedJudge",
    "HoldProcessor",
    "Judge",
    "JudgeError",
    "Judgement",
    "Metric",
    "RagCall",
    "RagtraceError",
    "Redact",
    "Sampling",
    "Score",
    "SettingsError",
    "Signals",
    "Stats",
    "Tally",
    "UnknownMetricError",
    "Unscored",
    "Usage",
    "call",
    "carry",
    "configure",
    "flush",
    "generate",
    "retrieve",
    "score",
    "shutdown",
    "stats",
    "trace",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: an import of ragtrace should cost little more than the OpenTelemetry API's.
    if name == "HoldProcessor":
        from ragtrace.attach import HoldProcessor

        return HoldProcessor
    if name == "EmbeddedJudge":
        from ragtrace.judges import EmbeddedJudge

        return EmbeddedJudge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
