"""Guards: checks of an answer before it leaves the decorated function that gave it."""

from ragtrace.guard.outcomes import GuardBlocked, GuardNotice
from ragtrace.guard.settings import Guard

__all__ = ["Guard", "GuardBlocked", "GuardNotice"]
