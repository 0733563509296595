"""Tags of calls: by blocks around them, by arguments, in calls in progress, and by baggage."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
from opentelemetry import baggage
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import ragtrace
from ragtrace.core.tags import MOST_TAGS, TagValue
from ragtrace.core.types import Judgement, RagCall
from ragtrace.recording.tag_layers import baggage_tags, current_layer
from ragtrace.runtime.current_runtime import current
from ragtrace.system import collection
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from ragtrace.types import constant
from tests.support.logged import logged

TENANTS = [f"tenant{number}" for number in range(20)]


class Seen:
    """A configured ragtrace whose judge writes down every call."""

    def __init__(self, **settings: Any) -> None:
        self.captured = Captured()
        self.judge = FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
        limits = ragtrace.Limits(capacity=10_000)
        ragtrace.configure(
            exporter=self.captured.signals, screen=self.judge, metrics=["answered"], limits=limits, **settings
        )

    def calls(self) -> list[RagCall]:
        assert ragtrace.flush()
        return self.judge.calls

    def tags(self) -> list[Mapping[str, TagValue]]:
        """The tags of each call, in the order of their ends."""
        return [call.tags for call in self.calls()]


@pytest.fixture
def seen() -> Iterator[Seen]:
    faults.clear()
    yield Seen()
    ragtrace.shutdown()
    faults.clear()
    assert current_layer.get() is None


@ragtrace.trace
def ask(question: str) -> str:
    return f"answer to {question}"


@ragtrace.trace
def stream(question: str) -> Iterator[str]:
    yield "answer "
    yield question


@ragtrace.trace
async def ask_later(question: str) -> str:
    await asyncio.sleep(0)
    return f"answer to {question}"


# --- blocks ----------------------------------------------------------------------------------------------------------


def test_a_call_that_begins_in_a_block_has_its_tags(seen: Seen) -> None:
    """And no call before or after it."""
    ask("before")
    with ragtrace.tags(tenant="acme", beta=True, version=7, share=0.5):
        ask("inside")
    ask("after")
    assert seen.tags() == [{}, {"tenant": "acme", "beta": True, "version": 7, "share": 0.5}, {}]


def test_blocks_in_blocks_add_and_replace(seen: Seen) -> None:
    """What the inner one replaces is there again after it."""
    with ragtrace.tags(tenant="acme", channel="web"):
        with ragtrace.tags(channel="mail", arm="b"):
            ask("inner")
        ask("outer")
    assert seen.tags() == [{"tenant": "acme", "channel": "mail", "arm": "b"}, {"tenant": "acme", "channel": "web"}]


def test_a_block_that_fails_ends_its_tags(seen: Seen) -> None:
    """The error goes on."""
    with pytest.raises(LookupError), ragtrace.tags(tenant="acme"):
        raise LookupError
    ask("after")
    assert seen.tags() == [{}]


def test_tasks_that_begin_in_a_block_have_its_tags(seen: Seen) -> None:
    """Also those that outlive it; `async with` works as `with` does."""

    async def run() -> None:
        async with ragtrace.tags(tenant="acme"):
            task = asyncio.create_task(ask_later("task"))
        await ask_later("outside")
        await task

    asyncio.run(run())
    assert {call.query: call.tags for call in seen.calls()} == {"task": {"tenant": "acme"}, "outside": {}}


def test_threads_have_the_tags_that_are_carried_or_copied(seen: Seen) -> None:
    """By `ragtrace.carry`, a copied context, and `asyncio.to_thread`; a bare thread has none, and keeps none."""
    with ragtrace.tags(tenant="acme"):
        carried, copied = ragtrace.carry(ask), contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        for run, question in ((carried, "carried"), (partial(copied.run, ask), "copied"), (ask, "bare")):
            pool.submit(run, question).result()
    with ragtrace.tags(tenant="globex"):
        asyncio.run(asyncio.to_thread(ask, "to_thread"))  # type: ignore[arg-type]
    found = {call.query: call.tags for call in seen.calls()}
    acme, globex = {"tenant": "acme"}, {"tenant": "globex"}
    assert found == {"carried": acme, "copied": acme, "bare": {}, "to_thread": globex}


def test_what_is_carried_counts_and_not_the_threads_own(seen: Seen) -> None:
    """A pool's thread that is inside a block of its own has it again afterwards."""
    carried = ragtrace.carry(ask)
    with ragtrace.tags(tenant="of the thread"):
        carried("carried")
        ask("own")
    assert seen.tags() == [{}, {"tenant": "of the thread"}]


