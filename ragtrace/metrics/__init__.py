"""Metrics: functions that compute the scores of a call from the labels that a judge gave it."""

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

__all__ = [
    "Formula",
    "Registry",
    "average_precision_at",
    "combined_quality",
    "context_relevance_decaying",
    "contextual_accuracy_from",
    "metric",
    "precision_at",
    "reciprocal_rank_from",
    "registry",
]
