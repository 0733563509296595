"""Gold calls: ten short calls about invented facts, of which it is known whether the passage supports the answer.

They tell a model that cannot label support from one that can, before anybody relies on its scores. Five passages have
a true and a false answer each: another number, another name, another case, something that is not stated, the opposite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.core.cost import Cost
from ragtrace.core.types import Document, Judge, RagCall, Score
from ragtrace.metrics import registry
from ragtrace.offline.offline_evaluator import RETRYABLE, OfflineEvaluator
from ragtrace.system.sync_bridge import run_on_own_loop, suppress_instrumentation

if TYPE_CHECKING:
    from collections.abc import Sequence

_FACTS: Final = (
    (
        "How long is the Quellbach footbridge?",
        "The Quellbach footbridge was opened in 1987. It is 64 metres long and closed to cars.",
        "The Quellbach footbridge is 64 metres long.",
        "The Quellbach footbridge is 46 metres long.",
    ),
    (
        "Who leads the Orvane library?",
        "The Orvane library is led by Mirela Tassou. Her deputy, Jonas Helvik, buys the books.",
        "The Orvane library is led by Mirela Tassou.",
        "The Orvane library is led by Jonas Helvik.",
    ),
    (
        "When do members of the Sandrel club return a boat?",
        "Members of the Sandrel club return a boat before sunset. Guests return it by noon.",
        "Members of the Sandrel club return a boat before sunset.",
        "Members of the Sandrel club return a boat by noon.",
    ),
    (
        "What is known of the Pellow lamp?",
        "The Pellow lamp runs on two batteries. It weighs 300 grams.",
        "The Pellow lamp runs on two batteries.",
        "The Pellow lamp is made of brass.",
    ),
    (
        "Does the Varnholt railway refund a ticket?",
        "The Varnholt railway exchanges a ticket for another day. It does not refund a ticket.",
        "The Varnholt railway does not refund a ticket.",
        "The Varnholt railway refunds a ticket.",
    ),
)
"""Query, passage, an answer that the passage supports, and one that it does not."""
_METRIC: Final = "faithfulness"
_SECONDS: Final = 900.0
"""For one call: a model on a laptop takes most of a minute, more where others ask it, too."""
_WRONG: Final = 4
"""Wrong labels of ten from which a judge is of no use. One that guesses has at least so many in 83 % of runs, one that
is wrong in a tenth of all cases in 1 %."""
_UNSURE: Final = 2
_LEAST_ORDER: Final = 0.8
_TOKENS: Final[Mapping[str, tuple[int, int]]] = {"decision": (2_000, 10), "llm_judge": (15_000, 1_500)}
"""Tokens in and out for all gold calls, about, by type of judge."""


@dataclass(frozen=True, slots=True)
class GoldResult:
    """What a judge made of the gold calls."""

    evaluator: str
    """The judge, as `id@version`."""
    calls: int
    """Calls that the judge was asked about and its server answered."""
    wrong: int
    """Calls with the wrong label, or without one. A score of at least 0.5 labels an answer as supported."""
    unlabelled: Mapping[str, int]
    """Those without a label, by reason."""
    unanswered: str
    """Why the judge's server did not answer the next call, after which no more were asked; "": it answered all."""
    order: float | None
    """Share of the pairs of a supported and an unsupported answer in which the supported one has the higher score; ties
    count half. None: no such pair has scores."""
    is_uncalibrated: bool
    """Whether the scores are probabilities of a decision model, of which the order counts and not the side of 0.5."""
    cost: Cost

    @property
    def note(self) -> str:
        """What to know of a judge whose scores are in order, but on the wrong side of 0.5; "": nothing."""
        if not self.is_uncalibrated or self.unlabelled or self.wrong < _WRONG or (self.order or 0.0) < _LEAST_ORDER:
            return ""
        return (
            f"0.5 does not separate the scores of {self.evaluator}, on whose wrong side are {self.wrong} of "
            f"{self.calls} gold calls, though they are in order: pass and fail, which follow from 0.5, say nothing "
            "before the scores are calibrated (ragtrace calibrate)"
        )

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the judge, in sentences that say what to do."""
        if self.unanswered:
            yield f"{self.evaluator} did not judge gold call {self.calls + 1} of {2 * len(_FACTS)}: {self.unanswered}"
        measure = "ragtrace judges LABELS.jsonl measures judges on calls that people have labelled"
        if self.is_uncalibrated and not self.unlabelled:
            if self.order is not None and self.order < _LEAST_ORDER:
                yield (
                    f"{self.evaluator} cannot tell supported answers from others: of a supported and an unsupported "
                    f"one, it has them in order in {self.order:.0%} of the pairs of gold calls (by guessing in 50%); "
                    f"take another model. {measure}"
                )
            return
        without = f" ({sum(self.unlabelled.values())} of them none: {_counts(self.unlabelled)})"
        found = f"{self.wrong} of {self.calls} gold calls have the wrong label{without if self.unlabelled else ''}"
        if self.wrong >= _WRONG:
            asks_for_lists = not self.is_uncalibrated and "/sentences/" not in self.evaluator
            sentences = ", OpenAIJudge(mode='sentences')" if asks_for_lists else ""
            other = "" if self.is_uncalibrated else ", or DecisionJudge(protocol='logprobs'), which ask less of it"
            yield f"{self.evaluator} cannot label support: {found}; take a larger model{sentences}{other}. {measure}"
        elif self.wrong >= _UNSURE:
            yield f"{self.evaluator} is unsure about support: {found}; measure it before you rely on it. {measure}"


def is_asked(judge: Judge) -> bool:
    """Return whether gold calls say something of *judge*: it asks a model, and gives labels of support."""
    return judge.type in _TOKENS and judge.offers(registry.get(_METRIC))


def expected_cost(judge: Judge) -> str:
    """Return what the gold calls take of *judge*, about, in words for before they are judged."""
    tokens_in, tokens_out = _TOKENS[judge.type]
    price = getattr(judge, "price", None)
    usd = "; the price is not known"
    if price is not None:
        usd = f", {(price.input * tokens_in + price.output * tokens_out) / 1e6:.4f} USD"
    again = "" if judge.type == "decision" else "; up to twice as much, as labels that do not hold are asked for again"
    return (
        f"asking {judge.id}@{judge.version} about 10 gold calls, one at a time: 10 requests, about "
        f"{tokens_in:,} tokens in and {tokens_out:,} out{usd}{again}"
    )


def judge_gold_calls(judge: Judge) -> GoldResult:
    """Have *judge* judge the gold calls, one at a time, on an event loop of their own.

    With the first call that the server does not answer it ends.
    """
    calls = [
        RagCall(query=query, contexts=(Document(passage),), answer=answer)
        for query, passage, *answers in _FACTS
        for answer in answers
    ]
    scores: tuple[list[float], list[float]] = ([], [])
    unlabelled, wrong, cost, unanswered = Counter[str](), 0, Cost(cost_usd=0.0), ""

    async def ask() -> None:
        nonlocal wrong, cost, unanswered
        made = OfflineEvaluator(judge, [registry.get(_METRIC)], timeout=_SECONDS, concurrency=1)
        async with aclosing(made) as evaluator:
            for number, call in enumerate(calls):
                evaluation = await evaluator.evaluate(call)
                cost += Cost.from_report(evaluation)
                result, supported = evaluation.results[_METRIC], number % 2 == 0
                if isinstance(result, Score):
                    scores[supported].append(result.value)
                    wrong += (result.value >= 0.5) is not supported
                elif result.reason in RETRYABLE:
                    unanswered = f"{result.reason}: {result.explanation}" if result.explanation else result.reason
                    return
                else:
                    unlabelled[result.reason] += 1
                    wrong += 1

    with suppress_instrumentation():
        run_on_own_loop(ask)
    return GoldResult(
        f"{judge.id}@{judge.version}", sum(map(len, scores)) + unlabelled.total(), wrong, unlabelled, unanswered,
        _order(*scores), judge.type == "decision", cost,
    )  # fmt: skip


def _order(unsupported: Sequence[float], supported: Sequence[float]) -> float | None:
    pairs = [(high > low) + (high == low) / 2 for high in supported for low in unsupported]
    return sum(pairs) / len(pairs) if pairs else None


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
