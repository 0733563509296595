"""`JudgeClient`: gets the judgement of a call from a judge within a deadline, or the reason why there is none.

A call passes the cache, an identical call in flight, a slot among the bounded number in flight, the gate that a
Retry-After shuts, and the circuit breaker. Transient failures are retried with back-off while the call has time left.
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

from ragtrace.core.cost import Cost, metered
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import BreakerState, Judge, Judgement, RagCall
from ragtrace.core.unscored_reasons import JUDGE_ERROR
from ragtrace.evaluation.cache import JudgementCache, as_cached, fingerprint
from ragtrace.evaluation.circuit_breaker import CircuitBreaker
from ragtrace.evaluation.retry_gate import RetryAfterGate, back_off
from ragtrace.system.fair_semaphore import FairSemaphore, LateError, run_within
from ragtrace.system.faults import LEFT_OUT, faults
from ragtrace.system.threads import BlockingCalls, NoThreadError

_MOST_TRIES: Final = 4
"""Fewer than the failures that open the circuit: one call that no judge survives must not cost all others theirs."""
_FAILURES: Final = frozenset({"unavailable", "timeout"})
"""Reasons that speak against the judge; any other came with an answer."""
_PACKAGE: Final = __name__.partition(".")[0]
_STATUS: Final = re.compile(r"HTTP \d+")
"""Start of the detail of an error that a server answered with, before the server's own words."""


@dataclass(frozen=True, slots=True)
class JudgeStatus:
    """Snapshot of a judge's circuit breaker, queue and counters."""

    state: BreakerState
    waits_s: float
    """Seconds until the judge may be asked again (an open circuit, a Retry-After); 0 if it may be now."""
    in_flight: int
    """Calls that hold a slot: being judged, or waiting for a Retry-After to pass."""
    queued: int
    """Calls that wait for a slot."""
    asked: int
    """Times the judge was asked, retries included."""
    spared: int
    """Times it was not asked because an identical call had been or was being judged."""
    hung_threads: int
    """Abandoned threads that are still in a judge that is a plain function."""


