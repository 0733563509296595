"""The cost of splitting long texts into windows."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from time import process_time, thread_time
from typing import Literal

import pytest

import ragtrace
from ragtrace.judges.local.scorer import split_at_sentences
from ragtrace.testing import DecisionServer
from tests.support.backends import Answer, Backend
from tests.support.measuring_loop import measuring_loop


def test_windows_of_a_long_text_are_found_without_reading_them_again_for_each_sentence() -> None:
    """The characters that are measured grow with the text, and not with the sentences in a window."""
    text, measured = "The tower stands in Paris. " * 4_000, 0

    def fits(window: str) -> bool:
        nonlocal measured
        measured += len(window)
        return len(window) <= 50_000

    windows = list(split_at_sentences(text, fits))
    assert len(windows) == 3
    assert measured < 40 * len(text)


JUDGES: dict[str, Callable[[str], ragtrace.judges.Judge]] = {
    "numbered": lambda url: ragtrace.DecisionJudge("m", base_url=url, api_key="k"),
    "quoted": lambda url: ragtrace.DecisionJudge("m", base_url=url, api_key="k", questions="quoted"),
    "logprobs": lambda url: ragtrace.DecisionJudge("m", base_url=url, api_key="k", protocol="logprobs"),
    "sentences": lambda url: ragtrace.OpenAIJudge("m", base_url=url, api_key="k", mode="sentences"),
}


@pytest.mark.parametrize("kind", JUDGES)
@pytest.mark.parametrize("metric", ["faithfulness", "hallucinated"])
def test_no_judge_is_paid_for_an_answer_that_is_longer_than_it_reads(kind: str, metric: str) -> None:
    """That the call cannot be scored is known before the first request."""
    answer = " ".join(f"The tower number {number} stands in Paris." for number in range(2_000))
    asked: list[object] = []

    def refuse(request: object) -> Answer:
        asked.append(request)
        return Answer(500)

    with Backend(refuse) as server:
        found = ragtrace.score(
            query="Where is it?", contexts=[answer], answer=answer, judge=JUDGES[kind](server.url), metrics=[metric]
        )[metric]
    assert isinstance(found, ragtrace.Unscored)
    assert found.reason == "truncated"
    assert asked == []


@pytest.mark.timing
@pytest.mark.parametrize(("place", "questions"), [("chunk", "numbered"), ("answer", "numbered"), ("answer", "quoted")])
def test_a_call_of_a_million_characters_does_not_stop_the_event_loop(
    place: str, questions: Literal["numbered", "quoted"]
) -> None:
    """No step takes a tenth of the time of the whole, which other tasks would wait for."""
    long = " ".join(f"The tower number {number} stands in Paris, at place {number * 7}." for number in range(20_000))
    short = "The tower number 1 stands in Paris, at place 7."
    answers = {"s1": 0.9, "c1": 0.9, "declines": 0.1, "addresses": 0.9}

    async def longest_step(judge: ragtrace.DecisionJudge, call: ragtrace.RagCall) -> tuple[float, float]:
        began, longest = process_time(), 0.0
        task = asyncio.ensure_future(judge.judge(call))
        while not task.done():
            before = thread_time()
            await asyncio.sleep(0)
            longest = max(longest, thread_time() - before)
        await task
        return longest, process_time() - began

    async def run() -> tuple[float, float]:
        with DecisionServer(answers) as server:
            judge = ragtrace.DecisionJudge("m", base_url=server.url, api_key="k", questions=questions)
            await judge.judge(ragtrace.RagCall(short, (ragtrace.Document(short),), short))  # opens the client
            chunk, answer = (long, short) if place == "chunk" else (short, long)
            found = await longest_step(judge, ragtrace.RagCall(short, (ragtrace.Document(chunk),), answer))
            await judge.aclose()
            return found

    gc.disable()  # a collection of all that earlier tests have left is no step of the judge's
    try:
        longest, total = asyncio.run(run())
    finally:
        gc.enable()
    assert longest < total / 10


@pytest.mark.timing
def test_a_chat_judge_reads_an_answer_of_a_million_characters_beside_the_event_loop() -> None:
    """Finding its 20,000 sentences and grouping them takes 100 ms, and each of 1,700 requests less than one."""
    short = "The tower number 1 stands in Paris, at place 7."
    long = " ".join(f"The tower number {number} stands in Paris, at place {number * 7}." for number in range(20_000))

    async def run() -> None:
        with DecisionServer({}) as server:  # its replies are no labels, so that the first one ends the judging
            judge = ragtrace.OpenAIJudge("m", base_url=server.url, api_key="k")
            for answer in (short, long):
                loop.longest = 0.0
                with suppress(ragtrace.judges.JudgeError):
                    await judge.judge(ragtrace.RagCall(short, (ragtrace.Document(short),), answer))
            await judge.aclose()

    with measuring_loop() as loop:
        loop.run_until_complete(run())
    assert loop.longest < 0.04
