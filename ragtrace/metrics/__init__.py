"""Metrics: functions that compute the scores of a call from the labels that a judge gave it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragtrace.core.errors import UnknownMetricError
from ragtrace.core.types import Metric
from ragtrace.metrics.chunks import (
    average_precision_at,
    context_relevance_decaying,
    contextual_accuracy_from,
    precision_at,
    reciprocal_rank_from,
)
from ragtrace.metrics.custom_metric import metric
from ragtrace.metrics.formula import Formula
from ragtrace.metrics.quality import combined_quality
from ragtrace.metrics.registry import Registry, registry

if TYPE_CHECKING:
    from ragtrace.metrics.bert_score import BertScoreTokens
    from ragtrace.metrics.g_eval_metrics import g_eval
    from ragtrace.metrics.repeated_runs import run_consistency, run_statistics

__all__ = [
    "BertScoreTokens",
    "Formula",
    "Metric",
    "Registry",
    "UnknownMetricError",
    "average_precision_at",
    "combined_quality",
    "context_relevance_decaying",
    "contextual_accuracy_from",
    "g_eval",
    "metric",
    "precision_at",
    "reciprocal_rank_from",
    "registry",
    "run_consistency",
    "run_statistics",
]

# Loaded on first use: few applications need them.
_HOME = {
    "BertScoreTokens": "ragtrace.metrics.bert_score",
    "g_eval": "ragtrace.metrics.g_eval_metrics",
    "run_consistency": "ragtrace.metrics.repeated_runs",
    "run_statistics": "ragtrace.metrics.repeated_runs",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
