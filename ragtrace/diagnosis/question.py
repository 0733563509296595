"""Something that is asked while others are asked, too, and waited for no longer than it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from opentelemetry.context import attach, set_value

from ragtrace.diagnosis.otlp_probe import Answer
from ragtrace.diagnosis.report import Check

_NO_ANSWER = "no answer in time"


class Reach(NamedTuple):
    """What answered, and what is to be said about it."""

    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Question:
    """Asked on another thread, or on the background's loop, from the moment it is made."""

    def __init__(self, what: str, where: str, timeout: float, otherwise: str = _NO_ANSWER) -> None:
        self.what, self._where, self._timeout, self._otherwise = what, where, timeout, otherwise
        self._began = perf_counter()
        self._done = threading.Event()
        self._answer = Answer(False, "")
        self._seconds = 0.0

    def settle(self, answer: Answer) -> None:
        """This is the answer."""
        self._answer, self._seconds = answer, perf_counter() - self._began
        self._done.set()

    def wait(self) -> Check:
        """The answer, if it comes in time; what asks has its own limit, and half a second to say so."""
        self._done.wait(max(0.0, self._began + self._timeout + 0.5 - perf_counter()))
        if not self._done.is_set():
            return Check(self.what, self._where, False, perf_counter() - self._began, self._otherwise)
        return Check(self.what, self._where, self._answer.ok, self._seconds, self._answer.seen, self._answer.advice)


def ask_beside(what: str, where: str, timeout: float, ask: Callable[[], Answer]) -> Question:
    """Ask on a thread of its own; *ask* may take *timeout* seconds."""
    question = Question(what, where, timeout)

    def run() -> None:
        attach(set_value("suppress_instrumentation", True))  # an instrumented HTTP client must not trace this
        try:
            question.settle(ask())
        except Exception as error:
            question.settle(Answer(False, f"{type(error).__name__}: {error}"))

    threading.Thread(target=run, name="ragtrace-doctor", daemon=True).start()
    return question
