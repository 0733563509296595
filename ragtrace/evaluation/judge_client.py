"""Client of a judge, with a deadline, retries, limited concurrency, a cache and a circuit breaker.

A call is answered from the cache, or by an identical call that is being judged; else it waits for a free slot, and for
the end of a Retry-After, and passes the circuit breaker. Transient failures are retried with back-off while the call
has time left.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import random
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, cast

from ragtrace.core.cost import Cost, measure_cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import BreakerState, Judge, Judgement, Plain, RagCall
from ragtrace.core.unscored_reasons import JUDGE_ERROR
from ragtrace.system.fair_semaphore import FairSemaphore, TimeLimitError, WorkCancelledError, run_within
from ragtrace.system.faults import LEFT_OUT, faults
from ragtrace.system.threads import BlockingCalls, NoThreadError

_MOST_TRIES: Final = 4
"""Largest number of attempts for one call, below `_FAILURES_IN_A_ROW`, so that no single call can open the breaker."""
_FAILURES: Final = frozenset({"unavailable", "timeout"})
"""Reasons that count as failures of the judge; any other reason means that the judge has replied."""
_PACKAGE: Final = __name__.partition(".")[0]
_STATUS: Final = re.compile(r"HTTP \d+")
"""Pattern of the HTTP status before a server's own words, in the detail of an error."""


class JudgeStatus(NamedTuple):
    """Status of a judge at one moment: circuit breaker, queue and counters."""

    state: BreakerState
    waits_s: float
    """Seconds until a request may be sent, because of an open breaker, a Retry-After or a spent budget; 0: now."""
    in_flight: int
    """Number of calls that hold a slot: being judged, or waiting for a Retry-After to pass."""
    queued: int
    """Number of calls that wait for a slot."""
    asked: int
    """Number of requests to the judge, including retries."""
    spared: int
    """Number of requests saved, because an identical call had been judged or was being judged."""
    hung_threads: int
    """Number of threads that still run a judge's plain function after the time limit."""


class Reservation(Protocol):
    """Permission for one request to a judge, with the cost that was reserved for it."""

    def settle(self, cost: Cost) -> None:
        """Replace the reserved cost by the real *cost* of the request."""


class SharedLimits(Protocol):
    """Limits on requests to a judge that several processes keep together: budgets, and pauses by Retry-After."""

    @property
    def seconds_closed(self) -> float:
        """Seconds until requests to the judge may be allowed again, as far as this process knows."""
        ...

    async def reserve(self, deadline: float) -> Reservation | float:
        """Wait until the budgets allow one more request to the judge, and count that request.

        Args:
            deadline: monotonic seconds.

        Returns:
            The reservation; or the seconds that a Retry-After still lasts, which any of the processes may have seen:
            then no request was counted.

        Raises:
            JudgeError: the budgets allow no request before *deadline*.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Hold back the judge requests of all processes for *seconds*, as a Retry-After header demands."""


