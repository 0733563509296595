"""Streams of the OpenAI client and of LlamaIndex stay what they are when a decorated function returns them."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import openai
import pytest
from opentelemetry.trace import StatusCode

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import Captured
from tests.support.completions import completions_server
from tests.support.frameworks import library
from tests.support.guards import BAD, ReadingJudge, guard, tally, watch
from tests.support.passed import WORDS, seen, span_of
from tests.support.watched import WAIT_S

llama = partial(library, "llama_index.core.base.response.schema")


@pytest.fixture
def captured() -> Iterator[Captured]:
    faults.clear()
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=None)
    yield captured
    ragtrace.shutdown()


# --- the real OpenAI client against a real server --------------------------------------------------------------------


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with completions_server() as address:
        yield address


ASKED: Any = {"model": "tiny", "messages": [{"role": "user", "content": "How high is it?"}], "stream": True}


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def complete(client: openai.OpenAI) -> Callable[[str], Any]:
    @ragtrace.generate
    def complete(question: str) -> Any:
        return client.chat.completions.create(**ASKED)

    return complete


def text_of(chunk: Any) -> str:
    return chunk.choices[0].delta.content or ""


def test_an_openai_stream_stays_one(captured: Captured, complete: Callable[[str], Any]) -> None:
    """Type, attributes and chunks are the client's; the answer, model and id are on the span."""
    stream = complete("How high is it?")
    assert isinstance(stream, openai.Stream)
    assert stream.response.status_code == 200
    chunks = list(stream)
    assert [text_of(chunk) for chunk in chunks] == list(WORDS)
    assert {type(chunk).__name__ for chunk in chunks} == {"ChatCompletionChunk"}
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)
    attributes = captured.spans[0].attributes or {}
    assert attributes["gen_ai.response.model"] == "tiny-2024"
    assert attributes["gen_ai.response.id"] == "chatcmpl-7"
    assert attributes["gen_ai.request.stream"] is True
    assert float(str(attributes["gen_ai.response.time_to_first_chunk"])) > 0


