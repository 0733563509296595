"""`JudgeSession`: sends the requests about one call, and adds up their cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Plain
from ragtrace.judges.llm.chat import Answer
from ragtrace.judges.llm.embedder import Embedder, embed
from ragtrace.judges.llm.prompt import Prompt
from ragtrace.judges.llm.prompt import R as L

AT_ONCE: Final = 4
"""Most requests about one call at a time."""

R = TypeVar("R")
T = TypeVar("T")


class SendsPrompts(Protocol):
    """The part of `Chat` that a session uses."""

    @property
    def model(self) -> str: ...
    async def ask(self, prompt: Prompt[L]) -> Answer[L]: ...
    async def text(self, system: str, user: str) -> tuple[str, Cost]: ...


class JudgeSession:
    """Requests about one call, at most four at a time; their cost adds up whether they succeed or fail.

    Args:
        embedder: None: labels that need embeddings are `no_embedder`.
    """

    def __init__(self, chat: SendsPrompts, embedder: Embedder | None = None) -> None:
        self._chat, self.embedder = chat, embedder
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.cost = Cost()
        self.attributes: dict[str, Plain] = {}
        """Which model answered last, and whether a server seems to have read only a part of a request."""

    @property
    def model(self) -> str:
        """Name of the model that is asked."""
        return self._chat.model

    async def ask(self, prompt: Prompt[L]) -> Answer[L]:
        """Return the model's answer to *prompt*.

        Raises:
            JudgeError: there is none that can be read.
        """
        async with self._slots:
            answer = await self._counted(self._chat.ask(prompt))
        self.cost += answer.cost
        self.attributes["judge_model"] = answer.model
        if answer.input_truncated:
            self.attributes["judge_input_truncated"] = True
        return answer

    async def text(self, system: str, user: str) -> str:
        """Return what the model writes in its own words.

        Raises:
            JudgeError: the model wrote nothing.
        """
        async with self._slots:
            text, cost = await self._counted(self._chat.text(system, user))
        self.cost += cost
        return text

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> object:
        """Return what *embedder* makes of *texts*, unchecked."""
        vectors, cost = await self._counted(embed(embedder, texts))
        self.cost += cost
        return vectors

    async def _counted(self, work: Awaitable[T]) -> T:
        """Wait for *work*; count what it cost if it fails."""
        try:
            return await work
        except JudgeError as error:
            self.cost += Cost.of(error)
            raise

    def charge(self, judgement: Judgement) -> Judgement:
        """Return *judgement* with the cost and the attributes of this session."""
        cost = self.cost if self.cost.n_calls else Cost(cost_usd=0.0)
        return cost.on_judgement(replace(judgement, attributes={**judgement.attributes, **self.attributes}))


async def in_halves(ask: Callable[[Sequence[T]], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """Return the answer of *ask* to *items*, or those to each half of them if the first was cut off.

    Raises:
        JudgeError: as *ask*; `truncated` if there is no half, or a half is cut off too.
    """
    try:
        return [await ask(items)]
    except JudgeError as error:
        if error.reason != "truncated" or len(items) < 2:
            raise
    middle = len(items) // 2
    return [await ask(items[:middle]), await ask(items[middle:])]


async def together(works: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """Return the results of all *works*; the first that raises cancels the others and waits for them."""
    if len(works) == 1:
        return [await works[0]]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