def test_a_block_may_be_used_again_and_by_several_threads_at_once(seen: Seen) -> None:
    """It remembers nothing of one use."""
    web, started = ragtrace.tags(channel="web"), threading.Barrier(4)

    def run(number: int) -> None:
        started.wait()
        with ragtrace.tags(tenant=f"t{number}"), web, web:
            ask(f"t{number}")
        ask("after")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    for call in seen.calls():
        assert call.tags == ({} if call.query == "after" else {"tenant": call.query, "channel": "web"})


def test_an_outer_block_that_ends_first_ends_the_inner_ones(seen: Seen) -> None:
    """A generator that is left behind with an open block gives its tags to no later call; nor does its end."""

    def left_open() -> Iterator[None]:
        with ragtrace.tags(arm="b"):
            yield

    reader = left_open()
    with ragtrace.tags(tenant="acme"):
        next(reader)
        ask("inside")
    ask("after")
    with ragtrace.tags(tenant="globex"):
        next(reader, None)
        ask("next")
    assert seen.tags() == [{"tenant": "acme", "arm": "b"}, {}, {"tenant": "globex"}]


def test_a_block_that_ends_in_another_context_is_no_error(seen: Seen) -> None:
    """As of a dependency of a web framework that is entered and left in two threads."""
    block = ragtrace.tags(tenant="acme")
    contextvars.copy_context().run(block.__enter__)
    block.__exit__(None, None, None)
    ask("after")
    assert seen.tags() == [{}]


def test_another_library_that_leaves_a_context_attached_passes_no_tags_on(seen: Seen) -> None:
    """Some instrumentations never detach, or too late."""
    outside = get_current()
    with ragtrace.tags(tenant="acme"):
        left = attach(Context({**get_current(), "other": 1}))
    ask("after")
    detach(left)
    assert get_current() == outside
    assert seen.tags() == [{}]


def test_streams_have_the_tags_of_where_their_function_was_called(seen: Seen) -> None:
    """Not of where they are read, although the call begins there."""
    with ragtrace.tags(tenant="acme"):
        tagged = stream("tagged")
    bare = stream("bare")
    with ragtrace.tags(tenant="globex"):
        assert ["".join(tagged), "".join(bare)] == ["answer tagged", "answer bare"]
    assert seen.tags() == [{"tenant": "acme"}, {}]


def test_steps_inside_a_call_bring_no_tags_of_where_it_is_read(seen: Seen) -> None:
    """A stream that is read in another tenant's block is its own tenant's alone."""

    @ragtrace.generate
    def write(question: str) -> str:
        return f"answer to {question}"

    @ragtrace.trace
    def stream_steps(question: str) -> Iterator[str]:
        yield write(question)

    with ragtrace.tags(tenant="acme"):
        pieces = stream_steps("q")
    with ragtrace.tags(tenant="globex", channel="mail"):
        assert list(pieces) == ["answer to q"]
    assert seen.tags() == [{"tenant": "acme"}]


def test_a_block_inside_a_call_tags_that_call(seen: Seen) -> None:
    """Whatever the call does inside it; the last value counts."""

    @ragtrace.trace(tags={"arm": "arm"})
    def ask_in_block(question: str, arm: str) -> str:
        with ragtrace.tags(channel="web"), ragtrace.tags(arm="c"):
            return "answer"

    with ragtrace.tags(tenant="acme", arm="a"):
        ask_in_block("q", "b")
        ask("next")
    assert seen.tags() == [{"tenant": "acme", "arm": "c", "channel": "web"}, {"tenant": "acme", "arm": "a"}]