class JudgeClient:
    """Client of one judge, with a deadline, retries, limited concurrency, a circuit breaker and a cache.

    For one event loop.

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
        clock: returns monotonic seconds.
        sleep: waits for a number of seconds.
        chance: returns a random number in [0, 1).
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
        self._concurrency = concurrency
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self.computes = bool(getattr(judge, "computes", False))
        """Whether the judge only computes, so that no deadline, retries or cache are needed."""
        self._plain = not inspect.iscoroutinefunction(judge.judge)
        self.shared_limits: SharedLimits | None = None
        """Limits kept together with other processes; None: only the client's own gate and breaker limit requests."""
        self._slots = FairSemaphore(concurrency)
        # Twice the concurrency, so that calls that pause before a retry leave no slot unused.
        self.admission_queue = FairSemaphore(2 * concurrency)
        self._gate = RetryAfterGate(clock, sleep, chance)
        self._breaker = CircuitBreaker(clock)
        self._threads = BlockingCalls(concurrency, f"judge {judge.id}")
        self._cache = JudgementCache(remembered)
        self._in_flight: dict[bytes, asyncio.Future[Judgement | JudgeError | None]] = {}
        self._asked = self._spared = 0

    @property
    def state(self) -> BreakerState:
        """State of the judge's circuit breaker: closed, open or half open. Safe to read from any thread."""
        return self._breaker.state

    @property
    def status(self) -> JudgeStatus:
        """Status of the judge at this moment: circuit breaker, queue and counters. Safe to read from any thread."""
        limits = self.shared_limits
        return JudgeStatus(
            state=self._breaker.state,
            waits_s=max(
                self._breaker.seconds_open, self._gate.seconds_closed, 0.0 if limits is None else limits.seconds_closed
            ),
            in_flight=self._slots.taken,
            queued=self._slots.waiting + self.admission_queue.waiting,
            asked=self._asked,
            spared=self._spared,
            hung_threads=self._threads.hung,
        )

    async def ask(self, call: RagCall, *, bypass_cache: bool = False) -> Judgement:
        """Return the judge's judgement of *call*, from the cache if an identical call was judged before.

        A judgement from the cache has the attribute `cached` and no cost.

        Args:
            call: the call.
            bypass_cache: ask the judge without looking into the cache, and leave the cache as it is.

        Raises:
            JudgeError: there is no judgement; `reason` is one of `unscored_reasons.JUDGE_ERROR`. `timeout`: the call's
                time ran out; `unavailable`: the judge failed, its circuit is open, or its Retry-After ends after the
                deadline.
        """
        if self.computes:
            return await self._call_judge(call)
        deadline = math.inf if self._timeout is None else self._clock() + self._timeout
        if bypass_cache:
            return await self._ask_with_retries(call, deadline)
        key = fingerprint(call, f"{self._judge.id}@{self._judge.version}")
        while True:
            judgement = self._cache.get(key)
            if judgement is None:
                leader = self._in_flight.get(key)
                if leader is None:
                    return await self._judge_and_share(key, call, deadline)
                judgement = await self._await_identical(leader, deadline)
            if judgement is not None:
                self._spared += 1
                return as_cached(judgement)

    # --- identical calls ---------------------------------------------------------------------------------------------

    async def _judge_and_share(self, key: bytes, call: RagCall, deadline: float) -> Judgement:
        """Ask the judge about a call, cache the judgement, and share it with identical calls that are waiting."""
        outcome: Judgement | JudgeError | None = None
        shared = self._in_flight[key] = asyncio.get_running_loop().create_future()
        try:
            outcome = judgement = await self._ask_with_retries(call, deadline)
            self._cache.put(key, judgement)
            return judgement
        except JudgeError as error:
            outcome = None if error.reason == "timeout" else _copy_of(error)  # whose traceback has this frame
            raise
        finally:
            self._in_flight.pop(key, None)
            shared.set_result(outcome)

    async def _await_identical(
        self, leader: asyncio.Future[Judgement | JudgeError | None], deadline: float
    ) -> Judgement | None:
        """Wait for the judgement of an identical call that is already being judged, and return that judgement.

        Returns:
            None if that call ran out of its own time or was cancelled, which says nothing about the waiting call.

        Raises:
            JudgeError: the identical call failed, or was not judged before *deadline*.
        """
        await asyncio.wait({leader}, timeout=self._seconds_left(deadline))
        if not leader.done():
            raise self._timeout_error("an identical call was still being judged at the deadline")
        outcome = leader.result()
        if isinstance(outcome, JudgeError):  # copied, as one exception object must not be raised in two tasks
            raise _copy_of(outcome)
        return outcome

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _ask_with_retries(self, call: RagCall, deadline: float) -> Judgement:
        """Ask the judge, retrying after transient failures until *deadline*, and add up the cost of all tries."""
        failed = tries = 0
        spent: Cost | None = None
        while True:
            try:
                judgement = await self._attempt(call, deadline)
                return spent.add_known(Cost.from_report(judgement)).set_on_judgement(judgement) if spent else judgement
            except JudgeError as error:
                tries += 1
                spent = (spent or Cost()).add_known(Cost.from_report(error))
                # A judge that sends a Retry-After is not failing, so only the deadline bounds the number of attempts.
                failed += error.retry_after is None or deadline == math.inf
                # The gate waits for the Retry-After. One that is shorter than a second does not keep the pauses short.
                waits = error.retry_after is not None and error.retry_after >= 1.0
                pause = retry_delay(min(tries, 3) if waits else tries, self._chance)
                too_late = self._clock() + pause >= deadline or not self._gate.opens_before(deadline)
                if not error.retryable or failed >= _MOST_TRIES or too_late or self._breaker.refuses:
                    deferred = error.retry_after is not None or (tries == 1 and error.deferred)
                    raise _deferred(spent.set_on_error(error), deferred) from error
            await self._sleep(pause)

    async def _attempt(self, call: RagCall, deadline: float) -> Judgement:
        """Ask the judge once, after waiting for a free slot and for the end of a Retry-After pause."""
        self._check_available(deadline)
        if not await self._slots.acquire(self._seconds_left(deadline)):
            why = f"all {self._concurrency} concurrent judge calls were busy; raise JudgeLimits(concurrency=)"
            raise _deferred(self._timeout_error(why))
        try:
            if not await self._gate.wait_until_open(deadline):
                self._check_available(deadline)
            if self.shared_limits is not None:
                return await self._ask_within(self.shared_limits, call, deadline)
            return await self._ask_once(call, deadline)
        finally:
            self._slots.release()

    async def _ask_within(self, limits: SharedLimits, call: RagCall, deadline: float) -> Judgement:
        """Ask the judge once, within limits that are shared with other processes."""
        while isinstance(reservation := await limits.reserve(deadline), (int, float)):
            self._gate.close(reservation)
            if not await self._gate.wait_until_open(deadline):
                self._check_available(deadline)
        try:
            judgement = await self._ask_once(call, deadline)
        except JudgeError as error:  # after a cancellation the cost is not known, so the reservation stays
            reservation.settle(Cost.from_report(error))
            if error.retry_after is not None:
                await limits.pause(error.retry_after)
            raise
        reservation.settle(Cost.from_report(judgement))
        return judgement

    def _check_available(self, deadline: float) -> None:
        """Raise a `JudgeError` if the judge cannot be asked before *deadline*."""
        if self._breaker.refuses:
            raise self._unavailable_error()
        if not self._gate.opens_before(deadline):
            wait = f"the judge's Retry-After lasts another {self._gate.seconds_closed:.1f} s, longer than the call has"
            raise _deferred(JudgeError("unavailable", wait, retryable=False))
        if self._clock() >= deadline:
            raise _deferred(self._timeout_error("the deadline passed before the judge was asked"))

    async def _ask_once(self, call: RagCall, deadline: float) -> Judgement:
        ticket = self._breaker.admit()
        if ticket is None:
            raise self._unavailable_error()
        well: bool | None = None
        left = self._seconds_left(deadline)
        self._asked += 1
        with measure_cost() as meter:
            try:
                judgement = await run_within(left, self._call_judge(call))
                well = True
                return judgement
            except TimeLimitError as error:
                # If most of the call's time had passed before the request, the judge is not the slow part.
                hurried = left is not None and self._timeout is not None and left < self._timeout / 2
                well = None if hurried else False
                raise meter.total.set_on_error(self._timeout_error(f"no judgement: {error}")) from error
            except WorkCancelledError as error:
                well = False  # no second try: a judge that cancels tasks would do so again
                why = JudgeError("unavailable", f"no judgement: {error}", retryable=False)
                raise meter.total.set_on_error(why) from error
            except JudgeError as error:
                if error.retry_after is None:
                    well = error.reason not in _FAILURES
                else:
                    self._gate.close(error.retry_after)
                if meter.total and not error.n_calls:  # the error states no cost, so the measured one is added
                    raise meter.total.set_on_error(error) from error
                raise
            finally:
                self._breaker.record_outcome(ticket, well)

    async def _call_judge(self, call: RagCall) -> Judgement:
        """Call the judge and return its judgement. Any exception except a cancellation becomes a `JudgeError`."""
        try:
            if self._plain and not self.computes:
                judgement: object = await self._threads.run(self._judge.judge, call)
            else:
                judgement = self._judge.judge(call)
            if inspect.isawaitable(judgement):  # a decorated coroutine function may look like a plain function
                judgement = await judgement
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise JudgeError("timeout", faults.message(error)) from error
        except ConnectionError as error:
            raise JudgeError("unavailable", type(error).__name__) from error
        except NoThreadError as error:
            raise JudgeError("unavailable", str(error), retryable=False) from error
        except JudgeError as error:
            if error.reason in JUDGE_ERROR and not faults.hides_messages:
                raise
            # A user's judge may make up a reason, for which unscored metrics have no status (`status_of`).
            reason = error.reason if error.reason in JUDGE_ERROR else "unavailable"
            detail = _without_content(error, self._judge) if faults.hides_messages else error.detail
            known = JudgeError(reason, detail, retry_after=error.retry_after, retryable=error.retryable)
            raise Cost.from_report(error).set_on_error(known) from error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # sys.exit() in a judge must not end the background thread
            faults.record(f"judge {self._judge.id}", error)
            raise JudgeError("unavailable", type(error).__name__, retryable=False) from error
        if not isinstance(judgement, Judgement):  # a user's judge may return any type
            raise JudgeError("unparsable", f"the judge returned {type(judgement).__name__}, not a Judgement")
        return judgement

    def _seconds_left(self, deadline: float) -> float | None:
        return None if deadline == math.inf else max(0.0, deadline - self._clock())

    def _timeout_error(self, why: str) -> JudgeError:
        return JudgeError("timeout", f"{why} (the call had {self._timeout} s)", retryable=False)

    def _unavailable_error(self) -> JudgeError:
        seconds = self._breaker.seconds_open
        wait = f"tried again in {seconds:.1f} s" if seconds else "one call is trying it"
        why = f"the judge kept failing and its circuit is open: {wait}"
        return _deferred(JudgeError("unavailable", why, retryable=False))


