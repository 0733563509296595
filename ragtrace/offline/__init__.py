"""Scoring without tracing: one call, many calls, a file of calls, and assertions for tests."""

from ragtrace.offline.batch import Evaluated, Evaluations, evaluate
from ragtrace.offline.single import ascore, score
from ragtrace.offline.summary import MetricSummary, Summary

__all__ = ["Evaluated", "Evaluations", "MetricSummary", "Summary", "ascore", "evaluate", "score"]
