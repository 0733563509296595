"""Judges, which give labels to a call."""

from ragtrace.judges.lexical.embedded import EmbeddedJudge

__all__ = ["EmbeddedJudge"]