def _copy_of(error: JudgeError) -> JudgeError:
    """Return a copy of *error*, without cost and traceback, for calls that are identical to the one that failed."""
    copy = JudgeError(error.reason, error.detail, retryable=False)
    copy.deferred = error.deferred
    return copy


def _deferred(error: JudgeError, deferred: bool = True) -> JudgeError:
    """Return *error*, marked as a failure that says nothing about the call, or with *deferred* False as another."""
    error.deferred = deferred
    return error


def _without_content(error: JudgeError, judge: Judge) -> str:
    """Return a judge's error message without any text of the call, which a server may have repeated.

    The messages of ragtrace's own judges about a server that they did not reach, or that was late, hold no such text.
    """
    if error.reason not in _FAILURES or type(judge).__module__.partition(".")[0] != _PACKAGE:
        return LEFT_OUT
    status = _STATUS.match(error.detail)
    return error.detail if status is None else f"{status[0]} {LEFT_OUT}"


# --- Retry-After and back-off ----------------------------------------------------------------------------------------

_FIRST_BACK_OFF_S: Final = 0.25
_LONGEST_BACK_OFF_S: Final = 8.0
_LONGEST_SHUT_S: Final = 3600.0
"""Largest number of seconds that a Retry-After is obeyed; after that, the judge gets a request in any case."""
_SPREAD: Final = 0.1
_LONGEST_SPREAD_S: Final = 1.0


