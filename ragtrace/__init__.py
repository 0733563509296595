"""ragtrace: tracing middleware that evaluates live RAG calls.

Decorate retrieval and generation functions; ragtrace records them as OpenTelemetry spans, scores the finished calls in
the background and attaches the scores as span attributes, evaluation events and metrics:

    ragtrace.configure(service="support-bot")

    @ragtrace.retrieve
    def search(question): ...

    @ragtrace.generate
    def write(question, passages): ...

    @ragtrace.trace
    def ask(question): ...

`print(ragtrace.doctor())` says what is configured, and what became of the latest calls. `ragtrace.instrument` records
frameworks without decorators; `ragtrace.score` and `ragtrace.evaluate` score calls that were made elsewhere.

PYTEST_DONT_REWRITE (for pytest, which else warns where ragtrace was imported before its plugin)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.alerts import Alert
    from ragtrace.block import CallBlock, call, reference, usage
    from ragtrace.capture.redact import Redact
    from ragtrace.core.errors import JudgeError, RagtraceError, SettingsError, UnknownMetricError
    from ragtrace.core.labels import Claim
    from ragtrace.core.ledger import Stats, Tally
    from ragtrace.core.options import BaselineLearning, Canaries, History, JudgeLimits, Limits, TelemetryOptions
    from ragtrace.core.price import Price
    from ragtrace.core.types import Document, Judge, Judgement, Metric, RagCall, Score, Signals, Unscored, Usage
    from ragtrace.decorators import generate, retrieve, tool, trace
    from ragtrace.diagnosis import Diagnosis, doctor
    from ragtrace.estimates import Baseline, Estimate
    from ragtrace.evaluation.sampling import Sampling
    from ragtrace.judges import EmbeddedJudge
    from ragtrace.judges.llm.embedder import OpenAIEmbedder
    from ragtrace.judges.llm.openai import OpenAIJudge
    from ragtrace.judges.local.hhem import HHEM
    from ragtrace.judges.local.scorer import ScorerJudge
    from ragtrace.metrics.bert_score import BertScoreTokens
    from ragtrace.metrics.custom_metric import metric
    from ragtrace.metrics.g_eval import g_eval
    from ragtrace.metrics.run_consistency import run_consistency, run_statistics
    from ragtrace.offline import Evaluations, ascore, evaluate, score
    from ragtrace.offline.assertions import assert_scores
    from ragtrace.propagation import carry
    from ragtrace.report.calibration import Calibration, calibrate
    from ragtrace.runtime.configure import configure, flush, shutdown, stats
    from ragtrace.runtime.estimate import estimate
    from ragtrace.runtime.feedback import call_id, feedback
    from ragtrace.runtime.frameworks import instrument, uninstrument
    from ragtrace.telemetry.spans.hold import HoldProcessor

__all__ = [
    "Alert",
    "Baseline",
    "BaselineLearning",
    "BertScoreTokens",
    "Calibration",
    "CallBlock",
    "Canaries",
    "Claim",
    "Diagnosis",
    "Document",
    "EmbeddedJudge",
    "Estimate",
    "Evaluations",
    "HHEM",
    "History",
    "HoldProcessor",
    "Judge",
    "JudgeError",
    "JudgeLimits",
    "Judgement",
    "Limits",
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
    "TelemetryOptions",
    "UnknownMetricError",
    "Unscored",
    "Usage",
    "ascore",
    "assert_scores",
    "calibrate",
    "call",
    "call_id",
    "carry",
    "configure",
    "doctor",
    "estimate",
    "evaluate",
    "feedback",
    "flush",
    "g_eval",
    "generate",
    "instrument",
    "metric",
    "reference",
    "retrieve",
    "run_consistency",
    "run_statistics",
    "score",
    "shutdown",
    "stats",
    "tool",
    "trace",
    "uninstrument",
    "usage",
]


# Where each name is. Loaded on first use: an application that decorates its functions but is not configured (a script,
# a test, a migration) should pay for little more than the decorators.
_HOMES = {
    "ragtrace.alerts": ("Alert",),
    "ragtrace.block": ("CallBlock", "call", "reference", "usage"),
    "ragtrace.capture.redact": ("Redact",),
    "ragtrace.core.errors": ("JudgeError", "RagtraceError", "SettingsError", "UnknownMetricError"),
    "ragtrace.core.labels": ("Claim",),
    "ragtrace.core.ledger": ("Stats", "Tally"),
    "ragtrace.core.options": (
        "BaselineLearning", "Canaries", "History", "JudgeLimits", "Limits", "TelemetryOptions",
    ),
    "ragtrace.core.price": ("Price",),
    "ragtrace.core.types": (
        "Document", "Judge", "Judgement", "Metric", "RagCall", "Score", "Signals", "Unscored", "Usage",
    ),
    "ragtrace.decorators": ("generate", "retrieve", "tool", "trace"),
    "ragtrace.diagnosis": ("Diagnosis", "doctor"),
    "ragtrace.estimates": ("Baseline", "Estimate"),
    "ragtrace.evaluation.sampling": ("Sampling",),
    "ragtrace.judges": ("EmbeddedJudge",),
    "ragtrace.judges.llm.openai": ("OpenAIJudge",),
    "ragtrace.judges.llm.embedder": ("OpenAIEmbedder",),
    "ragtrace.judges.local.hhem": ("HHEM",),
    "ragtrace.judges.local.scorer": ("ScorerJudge",),
    "ragtrace.metrics.bert_score": ("BertScoreTokens",),
    "ragtrace.metrics.custom_metric": ("metric",),
    "ragtrace.metrics.g_eval": ("g_eval",),
    "ragtrace.metrics.run_consistency": ("run_consistency", "run_statistics"),
    "ragtrace.offline": ("Evaluations", "ascore", "evaluate", "score"),
    "ragtrace.offline.assertions": ("assert_scores",),
    "ragtrace.propagation": ("carry",),
    "ragtrace.report.calibration": ("Calibration", "calibrate"),
    "ragtrace.runtime.configure": ("configure", "flush", "shutdown", "stats"),
    "ragtrace.runtime.estimate": ("estimate",),
    "ragtrace.runtime.feedback": ("call_id", "feedback"),
    "ragtrace.runtime.frameworks": ("instrument", "uninstrument"),
    "ragtrace.telemetry.spans.hold": ("HoldProcessor",),
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
