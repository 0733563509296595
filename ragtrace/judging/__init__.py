"""Asking a judge that may be slow, failing or lying: deadlines, back-off, a circuit breaker, each question once."""

from ragtrace.judging.asker import Asker, Standing
from ragtrace.judging.breaker import STATES, State
from ragtrace.judging.threads import NoThreadError, Threads
from ragtrace.judging.waiting import LateError, within

__all__ = ["STATES", "Asker", "LateError", "NoThreadError", "Standing", "State", "Threads", "within"]
