"""Objects and texts that do harm to whoever looks at them pass through decorated functions untouched, at no cost."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from time import thread_time
from typing import Any
from unittest.mock import MagicMock

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, use_span

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.watched import ANSWER, GOOD, WAIT_S, ask, watch

HUGE = 50_000_000


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@ragtrace.retrieve
def look_up(query: Any, give: Any) -> Any:
    return give


@ragtrace.generate
def reply(question: Any, docs: Any, give: Any) -> Any:
    return give


@ragtrace.trace
def whole(question: Any, docs: Any, give: Any) -> Any:
    return reply(question, look_up(question, docs), give)


# --- hostile objects -------------------------------------------------------------------------------------------------

DUNDERS = (
    "__getattribute__ __getattr__ __len__ __iter__ __str__ __repr__ __bool__ __eq__ __hash__ __getitem__ __contains__"
    " __format__ __index__ __int__ __float__ __bytes__ __call__ __length_hint__ __reversed__ __lt__ __fspath__"
    " __aiter__ __await__ __enter__ __dir__ __instancecheck__ __copy__ __deepcopy__ __reduce_ex__ __sizeof__"
).split()
PROPERTIES = "__class__ __dict__ __name__ text content page_content response_gen choices metadata".split()


def _fail(*_: object, **__: object) -> Any:
    raise RuntimeError("hostile")


def hostile(*names: str) -> Any:
    """An object that raises whenever one of *names* is used."""
    members: dict[str, Any] = {name: property(_fail) if name in PROPERTIES else _fail for name in names}
    return type("Hostile", (), members)()


HOSTILE: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: hostile(name) for name in (*DUNDERS, *PROPERTIES)},  # type: ignore[misc]
    "everything": lambda: hostile(*DUNDERS, *PROPERTIES),
    "a str that is none": lambda: type("Text", (str,), dict.fromkeys(DUNDERS, _fail))("text"),
    "a dict that is none": lambda: type("Map", (dict,), {n: _fail for n in DUNDERS if n != "__hash__"})(text="x"),
    "a list that is none": lambda: type("List", (list,), {n: _fail for n in DUNDERS if n != "__hash__"})(["x"]),
    "MagicMock": MagicMock,
    "a mock of a generator": lambda: MagicMock(spec=(letter for letter in "")),
    "in a list": lambda: [hostile(*DUNDERS), "text", hostile("text")],
    "in a dict": lambda: {"text": hostile(*DUNDERS), "metadata": hostile("__len__")},
    "in a tuple": lambda: ((hostile("__str__"), 0.5), (hostile("__float__"), hostile("__float__"))),
    "a class": lambda: FakeJudge,
    "a module": lambda: asyncio,
    "NotImplemented": lambda: NotImplemented,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_object_goes_through_untouched(make: Callable[[], Any]) -> None:
    """As argument, as document, as answer: the same object comes back, and every span arrives."""
    captured = watch(screen=FakeJudge(GOOD))
    value = make()
    assert look_up(value, value) is value
    assert reply(value, value, value) is value
    assert whole(value, value, value) is value
    assert whole("where?", ["doc"], value) is value
    assert ragtrace.flush()
    assert len(captured.spans) == 2 + 3 + 3
    assert ragtrace.stats().pending == 0


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_piece_of_a_stream_goes_through_untouched(make: Callable[[], Any]) -> None:
    """Of a retrieval, of a generation, of a trace; plain and asynchronous."""

    @ragtrace.retrieve
    def retrieving(query: str) -> Iterator[Any]:
        yield value

    @ragtrace.generate
    def generating(question: str) -> Iterator[Any]:
        yield value

    @ragtrace.trace
    async def tracing(question: str) -> AsyncIterator[Any]:
        yield value

    async def read(pieces: list[Any]) -> None:  # asyncio itself would want to print what a task returns
        pieces.extend([piece async for piece in tracing("where?")])

    captured = watch(screen=FakeJudge(GOOD))
    value = make()
    read_pieces = [*retrieving("where?"), *generating("where?")]
    asyncio.run(read(read_pieces))
    assert [piece is value for piece in read_pieces] == [True] * 3
    assert ragtrace.flush()
    assert len(captured.spans) == 3


@pytest.mark.parametrize("name", ["__str__", "__repr__", "__getattribute__", "__class__", "args"])
def test_a_hostile_exception_comes_out_as_it_went_in(name: str) -> None:
    """And the span is an error all the same."""
    member = property(_fail) if name in ("__class__", "args") else _fail
    error = type("HostileError", (Exception,), {name: member})()

    @ragtrace.trace
    def fail(question: str) -> str:
        raise error

    captured = watch()
    raised: list[bool] = []
    try:
        fail("where?")
    except BaseException as seen:  # pytest.raises would look at it
        raised.append(seen is error)
    assert raised == [True]
    assert ragtrace.flush()
    assert str(attributes(captured.root())["error.type"]).endswith("HostileError")


@pytest.mark.parametrize("name", ["__getattr__", "__name__", "__len__", "__bool__", "__eq__", "__hash__", "__repr__"])
def test_a_hostile_callable_runs_as_it_would_undecorated(name: str) -> None:
    """What our decorator wants to know of it may not be had."""

    async def call(self: object, question: str) -> str:
        return f"answer to {question}"

    member = property(_fail) if name == "__name__" else _fail
    decorated = ragtrace.generate(type("Hostile", (), {name: member, "__call__": call})())
    captured = watch()
    assert asyncio.run(decorated("x")) == "answer to x"
    assert ragtrace.flush()
    assert len(captured.spans) == 1


def test_cyclic_structures_are_read_as_far_as_they_go() -> None:
    """Lists, dicts and objects that contain themselves, deep nesting, and cycles among documents."""
    round_list: list[Any] = ["text"]
    round_list.append(round_list)
    round_dict: dict[str, Any] = {"text": "x"}
    round_dict["metadata"] = round_dict
    round_dict["documents"] = [round_dict]
    round_object = type("Node", (), {})()
    round_object.node, round_object.content = round_object, round_object
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    captured = watch(screen=FakeJudge(GOOD))
    for value in (round_list, round_dict, round_object, deep):
        assert whole(value, value, value) is value
    assert ragtrace.flush()
    assert len(captured.spans) == 12
    while isinstance(deep, list):  # freed step by step
        deep = deep.pop()


AWKWARD = {
    "lone surrogates": "caf\ud800 \udfff ok",
    "NUL": "a\0b",
    "other control characters": "\x01\x02\x1b[31m\x7f\ufeff\u202e",
    "half an emoji": "\ud83d",
    "nothing": "",
    "white space": " \n\t ",
}


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD.keys())
def test_an_awkward_text_costs_no_span(text: str) -> None:
    """Wherever it comes from - also as name, id or session - what goes out can be encoded."""

    @ragtrace.generate
    def say(question: str, docs: Any, session_id: str, model: str) -> Any:
        return {"content": text, "model": text, "id": text}

    @ragtrace.trace(user="who", query="question")
    def do(question: str, session_id: str, who: str) -> Any:
        docs = [{"text": text, "id": text, "score": 1.0}, text]
        return say(question, look_up(question, docs), session_id, text)

    captured = watch(
        telemetry=ragtrace.TelemetryOptions(dialects=["otel", "openinference"]), capture_content="SPAN_AND_EVENT"
    )
    do(text, text, text)
    assert ragtrace.flush()
    assert len(captured.spans) == 3
    for span in captured.spans:
        span.name.encode()
        for key, value in attributes(span).items():
            assert "\0" not in key + str(value)
            f"{key} {value}".encode()
    for event in captured.events:
        str(event.log_record.attributes).encode()


# --- huge texts ------------------------------------------------------------------------------------------------------


def cost(act: Callable[[], object]) -> tuple[float, int]:
    """CPU seconds that *act* takes of the caller, and bytes at the peak of it beyond what there was."""
    began = thread_time()
    act()
    seconds = thread_time() - began
    tracemalloc.start()
    act()
    ragtrace.flush(WAIT_S)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak


@pytest.mark.timing
@pytest.mark.parametrize("letter", ["x", "é", "漢", " "], ids=["ascii", "latin", "cjk", "blank"])
def test_fifty_megabytes_of_text_cost_the_application_nothing(letter: str) -> None:
    """As query, contexts and answer: neither copied nor searched while the application waits."""
    captured = watch()
    ask("warm up")
    huge = letter * HUGE
    seconds, peak = cost(lambda: whole(huge, [huge, {"text": huge, "id": huge}], huge))
    assert ragtrace.flush(WAIT_S)
    assert seconds < 0.2
    assert peak < 20_000_000
    assert sum(len(str(value)) for span in captured.spans for value in attributes(span).values()) < 3_000_000
    assert ragtrace.stats().pending == 0


def test_fifty_megabytes_in_small_pieces_cost_the_application_little() -> None:
    """A stream without end keeps what the limits allow, and passes everything on."""
    pieces = 50_000
    piece = "x" * (HUGE // pieces)

    @ragtrace.generate
    def stream(question: str) -> Iterator[str]:
        for _ in range(pieces):
            yield piece

    captured = watch()
    ask("warm up")
    began = thread_time()
    assert sum(len(part) for part in stream("where?")) == HUGE
    assert thread_time() - began < 5.0
    assert ragtrace.flush(WAIT_S)
    assert len(str(attributes(captured.roots()[-1])["gen_ai.output.messages"])) < 30_000


def test_a_hundred_thousand_documents_cost_the_application_little() -> None:
    """A retriever that returns a whole table."""
    watch(screen=FakeJudge(GOOD))
    documents = [f"document {number}" for number in range(100_000)]
    began = thread_time()
    assert look_up("where?", documents) is documents
    assert thread_time() - began < 2.0
    assert ragtrace.flush(WAIT_S)


# --- a span of somebody else's making --------------------------------------------------------------------------------


class HostileSpan(NonRecordingSpan):
    """Whatever is asked of it, it raises."""

    is_recording = get_span_context = set_attribute = set_attributes = add_event = _fail
    update_name = set_status = record_exception = end = __bool__ = __eq__ = __hash__ = _fail


def make_current() -> AbstractContextManager[object]:
    return use_span(HostileSpan(INVALID_SPAN_CONTEXT), record_exception=False, set_status_on_exception=False)


@ragtrace.trace
def around(question: str) -> str:
    with make_current():
        return ask(question)


@ragtrace.generate
async def reply_async(question: str) -> str:
    await asyncio.sleep(0)
    return ANSWER


@ragtrace.trace
async def around_async(question: str) -> str:
    with make_current():
        return await reply_async(question)


def inside(question: str) -> str:
    with make_current():
        return around(question)


def by_hand(question: str) -> str:
    @ragtrace.trace
    def outer() -> str:
        with make_current(), ragtrace.call(question) as call:
            call.answered(ANSWER)
            return ANSWER

    return outer()


@pytest.mark.parametrize("users", [False, True], ids=["our spans", "the spans of the SDK"])
@pytest.mark.parametrize("sampler", ["always_on", "always_off"])
@pytest.mark.parametrize(
    "application",
    [around, lambda question: asyncio.run(around_async(question)), inside, by_hand],
    ids=["sync", "async", "the root too", "by hand"],
)
def test_a_span_of_somebody_else_that_raises_hurts_nobody(
    monkeypatch: pytest.MonkeyPatch, application: Callable[[str], str], sampler: str, users: bool
) -> None:
    """It is the current one where a decorated function is called: inside a call that is sampled, or dropped."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    provider = TracerProvider(shutdown_on_exit=False) if users else None
    if provider is None:
        watch(screen=FakeJudge(GOOD))
    else:
        ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=FakeJudge(GOOD))
    assert application("where?") == ANSWER
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().pending == 0
    if provider is not None:
        provider.shutdown()
