"""The application that every subject watches: three functions, and texts of fixed sizes.

Without OpenTelemetry or ragtrace, so that it also runs in an environment that has only a peer installed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

QUERY_CHARS, CONTEXTS, CONTEXT_CHARS, ANSWER_CHARS = 80, 5, 800, 400
MODEL, PROVIDER, SOURCE, WORKFLOW = "tiny-1", "example", "places", "guide"
WAIT_S: Final = 0.005
"""How long a paced call waits for its pretended database, and again for its pretended model."""
_WORDS: Final = (
    "the river of a city and its old bridge was built in stone by people who came from north to trade salt for wool "
    "before winter while market days drew farmers with grain fruit cheese honey to squares between church tower mill "
    "school harbour garden railway station museum library theatre"
).split()


def _nothing() -> None: ...


@dataclass(frozen=True)
class Subject:
    """One way of watching the application.

    `ask` takes a query of `QUERIES`; it is a coroutine function if `asynchronous`. `flush` waits until everything that
    the calls left behind is done, or gives up after a short time where it never will be. `spans` counts what was
    exported so far, where that can be known.
    """

    ask: Callable[[str], Any]
    flush: Callable[[], object] = _nothing
    spans: Callable[[], int] | None = None
    asynchronous: bool = False


def _text(chance: random.Random, chars: int) -> str:
    """Sentences of *chars* characters, with the numbers and capitals that a judge looks at."""
    parts: list[str] = []
    while sum(map(len, parts)) < chars + 1:
        words = chance.choices(_WORDS, k=chance.randint(6, 14))
        parts.append(f"{' '.join(words).capitalize()} in {chance.randint(1200, 2020)}. ")
    return "".join(parts)[: chars - 1] + "."


def _make(count: int) -> dict[str, tuple[list[str], str]]:
    chance = random.Random(7)
    made: dict[str, tuple[list[str], str]] = {}
    while len(made) < count:
        contexts = [_text(chance, CONTEXT_CHARS) for _ in range(CONTEXTS)]
        made[_text(chance, QUERY_CHARS)[:-1] + "?"] = contexts, _text(chance, ANSWER_CHARS)
    return made


CALLS: Final = _make(64)
"""Contexts and answer by query. Sixty-four different ones: no cache of anybody may live on a single call."""
QUERIES: Final = tuple(CALLS)


def retrieve(query: str) -> list[str]:
    """What a vector store would return: a new list of contexts."""
    return list(CALLS[query][0])


def generate(query: str, contexts: list[str]) -> str:
    """What a model would answer."""
    return CALLS[query][1]


def ask(query: str) -> str:
    """Retrieve, then generate."""
    return generate(query, retrieve(query))


async def retrieve_paced(query: str) -> list[str]:
    """The same over a network."""
    await asyncio.sleep(WAIT_S)
    return retrieve(query)


async def generate_paced(query: str, contexts: list[str]) -> str:
    """The same over a network."""
    await asyncio.sleep(WAIT_S)
    return generate(query, contexts)


async def ask_paced(query: str) -> str:
    """Retrieve, then generate."""
    return await generate_paced(query, await retrieve_paced(query))


def bare() -> Subject:
    """Not watched at all."""
    return Subject(ask)


def bare_paced() -> Subject:
    """Not watched at all, waiting for its database and its model."""
    return Subject(ask_paced, asynchronous=True)
