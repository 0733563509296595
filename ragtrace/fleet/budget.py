"""Budget for judge requests that all workers of a fleet share: requests per minute, tokens and US dollars per day.

The counts are in Redis, by the moving windows of the library `limits`: over any minute, or any day, no more than the
budget is spent. Tokens and US dollars are drawn in portions of a thousandth of a day's budget, which the requests of
one process then spend: so a window has at most a thousand entries, and most requests draw nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from importlib import import_module
from time import monotonic, time
from typing import Any, Final

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.evaluation.judge_client import Reservation
from ragtrace.evaluation.sampling import GUESS_USD, UNPRICED, JudgementCosts
from ragtrace.fleet.broker import check_store_url
from ragtrace.system.fair_semaphore import FairSemaphore
from ragtrace.system.faults import faults

STORE_SECONDS: Final = 2.0
"""Number of seconds that Redis may take to accept a connection, and to answer."""
_MINUTE_SECONDS: Final = 60
_DAY_SECONDS: Final = 86_400
_PORTIONS: Final = 1_000
"""Number of portions of a day's tokens or US dollars; a worker takes one at a time, so about one may lie unspent."""
_GUESS_TOKENS: Final = 11_000.0
_UNREPORTED: Final = (
    "tokens_per_day= is set, but none of the first %d judgements said how many tokens it took: each is counted as %g"
)
_SHORTEST_WAIT_SECONDS: Final = 0.01
_LONGEST_WAIT_SECONDS: Final = 1.0
_PAUSE_SCRIPT: Final = """
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
end
"""
"""Lua script that makes the key of a Retry-After last for ARGV[1] milliseconds, unless the key lasts longer already.
Redis measures the time, as the clocks of the workers may differ."""
_LONGEST_PAUSE_SECONDS: Final = 3600.0
_PAUSE_CHECK_SECONDS: Final = 0.05
"""Number of seconds for which a reading of the Retry-After in Redis is reused, instead of one before each request."""

_ASKED_AGAIN_SECONDS: Final = 10.0
"""Number of seconds after which a Redis that did not answer is asked for a Retry-After again."""


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Limits of a judge's budget, where None means no limit."""

    per_minute: float | None = None
    """Largest number of requests a minute, where a judge may send several for one call, and retries count."""
    tokens_per_day: float | None = None
    """Largest number of tokens that the judge reads and writes in 24 hours."""
    usd_per_day: float | None = None
    """Largest number of US dollars in 24 hours."""
    minute_seconds: int = _MINUTE_SECONDS
    day_seconds: int = _DAY_SECONDS

    def __bool__(self) -> bool:
        return (self.per_minute, self.tokens_per_day, self.usd_per_day) != (None, None, None)

    def share_of(self, workers: int) -> BudgetLimits:
        """Divide the limits by the number of *workers*, for processes that do not share their counts."""

        def share(amount: float | None) -> float | None:
            return None if amount is None else amount / workers

        return replace(
            self,
            per_minute=share(self.per_minute),
            tokens_per_day=share(self.tokens_per_day),
            usd_per_day=share(self.usd_per_day),
        )