def test_a_block_in_a_step_tags_the_whole_call(seen: Seen) -> None:
    """Also in a retrieval."""

    @ragtrace.retrieve
    def search(question: str) -> list[str]:
        with ragtrace.tags(index="b"):
            return ["a"]

    @ragtrace.trace
    def ask_and_search(question: str) -> str:
        return search(question)[0]

    ask_and_search("q")
    assert seen.tags() == [{"index": "b"}]


def test_a_block_in_a_decorated_generator_is_not_around_what_its_reader_calls(seen: Seen) -> None:
    """Between two pieces, and when the generator is left."""

    @ragtrace.trace
    def stream_in_block(question: str) -> Iterator[str]:
        with ragtrace.tags(tenant="acme"):
            yield "one "
            yield "two"

    pieces = stream_in_block("stream")
    next(pieces)
    ask("between")
    list(pieces)
    assert seen.tags() == [{}, {"tenant": "acme"}]


def test_nor_is_one_of_a_call_that_is_not_recorded() -> None:
    """As the head sampler has dropped its trace."""

    @ragtrace.trace
    def stream_in_block(question: str) -> Iterator[str]:
        with ragtrace.tags(tenant="acme"):
            yield "one "

    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
    try:
        pieces = stream_in_block("q")
        assert next(pieces) == "one "
        assert current_layer.get() is None
    finally:
        ragtrace.shutdown()


def test_a_finalizer_neither_enters_nor_leaves_a_block(seen: Seen) -> None:
    """A garbage collection may run inside the change of a context variable; on later releases of Python it may not."""

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            is_watched.append(collection.is_on_this_thread())
            other = ragtrace.tags(tenant="globex")
            other.__enter__()
            layers.append(current_layer.get())
            other.__exit__(None, None, None)
            block.__exit__(None, None, None)
            layers.append(current_layer.get())

    is_watched: list[bool] = []
    layers: list[object] = []
    block = ragtrace.tags(tenant="acme")
    with block:
        Cycle()
        here = current_layer.get()
        gc.collect()
    assert len(is_watched) == 1
    assert not is_watched[0] or layers == [here, here]
    assert ragtrace.stats().faults == {}
    ask("after")
    assert seen.tags() == [{}]


# --- what is no tag --------------------------------------------------------------------------------------------------


