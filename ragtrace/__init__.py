"""ragtrace: tracing middleware that evaluates live RAG calls.

Decorate retrieval and generation functions; ragtrace records them as OpenTelemetry spans, scores the finished calls in
the background and attaches the scores as span attributes, evaluation events and metrics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.alerts import Alert
    from ragtrace.attach import HoldProcessor
    from ragtrace.checking import assert_scores
    from ragtrace.decorators import generate, retrieve, trace
    from ragtrace.errors import JudgeError, RagtraceError, SettingsError, UnknownMetricError
    from ragtrace.estimates import Baseline, Estimate
    from ragtrace.judges import EmbeddedJudge
    from ragtrace.judges.cost import Price
    from ragtrace.judges.embedder import OpenAIEmbedder
    from ragtrace.judges.hhem import HHEM
    from ragtrace.judges.openai import OpenAIJudge
    from ragtrace.judges.scorer import ScorerJudge
    from ragtrace.labels import Claim
    from ragtrace.ledger import Stats, Tally
    from ragtrace.manual import CallBlock, call, reference, usage
    from ragtrace.metrics.bert_score import BertScoreTokens
    from ragtrace.metrics.g_eval import g_eval
    from ragtrace.metrics.own import metric
    from ragtrace.metrics.runs import run_consistency
    from ragtrace.metrics.scatter import run_statistics
    from ragtrace.model import Document, Judge, Judgement, Metric, RagCall, Score, Signals, Unscored, Usage
    from ragtrace.offline import Evaluations, ascore, evaluate, score
    from ragtrace.propagation import carry
    from ragtrace.redact import Redact
    from ragtrace.runtime.control import configure, flush, shutdown, stats
    from ragtrace.runtime.diagnosis import Diagnosis, doctor
    from ragtrace.runtime.estimating import estimate
    from ragtrace.sampling import Sampling

__all__ = [
    "Alert",
    "Baseline",
    "BertScoreTokens",
    "CallBlock",
    "Claim",
    "Diagnosis",
    "Document",
    "EmbeddedJudge",
    "Estimate",
    "Evaluations",
    "HHEM",
    "HoldProcessor",
    "Judge",
    "JudgeError",
    "Judgement",
    "Metric",
    "OpenAIEmbedder",
    "OpenAIJudge",
    "Price",
    "RagCall",
    "RagtraceError",
    "Redact",
    "Sampling",
    "Score",
    "ScorerJudge",
    "SettingsError",
    "Signals",
    "Stats",
    "Tally",
    "UnknownMetricError",
    "Unscored",
    "Usage",
    "ascore",
    "assert_scores",
    "call",
    "carry",
    "configure",
    "doctor",
    "estimate",
    "evaluate",
    "flush",
    "g_eval",
    "generate",
    "metric",
    "reference",
    "retrieve",
    "run_consistency",
    "run_statistics",
    "score",
    "shutdown",
    "stats",
    "trace",
    "usage",
]


# Where each name is. Loaded on first use: an application that decorates its functions but is not configured (a script,
# a test, a migration) should pay for little more than the decorators.
_HOMES = {
    "ragtrace.alerts": ("Alert",),
    "ragtrace.attach": ("HoldProcessor",),
    "ragtrace.propagation": ("carry",),
    "ragtrace.checking": ("assert_scores",),
    "ragtrace.decorators": ("generate", "retrieve", "trace"),
    "ragtrace.errors": ("JudgeError", "RagtraceError", "SettingsError", "UnknownMetricError"),
    "ragtrace.estimates": ("Baseline", "Estimate"),
    "ragtrace.judges": ("EmbeddedJudge",),
    "ragtrace.judges.cost": ("Price",),
    "ragtrace.judges.embedder": ("OpenAIEmbedder",),
    "ragtrace.judges.hhem": ("HHEM",),
    "ragtrace.judges.openai": ("OpenAIJudge",),
    "ragtrace.judges.scorer": ("ScorerJudge",),
    "ragtrace.ledger": ("Stats", "Tally"),
    "ragtrace.manual": ("CallBlock", "call", "reference", "usage"),
    "ragtrace.labels": ("Claim",),
    "ragtrace.metrics.bert_score": ("BertScoreTokens",),
    "ragtrace.metrics.g_eval": ("g_eval",),
    "ragtrace.metrics.own": ("metric",),
    "ragtrace.metrics.runs": ("run_consistency",),
    "ragtrace.metrics.scatter": ("run_statistics",),
    "ragtrace.model": (
        "Document", "Judge", "Judgement", "Metric", "RagCall", "Score", "Signals", "Unscored", "Usage",
    ),
    "ragtrace.offline": ("Evaluations", "ascore", "evaluate", "score"),
    "ragtrace.redact": ("Redact",),
    "ragtrace.runtime.control": ("configure", "flush", "shutdown", "stats"),
    "ragtrace.runtime.diagnosis": ("Diagnosis", "doctor"),
    "ragtrace.runtime.estimating": ("estimate",),
    "ragtrace.sampling": ("Sampling",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
