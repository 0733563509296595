"""Cost of judging a call (requests, tokens, US dollars), and a meter that sums the cost of all requests in a context.

A judge that is cancelled at a call's deadline cannot report its cost any more. So its transport records every request,
as it is made and answered, on the `CostMeter` of the current context.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Evaluation, Judgement

TURN_TOKENS: Final = "turn_tokens"
"""Attribute of a judgement: estimated number of input tokens that show earlier turns of the conversation."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of judging: requests made to a model, tokens that it read and wrote, and their price in US dollars.

    Costs are added with `+`.
    """

    n_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """Price in US dollars; None: the price, or the number of tokens, is not known."""

    @classmethod
    def from_report(cls, report: Judgement | JudgeError | Evaluation) -> Cost:
        """Return the cost that a judgement, a judge's error or an evaluation states.

        A value that is no number counts as nothing. A judge of the user's may report anything.
        """
        return cls(
            _count(report.n_calls), _count(report.input_tokens), _count(report.output_tokens), _dollars(report.cost_usd)
        )

    def __bool__(self) -> bool:
        return bool(self.n_calls or self.input_tokens or self.output_tokens or self.cost_usd)

    def __add__(self, other: Cost) -> Cost:
        """Return the sum of two costs, with a price in dollars only if both prices are known.

        Adding an empty `Cost()` changes nothing.
        """
        if Cost() in (self, other):
            return self if other == Cost() else other
        total = self.add_known(other)
        return replace(total, cost_usd=None) if None in (self.cost_usd, other.cost_usd) else total

    def add_known(self, other: Cost) -> Cost:
        """Return the sum of two costs, counting an unknown price in dollars as nothing.

        The price of the sum is None if neither price is known.
        """
        amounts = [usd for usd in (self.cost_usd, other.cost_usd) if usd is not None]
        return Cost(
            self.n_calls + other.n_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            sum(amounts) if amounts else None,
        )

    def set_on_judgement(self, judgement: Judgement) -> Judgement:
        """Return a copy of *judgement* (a judge's labels) in which this cost replaces the stated cost."""
        return replace(judgement, **self._fields())

    def set_on_error(self, error: JudgeError) -> JudgeError:
        """Return a copy of the judge's *error* in which this cost replaces the stated cost."""
        return JudgeError(
            error.reason, error.detail, retry_after=error.retry_after, retryable=error.retryable, **self._fields()
        )

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("n_calls", "input_tokens", "output_tokens", "cost_usd")}


@dataclass(slots=True, eq=False, repr=False)
class CostMeter:
    """Running sum of the costs of all model requests that are made in one execution context (`contextvars`).

    Prices in dollars that are not known are left out.
    """

    total: Cost = Cost()


_meter: ContextVar[CostMeter | None] = ContextVar("ragtrace_cost_meter", default=None)


@contextmanager
def measure_cost() -> Generator[CostMeter, None, None]:
    """Measure the cost of all model requests made inside a `with` block, also in tasks started there.

    Yields the `CostMeter` that sums them; `record_cost` adds to it.
    """
    meter = CostMeter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def record_cost(cost: Cost) -> None:
    """Add the *cost* of a model request to the cost meter of the current context, if there is one."""
    meter = _meter.get()
    if meter is not None:
        meter.total = meter.total.add_known(cost)


def turn_tokens(judgement: Judgement) -> int:
    """Return how many of a judge's input tokens were earlier conversation turns, or 0 if the number is unknown."""
    attributes: object = judgement.attributes  # a user's judge may have set attributes of any type
    return _count(cast("Mapping[str, object]", attributes).get(TURN_TOKENS)) if isinstance(attributes, Mapping) else 0


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _dollars(value: object) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < math.inf else None  # type: ignore[arg-type,operator]
