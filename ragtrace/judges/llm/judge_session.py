"""`Inquiry`: the requests made about one call, and what they cost in sum."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.prompt import Asked, ask_for
from ragtrace.judges.llm.reply import Reply, read

if TYPE_CHECKING:
    from ragtrace.judges.llm.chat_types import Answer, Ask

AT_ONCE: Final = 4
"""Requests about one call under way at a time."""

R = TypeVar("R")
T = TypeVar("T")


class Asking(Protocol):
    """What is needed of a `Chat`."""

    async def ask(self, ask: Ask, check: Callable[[dict[str, Any]], list[str]]) -> Answer: ...
    async def text(self, system: str, user: str, *, max_tokens: int | None = None) -> tuple[str, Cost]: ...


class Inquiry:
    """Asks about one call; keeps the account.

    Args:
        prove: ask for a repair, too, when evidence is missing or a quote does not occur where it should.
    """

    def __init__(self, chat: Asking, *, prove: bool = False, max_tokens: int | None = None) -> None:
        self._chat, self._prove, self._max_tokens = chat, prove, max_tokens
        self._places = asyncio.Semaphore(AT_ONCE)
        self.spent = Cost()
        self.model = ""
        """The one that answered last, by the name that the server gives it."""
        self.input_truncated = False
        """The server seems to have read only a part of a request."""

    async def ask(self, asked: Asked) -> Reply:
        """The labels that the model gives.

        Raises:
            JudgeError: it gave none that can be read.
        """
        checked: list[tuple[dict[str, Any], Reply]] = []

        def check(data: dict[str, Any]) -> list[str]:
            reply = read(data, asked)
            checked[:] = [(data, reply)]
            return [*reply.defects, *(reply.unproven if self._prove else ())]

        async with self._places:
            try:
                answer = await self._chat.ask(ask_for(asked, max_tokens=self._max_tokens), check)
            except JudgeError as error:
                self.spent += Cost.of(error)
                raise
        self.spent += answer.spent
        self.model = answer.model
        self.input_truncated = self.input_truncated or answer.input_truncated
        return checked[0][1] if checked and checked[0][0] is answer.data else read(answer.data, asked)

    async def text(self, system: str, user: str) -> str:
        """What the model writes in its own words.

        Raises:
            JudgeError: it wrote nothing.
        """
        async with self._places:
            try:
                reply, spent = await self._chat.text(system, user, max_tokens=self._max_tokens)
            except JudgeError as error:
                self.spent += Cost.of(error)
                raise
        self.spent += spent
        return reply

    def failed(self, error: JudgeError) -> JudgeError:
        """*error* with all that was spent on this call."""
        return self.spent.on_error(error)


async def in_halves(ask: Callable[[Sequence[T]], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The answer of *ask* to *items*, or those to each half if the first was cut off.

    Raises:
        JudgeError: as `ask`; `truncated` if there is no half, or a half is cut off too.
    """
    try:
        return [await ask(items)]
    except JudgeError as error:
        if error.reason != "truncated" or len(items) < 2:
            raise
    middle = len(items) // 2
    return [await ask(items[:middle]), await ask(items[middle:])]


async def together(works: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """The results of all *works*; the first that raises ends the others, which are waited for."""
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
