"""Scoring without tracing: of one call, of many calls or of a file, and assertions on scores for tests."""

from ragtrace.offline.batch import EvaluatedCall, Evaluations, MetricSummary, Summary, evaluate
from ragtrace.offline.single import ascore, score

__all__ = ["EvaluatedCall", "Evaluations", "MetricSummary", "Summary", "ascore", "evaluate", "score"]