def test_what_is_no_tag_is_left_out_and_counted(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    """The log names tag and type, and never the value; None says that there is no such tag."""
    secret = "my secret"
    with ragtrace.tags(tenant=[secret], arm="b", channel=None, **{"bad name": secret}):  # type: ignore[arg-type]
        ask("q")
    with ragtrace.tags(tenant=b"x"):  # type: ignore[arg-type]
        ask("another")
    assert seen.tags() == [{"arm": "b"}, {}]
    assert ragtrace.stats().faults == {"tags left out: ragtrace.tags": 3}
    [line] = logged(caplog, "tag is left out")
    assert "'tenant' is a list" in line
    assert secret not in caplog.text
    assert "bad name" not in caplog.text


def test_of_more_than_16_tags_the_first_are_kept(seen: Seen) -> None:
    """Of one block, of blocks in blocks, of a call with what is around it, and of its steps."""

    @ragtrace.generate(tags={"model": constant("m")})
    def write(question: str) -> str:
        return "answer"

    @ragtrace.trace(tags={"own": constant(1)})
    def ask_tagged(question: str) -> str:
        return write(question)

    many = ragtrace.tags(**{f"t{number}": number for number in range(MOST_TAGS + 1)})
    with many, ragtrace.tags(more=1, t0="replaced"):
        ask_tagged("q")
    [tags] = seen.tags()
    assert tags == {"t0": "replaced", **{f"t{number}": number for number in range(1, MOST_TAGS)}}
    assert ragtrace.stats().faults == {
        "tags left out: ragtrace.tags": 1,
        "tags left out: blocks in blocks": 1,
        "tags left out: a call and what is around it": 1,
        "tags left out: the steps of a call": 1,
    }


# --- arguments -------------------------------------------------------------------------------------------------------


def test_decorated_functions_take_tags_from_their_arguments(seen: Seen) -> None:
    """By name, path, function and as a constant; they count more than those of a block around the call."""

    @ragtrace.trace(
        tags={"tenant": "tenant", "plan": "request.plan", "size": lambda a: len(a["question"]), "via": constant("web")}
    )
    def ask_tagged(question: str, tenant: str, request: dict[str, str]) -> str:
        return "answer"

    with ragtrace.tags(tenant="of the block", arm="b"):
        ask_tagged("why", "acme", {"plan": "free"})
    assert seen.tags() == [{"tenant": "acme", "arm": "b", "plan": "free", "size": 3, "via": "web"}]


def test_a_generation_without_a_trace_has_its_tags_and_one_in_a_trace_adds_them(seen: Seen) -> None:
    """The value of the call's root counts before that of a step."""

    @ragtrace.generate(tags={"tenant": "tenant", "prompt": constant("v2")})
    def write(question: str, tenant: str) -> str:
        return "answer"

    @ragtrace.trace(tags={"tenant": constant("acme")})
    def ask_tagged(question: str) -> str:
        return write(question, "inner")

    write("alone", "globex")
    ask_tagged("traced")
    assert seen.tags() == [{"tenant": "globex", "prompt": "v2"}, {"tenant": "acme", "prompt": "v2"}]


def test_methods_and_coroutines_and_streams_have_tags_by_arguments(seen: Seen) -> None:
    """Self is no argument; a default value is one."""

    class Bot:
        @ragtrace.trace(tags={"tenant": "tenant"})
        async def ask(self, question: str, tenant: str = "acme") -> str:
            return "another answer"

        @ragtrace.trace(tags={"tenant": "tenant"})
        def stream(self, question: str, *, tenant: str) -> Iterator[str]:
            yield "answer"

    asyncio.run(Bot().ask("q"))
    assert list(Bot().stream("q", tenant="globex")) == ["answer"]
    assert seen.tags() == [{"tenant": "acme"}, {"tenant": "globex"}]


def test_a_wrong_value_of_an_argument_is_left_out_and_counted(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    """The call goes on, with its other tags; a function that fails is counted as any other selector is."""

    def fail(arguments: Mapping[str, Any]) -> object:
        raise LookupError("no such tenant")

    @ragtrace.trace(tags={"tenant": "tenant", "plan": fail, "via": constant("web")})
    def ask_tagged(question: str, tenant: object) -> str:
        return "answer"

    name = "test_a_wrong_value_of_an_argument_is_left_out_and_counted.<locals>.ask_tagged".rpartition("<locals>.")[2]
    assert ask_tagged("q", {"id": "secret"}) == ask_tagged("another", None) == "answer"
    assert seen.tags() == [{"via": "web"}, {"via": "web"}]
    assert ragtrace.stats().faults == {f"tags left out: tags= of {name}": 1, f"a selector of {name}": 2}
    assert len(logged(caplog, "the value of 'tenant' is a dict")) == 1
    assert "secret" not in caplog.text


# --- ragtrace.call ---------------------------------------------------------------------------------------------------


def test_a_call_block_takes_tags(seen: Seen) -> None:
    """When it is made and later; the last value counts, and those of a block around it least."""
    with (
        ragtrace.tags(tenant="of the block", arm="b"),
        ragtrace.call("q", tags={"tenant": "acme", "plan": "free"}) as call,
    ):
        call.tag("plan", "paid")
        call.tag("lang", None)
        call.tag("bad name", "x")
        call.answered("answer")
    assert seen.tags() == [{"tenant": "acme", "arm": "b", "plan": "paid"}]
    assert ragtrace.stats().faults == {"tags left out: tags of ragtrace.call": 1}


def test_tags_of_a_block_that_is_not_recorded_are_no_error() -> None:
    """Nothing is configured."""
    with ragtrace.tags(tenant="acme"), ragtrace.call("q", tags={"plan": "free"}) as call:
        call.tag("plan", "paid")
    assert current_layer.get() is None


# --- other ways into a call ------------------------------------------------------------------------------------------


def test_a_guarded_function_has_tags_also_when_it_runs_again(seen: Seen) -> None:
    """The second run of a coroutine that is awaited outside the block that it was made in."""
    ragtrace.shutdown()
    judge = FakeJudge(Judgement(consistency=0.0), Judgement(consistency=1.0), metrics=["consistency"])
    ragtrace.configure(exporter="none", screen=judge, metrics=["consistency"])
    guard = ragtrace.Guard(metric="consistency", below=0.5, action="retry", idempotent=True)

    @ragtrace.trace(guard=guard)
    async def ask_guarded(question: str) -> str:
        return answers.pop() + search(question)[0]

    @ragtrace.retrieve
    def search(question: str) -> list[str]:
        return ["found"]

    answers = ["second answer", "first answer"]
    with ragtrace.tags(tenant="acme"):
        asked = ask_guarded("q")
    asyncio.run(asked)  # type: ignore[arg-type]
    assert ragtrace.flush()
    assert [call.tags for call in judge.calls] == [{"tenant": "acme"}] * 2


@pytest.mark.parametrize("named", [("tenant", "plan", "size"), ()])
def test_listed_names_are_read_from_the_baggage(seen: Seen, named: tuple[str, ...]) -> None:
    """Where a call begins, for its root; a block around the call counts before the baggage, and no other name does."""
    runtime = current()
    assert runtime is not None
    runtime.baggage_tags = named
    context = baggage.set_baggage("tenant", "acme")
    for name, value in (("plan", "free"), ("other", "x")):
        context = baggage.set_baggage(name, value, context)
    token = attach(context)
    try:
        with ragtrace.tags(plan="paid"):
            ask("q")
    finally:
        detach(token)
    ask("after")
    assert seen.tags() == [{"tenant": "acme", "plan": "paid"} if named else {"plan": "paid"}, {}]


def test_what_is_no_value_in_the_baggage_is_left_out_and_counted() -> None:
    """It comes from elsewhere, and may be anything."""
    faults.clear()
    context = baggage.set_baggage("tenant", "x" * 201, baggage.set_baggage("plan", "free", Context()))
    assert baggage_tags(("tenant", "plan", "size"), context) == {"plan": "free"}
    assert baggage_tags(("tenant",), Context()) == {}
    assert faults.counts() == {"tags left out: baggage": 1}
    faults.clear()


def _is_wrong(call: RagCall) -> bool:
    """Return whether *call* has other tags than those of its question: tenant, seed, and number."""
    tenant, _, number = (call.query or "").split()
    return call.tags != {"tenant": tenant, "number": int(number)}


# --- whose call it was, under load ------------------------------------------------------------------------------------


def test_no_call_has_the_tag_of_another_tenant(seen: Seen) -> None:
    """2,000 calls of 20 tenants from 20 threads and 20 tasks: plain, streamed, failing, cancelled, left."""

    @ragtrace.generate
    def write(question: str) -> str:
        return f"answer to {question}"

    @ragtrace.trace
    def plain(question: str) -> str:
        return write(question)

    @ragtrace.trace
    def failing(question: str) -> Iterator[str]:
        yield "answer to "
        raise LookupError(question)

    @ragtrace.trace
    async def astream(question: str) -> AsyncIterator[str]:
        yield "answer to "
        await asyncio.sleep(0)
        yield question

    @ragtrace.trace
    async def hanging(question: str) -> AsyncIterator[str]:
        yield "answer to "
        await asyncio.Event().wait()

    def in_thread(seed: int) -> None:
        chosen, open_streams = random.Random(seed), []
        for number in range(50):
            tenant = chosen.choice(TENANTS)
            question = f"{tenant} {seed} {number}"  # a judge is not asked twice about equal calls
            with ragtrace.tags(tenant=tenant, number=number):
                match number % 4:
                    case 0:
                        plain(question)
                    case 1:
                        open_streams.append(stream(question))
                    case 2:
                        with pytest.raises(LookupError):
                            list(failing(question))
                    case _:
                        with ragtrace.tags(tenant="nobody"), ragtrace.tags(tenant=tenant):
                            open_streams.append(failing(question))
            if number % 8 == 7:
                with ragtrace.tags(tenant="reader"):
                    for opened in open_streams:
                        next(opened)
                        opened.close()
                open_streams.clear()
        for opened in open_streams:
            next(opened)

    async def in_task(seed: int) -> None:
        chosen = random.Random(seed)
        for number in range(50):
            tenant = chosen.choice(TENANTS)
            question = f"{tenant} {seed} {number}"  # a judge is not asked twice about equal calls
            async with ragtrace.tags(tenant=tenant, number=number):
                match number % 4:
                    case 0:
                        await ask_later(question)
                        continue
                    case 1:
                        await asyncio.to_thread(plain, question)
                        continue
                    case 2:
                        pieces = astream(question)
                    case _:
                        pieces = hanging(question)
            async with ragtrace.tags(tenant="reader"):
                reading = asyncio.create_task(drain(pieces))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if number % 4 == 3:
                    reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def drain(pieces: AsyncIterator[str]) -> None:
        async for _ in pieces:
            await asyncio.sleep(0)

    async def in_tasks() -> None:
        await asyncio.gather(*(in_task(100 + seed) for seed in range(20)))

    with ThreadPoolExecutor(20) as pool:
        running = [pool.submit(in_thread, seed) for seed in range(20)]
        asyncio.run(in_tasks())
        for each in running:
            each.result()
    gc.collect()
    calls = seen.calls()
    assert len(calls) == 2_000
    assert [call.tags for call in calls if _is_wrong(call)] == []
    assert len(Counter(call.tags["tenant"] for call in calls)) == 20
    assert ragtrace.stats().faults == {}


# --- middlewares -----------------------------------------------------------------------------------------------------


class PlainMiddleware:
    """An ASGI middleware without a base class."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with ragtrace.tags(tenant=dict(scope["headers"]).get(b"x-tenant", b"").decode() or None):
            await self.app(scope, receive, send)


class BaseMiddleware(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        with ragtrace.tags(tenant=request.headers.get("x-tenant")):
            return await call_next(request)


def in_threadpool(request: Request) -> Response:
    return PlainTextResponse(ask(request.query_params["q"]))


async def in_loop(request: Request) -> Response:
    return PlainTextResponse(await ask_later(request.query_params["q"]))


async def in_stream(request: Request) -> Response:
    return StreamingResponse(stream(request.query_params["q"]))


@pytest.mark.parametrize("middleware", [PlainMiddleware, BaseMiddleware])
def test_a_middleware_gives_tags_to_the_calls_of_its_request(seen: Seen, middleware: Any) -> None:
    """In endpoints on the loop, in the thread pool, and in streams that are sent after the endpoint has returned."""
    routes = [Route("/pool", in_threadpool), Route("/loop", in_loop), Route("/stream", in_stream)]
    app = Starlette(routes=routes, middleware=[Middleware(middleware)])

    async def request_all() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
            requests = [
                client.get(path, params={"q": f"{tenant} {path}"}, headers={"x-tenant": tenant} if tenant else {})
                for path in ("/pool", "/loop", "/stream")
                for tenant in ("acme", "globex", "")
            ]
            for response in await asyncio.gather(*requests):
                assert response.text.startswith("answer")

    asyncio.run(request_all())
    found = {(call.query or "").partition(" ")[0]: call.tags for call in seen.calls()}
    assert found == {"acme": {"tenant": "acme"}, "globex": {"tenant": "globex"}, "": {}}
    assert len(seen.calls()) == 9
