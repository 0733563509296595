"""Read by mypy and pyright, never run: a decorated function keeps its type, whatever its kind."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any

from typing_extensions import assert_type

import ragtrace


@ragtrace.retrieve
def search(query: str, k: int = 5) -> list[str]:
    return [query] * k


@ragtrace.retrieve(query="text", documents=lambda found: found[0])
def search_scored(text: str) -> tuple[list[str], float]:
    return [text], 1.0


@ragtrace.tool
def look_up(query: str) -> dict[str, int]:
    return {query: 1}


@ragtrace.tool(name="look_up", query="text", result=lambda found: found[0])
async def look_up_async(text: str) -> list[str]:
    return [text]


@ragtrace.generate
def answer(question: str, docs: list[str]) -> str:
    return question + docs[0]


@ragtrace.generate(query="question", contexts="docs", answer=lambda reply: reply["text"])
async def answer_async(question: str, docs: list[str]) -> dict[str, str]:
    return {"text": question + docs[0]}


@ragtrace.generate
def stream(question: str) -> Generator[str, int, float]:
    yield question
    return 1.0


@ragtrace.generate
async def stream_async(question: str) -> AsyncGenerator[str, None]:
    yield question


@ragtrace.generate(query="question")
def pieces(question: str) -> Iterator[str]:
    yield question


@ragtrace.generate(query="question")
async def pieces_async(question: str) -> AsyncIterator[str]:
    yield question


@ragtrace.generate
async def opens_a_stream(question: str) -> AsyncIterator[str]:
    return pieces_async(question)


@ragtrace.trace
def ask(question: str) -> str:
    return answer(question, search(question))


@ragtrace.trace(name="support")
async def ask_async(question: str) -> dict[str, str]:
    return await answer_async(question, search(question))


class Application:
    @ragtrace.trace
    def ask(self, question: str) -> str:
        return question

    @ragtrace.trace
    async def ask_async(self, question: str) -> str:
        return question

    @classmethod
    @ragtrace.trace
    def ask_class(cls, question: str) -> str:
        return question

    @staticmethod
    @ragtrace.trace
    def ask_static(question: str) -> str:
        return question


async def uses() -> None:
    application = Application()
    function: Callable[[str], str] = ask
    coroutine: Callable[[str], Coroutine[Any, Any, dict[str, str]]] = ask_async
    assert_type(function("q"), str)
    assert_type(await coroutine("q"), dict[str, str])
    assert_type(search("q", k=3), list[str])
    assert_type(search_scored("q"), tuple[list[str], float])
    assert_type(answer("q", ["d"]), str)
    assert_type(await answer_async("q", ["d"]), dict[str, str])
    assert_type(stream("q"), Generator[str, int, float])
    assert_type(stream_async("q"), AsyncGenerator[str, None])
    assert_type(pieces("q"), Iterator[str])
    assert_type(pieces_async("q"), AsyncIterator[str])
    assert_type(await opens_a_stream("q"), AsyncIterator[str])
    assert_type(ask("q"), str)
    assert_type(await ask_async("q"), dict[str, str])
    assert_type(application.ask("q"), str)
    assert_type(await application.ask_async("q"), str)
    assert_type(Application.ask_class("q"), str)
    assert_type(application.ask_class("q"), str)
    assert_type(Application.ask_static("q"), str)
