"""The cost of splitting long texts into windows."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from time import process_time, thread_time
from typing import Any, Literal

import pytest

import ragtrace
from ragtrace.judges.local.scorer import split_at_sentences
from ragtrace.testing import DecisionServer


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


class MeasuringLoop(asyncio.SelectorEventLoop):
    """Event loop that knows the processor time of its longest step."""

    longest = 0.0

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        def step() -> None:
            began = thread_time()
            callback(*args)
            self.longest = max(self.longest, thread_time() - began)

        return super().call_soon(step, context=context)


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

    loop = MeasuringLoop()
    gc.disable()
    try:
        loop.run_until_complete(run())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        gc.enable()
        loop.close()
    assert loop.longest < 0.04
