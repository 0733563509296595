"""`Asker`: gets a judgement out of a judge within a deadline, or says why there is none.

A call goes through: what is remembered; an identical call in flight; a place among the bounded number in flight; the
gate that a Retry-After shuts; the circuit breaker; the judge itself. Failures that may pass are tried again, later each
time, while the call has time left.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from ragtrace.core.cost import Account, opened
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import BreakerState, Judge, Judgement, RagCall
from ragtrace.core.unscored_reasons import JUDGE_ERROR
from ragtrace.evaluation.cache import Memory, again, fingerprint
from ragtrace.evaluation.circuit_breaker import Breaker
from ragtrace.evaluation.retry_gate import Gate, back_off
from ragtrace.system.fair_semaphore import LateError, Slots, within
from ragtrace.system.faults import LEFT_OUT, faults
from ragtrace.system.judge_loops import NoThreadError, Threads

_MOST_TRIES: Final = 4
"""Fewer than the failures that open the circuit: one call that no judge survives must not cost all others theirs."""
_FAILURES: Final = frozenset({"unavailable", "timeout"})
"""Reasons that speak against the judge; any other came with an answer."""
_OURS: Final = __name__.partition(".")[0]
_STATUS: Final = re.compile(r"HTTP \d+")
"""Begins the detail of an error that a server answered with, before what it says."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a judge stands at one moment."""

    state: BreakerState
    waits_s: float
    """Seconds until it may be asked again (an open circuit, a Retry-After); 0 if it may be now."""
    in_flight: int
    """Calls that have a place: being judged, or waiting for a Retry-After to pass."""
    queued: int
    """Calls that wait for a place."""
    asked: int
    """Times it was asked, retries included."""
    spared: int
    """Times it was not, because an identical call had been or was being judged."""
    hung_threads: int
    """Threads left to themselves in a judge that is a plain function."""


