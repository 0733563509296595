"""`Account`: what was spent on one call, also in vain: on tries that failed, on requests that nobody waits for.

A judge that is cancelled at a call's deadline can report nothing any more. So its transport enters every request, as
it is made and answered, into the account of the call that is open in the current context.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement


class Cost(Protocol):
    """What some requests cost."""

    @property
    def n_calls(self) -> int: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cost_usd(self) -> float | None: ...


@dataclass(slots=True)
class Account:
    """A sum of costs. That of tokens nobody counted is not known: `cost_usd` is then the sum of what is."""

    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    def __bool__(self) -> bool:
        return bool(self.n_calls or self.input_tokens or self.output_tokens or self.cost_usd)

    def add(self, cost: Cost) -> None:
        """Add *cost*; what is no number (a user's judge may report anything) adds nothing."""
        self.n_calls += _count(cost.n_calls)
        self.input_tokens += _count(cost.input_tokens)
        self.output_tokens += _count(cost.output_tokens)
        usd = _dollars(cost.cost_usd)
        if usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + usd

    def charge(self, judgement: Judgement) -> Judgement:
        """*judgement* with what was spent beside it."""
        if not self:
            return judgement
        self.add(judgement)
        return replace(
            judgement,
            n_calls=self.n_calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
        )

    def charged(self, error: JudgeError) -> JudgeError:
        """A new error like *error*, with this account as what was spent."""
        return JudgeError(
            error.reason,
            error.detail,
            retry_after=error.retry_after,
            retryable=error.retryable,
            n_calls=self.n_calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
        )


_open: ContextVar[Account | None] = ContextVar("ragtrace_account", default=None)


@contextmanager
def opened(account: Account) -> Generator[None, None, None]:
    """Have everything that is done in the block, and in the tasks that it starts, entered into *account*."""
    token = _open.set(account)
    try:
        yield
    finally:
        _open.reset(token)


def enter(cost: Cost) -> None:
    """Enter *cost* into the account that is open, if one is."""
    account = _open.get()
    if account is not None:
        account.add(cost)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _dollars(value: object) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < math.inf else None  # type: ignore[arg-type,operator]
