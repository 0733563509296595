"""What judging costs reaches the evaluation, also where it was in vain: tries before a good one, calls cut off."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ragtrace import OpenAIJudge
from ragtrace.core.cost import Cost, measure_cost, record_cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.price import Price
from ragtrace.core.types import Document, Evaluation, Judgement, RagCall
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.metrics import registry
from ragtrace.testing import FakeJudge, OpenAIServer, Reply
from tests.support.watched import GOOD, WAIT_S

CALL = RagCall("Where is the depot?", (Document("The depot is in Ghent."),), "The depot is in Ghent.")
PRICE = Price(1.0, 2.0)
PAID = replace(GOOD, n_calls=1, input_tokens=30, output_tokens=7, cost_usd=0.25)


def failing(**cost: Any) -> JudgeError:
    """A failure that may pass, after some requests."""
    return JudgeError("unavailable", "HTTP 500", **cost)


def evaluated(judge: Any, timeout: float = WAIT_S) -> Evaluation:
    """What *judge* makes of CALL, by all metrics of the main reply."""

    async def run() -> Evaluation:
        evaluator = Evaluator(judge, tuple(registry.resolve(["faithfulness"])), timeout)
        try:
            return await evaluate(evaluator, CALL)
        finally:
            await evaluator.aclose()

    return asyncio.run(asyncio.wait_for(run(), 3 * WAIT_S))


def cost(evaluation: Evaluation) -> tuple[int, int, int, float | None]:
    return evaluation.n_calls, evaluation.input_tokens, evaluation.output_tokens, evaluation.cost_usd


def test_tries_before_a_good_one_are_paid_for() -> None:
    """Requests, tokens and cost of all tries are added up."""
    first = failing(n_calls=2, input_tokens=100, output_tokens=5, cost_usd=0.5)
    assert cost(evaluated(FakeJudge(first, PAID))) == (3, 130, 12, 0.75)


def test_a_try_of_unknown_cost_does_not_hide_the_cost_of_others() -> None:
    """The sum is of what is known."""
    assert cost(evaluated(FakeJudge(failing(n_calls=1), PAID))) == (2, 30, 7, 0.25)


def test_a_judge_that_says_nothing_of_its_cost_stays_as_it_is() -> None:
    """An unknown cost is not zero."""
    assert cost(evaluated(FakeJudge(failing(), GOOD))) == (0, 30, 7, None)


def test_tries_that_all_failed_are_paid_for() -> None:
    """Four of them."""
    error = failing(n_calls=1, input_tokens=10, output_tokens=1, cost_usd=0.5)
    evaluation = evaluated(FakeJudge(error))
    assert (evaluation.error, cost(evaluation)) == ("unavailable", (4, 40, 4, 2.0))
    assert (error.n_calls, error.cost_usd) == (1, 0.5)  # a judge may raise the same object again


def test_a_reason_that_nobody_knows_keeps_its_cost() -> None:
    """It becomes `unavailable`."""
    evaluation = evaluated(FakeJudge(JudgeError("on strike", n_calls=1, input_tokens=9, cost_usd=0.1)))
    assert (evaluation.error, cost(evaluation)) == ("unavailable", (1, 9, 0, 0.1))


@pytest.mark.parametrize("nonsense", [{"n_calls": None}, {"input_tokens": "many"}, {"cost_usd": float("nan")}])
def test_nonsense_adds_nothing(nonsense: dict[str, Any]) -> None:
    """A judge of a user's may report anything."""
    assert cost(evaluated(FakeJudge(failing(**nonsense), PAID))) == (1, 30, 7, 0.25)


def served(server: OpenAIServer, timeout: float, **options: Any) -> Evaluation:
    judge = OpenAIJudge("local", base_url=server.url, api_key="none", price=PRICE, **options)
    return evaluated(judge.asking(registry.resolve(["faithfulness"])), timeout)


def test_a_call_cut_off_at_its_deadline_is_paid_for() -> None:
    """The extraction was answered, the verification never: both requests count, and the tokens of the first."""
    with OpenAIServer() as server:
        served(server, WAIT_S)  # what is loaded at the first call takes time, too
    with OpenAIServer(Reply(), Reply.hanging()) as server:
        evaluation = served(server, 2.0, mode="careful")
    assert evaluation.error == "timeout"
    assert evaluation.n_calls == server.n_chats == 2
    assert evaluation.input_tokens > 0
    assert evaluation.output_tokens > 0
    assert evaluation.cost_usd == pytest.approx((evaluation.input_tokens + 2 * evaluation.output_tokens) / 1e6)


def test_a_request_turned_away_counts_beside_the_one_that_was_answered() -> None:
    """As the server counts them."""
    with OpenAIServer(Reply.failing(500), Reply()) as server:
        evaluation = served(server, WAIT_S)
    assert evaluation.error is None
    assert evaluation.n_calls == server.n_chats == 2
    assert evaluation.cost_usd is not None


def test_what_an_answered_call_cost_is_counted_once() -> None:
    """The account is for calls that cannot say it themselves."""
    with OpenAIServer() as server:
        evaluation = served(server, WAIT_S)
        judgement = asyncio.run(_alone(server))
    assert cost(evaluation) == (1, judgement.input_tokens, judgement.output_tokens, judgement.cost_usd)


async def _alone(server: OpenAIServer) -> Judgement:
    judge = OpenAIJudge("local", base_url=server.url, api_key="none", price=PRICE)
    try:
        return await judge.asking(registry.resolve(["faithfulness"])).judge(CALL)
    finally:
        await judge.aclose()


def test_a_meter_counts_its_block_and_the_tasks_started_there() -> None:
    """Requests outside the block, or in a block inside it, are not counted."""
    totals: list[Cost] = []

    async def spend() -> None:
        record_cost(Cost(1, 10, 1, 0.5))

    async def main() -> None:
        with measure_cost() as meter:
            await asyncio.gather(spend(), spend())
            with measure_cost() as inner:
                record_cost(Cost(1))
            record_cost(Cost(1))
        record_cost(Cost(7, 7, 7, 7.0))
        totals.extend([meter.total, inner.total])

    asyncio.run(main())
    assert totals == [Cost(3, 20, 2, 1.0), Cost(1)]