def retry_delay(tries: int, chance: Callable[[], float]) -> float:
    """Return the seconds to wait before the next retry: twice as long after each try, half of it random.

    Args:
        tries: number of failed tries, at least 1.
        chance: returns a random number in [0, 1).
    """
    return min(_LONGEST_BACK_OFF_S, _FIRST_BACK_OFF_S * 2.0 ** min(tries - 1, 10)) * (0.5 + chance() / 2)


class RetryAfterGate:
    """Holds back requests to a judge for as long as its server's Retry-After header says, in one event loop."""

    def __init__(
        self, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]], chance: Callable[[], float]
    ) -> None:
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._opens = self._spread = 0.0

    @property
    def seconds_closed(self) -> float:
        """Seconds until the server's Retry-After is over and requests may be sent to the judge, or 0."""
        return max(0.0, self._opens - self._clock())

    def close(self, seconds: float) -> None:
        """Hold back requests to the judge for the next *seconds*, or longer if an earlier Retry-After says so."""
        if not seconds > 0:  # true for NaN as well, which a user's judge may give
            return
        seconds = min(seconds, _LONGEST_SHUT_S)
        opens = self._clock() + seconds
        if opens > self._opens:
            self._opens = opens
            self._spread = min(_LONGEST_SPREAD_S, _SPREAD * seconds)

    def opens_before(self, deadline: float) -> bool:
        """Return whether requests may be sent to the judge now or before the monotonic time *deadline*."""
        return self.seconds_closed == 0 or self._opens < deadline

    async def wait_until_open(self, deadline: float) -> bool:
        """Wait until requests may be sent to the judge, or return False at once if *deadline* comes first.

        Waiting calls pass one after the other, within a tenth of the time that the gate was shut, so that they do not
        all arrive at the same moment, here and in other processes with the same Retry-After.
        """
        while (left := self.seconds_closed) > 0:
            if not self.opens_before(deadline):
                return False
            room = deadline - self._opens
            await self._sleep(left + self._chance() * min(self._spread, room / 2))
        return True


