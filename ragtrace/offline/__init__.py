"""Scoring without tracing: one call, many calls, a file of calls, and assertions for tests."""

from ragtrace.offline.batch import EvaluatedCall, Evaluations, MetricSummary, Summary, evaluate
from ragtrace.offline.single import ascore, score

__all__ = ["EvaluatedCall", "Evaluations", "MetricSummary", "Summary", "ascore", "evaluate", "score"]
