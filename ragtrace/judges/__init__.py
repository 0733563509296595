"""Judges: what labels a call."""

from ragtrace.judges.lexical.embedded import EmbeddedJudge

__all__ = ["EmbeddedJudge"]
