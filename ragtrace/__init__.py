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
    from ragtrace import judges as judges
    from ragtrace import metrics as metrics
    from ragtrace import types as types
    from ragtrace.block import call, reference, usage
    from ragtrace.capture.redact import Redact
    from ragtrace.core.errors import RagtraceError, SettingsError
    from ragtrace.core.labels import Claim
    from ragtrace.core.options import BaselineLearning, Canaries, History, JudgeLimits, Limits, TelemetryOptions
    from ragtrace.core.types import Document, Judgement, RagCall, Score, Unscored
    from ragtrace.decorators import generate, retrieve, tool, trace
    from ragtrace.evaluation.sampling import Sampling
    from ragtrace.judges import DecisionJudge, EmbeddedJudge
    from ragtrace.judges.llm.openai import OpenAIJudge
    from ragtrace.metrics.custom_metric import metric
    from ragtrace.propagation import carry, tags
    from ragtrace.runtime.configure import configure
    from ragtrace.runtime.current_runtime import flush, shutdown, stats
    from ragtrace.runtime.estimate import estimate
    from ragtrace.runtime.feedback import call_id, feedback
    from ragtrace.slices import (
        Alert,
        Guard,
        ascore,
        calibrate,
        doctor,
        evaluate,
        instrument,
        score,
        uninstrument,
    )
    from ragtrace.slices import testing as testing
    from ragtrace.telemetry.spans.hold import HoldProcessor


__all__ = [
    "Alert",
    "BaselineLearning",
    "Canaries",
    "Claim",
    "DecisionJudge",
    "Document",
    "EmbeddedJudge",
    "Guard",
    "History",
    "HoldProcessor",
    "JudgeLimits",
    "Judgement",
    "Limits",
    "OpenAIJudge",
    "RagCall",
    "RagtraceError",
    "Redact",
    "Sampling",
    "Score",
    "SettingsError",
    "TelemetryOptions",
    "Unscored",
    "ascore",
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
    "generate",
    "instrument",
    "metric",
    "reference",
    "retrieve",
    "score",
    "shutdown",
    "stats",
    "tags",
    "tool",
    "trace",
    "uninstrument",
    "usage",
]


# Where each name is. Loaded on first use: an application that decorates its functions but is not configured (a script,
# a test, a migration) should pay for little more than the decorators.
_HOMES = {
    "ragtrace.block": ("call", "reference", "usage"),
    "ragtrace.capture.redact": ("Redact",),
    "ragtrace.core.errors": ("RagtraceError", "SettingsError"),
    "ragtrace.core.labels": ("Claim",),
    "ragtrace.core.options": ("BaselineLearning", "Canaries", "History", "JudgeLimits", "Limits", "TelemetryOptions"),
    "ragtrace.core.types": ("Document", "Judgement", "RagCall", "Score", "Unscored"),
    "ragtrace.decorators": ("generate", "retrieve", "tool", "trace"),
    "ragtrace.evaluation.sampling": ("Sampling",),
    "ragtrace.judges": ("DecisionJudge", "EmbeddedJudge"),
    "ragtrace.judges.llm.openai": ("OpenAIJudge",),
    "ragtrace.metrics.custom_metric": ("metric",),
    "ragtrace.propagation": ("carry", "tags"),
    "ragtrace.runtime.configure": ("configure",),
    "ragtrace.runtime.current_runtime": ("flush", "shutdown", "stats"),
    "ragtrace.runtime.estimate": ("estimate",),
    "ragtrace.runtime.feedback": ("call_id", "feedback"),
    "ragtrace.telemetry.spans.hold": ("HoldProcessor",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


_MODULES = ("judges", "metrics", "types")
"""Modules with further public names, which need not be imported one by one."""
_SLICES = "ragtrace.slices"
"""Module with the public names of the slices; a core that stands alone has none."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"ragtrace.{name}")
    home = _HOME.get(name) or (_SLICES if name in __all__ or name == "testing" else None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != _SLICES:
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    except ValueError as error:
        if not str(error).startswith("OTEL_"):  # a variable that OpenTelemetry's SDK reads when it is imported
            raise
        from ragtrace.core.errors import SettingsError

        raise SettingsError(f"OpenTelemetry's SDK cannot be imported: {error}; correct or unset it") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
