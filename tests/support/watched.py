"""What the tests of the core share: a configured ragtrace with telemetry in memory, and judges that wait to be told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, TypeVar

import ragtrace
from ragtrace.core.labels import Claim
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.testing import Captured, FakeJudge

WAIT_S: Final = 30.0
"""How long a test waits for what should happen at once, before it fails."""

ANSWER: Final = "Paris is big. Paris is on Mars."
CLAIMS: Final = (
    Claim("Paris is big.", 0, 13, "supported", evidence=(0,), score=0.9),
    Claim("Paris is on Mars.", 14, 31, "not_found", evidence=(1, 0), score=0.1, unsupported=((26, 30),), quote="Mars"),
)
HALF: Final = Judgement(claims=CLAIMS, answer_label="answered", consistency=0.25)
"""One claim of two is supported: faithfulness 0.5, hallucination 0.5, consistency 0.25, answered 1."""
GOOD: Final = Judgement(claims=CLAIMS[:1], answer_label="answered", consistency=0.9, input_tokens=30, output_tokens=7)
"""Faithfulness 1, hallucination 0, consistency 0.9, answered 1."""


@ragtrace.retrieve(source="places")
def search(query: str) -> list[str]:
    return ["Paris is a big city.", "Mars is a planet."]


@ragtrace.generate(model="tiny")
def generate(question: str, docs: list[str]) -> str:
    return ANSWER


@ragtrace.trace(name="guide")
def ask(question: str) -> str:
    """The smallest whole call: three spans, one answer."""
    return generate(question, search(question))


def watch(**settings: Any) -> Captured:
    """Configure ragtrace with telemetry in memory and, unless told otherwise, the default screen."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, **settings)
    return captured


J = TypeVar("J", bound="ragtrace.judges.Judge")


def limited(judge: J, **limits: Any) -> J:
    """*judge*, given `ragtrace.JudgeLimits(**limits)`."""
    vars(judge)["limits"] = ragtrace.JudgeLimits(**limits)
    return judge


class Watched:
    """A configured ragtrace, whose telemetry stays in memory and whose judge keeps the calls."""

    def __init__(self, **settings: Any) -> None:
        self.judge = FakeJudge(GOOD)
        self.captured = watch(screen=self.judge, **settings)

    def calls(self) -> list[RagCall]:
        """Return the calls made so far, after checking that no fault of ragtrace's was counted."""
        assert ragtrace.flush()
        assert ragtrace.stats().faults == {}
        return self.judge.calls

    def call(self) -> RagCall:
        """Return the only call."""
        (call,) = self.calls()
        assert self.captured.root()
        return call

    def span_names(self) -> list[str]:
        """Return the names of all spans, in the order in which they ended."""
        return [span.name for span in self.captured.spans]


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether *condition* comes true in time."""
    deadline, tick = monotonic() + WAIT_S, threading.Event()
    while not condition() and monotonic() < deadline:
        tick.wait(0.01)
    return condition()


class WaitingJudge:
    """A judge that gives `judgement` only after `open`; until then, or for ever, it waits as a slow server would.

    Args:
        blocking: wait without giving the event loop back, as a judge with a synchronous client does.
    """

    version = "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self, judgement: Judgement = GOOD, *, name: str = "waiting", blocking: bool = False) -> None:
        self.id = name
        self.begun = threading.Event()
        """Set when it has been asked."""
        self.asked = 0
        self._judgement, self._blocking = judgement, blocking
        self._opened = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def offers(self, metric: Metric) -> bool:
        return metric.name in ("faithfulness", "hallucination", "consistency", "answered")

    async def judge(self, call: RagCall) -> Judgement:
        self.asked += 1
        if not self._opened.is_set():
            await self._wait()
        return self._judgement

    async def _wait(self) -> None:
        if self._blocking:
            self.begun.set()
            self._opened.wait(WAIT_S)
            return
        event = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), event))
        self.begun.set()
        if not self._opened.is_set():  # if it is, whoever opened it may not have seen this call waiting
            await event.wait()

    def open(self) -> None:
        """Let every call through, now and later."""
        self._opened.set()
        for loop, event in self._waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
