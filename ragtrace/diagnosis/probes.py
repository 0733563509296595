"""Probes: questions to endpoints, judges, files and backends, asked all at once and each within a time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from opentelemetry.context import attach, set_value

from ragtrace.core.text import encodable
from ragtrace.core.types import Probed
from ragtrace.diagnosis.report import Check
from ragtrace.runtime.runtime import RuntimeSnapshot

_MOST_CHARS: Final = 200
_GRACE_SECONDS: Final = 0.5
"""Time beyond the limit in which a probe may report that it ran into the limit."""


class Answer(NamedTuple):
    """Result of one probe: whether the target works, what was seen, and what to do about a failure."""

    ok: bool
    seen: str
    advice: str = ""


class Probe:
    """One question that is being asked on another thread or event loop."""

    def __init__(self, what: str, where: str, timeout: float, otherwise: str = "no answer in time") -> None:
        self.what, self._where, self._timeout, self._otherwise = what, where, timeout, otherwise
        self._began = perf_counter()
        self._answered = threading.Event()
        self._answer = Answer(False, "")
        self._seconds = 0.0

    def answer(self, answer: Answer) -> None:
        """Set the answer."""
        self._answer, self._seconds = answer, perf_counter() - self._began
        self._answered.set()

    def wait(self) -> Check:
        """Wait for the answer until the time limit, and return it as a check."""
        self._answered.wait(max(0.0, self._began + self._timeout + _GRACE_SECONDS - perf_counter()))
        if not self._answered.is_set():
            return Check(self.what, self._where, False, perf_counter() - self._began, self._otherwise)
        return Check(self.what, self._where, self._answer.ok, self._seconds, self._answer.seen, self._answer.advice)


class Probes:
    """All probes of one diagnosis, with notes and problems about targets that cannot be probed.

    Args:
        timeout: seconds that each probe may take.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._probes: list[Probe] = []

    def add(self, what: str, where: str, otherwise: str = "no answer in time") -> Probe:
        """Add a probe that the caller answers, and return it; *otherwise* is seen if no answer comes in time."""
        self._probes.append(Probe(what, where, self.timeout, otherwise))
        return self._probes[-1]

    def start(self, what: str, where: str, ask: Callable[[], Answer]) -> None:
        """Add a probe and call *ask* on a thread of its own."""
        probe = self.add(what, where)

        def run() -> None:
            attach(set_value("suppress_instrumentation", True))  # an instrumented HTTP client must not trace this
            try:
                probe.answer(ask())
            except Exception as error:
                probe.answer(Answer(False, f"{type(error).__name__}: {error}"))

        threading.Thread(target=run, name="ragtrace-doctor", daemon=True).start()

    def wait(self) -> tuple[Check, ...]:
        """Wait for all answers and return them in the order in which the probes were added."""
        return tuple(probe.wait() for probe in self._probes)


def probe_judges(inside: RuntimeSnapshot, probes: Probes) -> None:
    """Probe every judge that has a probe(), on the event loop that judges it, as its connections belong to that."""
    for evaluator in (inside.evaluators.screen, inside.evaluators.judge):
        if evaluator is None or evaluator.judge_client.computes:
            continue
        if not isinstance(evaluator.judge, Probed):
            probes.notes.append(f"{evaluator.id} has no probe(), so whether it answers shows only when it is asked")
            continue
        where = f"{type(evaluator.judge).__name__} {evaluator.identity}"
        late = "the background did not come to ask it in time: is a judge blocking its thread?"
        probe = probes.add(evaluator.id, where, late)
        if not inside.run(partial(_ask_judge, evaluator.judge, probe, probes.timeout)):
            probe.answer(Answer(False, "the background takes nothing more", "see the accounts: is the queue full?"))


async def _ask_judge(judge: Probed, probe: Probe, timeout: float) -> None:
    try:
        seen = await asyncio.wait_for(judge.probe(), timeout)
        probe.answer(Answer(True, shortened(str(seen))))
    except (TimeoutError, asyncio.TimeoutError):
        probe.answer(Answer(False, f"no answer within {timeout:g} s"))
    except Exception as error:
        probe.answer(Answer(False, shortened(str(error) or type(error).__name__)))


def shortened(text: str) -> str:
    """Return *text* on one line of at most 200 characters."""
    text = encodable(" ".join(text.split()))
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."