class Asker:
    """Asks one judge, from one event loop.

    A judge with a true attribute `computes` is asked directly: it has no deadline, no memory and no queue. A judge
    whose `judge` is a plain function is called in threads (`Threads`).

    Identical calls are judged once: a call that finds an identical one in flight waits for it. It shares the judgement,
    and the error too, except when the other was cancelled or ran out of its own time: then it asks itself, with what is
    left of its time.

    A call's time runs from `ask` on. Who has more calls than can be judged soon should enter `line` before, `async with
    asker.line:`, where nothing ends but the waiting: calls that queue inside `ask` may spend their time there.

    Args:
        judge: whom to ask.
        timeout: seconds for a call, waiting and retries included; None: no limit.
        concurrency: calls the judge sees at a time.
        remembered: most judgements kept for identical calls.
        clock: monotonic seconds.
        sleep: waits that many seconds.
        chance: a number in [0, 1).
    """

    def __init__(
        self,
        judge: Judge,
        *,
        timeout: float | None = None,
        concurrency: int = 16,
        remembered: int = 1024,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._judge, self._timeout = judge, timeout
        self._concurrency, self._remembered = concurrency, remembered
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self.computes = bool(getattr(judge, "computes", False))
        """Whether the judge only computes, and so needs no protection."""
        self._plain = not inspect.iscoroutinefunction(judge.judge)
        self.reset()

    def reset(self) -> None:
        """Start afresh: after a fork, what is in flight and who waits are the parent's."""
        self._slots = Slots(self._concurrency)
        # Twice as many as are judged at a time: those that pause before a further try leave no place unused.
        self.line = Slots(2 * self._concurrency)
        self._gate = Gate(clock=self._clock, sleep=self._sleep, random=self._chance)
        self._breaker = Breaker(self._clock)
        self._threads = Threads(self._concurrency, f"judge {self._judge.id}")
        self._memory = Memory(self._remembered)
        self._asking: dict[bytes, asyncio.Future[Judgement | JudgeError | None]] = {}
        self._asked = self._spared = 0

    @property
    def state(self) -> BreakerState:
        """The circuit breaker's state; safe to read from any thread."""
        return self._breaker.state

    @property
    def standing(self) -> Standing:
        """How the judge stands; safe to read from any thread."""
        return Standing(
            state=self._breaker.state,
            waits_s=max(self._breaker.left, self._gate.left),
            in_flight=self._slots.taken,
            queued=self._slots.waiting + self.line.waiting,
            asked=self._asked,
            spared=self._spared,
            hung_threads=self._threads.hung,
        )

    async def ask(self, call: RagCall) -> Judgement:
        """The judgement of *call*; with the attribute `cached` and no cost if an identical call was judged.

        Raises:
            JudgeError: there is none; `reason` is one of `model.JUDGE_ERROR`. `timeout`: the call's time ran out;
                `unavailable`: the judge failed, its circuit is open, or it wants to be asked only after the deadline.
        """
        if self.computes:
            return await self._answer(call)
        deadline = math.inf if self._timeout is None else self._clock() + self._timeout
        key = fingerprint(call, f"{self._judge.id}@{self._judge.version}")
        while True:
            judgement = self._memory.get(key)
            if judgement is None:
                leader = self._asking.get(key)
                if leader is None:
                    return await self._lead(key, call, deadline)
                judgement = await self._follow(leader, deadline)
            if judgement is not None:
                self._spared += 1
                return again(judgement)

    # --- identical calls ---------------------------------------------------------------------------------------------

    async def _lead(self, key: bytes, call: RagCall, deadline: float) -> Judgement:
        """Ask, and tell those who wait for the same."""
        outcome: Judgement | JudgeError | None = None
        told = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            outcome = judgement = await self._persist(call, deadline)
            self._memory.put(key, judgement)
            return judgement
        except JudgeError as error:
            outcome = None if error.reason == "timeout" else error
            raise
        finally:
            self._asking.pop(key, None)
            told.set_result(outcome)

    async def _follow(self, leader: asyncio.Future[Judgement | JudgeError | None], deadline: float) -> Judgement | None:
        """What became of an identical call; None: its time ended, which says nothing about ours."""
        await asyncio.wait({leader}, timeout=self._left(deadline))
        if not leader.done():
            raise self._late("an identical call is still being judged")
        outcome = leader.result()
        if isinstance(outcome, JudgeError):  # one exception object is not raised in two tasks
            raise JudgeError(outcome.reason, outcome.detail, retryable=False)
        return outcome

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _persist(self, call: RagCall, deadline: float) -> Judgement:
        """Ask until there is an answer, or no time or hope is left; it, or the error, says what all tries cost."""
        failed = tries = 0
        spent = Account()
        while True:
            try:
                return spent.charge(await self._try(call, deadline))
            except JudgeError as error:
                tries += 1
                spent.add(error)
                # A judge that says when to come back is not failing: the deadline alone bounds how often we do.
                failed += error.retry_after is None or deadline == math.inf
                pause = self._pause(error, tries)
                if not error.retryable or failed >= _MOST_TRIES or self._hopeless(pause, deadline):
                    raise spent.charged(error) from error
            await self._sleep(pause)

    def _hopeless(self, pause: float, deadline: float) -> bool:
        """Whether a further try would come too late, or would not be let through."""
        late = self._clock() + pause >= deadline or not self._gate.opens_before(deadline)
        return late or self._breaker.refuses

    def _pause(self, error: JudgeError, tries: int) -> float:
        # The gate sees to it that we do not come too early: this must only keep "come back at once" from spinning.
        return back_off(tries if error.retry_after is None else min(tries, 3), self._chance)

    async def _try(self, call: RagCall, deadline: float) -> Judgement:
        """Wait for a place and an open gate, then ask once."""
        self._check(deadline)
        if not await self._slots.take(self._left(deadline)):
            raise self._late(f"all {self._concurrency} places were taken")
        try:
            if not await self._gate.passed(deadline):
                self._check(deadline)
            ticket = self._breaker.admit()
            if ticket is None:
                raise self._refused()
            return await self._ask_once(call, deadline, ticket)
        finally:
            self._slots.give()

    def _check(self, deadline: float) -> None:
        """Fail at once rather than wait for what cannot come in time.

        Raises:
            JudgeError: the circuit is open, or the gate opens too late, or the deadline has passed.
        """
        if self._breaker.refuses:
            raise self._refused()
        if not self._gate.opens_before(deadline):
            wait = f"the judge wants to be left alone for another {self._gate.left:.1f} s, longer than the call has"
            raise JudgeError("unavailable", wait, retryable=False)
        if self._clock() >= deadline:
            raise self._late("its time was over before it was asked")

    async def _ask_once(self, call: RagCall, deadline: float, ticket: int) -> Judgement:
        well: bool | None = None
        left = self._left(deadline)
        self._asked += 1
        spent = Account()
        try:
            with opened(spent):
                judgement = await within(left, self._answer(call))
            well = True
            return judgement
        except LateError as error:
            # If most of its time had gone by before it was asked, it is not the judge that is slow.
            hurried = left is not None and self._timeout is not None and left < self._timeout / 2
            well = None if hurried else False
            raise spent.charged(self._late(f"no judgement: {error}")) from error
        except JudgeError as error:
            if error.retry_after is None:
                well = error.reason not in _FAILURES
            else:
                self._gate.shut(error.retry_after)
            if spent and not error.n_calls:  # it does not know itself
                raise spent.charged(error) from error
            raise
        finally:
            self._breaker.settle(ticket, well)

    async def _answer(self, call: RagCall) -> Judgement:
        """What the judge says of *call*; whatever it raises, but a cancellation, is a `JudgeError`."""
        try:
            judgement: object = await self._call(call)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise JudgeError("timeout", faults.message(error)) from error
        except ConnectionError as error:
            raise JudgeError("unavailable", type(error).__name__) from error
        except NoThreadError as error:
            raise JudgeError("unavailable", str(error), retryable=False) from error
        except JudgeError as error:
            if error.reason in JUDGE_ERROR and not faults.hides_messages:
                raise
            reason = error.reason if error.reason in JUDGE_ERROR else "unavailable"
            detail = _without_content(error, self._judge) if faults.hides_messages else error.detail
            spent = Account()
            spent.add(error)
            after, retryable = error.retry_after, error.retryable
            raise spent.charged(JudgeError(reason, detail, retry_after=after, retryable=retryable)) from error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a judge that calls sys.exit() must not end the background
            faults.record(f"judge {self._judge.id}", error)
            raise JudgeError("unavailable", type(error).__name__, retryable=False) from error
        if not isinstance(judgement, Judgement):  # a user's judge may return anything
            raise JudgeError("unparsable", f"the judge returned {type(judgement).__name__}, not a Judgement")
        return judgement

    async def _call(self, call: RagCall) -> object:
        judgement: object
        if self._plain and not self.computes:
            judgement = await self._threads.run(self._judge.judge, call)
        else:
            judgement = self._judge.judge(call)
        # A decorated coroutine function may look plain, and return its coroutine.
        return await judgement if inspect.isawaitable(judgement) else judgement

    def _left(self, deadline: float) -> float | None:
        return None if deadline == math.inf else max(0.0, deadline - self._clock())

    def _late(self, why: str) -> JudgeError:
        return JudgeError("timeout", f"{why} (the call had {self._timeout} s)", retryable=False)

    def _refused(self) -> JudgeError:
        wait = f"tried again in {self._breaker.left:.1f} s" if self._breaker.left else "one call is trying it"
        return JudgeError("unavailable", f"the judge kept failing and is left alone: {wait}", retryable=False)


def _without_content(error: JudgeError, judge: Judge) -> str:
    """Return the detail of *error* where no content may leave: servers repeat the request, and models the call.

    What our own judges say of a server that they did not reach, or that answered late, holds no content.
    """
    if error.reason not in _FAILURES or type(judge).__module__.partition(".")[0] != _OURS:
        return LEFT_OUT
    status = _STATUS.match(error.detail)
    return error.detail if status is None else f"{status[0]} {LEFT_OUT}"
