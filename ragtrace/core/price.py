"""List prices of models, and the cost of one request from the token counts that the server reports."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import urlsplit

from ragtrace.core.cost import Cost
from ragtrace.core.errors import SettingsError

_MILLION: Final = 1_000_000
_MOST_TOKENS: Final = 10**9
"""Largest number of tokens believed for one request; a server that counts more made a mistake."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model in US dollars per million tokens.

    Examples:
        >>> price = ragtrace.judges.Price(input=0.20, output=0.80, cached_input=0.05)
        >>> judge = ragtrace.OpenAIJudge("my-deployment", api_key="...", price=price)

    Args:
        input: price of tokens that the model reads.
        output: price of tokens that the model writes; 0 for embeddings.
        cached_input: price of input tokens that the server had in its cache; None: as `input`.
    """

    input: float
    output: float = 0.0
    cached_input: float | None = None

    def of(self, usage: TokenUsage) -> float:
        """Return the price in US dollars of one request with the token counts *usage*."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        again = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - cached
        return (fresh * self.input + cached * again + usage.output_tokens * self.output) / _MILLION


def check_price(price: object) -> None:
    """Raise `SettingsError` unless *price* is None or a `Price` of finite numbers that are not negative."""
    if price is None:
        return
    amounts = (price.input, price.output, price.cached_input or 0.0) if isinstance(price, Price) else ()
    if not amounts or not all(isinstance(each, (int, float)) and 0 <= each < math.inf for each in amounts):
        raise SettingsError(
            f"price= must be a ragtrace.judges.Price, got {price!r:.80}; write for instance "
            "price=ragtrace.judges.Price(input=0.15, output=0.6), in US dollars for a million tokens"
        )


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts of one model request, as the server reported them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Number of `input_tokens` that the server read from its prompt cache."""
    reasoning_tokens: int = 0
    """Number of `output_tokens` that the reply does not show, as the model used them for reasoning."""


PRICES_AS_OF: Final = "2026-11"
PRICES: Final[Mapping[str, Price]] = MappingProxyType(
    {
        "gpt-4o": Price(2.50, 10.00, 1.25),
        "gpt-4o-mini": Price(0.15, 0.60, 0.075),
        "gpt-4.1": Price(2.00, 8.00, 0.50),
        "gpt-4.1-mini": Price(0.40, 1.60, 0.10),
        "gpt-4.1-nano": Price(0.10, 0.40, 0.025),
        "o3": Price(2.00, 8.00, 0.50),
        "o4-mini": Price(1.10, 4.40, 0.275),
        "gpt-5": Price(1.25, 10.00, 0.125),
        "gpt-5-mini": Price(0.25, 2.00, 0.025),
        "gpt-5-nano": Price(0.05, 0.40, 0.005),
        "gpt-5.2": Price(1.75, 14.00, 0.175),
        "gpt-5.4": Price(2.50, 15.00, 0.25),
        "gpt-5.4-mini": Price(0.75, 4.50, 0.075),
        "text-embedding-3-small": Price(0.02),
        "text-embedding-3-large": Price(0.13),
        "text-embedding-ada-002": Price(0.10),
    }
)
"""List prices of OpenAI's own API, standard tier, as of `PRICES_AS_OF`. Source: openai.com/api/pricing.

Other servers charge another price for a model of the same name, or none.
"""
DECISION_PRICES: Final[Mapping[str, Mapping[str, Price]]] = MappingProxyType(
    {
        "api.openai.com": {"gpt-6-luna": Price(0.10)},
        "api.typesafe.ai": {"jev-latest": Price(0.042), "jev-preview": Price(0.042), "jev-1.13.0": Price(0.042)},
        "api.upstage.ai": {"solar-decide": Price(0.10)},
    }
)
"""List prices of decision models by the server's host name, as of `PRICES_AS_OF`: only input tokens are charged.

Tokens from the server's cache count in full, as no provider states a lower price of a decision's cached input.
Sources: developers.openai.com/api/docs/guides/decisions, docs.typesafe.ai/models, console.upstage.ai/docs/models.
"""
_DATED: Final = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_PRICED_APART: Final = frozenset({"gpt-4o-2024-05-13"})
"""Dated model names whose price differs from that of the name without the date."""
_PRICED_HOSTS: Final = ("api.openai.com", "eu.api.openai.com", "us.api.openai.com")


def list_price(model: str, base_url: str) -> Price | None:
    """Return the list price of *model* on the server at *base_url*, or None if it is not known."""
    if urlsplit(base_url).hostname not in _PRICED_HOSTS or model in _PRICED_APART:
        return None
    return PRICES.get(model) or PRICES.get(_DATED.sub("", model))


def decision_price(model: str, base_url: str) -> Price | None:
    """Return the list price of the decision model *model* on the server at *base_url*, or None if it is not known."""
    known = DECISION_PRICES.get(urlsplit(base_url).hostname or "", {})
    return known.get(model) or known.get(_DATED.sub("", model))


def read_usage(reply: Mapping[str, object]) -> TokenUsage | None:
    """Return the token counts in a model server's JSON *reply*, or None if there are no valid counts."""
    usage = reply.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = cast("dict[str, object]", usage)
    # Chat completions count "prompt" and "completion" tokens, the later endpoints "input" and "output" tokens.
    of_input, of_output = ("prompt", "completion") if "prompt_tokens" in counts else ("input", "output")
    read, written = _count(counts.get(f"{of_input}_tokens")), _count(counts.get(f"{of_output}_tokens", 0))
    if read is None or written is None:
        return None
    cached = _detail(counts, f"{of_input}_tokens_details", "cached_tokens")
    return TokenUsage(read, written, cached, _detail(counts, f"{of_output}_tokens_details", "reasoning_tokens"))


def _detail(counts: Mapping[str, object], part: str, name: str) -> int:
    details: Any = counts.get(part)
    return (_count(cast("dict[str, object]", details).get(name)) or 0) if isinstance(details, dict) else 0


def _count(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= cast(int, value) <= _MOST_TOKENS else None  # type: ignore[return-value]


def cost_of_reply(usage: TokenUsage | None, price: Price | None) -> Cost:
    """Return the cost of one request that the model server answered, from its token counts and its price."""
    if usage is None:
        return Cost(1)
    return Cost(1, usage.input_tokens, usage.output_tokens, None if price is None else price.of(usage))


def cost_of_rejection(price: Price | None) -> Cost:
    """Return the cost of one request that the model server rejected: no tokens and no charge.

    Providers charge nothing for rejected requests.
    """
    return Cost(1, 0, 0, None if price is None else 0.0)
