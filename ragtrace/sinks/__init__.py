"""Scores on their way to backends that do not read them from OTLP."""

from ragtrace.sinks.poster import ScorePoster, score_records

__all__ = ["ScorePoster", "score_records"]
