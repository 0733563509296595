"""What `configure` starts and everything runs through."""

from ragtrace.runtime.control import configure, current, flush, score, shutdown, stats, switched_off
from ragtrace.runtime.engine import Runtime

__all__ = ["Runtime", "configure", "current", "flush", "score", "shutdown", "stats", "switched_off"]
