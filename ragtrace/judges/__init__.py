"""Judges: evaluators that label statements and retrieved chunks of a RAG call, so that metrics can compute scores."""

from ragtrace.judges.lexical.embedded import EmbeddedJudge

__all__ = ["EmbeddedJudge"]