def test_an_openai_stream_as_a_context_manager(captured: Captured, complete: Callable[[str], Any]) -> None:
    """`with` gives the stream itself, and read to its end it is complete."""
    with complete("How high is it?") as stream:
        assert isinstance(stream, openai.Stream)
        assert "".join(text_of(chunk) for chunk in stream) == "".join(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


def test_an_openai_stream_closed_early_was_abandoned(captured: Captured, complete: Callable[[str], Any]) -> None:
    """What was read is the answer, and the connection is closed."""
    stream = complete("How high is it?")
    assert text_of(next(stream)) == "The "
    stream.close()
    assert stream.response.is_closed
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


def test_leaving_the_block_of_an_openai_stream_early_abandons_it(
    captured: Captured, complete: Callable[[str], Any]
) -> None:
    """The reader's own error is not the stream's."""

    def leave(stream: Any) -> None:
        with stream as entered:
            next(entered)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        leave(complete("How high is it?"))
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


def test_an_openai_stream_that_is_dropped_was_abandoned(captured: Captured, complete: Callable[[str], Any]) -> None:
    """A reader that breaks off and forgets the stream leaves no open span."""
    stream = complete("How high is it?")
    for _ in stream:
        break
    stream.response.close()
    del stream
    gc.collect()
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


def test_an_openai_completion_is_returned_as_it_is(captured: Captured, client: openai.OpenAI) -> None:
    """The very object."""
    made: list[Any] = []

    @ragtrace.generate
    def complete(question: str) -> Any:
        made.append(client.chat.completions.create(model="tiny", messages=ASKED["messages"]))
        return made[0]

    assert complete("How high is it?") is made[0]
    assert seen(captured) == ("".join(WORDS), None, StatusCode.UNSET)


def test_a_generator_that_passes_openai_chunks_on(captured: Captured, client: openai.OpenAI) -> None:
    """The usual way to stream: the text is found in the chunks."""

    @ragtrace.generate
    def complete(question: str) -> Iterator[Any]:
        yield from client.chat.completions.create(**ASKED)

    assert len(list(complete("How high is it?"))) == len(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


Use = Callable[[Any], Any]


def run_async(base_url: str, use: Use, *, coroutine: bool = True) -> Any:
    """Stream with the asynchronous client out of a decorated function, and let *use* read it."""

    async def main() -> Any:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

            @ragtrace.generate
            async def complete(question: str) -> Any:
                return await client.chat.completions.create(**ASKED)

            @ragtrace.generate
            def complete_later(question: str) -> Any:
                return client.chat.completions.create(**ASKED)

            stream = await (complete if coroutine else complete_later)("How high is it?")
            assert isinstance(stream, openai.AsyncStream)
            return await use(stream)

    return asyncio.run(main())


async def read_all(stream: Any) -> str:
    return "".join([text_of(chunk) async for chunk in stream])


async def read_in_a_block(stream: Any) -> str:
    async with stream as entered:
        assert isinstance(entered, openai.AsyncStream)
        return await read_all(entered)


async def read_one(stream: Any) -> str:
    async for chunk in stream:
        await stream.close()
        return text_of(chunk)
    raise AssertionError("empty")


async def leave_a_block(stream: Any) -> str:
    async with stream as entered:
        return text_of(await entered.__anext__())


@pytest.mark.parametrize("coroutine", [True, False], ids=["coroutine function", "function returning a coroutine"])
@pytest.mark.parametrize(
    ("use", "answer", "abandoned"),
    [
        (read_all, "".join(WORDS), False),
        (read_in_a_block, "".join(WORDS), False),
        (read_one, "The ", True),
        (leave_a_block, "The ", True),
    ],
)
def test_an_asynchronous_openai_stream_stays_one(
    captured: Captured, base_url: str, use: Use, answer: str, abandoned: bool, coroutine: bool
) -> None:
    """Read whole, as a context manager, closed early, left early."""
    assert run_async(base_url, use, coroutine=coroutine) == answer
    assert seen(captured) == (answer, abandoned, StatusCode.UNSET)


def test_a_cancelled_reader_of_an_openai_stream_ends_the_span(captured: Captured, base_url: str) -> None:
    """A client that disconnects cancels the task that reads."""

    async def use(stream: Any) -> str:
        async def read() -> None:
            await stream.__anext__()
            task.cancel()
            await stream.__anext__()
            await asyncio.sleep(WAIT_S)

        task = asyncio.create_task(read())
        await asyncio.wait({task})
        await stream.close()
        return str(task.cancelled())

    assert run_async(base_url, use) == "True"
    assert (captured.roots() or [span_of(captured)])[0].end_time is not None
    text, abandoned, _ = seen(captured)
    assert (str(text).startswith("The "), abandoned) == (True, True)


def test_a_stream_that_another_library_cancels_was_left(captured: Captured) -> None:
    """As trio does, by an exception of its own that is no error; the text that came before is the answer."""

    class CancelledByTrioError(BaseException):
        pass

    @ragtrace.generate
    def stream(question: str) -> Iterator[str]:
        yield "The tower"
        raise CancelledByTrioError

    with pytest.raises(CancelledByTrioError):
        list(stream("How high is it?"))
    assert seen(captured)[:2] == ("The tower", True)


# --- what makes a stream when it is entered or iterated ---------------------------------------------------------------
def complete_helped(captured: Captured, client: openai.OpenAI) -> Any:
    @ragtrace.generate
    def complete(question: str) -> Any:
        return client.chat.completions.stream(model="tiny", messages=ASKED["messages"])

    return complete("How high is it?")


@pytest.mark.newest  # of openai, whose older versions have no such stream
@pytest.mark.parametrize(
    "read",
    [
        list,
        lambda stream: stream.until_done(),
        lambda stream: stream.get_final_completion().choices[0].message.content,
        lambda stream: [next(stream), stream.until_done()],
    ],
    ids=["events", "until_done", "get_final_completion", "next"],
)
def test_a_stream_manager_is_recorded_however_it_is_read(
    captured: Captured, client: openai.OpenAI, read: Callable[[Any], Any]
) -> None:
    """Manager and stream are the client's own; each of their methods reads the pieces that are recorded."""
    manager = complete_helped(captured, client)
    assert isinstance(manager, type(client.chat.completions.stream(model="tiny", messages=ASKED["messages"])))
    assert not hasattr(manager, "__next__")
    with manager as stream:
        assert type(stream).__name__ == "ChatCompletionStream"
        assert read(stream)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


@pytest.mark.newest  # of openai, whose older versions have no such stream
def test_a_stream_manager_that_is_left_early_was_abandoned(captured: Captured, client: openai.OpenAI) -> None:
    """What was read is the answer."""
    with complete_helped(captured, client) as stream:
        assert next(event for event in stream if event.type == "content.delta").delta == "The "
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


@pytest.mark.newest  # of openai, whose older versions have no such stream
def test_a_stream_manager_whose_request_fails_has_failed(captured: Captured) -> None:
    """The request is sent when the block is entered, and its error is the application's."""
    with openai.OpenAI(base_url="http://127.0.0.1:9", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            complete_helped(captured, client).__enter__()
        assert span_of(captured).status.status_code is StatusCode.ERROR


@pytest.mark.newest  # of openai, whose older versions have no such stream
def test_a_stream_manager_that_is_never_entered_has_no_known_answer(captured: Captured, client: openai.OpenAI) -> None:
    """Nobody has asked for one."""
    complete_helped(captured, client)
    gc.collect()
    assert seen(captured) == (None, True, StatusCode.UNSET)


class UnknownStreamManager:
    """Makes a stream whose pieces cannot be followed."""

    def __enter__(self) -> Iterator[str]:
        return iter(WORDS)

    def __exit__(self, *error: object) -> None:
        pass


def test_the_stream_of_an_unknown_manager_is_said_not_to_be_captured(
    captured: Captured, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a version that is made otherwise: the reader notices nothing, and the log names the class."""
    module = types.ModuleType("openai.made")
    vars(module)["UnknownStreamManager"] = UnknownStreamManager
    monkeypatch.setitem(sys.modules, "openai.made", module)
    monkeypatch.setattr(UnknownStreamManager, "__module__", "openai.made")

    @ragtrace.generate
    def complete(question: str) -> Any:
        return UnknownStreamManager()

    with complete("How high is it?") as stream:
        assert list(stream) == list(WORDS)
    assert seen(captured) == (None, None, StatusCode.UNSET)
    assert "ragtrace found no answer in the tuple_iterator of " in caplog.text


@pytest.mark.newest  # of openai, whose older versions have no such stream
def test_an_asynchronous_stream_manager_is_recorded(captured: Captured, base_url: str) -> None:
    """As the synchronous one; the caller awaits nothing before the block."""

    async def main() -> str | None:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

            @ragtrace.generate
            def complete(question: str) -> Any:
                return client.chat.completions.stream(model="tiny", messages=ASKED["messages"])

            manager = complete("How high is it?")
            async with manager as stream:
                found: str | None = (await stream.get_final_completion()).choices[0].message.content
                return found

    assert asyncio.run(main()) == "".join(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


class EventStream:
    """As boto3's: it can be iterated, and is no iterator."""

    __module__ = "botocore.eventstream"

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self) -> Iterator[Any]:
        for word in WORDS:
            yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": word}}}

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine function"])
def test_the_stream_in_a_response_of_boto3_is_recorded(captured: Captured, is_async: bool) -> None:
    """The very dict, whose stream is still one; another dict is left alone."""
    made = {"ResponseMetadata": {"HTTPStatusCode": 200}, "stream": EventStream()}

    @ragtrace.generate
    def converse(question: str) -> Any:
        return made

    @ragtrace.generate
    async def converse_later(question: str) -> Any:
        return made

    response = asyncio.run(converse_later("How high is it?")) if is_async else converse("How high is it?")
    assert response is made
    assert isinstance(response["stream"], EventStream)
    assert len(list(response["stream"])) == len(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


def test_a_stream_of_boto3_that_is_closed_was_abandoned(captured: Captured) -> None:
    """What was read is the answer."""

    @ragtrace.generate
    def converse(question: str) -> Any:
        return EventStream()

    stream = converse("How high is it?")
    next(iter(stream))
    stream.close()
    assert stream.closed
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


# --- LlamaIndex ------------------------------------------------------------------------------------------------------
def nodes() -> list[Any]:
    schema = library("llama_index.core.schema")
    text = schema.TextNode(text="The tower is 330 metres high.", id_="n1")
    return [schema.NodeWithScore(node=text, score=0.9)]


def test_a_llama_index_streaming_response_stays_one(captured: Captured) -> None:
    """The very object; its generator is observed, and its sources are the contexts."""
    response = llama().StreamingResponse(response_gen=(word for word in WORDS), source_nodes=nodes())

    @ragtrace.trace
    def query(question: str) -> Any:
        return response

    found = query("How high is it?")
    assert found is response
    assert "".join(str(piece) for piece in found.response_gen) == "".join(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)
    documents = json.loads(str((captured.spans[0].attributes or {})["ragtrace.contexts"]))
    assert documents == [{"id": "n1", "score": 0.9, "content": "The tower is 330 metres high."}]


@pytest.mark.parametrize(("stream", "seen_pieces"), [("after", list(WORDS)), ("all", ["no answer"])])
def test_a_llama_index_streaming_response_is_held_by_a_guard(stream: str, seen_pieces: list[str]) -> None:
    """The very object, whose generator gives its pieces when the guard lets them leave."""
    watch(ReadingJudge(BAD, bad="330"))
    response = llama().StreamingResponse(response_gen=(word for word in WORDS), source_nodes=nodes())
    guarded = guard("annotate" if stream == "after" else "replace", stream=stream)

    @ragtrace.trace(name="guarded", guard=guarded)
    def query(question: str) -> Any:
        return response

    found = query("How high is it?")
    assert found is response
    assert [str(piece) for piece in found.response_gen] == seen_pieces
    assert tally().verdicts == {"fail": 1}


@pytest.mark.parametrize(("stream", "seen_pieces"), [("after", list(WORDS)), ("all", ["no answer"])])
def test_an_asynchronous_llama_index_response_is_held_by_a_guard(stream: str, seen_pieces: list[str]) -> None:
    """The same for its asynchronous twin."""
    watch(ReadingJudge(BAD, bad="330"))

    async def words() -> AsyncIterator[str]:
        for word in WORDS:
            yield word

    @ragtrace.trace(name="guarded", guard=guard("annotate" if stream == "after" else "replace", stream=stream))
    async def query(question: str) -> Any:
        return llama().AsyncStreamingResponse(response_gen=words(), source_nodes=nodes())

    async def main() -> list[str]:
        response = await query("How high is it?")
        assert type(response) is llama().AsyncStreamingResponse
        return [str(piece) async for piece in response.response_gen]

    assert asyncio.run(main()) == seen_pieces
    assert tally().verdicts == {"fail": 1}


def test_a_llama_index_response_read_by_its_own_method(captured: Captured) -> None:
    """`get_response` consumes the generator inside."""

    @ragtrace.trace
    def query(question: str) -> Any:
        return llama().StreamingResponse(response_gen=(word for word in WORDS), source_nodes=nodes())

    assert str(query("How high is it?").get_response()) == "".join(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


def test_an_asynchronous_llama_index_response_stays_one(captured: Captured) -> None:
    """The same for its asynchronous twin."""

    async def words() -> AsyncIterator[str]:
        for word in WORDS:
            yield word

    @ragtrace.trace
    async def query(question: str) -> Any:
        return llama().AsyncStreamingResponse(response_gen=words(), source_nodes=nodes())

    async def main() -> str:
        response = await query("How high is it?")
        assert type(response) is llama().AsyncStreamingResponse
        return "".join([str(piece) async for piece in response.response_gen])

    assert asyncio.run(main()) == "".join(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


def test_a_llama_index_response_that_is_dropped_was_abandoned(captured: Captured) -> None:
    """Nobody reads it to the end."""

    @ragtrace.trace
    def query(question: str) -> Any:
        return llama().StreamingResponse(response_gen=(word for word in WORDS), source_nodes=nodes())

    response = query("How high is it?")
    next(response.response_gen)
    del response
    gc.collect()
    assert seen(captured) == ("The ", True, StatusCode.UNSET)
