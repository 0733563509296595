"""Judges and what else is given to `configure` are copied and pickled, before and after their use, like any value."""

from __future__ import annotations

import asyncio
import copy
import operator
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import openai
import pytest

import ragtrace
from ragtrace.core.types import Document, RagCall
from ragtrace.judges import HHEM, OpenAIEmbedder, ScorerJudge
from ragtrace.testing import DecisionServer, FakeJudge, OpenAIServer
from tests.support.watched import GOOD
from tests.unit.judges.test_hhem import hhem_extra

CALL = RagCall("How tall is it?", (Document("The Eiffel Tower is 330 metres tall."),), "It is 330 metres tall.")
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy of a configuration": lambda judge: copy.deepcopy({"judge": judge})["judge"],
    **{f"pickle {protocol}": lambda judge, p=protocol: pickle.loads(pickle.dumps(judge, p)) for protocol in range(6)},
}


def scored(premise: str, hypothesis: str) -> float:
    """The scorer of a user."""
    return 0.75


def client(url: str) -> openai.AsyncOpenAI:
    """The client of a user."""
    return openai.AsyncOpenAI(base_url=url, api_key="of the client")


JUDGES: dict[str, Callable[[str], Any]] = {
    "openai": lambda url: ragtrace.OpenAIJudge("m", base_url=url, api_key="k"),
    "openai, careful": lambda url: ragtrace.OpenAIJudge("m", mode="careful", base_url=url, api_key="k"),
    "openai, with a client": lambda url: ragtrace.OpenAIJudge("m", client=partial(client, url)),
    "openai, with an embedder": lambda url: ragtrace.OpenAIJudge(
        "m", base_url=url, api_key="k", embedder=OpenAIEmbedder("e", base_url=url, api_key="k")
    ),
    "decision": lambda url: ragtrace.DecisionJudge("m", base_url=url, api_key="k"),
    "systemone": lambda url: ragtrace.DecisionJudge("m", protocol="systemone", base_url=url, api_key="k"),
    "logprobs": lambda url: ragtrace.DecisionJudge("m", protocol="logprobs", base_url=url, api_key="k"),
    "embedded": lambda _: ragtrace.EmbeddedJudge(),
    "scorer": lambda _: ScorerJudge(scored),
    "fake": lambda _: FakeJudge(GOOD),
}


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    """Addresses of a chat model and of a decision model."""
    with OpenAIServer() as chats, DecisionServer() as decisions:
        yield chats.url, decisions.url


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", JUDGES)
def test_a_copy_judges_as_the_judge_does(kind: str, way: str, urls: tuple[str, str]) -> None:
    """Made before the first question, or while a connection is open; it opens its own."""
    judge = JUDGES[kind](urls[kind in {"decision", "systemone", "logprobs"}])

    async def judged(each: Any) -> Any:
        found = each.judge(CALL)
        return await found if asyncio.iscoroutine(found) else found

    async def all_judged() -> list[Any]:
        early = WAYS[way](judge)
        own = await judged(judge)
        late = WAYS[way](judge)
        found = [own, await judged(early), await judged(late)]
        for each in (judge, early, late):
            if hasattr(each, "aclose"):
                await each.aclose()
        assert {each.version for each in (early, late)} == {judge.version}
        return found

    own, *copied = asyncio.run(all_judged())
    shown = operator.attrgetter("claims", "answer_label", "consistency")
    assert [shown(each) for each in copied] == [shown(own)] * 2


@hhem_extra
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_local_model_loads_its_own(way: str) -> None:
    """Its weights are no part of a configuration."""
    assert WAYS[way](HHEM("no such model")).version == "1:no such model"


GIVEN: dict[str, Any] = {
    "alert": ragtrace.Alert("faithfulness", below=0.5),
    "baseline": ragtrace.BaselineLearning("baseline.json"),
    "canaries": ragtrace.Canaries("canaries.jsonl"),
    "history": ragtrace.History("history.db"),
    "judge limits": ragtrace.JudgeLimits(timeout=1),
    "limits": ragtrace.Limits(capacity=7),
    "redact": ragtrace.Redact([r"\d+"]),
    "sampling": ragtrace.Sampling(0.5, always=["error"]),
    "telemetry": ragtrace.TelemetryOptions(dialects=["otel"]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", GIVEN)
def test_an_option_is_copied_whole(kind: str, way: str) -> None:
    """With every field."""
    assert repr(WAYS[way](GIVEN[kind])) == repr(GIVEN[kind])
