"""What judging costs: known prices only, never a guess, and counted on failures too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.price import PRICES, Price, TokenUsage, cost_of_rejection, cost_of_reply, list_price, read_usage
from ragtrace.core.types import RagCall
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.metrics import registry
from ragtrace.testing import FakeJudge

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("model", "server", "known"),
    [
        ("gpt-4o-mini", OPENAI, "gpt-4o-mini"),
        ("gpt-4o-mini-2024-07-18", OPENAI, "gpt-4o-mini"),
        ("gpt-4o-2024-05-13", OPENAI, None),
        ("gpt-4o-mini-audio", OPENAI, None),
        ("gpt-99", OPENAI, None),
        ("gpt-4o-mini", "http://localhost:11434/v1", None),
        ("gpt-4o-mini", "https://mine.openai.azure.com/openai/v1", None),
        ("gpt-4o-mini", "https://api.openai.com.evil.example/v1", None),
    ],
)
def test_a_price_is_known_or_it_is_not(model: str, server: str, known: str | None) -> None:
    """List prices hold for the models and the server they are listed for; nothing is inferred from a similar name."""
    assert list_price(model, server) == (PRICES[known] if known else None)


def test_cached_tokens_are_cheaper_where_the_price_says_so() -> None:
    """US dollars for a million tokens."""
    usage = TokenUsage(1_000_000, 500_000, 400_000)
    assert Price(2.0, 8.0, 0.5).of(usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.5 * 8)
    assert Price(2.0, 8.0).of(usage) == pytest.approx(2 + 4)


def test_tokens_without_a_price_are_counted_all_the_same() -> None:
    """The cost alone is unknown."""
    assert cost_of_reply(TokenUsage(10, 5), None) == Cost(1, 10, 5, None)
    assert cost_of_reply(None, Price(1.0, 1.0)) == Cost(1, 0, 0, None)


def test_a_request_that_was_turned_down_is_free() -> None:
    """It is counted as a call."""
    assert cost_of_rejection(Price(1.0, 1.0)) == Cost(1, 0, 0, 0.0)


def test_what_was_spent_adds_up() -> None:
    """A sum is unknown if a part of it is; nothing spent is no part."""
    known, unknown = Cost(1, 10, 5, 0.5), Cost(1, 1, 1, None)
    assert known + known == Cost(2, 20, 10, 1.0)
    assert (known + unknown).cost_usd is None
    assert Cost() + known == known + Cost() == known


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        ({"usage": {"prompt_tokens": 7, "completion_tokens": 3}}, TokenUsage(7, 3)),
        ({"usage": {"prompt_tokens": 7}}, TokenUsage(7, 0)),
        (
            {
                "usage": {
                    "prompt_tokens": 7,
                    "completion_tokens": 9,
                    "completion_tokens_details": {"reasoning_tokens": 8},
                }
            },
            TokenUsage(7, 9, 0, 8),
        ),
        ({"usage": {"prompt_tokens": 7, "completion_tokens_details": {"reasoning_tokens": "8"}}}, TokenUsage(7, 0)),
        (
            {"usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}},
            TokenUsage(7, 3, 4),
        ),
        ({"usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}}, TokenUsage(7, 3)),
        ({}, None),
        ({"usage": None}, None),
        ({"usage": {"prompt_tokens": "7"}}, None),
        ({"usage": {"prompt_tokens": -7, "completion_tokens": 3}}, None),
        ({"usage": {"prompt_tokens": True, "completion_tokens": 3}}, None),
        ({"usage": {"prompt_tokens": 10**30, "completion_tokens": 3}}, None),
        ({"usage": {"prompt_tokens": 7.5, "completion_tokens": float("nan")}}, None),
    ],
    ids=str,
)
def test_nonsense_is_no_usage(reply: Mapping[str, Any], usage: TokenUsage | None) -> None:
    """A server may say anything."""
    assert read_usage(reply) == usage


def test_a_failed_evaluation_says_what_it_cost() -> None:
    """The money is gone whether or not there is a score."""
    error = JudgeError("refused", n_calls=2, input_tokens=30, output_tokens=4, cost_usd=0.25)
    evaluator = Evaluator(FakeJudge(error), (registry.get("faithfulness"),), 5.0)
    evaluation = asyncio.run(evaluate(evaluator, RagCall("q", (), "a")))
    assert (evaluation.n_calls, evaluation.input_tokens, evaluation.output_tokens) == (2, 30, 4)
    assert (evaluation.cost_usd, evaluation.error) == (0.25, "refused")
