"""Judges: what labels a call."""

from ragtrace.judges.embedded import EmbeddedJudge

__all__ = ["EmbeddedJudge"]