class JudgeClient:
    """Asks one judge, from one event loop: with deadline, retries, rate limit, circuit breaker and cache.

    A judge with a true attribute `computes` is asked directly, without any of these. A judge whose `judge` is a plain
    function is called in threads.

    Identical calls are judged once: a call that finds an identical one in flight waits for it. It shares the judgement,
    and the error too, except when the other was cancelled or ran out of its own time: then it asks the judge itself in
    the time that remains.

    A call's time starts with `ask`. A caller with more calls than can be judged soon should hold `admission_queue`
    around `ask` (`async with client.admission_queue:`), because calls that queue inside `ask` may spend their time
    there.

    Args:
        judge: the judge to ask.
        timeout: seconds for a call, waiting and retries included; None: no limit.
        concurrency: most calls that the judge sees at a time.
        remembered: most judgements in the cache.
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
        """Replace all state after a fork: calls in flight and waiting belong to the parent process."""
        self._slots = FairSemaphore(self._concurrency)
        # Twice as many as are judged at a time: those that pause before a further try leave no slot unused.
        self.admission_queue = FairSemaphore(2 * self._concurrency)
        self._gate = RetryAfterGate(clock=self._clock, sleep=self._sleep, random=self._chance)
        self._breaker = CircuitBreaker(self._clock)
        self._threads = BlockingCalls(self._concurrency, f"judge {self._judge.id}")
        self._cache = JudgementCache(self._remembered)
        self._in_flight: dict[bytes, asyncio.Future[Judgement | JudgeError | None]] = {}
        self._asked = self._spared = 0

    @property
    def state(self) -> BreakerState:
        """BreakerState of the circuit breaker; safe to read from any thread."""
        return self._breaker.state

    @property
    def status(self) -> JudgeStatus:
        """Snapshot of the judge's state; safe to read from any thread."""
        return JudgeStatus(
            state=self._breaker.state,
            waits_s=max(self._breaker.seconds_open, self._gate.seconds_shut),
            in_flight=self._slots.taken,
            queued=self._slots.waiting + self.admission_queue.waiting,
            asked=self._asked,
            spared=self._spared,
            hung_threads=self._threads.hung,
        )

    async def ask(self, call: RagCall) -> Judgement:
        """Return the judgement of *call*; with the attribute `cached` and no cost if an identical call was judged.

        Raises:
            JudgeError: there is none; `reason` is one of `model.JUDGE_ERROR`. `timeout`: the call's time ran out;
                `unavailable`: the judge failed, its circuit is open, or its Retry-After ends after the deadline.
        """
        if self.computes:
            return await self._answer(call)
        deadline = math.inf if self._timeout is None else self._clock() + self._timeout
        key = fingerprint(call, f"{self._judge.id}@{self._judge.version}")
        while True:
            judgement = self._cache.get(key)
            if judgement is None:
                leader = self._in_flight.get(key)
                if leader is None:
                    return await self._lead(key, call, deadline)
                judgement = await self._follow(leader, deadline)
            if judgement is not None:
                self._spared += 1
                return as_cached(judgement)

    # --- identical calls ---------------------------------------------------------------------------------------------

    async def _lead(self, key: bytes, call: RagCall, deadline: float) -> Judgement:
        """Ask the judge, and hand the outcome to the identical calls that wait for it."""
        outcome: Judgement | JudgeError | None = None
        shared = self._in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            outcome = judgement = await self._ask_with_retries(call, deadline)
            self._cache.put(key, judgement)
            return judgement
        except JudgeError as error:
            outcome = None if error.reason == "timeout" else error
            raise
        finally:
            self._in_flight.pop(key, None)
            shared.set_result(outcome)

    async def _follow(self, leader: asyncio.Future[Judgement | JudgeError | None], deadline: float) -> Judgement | None:
        """Return the outcome of an identical call; None: that call's time ended, which says nothing about this one."""
        await asyncio.wait({leader}, timeout=self._left(deadline))
        if not leader.done():
            raise self._late("an identical call is still being judged")
        outcome = leader.result()
        if isinstance(outcome, JudgeError):  # one exception object is not raised in two tasks
            raise JudgeError(outcome.reason, outcome.detail, retryable=False)
        return outcome

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _ask_with_retries(self, call: RagCall, deadline: float) -> Judgement:
        """Ask until there is a judgement or a further try is futile; the outcome carries the cost of all tries."""
        failed = tries = 0
        spent = Cost()
        while True:
            try:
                judgement = await self._try(call, deadline)
                return spent.plus_known(Cost.of(judgement)).on_judgement(judgement) if spent else judgement
            except JudgeError as error:
                tries += 1
                spent = spent.plus_known(Cost.of(error))
                # A judge that sends a Retry-After is not failing: the deadline alone bounds how often it is asked.
                failed += error.retry_after is None or deadline == math.inf
                # The gate keeps later tries from coming too early: the pause only keeps "at once" from spinning.
                pause = back_off(tries if error.retry_after is None else min(tries, 3), self._chance)
                too_late = self._clock() + pause >= deadline or not self._gate.opens_before(deadline)
                if not error.retryable or failed >= _MOST_TRIES or too_late or self._breaker.refuses:
                    raise spent.on_error(error) from error
            await self._sleep(pause)

    async def _try(self, call: RagCall, deadline: float) -> Judgement:
        """Wait for a slot and an open gate, then ask once."""
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
        """Fail at once rather than wait for a try that cannot come in time.

        Raises:
            JudgeError: the circuit is open, or the gate opens too late, or the deadline has passed.
        """
        if self._breaker.refuses:
            raise self._refused()
        if not self._gate.opens_before(deadline):
            wait = f"the judge's Retry-After lasts another {self._gate.seconds_shut:.1f} s, longer than the call has"
            raise JudgeError("unavailable", wait, retryable=False)
        if self._clock() >= deadline:
            raise self._late("its time was over before it was asked")

    async def _ask_once(self, call: RagCall, deadline: float, ticket: int) -> Judgement:
        well: bool | None = None
        left = self._left(deadline)
        self._asked += 1
        with metered() as meter:
            try:
                judgement = await run_within(left, self._answer(call))
                well = True
                return judgement
            except LateError as error:
                # If most of its time had gone by before it was asked, it is not the judge that is slow.
                hurried = left is not None and self._timeout is not None and left < self._timeout / 2
                well = None if hurried else False
                raise meter.total.on_error(self._late(f"no judgement: {error}")) from error
            except JudgeError as error:
                if error.retry_after is None:
                    well = error.reason not in _FAILURES
                else:
                    self._gate.shut(error.retry_after)
                if meter.total and not error.n_calls:  # the judge did not report it
                    raise meter.total.on_error(error) from error
                raise
            finally:
                self._breaker.settle(ticket, well)

    async def _answer(self, call: RagCall) -> Judgement:
        """Return the judge's judgement of *call*; everything it raises, but a cancellation, becomes a `JudgeError`."""
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
            known = JudgeError(reason, detail, retry_after=error.retry_after, retryable=error.retryable)
            raise Cost.of(error).on_error(known) from error
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
        seconds = self._breaker.seconds_open
        wait = f"tried again in {seconds:.1f} s" if seconds else "one call is trying it"
        return JudgeError("unavailable", f"the judge kept failing and its circuit is open: {wait}", retryable=False)


def _without_content(error: JudgeError, judge: Judge) -> str:
    """Return the detail of *error* where no content may leave: servers repeat the request, and models the call.

    The detail of ragtrace's own judges about a server that they did not reach, or that was late, holds no content.
    """
    if error.reason not in _FAILURES or type(judge).__module__.partition(".")[0] != _PACKAGE:
        return LEFT_OUT
    status = _STATUS.match(error.detail)
    return error.detail if status is None else f"{status[0]} {LEFT_OUT}"