# --- circuit breaker -------------------------------------------------------------------------------------------------

_FAILURES_IN_A_ROW: Final = 10
"""Failures in a row that open the breaker. Where every third call fails, ten in a row are rarer than 1 in 50,000."""
_WINDOW: Final = 40
_SHARE: Final = 0.75
"""Share of failures among the last `_WINDOW` outcomes that opens the breaker, as retries cannot make up for more."""
_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0


class CircuitBreaker:
    """Circuit breaker of one judge, which stops requests to the judge after repeated failures.

    It opens after ten failures in a row, or if three quarters of the last 40 calls failed. It stays open for five
    seconds; then one call is let through as a probe. If the probe succeeds, the breaker closes; if it fails, it stays
    open twice as long as before, a minute at most. For one event loop; `state` may be read from any thread.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._outcomes: deque[bool] = deque(maxlen=_WINDOW)
        self._in_a_row = 0
        self._until: float | None = None
        """Monotonic time in seconds at which a probe is let through; None while the breaker is closed."""
        self._openings = 0
        """Number of openings since the breaker was last closed."""
        self._epoch = 0  # number of all openings, by which tickets from before an opening are recognised
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """State of the circuit breaker at this moment: closed, open, or half open (ready for a probe)."""
        until = self._until  # read once, as another thread may change the attribute
        if until is None:
            return "closed"
        return "open" if self._clock() < until else "half_open"

    @property
    def seconds_open(self) -> float:
        """Seconds until the open circuit breaker lets one call through as a probe, or 0 if it is not open."""
        return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    @property
    def refuses(self) -> bool:
        """Whether the circuit breaker lets no call through now, because it is open or its probe is under way."""
        return self._until is not None and (self.state == "open" or self._probing)

    def admit(self) -> int | None:
        """Let a call through and return a ticket for `record_outcome`, or None if the circuit breaker refuses."""
        if self.refuses:
            return None
        self._probing = self._until is not None
        return self._epoch

    def record_outcome(self, ticket: int, well: bool | None) -> None:
        """Count the outcome of a call that was let through, and open or close the circuit breaker accordingly.

        Args:
            ticket: what `admit` returned for the call.
            well: whether the judge replied; None if the call says nothing about the judge.
        """
        if ticket != self._epoch:  # the call was admitted before the breaker opened
            return
        if self._until is not None:
            self._probing = False
            if well:
                self._until, self._openings = None, 0
            elif well is False:
                self._open()
        elif well is not None:
            self._outcomes.append(well)
            self._in_a_row = 0 if well else self._in_a_row + 1
            full = len(self._outcomes) == _WINDOW
            if self._in_a_row >= _FAILURES_IN_A_ROW or (full and self._outcomes.count(False) >= _SHARE * _WINDOW):
                self._open()

    def _open(self) -> None:
        pause = min(_LONGEST_PAUSE_S, _PAUSE_S * 2**self._openings)
        self._until = self._clock() + pause
        self._openings += 1
        self._epoch += 1
        self._in_a_row = 0
        self._outcomes.clear()


# --- cache -----------------------------------------------------------------------------------------------------------

CACHED: Final = "cached"
"""Attribute that marks a judgement taken over from an identical call."""
_CACHE_CHARS: Final = 4_000_000
_MOST_CHARS_EACH: Final = 100_000


def fingerprint(call: RagCall, evaluator: str) -> bytes:
    """Return the cache key of a call: a hash of the judge's identity and of all texts that a judge may read.

    These texts are query, contexts (with ids, in order), answer and reference, and what else the application gave:
    reference contexts, the conversation, repeated runs, the answer's parts.

    Args:
        call: the call.
        evaluator: id and version of the judge.
    """
    documents = [some and [(one.text, one.id) for one in some] for some in (call.contexts, call.reference_contexts)]
    turns = call.turns, call.earlier_turns
    judged = (evaluator, call.query, call.answer, call.reference, documents, turns, call.runs, call.parts)
    # `repr` keeps the boundaries between texts, and distinguishes None from an empty string.
    return hashlib.blake2b(repr(judged).encode(), digest_size=16).digest()


def as_cached(judgement: Judgement) -> Judgement:
    """Return a copy of *judgement* for an identical call, without a cost and marked as cached."""
    attributes: object = judgement.attributes  # a user's judge may have set attributes of any type
    kept = cast("Mapping[str, Plain]", attributes if isinstance(attributes, Mapping) else {})
    return replace(Cost(cost_usd=0.0).set_on_judgement(judgement), attributes={**kept, CACHED: True})


def is_cached(judgement: Judgement) -> bool:
    """Return whether *judgement* was copied from an identical call that was judged before."""
    attributes: object = judgement.attributes
    return isinstance(attributes, Mapping) and cast("Mapping[object, object]", attributes).get(CACHED) is True


class JudgementCache:
    """Least-recently-used cache of judgements, limited in number and to about four million characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[bytes, tuple[Judgement, int]] = OrderedDict()
        self._chars = 0

    def get(self, key: bytes) -> Judgement | None:
        """Return the judgement cached under *key* and mark it as recently used, or return None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: bytes, judgement: Judgement) -> None:
        """Cache *judgement* under *key*, and evict the least recently used judgements if the cache is full.

        A judgement that is malformed or huge is not cached.
        """
        kind: Any = type(judgement)
        labels = [name for name in _field_names(kind) if name not in ("reasons", "attributes")]
        try:
            chars = sum(_chars_in(getattr(judgement, name)) for name in labels)
        except Exception:  # labels of a user's judge may be anything: a list that grows, or an iterator that ends
            return
        if chars > _MOST_CHARS_EACH:
            return
        self._entries[key] = judgement, chars
        self._chars += chars
        while len(self._entries) > self._limit or self._chars > _CACHE_CHARS:
            _, (_, evicted) = self._entries.popitem(last=False)
            self._chars -= evicted


_WITHOUT_CHARS: Final = frozenset({bool, float, int, type(None)})


def _chars_in(value: object) -> int:
    """Return the number of characters in all texts of *value*, which may be a tuple, a mapping or a dataclass."""
    if isinstance(value, str):
        return len(value)
    if value is None or isinstance(value, (int, float)):
        return 0
    parts: Iterable[object]
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
    elif isinstance(value, Mapping):
        parts = cast("Mapping[object, object]", value).values()
    else:
        kind: Any = type(value)
        parts = [getattr(value, name) for name in _field_names(kind)]
    # Most parts of a label are numbers, for which a call would take longer than all else here.
    return sum([_chars_in(part) for part in parts if type(part) not in _WITHOUT_CHARS])


@lru_cache(maxsize=64)
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