class JudgeBudget:
    """Budget for the requests to a judge, shared with other workers through Redis, or kept by this process alone.

    It is the `SharedLimits` of a `JudgeClient`, for one event loop. Without Redis nothing is shared: the limits must be
    the share of this process, and a Retry-After holds this process only.

    While Redis does not answer, no request is sent: what the other workers spend meanwhile is not known. Requests wait
    until their deadline, and are counted as a fault. Without limits only a Retry-After that other workers were given is
    not known then: requests are sent, which the judge's server may refuse.

    Args:
        limits: the limits of the budget.
        store: URL of Redis (`redis://`, `rediss://`); None: counts in the memory of this process.
        judge: id of the judge, under which its budget and its Retry-After are kept.
        prefix: start of the names of all keys in Redis.
        clock: returns monotonic seconds.
        sleep: waits for a number of seconds.

    Raises:
        SettingsError: `check_store_url` refuses *store*, or the library `limits` is not installed.
    """

    def __init__(
        self,
        limits: BudgetLimits,
        store: str | None,
        *,
        judge: str,
        prefix: str = "ragtrace",
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if store is not None:
            check_store_url(store, "store=")
        self._clock, self._sleep = clock, sleep
        self._turn = FairSemaphore(1)
        self._redis, self._limiter = _connect(store)
        self._pause_key = f"{prefix}:retry-after:{judge}"
        self._has_limits = bool(limits)
        self._n_settled = self._n_unsettled = 0
        self._closed_until = 0.0
        self._paused_until, self._pause_checked = 0.0, -math.inf
        windows = _windows(limits, judge, prefix)
        self._calls = windows.get("requests")
        self._dollars = self._tokens = None
        if limits.usd_per_day is not None:
            self._dollars = _Quota(windows["usd"], limits.usd_per_day, JudgementCosts(GUESS_USD, UNPRICED))
        if limits.tokens_per_day is not None:
            costs = JudgementCosts(_GUESS_TOKENS, _UNREPORTED)
            self._tokens = _Quota(windows["tokens"], limits.tokens_per_day, costs)

    @property
    def seconds_closed(self) -> float:
        """Seconds until the budget may allow another judge request; 0 if it may now.

        Only what this process knows is considered.
        """
        return max(0.0, self._closed_until - self._clock())

    async def reserve(self, deadline: float) -> Reservation | float:
        """Wait until the budget allows another judge request, and count the request.

        Args:
            deadline: monotonic seconds.

        Returns:
            The reservation; or the seconds that a Retry-After still lasts, which any worker may have seen: then no
            request was counted.

        Raises:
            JudgeError: the budget allows no request before *deadline*, or Redis does not answer.
        """
        why = "the judge's budget is asked for by other calls of this worker"
        # One task at a time asks Redis, as the others would only repeat the request.
        if not await self._turn.acquire(None if deadline == math.inf else max(0.0, deadline - self._clock())):
            raise _deferred(why)
        try:
            while True:
                try:
                    paused = await self._seconds_paused()
                    if paused > 0:
                        return paused
                    wait, why = await self._try_to_reserve()
                except self._store_errors as error:
                    wait, why = _LONGEST_WAIT_SECONDS, "the store of the judge's budget does not answer"
                    faults.warn_once(
                        "judge budget: Redis does not answer",
                        "the judge is not asked, because the Redis that holds its budget does not answer (%s); every "
                        "further attempt is counted in ragtrace.stats().faults",
                        type(error).__name__,
                    )
                if not wait:
                    self._closed_until = 0.0
                    return self._reservation()
                self._closed_until = self._clock() + wait
                if self._clock() + wait >= deadline:
                    raise _deferred(why)
                await self._sleep(wait)
        finally:
            self._turn.release()

    async def pause(self, seconds: float) -> None:
        """Keep all workers from sending judge requests for *seconds*, as the Retry-After of the judge's server asks."""
        if self._redis is None or not seconds > 0:  # true for NaN as well, which a user's judge may give
            return
        try:
            seconds = min(seconds, _LONGEST_PAUSE_SECONDS)
            milliseconds = math.ceil(seconds * 1000)
            self._paused_until = max(self._paused_until, self._clock() + seconds)
            await self._redis.eval(_PAUSE_SCRIPT, 1, self._pause_key, milliseconds)
        except self._store_errors as error:
            faults.record("judge budget: sharing a Retry-After", error)

    async def aclose(self) -> None:
        """Close the connections to Redis."""
        if self._redis is not None:
            await self._redis.aclose()

    @property
    def _store_errors(self) -> tuple[type[Exception], ...]:
        if self._redis is None:
            return (OSError,)
        from redis.exceptions import RedisError

        return (RedisError, OSError, asyncio.TimeoutError)

    async def _seconds_paused(self) -> float:
        """Return the remaining seconds of the pause (Retry-After) that the judge's server has asked for, or 0."""
        if self._redis is not None and self._clock() - self._pause_checked >= _PAUSE_CHECK_SECONDS:
            try:
                milliseconds = max(0.0, float(await self._redis.pttl(self._pause_key)))
            except self._store_errors as error:
                if self._has_limits:
                    raise
                faults.record("judge budget: reading a Retry-After", error)
                self._pause_checked = self._clock() + _ASKED_AGAIN_SECONDS
            else:
                self._pause_checked = self._clock()
                self._paused_until = self._pause_checked + milliseconds / 1000
        return max(0.0, self._paused_until - self._clock())

    async def _try_to_reserve(self) -> tuple[float, str]:
        """Reserve one judge request, if the budgets for requests, dollars and tokens allow it.

        Returns:
            Seconds after which to try again, 0 if the request was counted; and the reason for the wait.
        """
        quotas = [quota for quota in (self._dollars, self._tokens) if quota is not None]
        if quotas and not self._n_settled and self._n_unsettled:
            return _SHORTEST_WAIT_SECONDS, "the cost of the judge's first request is not known yet"
        for quota in quotas:
            portions = quota.missing_portions()
            if portions and not await self._limiter.hit(quota.window, cost=portions):
                return await self._seconds_until_room(quota.window), "the judge's budget for a day is spent"
            quota.add(portions)
        if self._calls is not None and not await self._limiter.hit(self._calls):
            return await self._seconds_until_room(self._calls), "the judge's budget for a minute is spent"
        return 0.0, ""

    async def _seconds_until_room(self, window: Any) -> float:
        oldest = float((await self._limiter.get_window_stats(window)).reset_time) - time()
        wait = min(_LONGEST_WAIT_SECONDS, max(_SHORTEST_WAIT_SECONDS, oldest))
        return wait * (1 + 0.1 * random.random())

    def _reservation(self) -> _BudgetReservation:
        self._n_unsettled += 1
        amounts = [0.0 if quota is None else quota.take() for quota in (self._dollars, self._tokens)]
        return _BudgetReservation(self, *amounts)

    def settle(self, usd: float, tokens: float, cost: Cost) -> None:
        """Replace the reserved *usd* and *tokens* of a judge request by its actual *cost*."""
        self._n_settled += 1
        if self._dollars is not None:
            self._dollars.settle(usd, cost.cost_usd)
        if self._tokens is not None:
            self._tokens.settle(tokens, (cost.input_tokens + cost.output_tokens) or None)


def _deferred(why: str) -> JudgeError:
    """Return the error for a call whose judge request was not sent.

    Such an error says nothing about the call itself.
    """
    error = JudgeError("unavailable", why, retryable=False)
    error.deferred = True
    return error


@dataclass(frozen=True, slots=True)
class _BudgetReservation:
    """Permission to send one judge request, with the US dollars and tokens reserved for it."""

    budget: JudgeBudget
    usd: float
    tokens: float

    def settle(self, cost: Cost) -> None:
        """Replace the reserved amounts by the actual *cost* of the judge request."""
        self.budget.settle(self.usd, self.tokens, cost)


class _Quota:
    """Unspent part of a day's budget that this process has taken from the shared store in portions.

    Args:
        window: the moving window of the budget's portions.
        per_day: the budget of a day.
        costs: mean cost of a request.
    """

    def __init__(self, window: Any, per_day: float, costs: JudgementCosts) -> None:
        self.window, self._per_day, self._costs = window, per_day, costs
        self._portion = per_day / _PORTIONS
        self._balance = 0.0

    @property
    def _expected(self) -> float:
        """Expected cost of one judge request: the mean cost so far, but at most a whole day's budget."""
        return min(self._costs.mean, self._per_day)

    def missing_portions(self) -> int:
        """Return how many portions of the day's budget must be taken from the store before another judge request."""
        return max(0, math.ceil((self._expected - self._balance) / self._portion - 1e-9))

    def add(self, portions: int) -> None:
        """Add *portions* of the day's budget, taken from the store, to the balance."""
        self._balance += portions * self._portion

    def take(self) -> float:
        """Subtract the expected cost of one judge request from the balance.

        Return the expected cost.
        """
        expected = self._expected
        self._balance -= expected
        return expected

    def settle(self, reserved: float, cost: float | None) -> None:
        """Correct the balance once the actual cost of a judge request is known.

        *cost* is None if the judge has not reported it: then the reserved amount stays.
        """
        self._costs.add(cost)
        if cost is not None:
            self._balance += reserved - cost


class BudgetReader:
    """Thread-safe reader of the remaining judge budget in Redis, for metrics.

    Args:
        limits: the limits of the budget.
        store: URL of Redis.
        judge: id of the judge.
        prefix: start of the names of all keys in Redis.
    """

    def __init__(self, limits: BudgetLimits, store: str, *, judge: str, prefix: str = "ragtrace") -> None:
        from limits.storage import RedisStorage
        from limits.strategies import MovingWindowRateLimiter

        options: dict[str, Any] = {"socket_timeout": STORE_SECONDS, "socket_connect_timeout": STORE_SECONDS}
        self._limiter: Any = MovingWindowRateLimiter(RedisStorage(store, **options))
        self._windows = _windows(limits, judge, prefix)

    def remaining(self) -> dict[str, float]:
        """Return the remaining share of each budget (`requests`, `usd`, `tokens`), from 0 to 1.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        stats = {name: self._limiter.get_window_stats(window) for name, window in self._windows.items()}
        return {name: max(0, found.remaining) / self._windows[name].amount for name, found in stats.items()}


def _connect(store: str | None) -> tuple[Any, Any]:
    """Create the Redis client (None without *store*) and the rate limiter that uses it."""
    try:
        from limits.aio.storage import MemoryStorage, RedisStorage
        from limits.aio.strategies import MovingWindowRateLimiter

        if store is None:
            return None, MovingWindowRateLimiter(MemoryStorage())
        redis: Any = import_module("redis.asyncio")
    except ImportError as error:
        raise SettingsError("a judge's budget needs the extra: pip install 'ragtrace-otel[fleet]'") from error
    timeouts: dict[str, Any] = {"socket_timeout": STORE_SECONDS, "socket_connect_timeout": STORE_SECONDS}
    client = redis.Redis.from_url(store, **timeouts)
    pool: Any = client.connection_pool
    storage = RedisStorage(f"async+{store}", implementation="redispy", connection_pool=pool)
    return client, MovingWindowRateLimiter(storage)


def _windows(limits: BudgetLimits, judge: str, prefix: str) -> dict[str, Any]:
    """Return the moving windows (of the library `limits`) for the configured budget limits, by name."""
    found: dict[str, Any] = {}
    if limits.per_minute is not None:
        found["requests"] = _window(limits.per_minute, limits.minute_seconds, f"{prefix}:requests", judge)
    for name, amount in (("usd", limits.usd_per_day), ("tokens", limits.tokens_per_day)):
        if amount is not None:
            if amount <= 0:
                raise SettingsError(f"a budget must be positive, got {amount!r}")
            found[name] = _window(_PORTIONS, limits.day_seconds, f"{prefix}:{name}", judge)
    return found


def _window(amount: float, seconds: int, name: str, judge: str) -> Any:
    """Return the moving window that allows *amount*, rounded down to a whole number, within *seconds*."""
    from limits import RateLimitItemPerSecond

    if amount <= 0:
        raise SettingsError(f"a budget must be positive, got {amount!r}")
    windows = max(1, math.ceil(1 / amount))  # an amount below one per window becomes one per longer window
    return RateLimitItemPerSecond(math.floor(amount * windows + 1e-9), seconds * windows, f"{name}:{judge}")
