"""How retrievals and generations become one call: its query, contexts, answer, and the span its scores are on."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace as otel

import ragtrace
from ragtrace.capture.arguments import FunctionArguments
from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.types import Document, Judgement, RagCall
from ragtrace.recording.recorder import StepRecorder, StepSpec
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge


class Seen:
    """A configured ragtrace whose judge writes down every call."""

    def __init__(self) -> None:
        self.captured = Captured()
        self.judge = FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
        ragtrace.configure(exporter=self.captured.signals, screen=self.judge, metrics=["answered"])

    def calls(self) -> list[RagCall]:
        assert ragtrace.flush()
        return self.judge.calls

    def call(self) -> RagCall:
        calls = self.calls()
        assert len(calls) == 1, calls
        return calls[0]


@pytest.fixture
def seen() -> Iterator[Seen]:
    yield Seen()
    ragtrace.shutdown()


def texts(call: RagCall) -> list[str] | None:
    return None if call.contexts is None else [document.text for document in call.contexts]


@ragtrace.retrieve
def search(query: str, found: tuple[str, ...] = ("a", "b")) -> list[str]:
    return list(found)


@ragtrace.generate
def answer(question: str, docs: list[str] | None = None) -> str:
    return f"answer to {question}"


def test_a_trace_ties_retrieval_and_generation_together(seen: Seen) -> None:
    """Query of the root, contexts of the retrieval, answer of the root; scores on the root's span."""

    @ragtrace.trace
    def ask(question: str) -> str:
        return answer(question, search("rewritten"))

    ask("why?")
    call = seen.call()
    assert (call.query, texts(call), call.answer, call.workflow) == ("why?", ["a", "b"], "answer to why?", "ask")
    assert seen.captured.root().name == "invoke_workflow ask"


def test_only_the_outermost_trace_is_a_call(seen: Seen) -> None:
    """A trace inside a trace is a step of the outer one."""

    @ragtrace.trace
    def inner(question: str) -> str:
        return answer(question, search(question))

    @ragtrace.trace
    def outer(question: str) -> str:
        return inner(question)

    outer("q")
    assert seen.call().workflow == "outer"


def test_several_retrievals_are_joined_in_the_order_in_which_they_began(seen: Seen) -> None:
    """All documents, in rank order, duplicates kept but marked."""

    @ragtrace.trace
    def ask(question: str) -> str:
        search(question, ("a", "b"))
        search(question, ("c", "a"))
        return answer(question)

    ask("q")
    call = seen.call()
    assert texts(call) == ["a", "b", "c", "a"]
    assert [document.duplicate for document in call.contexts or ()] == [False, False, False, True]


def test_parallel_retrievals_keep_the_order_of_their_start(seen: Seen) -> None:
    """Which of them is faster does not decide the order."""

    @ragtrace.retrieve
    async def slow(query: str, found: str, after: asyncio.Event | None, done: asyncio.Event) -> list[str]:
        if after is not None:
            await after.wait()
        done.set()
        return [found]

    @ragtrace.trace
    async def ask(question: str) -> str:
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(slow("1", "first", second, first), slow("2", "second", None, second))
        return answer(question)

    asyncio.run(ask("q"))
    assert texts(seen.call()) == ["first", "second"]


def test_a_rerank_replaces_what_it_was_given(seen: Seen) -> None:
    """A retrieval that is given documents is a re-ranking, and its order is the one that counts."""

    @ragtrace.retrieve
    def rerank(query: str, documents: list[str]) -> list[str]:
        return documents[::-1][:1]

    @ragtrace.trace
    def ask(question: str) -> str:
        rerank(question, search(question))
        return answer(question)

    ask("q")
    assert texts(seen.call()) == ["b"]
    marks = [(span.attributes or {}).get("ragtrace.rerank") for span in seen.captured.spans]
    assert marks.count(True) == 1


def test_a_retrieval_made_of_retrievals_counts_once(seen: Seen) -> None:
    """A hybrid search returns the merged result of the searches inside it."""

    @ragtrace.retrieve
    def hybrid(query: str) -> list[str]:
        return search(query, ("x", "y"))[:1] + search(query, ("z",))

    @ragtrace.trace
    def ask(question: str) -> str:
        hybrid(question)
        return answer(question)

    ask("q")
    assert texts(seen.call()) == ["x", "z"]


def test_what_the_generation_was_given_counts_more_than_what_was_retrieved(seen: Seen) -> None:
    """An undecorated filter between the two has decided what the model saw."""

    @ragtrace.trace
    def ask(question: str) -> str:
        return answer(question, search(question)[1:])

    ask("q")
    assert texts(seen.call()) == ["b"]


def test_the_last_generation_answers(seen: Seen) -> None:
    """A generation that rewrites the query comes before the final one."""

    @ragtrace.trace
    def ask(question: str) -> dict[str, int]:
        rewritten = answer(question)
        answer("final", search(rewritten))
        return {"status": 200}

    ask("q")
    call = seen.call()
    assert (call.query, call.answer) == ("q", "answer to final")


def test_a_retriever_that_finds_nothing_is_not_one_that_was_never_called(seen: Seen) -> None:
    """No contexts and unknown contexts stay distinct."""

    @ragtrace.trace(name="nothing")
    def nothing(question: str) -> str:
        search(question, ())
        return answer(question)

    @ragtrace.trace(name="unknown")
    def unknown(question: str) -> str:
        return answer(question)

    nothing("q")
    unknown("q")
    assert {call.workflow: call.contexts for call in seen.calls()} == {"nothing": (), "unknown": None}


def test_a_query_without_hits_is_no_context_of_itself(seen: Seen) -> None:
    """A retrieval knows what was searched for, whichever way it is recorded; a passage beside it is none."""

    @ragtrace.retrieve
    def pairs(query: str, text: str) -> list[tuple[str, list[str]]]:
        return [(text, [])]

    @ragtrace.trace(name="nothing")
    def nothing(question: str) -> str:
        pairs(question, question)
        return answer(question)

    @ragtrace.trace(name="unknown")
    def unknown(question: str) -> str:
        pairs(question, "a passage without tags")
        return answer(question)

    nothing("q")
    unknown("q")
    for name, text in (("block", "r"), ("unknown block", "a passage without tags")):
        with ragtrace.call("r", name=name) as call:
            call.retrieved([(text, [])])
            call.answered("answer to r")
    found = {call.workflow: call.contexts for call in seen.calls()}
    assert found == {"nothing": (), "unknown": None, "block": (), "unknown block": None}


def test_without_a_trace_a_common_parent_span_ties_them(seen: Seen) -> None:
    """A retrieval and a generation under the same span belong together; the scores are on the generation."""
    parent = otel.NonRecordingSpan(otel.SpanContext(7, 8, False, otel.TraceFlags(1)))
    with otel.use_span(parent):
        search("q")
        answer("q")
    assert texts(seen.call()) == ["a", "b"]
    assert seen.captured.root().name == "chat"


def test_without_a_trace_a_task_shares_the_parent(seen: Seen) -> None:
    """`create_task` copies the context."""

    async def handle() -> None:
        await asyncio.create_task(asyncio.to_thread(search, "q"))
        answer("q")

    parent = otel.NonRecordingSpan(otel.SpanContext(7, 9, False, otel.TraceFlags(1)))
    with otel.use_span(parent):
        asyncio.run(handle())
    assert texts(seen.call()) == ["a", "b"]


def test_without_a_trace_another_parent_is_another_request(seen: Seen) -> None:
    """Documents of one request never leak into another."""
    for span_id in (1, 2):
        with otel.use_span(otel.NonRecordingSpan(otel.SpanContext(7, span_id, False, otel.TraceFlags(1)))):
            answer(f"question {span_id}")
            search("q")
    assert [call.contexts for call in seen.calls()] == [None, None]


def test_a_generation_alone_is_a_call(seen: Seen) -> None:
    """With the contexts among its arguments."""
    answer("q", ["given"])
    call = seen.call()
    assert (call.query, texts(call), call.answer) == ("q", ["given"], "answer to q")


def test_a_pool_that_carries_the_context_keeps_the_call(seen: Seen) -> None:
    """As `asyncio.to_thread` and the threading instrumentation do."""

    @ragtrace.trace
    def ask(question: str) -> str:
        with ThreadPoolExecutor(2) as pool:
            found = [
                pool.submit(contextvars.copy_context().run, search, question, (name,)).result() for name in ("x", "y")
            ]
        assert found
        return answer(question)

    ask("q")
    assert texts(seen.call()) == ["x", "y"]


def test_a_bare_pool_loses_nothing_but_the_parent(seen: Seen) -> None:
    """A thread pool that carries no context: the call still has the documents that the generation was given."""

    @ragtrace.trace
    def ask(question: str) -> str:
        with ThreadPoolExecutor(2) as pool:
            docs = [doc for found in pool.map(search, [question, question]) for doc in found]
        return answer(question, docs)

    ask("q")
    assert texts(seen.call()) == ["a", "b", "a", "b"]


def test_carry_takes_the_call_into_any_pool(seen: Seen) -> None:
    """`ragtrace.carry` binds a function to the current call."""

    @ragtrace.trace
    def ask(question: str) -> str:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(ragtrace.carry(search), ["one", "two"]))
        return answer(question)

    ask("q")
    assert texts(seen.call()) == ["a", "b", "a", "b"]
    assert len({span.context.trace_id for span in seen.captured.spans if span.context}) == 1


def test_a_task_that_outlives_its_request_does_not_join_it(seen: Seen) -> None:
    """What runs after the root has ended is a call of its own."""

    async def main() -> None:
        release = asyncio.Event()
        late: list[asyncio.Task[str]] = []

        async def afterwards() -> str:
            await release.wait()
            return answer("late")

        @ragtrace.trace
        async def ask(question: str) -> str:
            late.append(asyncio.create_task(afterwards()))
            return answer(question)

        await ask("q")
        release.set()
        await late[0]

    asyncio.run(main())
    assert sorted(call.answer or "" for call in seen.calls()) == ["answer to late", "answer to q"]


@pytest.mark.parametrize("decorate", [ragtrace.retrieve, ragtrace.tool])
@pytest.mark.parametrize("kind", ["generator", "async generator", "iterator"])
def test_a_retrieval_whose_stream_was_empty_has_found_nothing(seen: Seen, kind: str, decorate: Any) -> None:
    """As one that returns an empty list: that there are no contexts is known, unlike what they are."""

    @decorate
    def found(query: str) -> Iterator[str]:
        yield from ()

    @decorate
    async def found_later(query: str) -> AsyncIterator[str]:
        for text in ():
            yield text

    @decorate
    def returned(query: str) -> Iterator[str]:
        return (text for text in ())

    @ragtrace.trace
    async def ask(question: str) -> str:
        if kind == "async generator":
            assert [text async for text in found_later(question)] == []
        else:
            assert list((found if kind == "generator" else returned)(question)) == []
        return answer(question)

    asyncio.run(ask("q"))
    assert texts(seen.call()) == []


def test_a_retrieval_that_nobody_has_read_has_found_what_is_not_known(seen: Seen) -> None:
    """It might have found documents, had the application asked for the first."""

    @ragtrace.retrieve
    def found(query: str) -> Iterator[str]:
        yield "a"

    @ragtrace.trace
    def ask(question: str) -> str:
        stream = found(question)
        stream.close()  # type: ignore[attr-defined]
        return answer(question)

    ask("q")
    assert texts(seen.call()) is None


@pytest.mark.parametrize("kind", ["generator", "async generator", "iterator"])
def test_sources_of_a_stream_are_selected_from_its_pieces(seen: Seen, kind: str) -> None:
    """As the answer is; a piece that has none, or of which the function raises, costs those of no other."""
    pieces = [{"text": "It is "}, {"documents": ["one"]}, {"text": "high."}, {"documents": ["two"]}]
    select = {"sources": lambda piece: piece["documents"], "answer": lambda piece: piece.get("text", "")}

    @ragtrace.trace(**select)
    def ask(question: str) -> Iterator[dict[str, Any]]:
        yield from pieces

    @ragtrace.trace(**select)
    async def ask_async(question: str) -> AsyncIterator[dict[str, Any]]:
        for piece in pieces:
            yield piece

    @ragtrace.trace(**select)
    def return_stream(question: str) -> Iterator[dict[str, Any]]:
        return (piece for piece in pieces)

    async def read() -> list[dict[str, Any]]:
        if kind == "async generator":
            return [piece async for piece in ask_async("q")]
        return list((ask if kind == "generator" else return_stream)("q"))

    faults.clear()
    assert asyncio.run(read()) == pieces
    call = seen.call()
    assert (call.answer, texts(call)) == ("It is high.", ["one", "two"])
    assert faults.counts() == {}


def test_sources_that_no_piece_of_a_stream_has_are_said(seen: Seen) -> None:
    """Once, with the function; the contexts are what was retrieved."""

    @ragtrace.trace(sources=lambda piece: piece["documents"])
    def ask(question: str) -> Iterator[str]:
        search(question)
        yield from ("It is ", "high.")

    faults.clear()
    assert list(ask("q")) == ["It is ", "high."]
    call = seen.call()
    assert (call.answer, texts(call)) == ("It is high.", ["a", "b"])
    assert {place.partition(" of ")[0]: count for place, count in faults.counts().items()} == {"sources=": 1}


def test_a_streamed_root_answers_with_what_was_read(seen: Seen) -> None:
    """An abandoned stream is scored on what the reader got."""

    @ragtrace.generate
    async def stream(question: str) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three "):
            yield word

    @ragtrace.trace
    async def ask(question: str) -> AsyncIterator[str]:
        search(question)
        async for piece in stream(question):
            yield piece

    async def read_one() -> None:
        pieces = ask("q")
        async for _ in pieces:
            break
        await pieces.aclose()  # type: ignore[attr-defined]

    asyncio.run(read_one())
    call = seen.call()
    assert (call.answer, call.abandoned, call.streamed) == ("one ", True, True)


def test_a_call_by_hand(seen: Seen) -> None:
    """`with ragtrace.call` is traced and scored like a decorated function."""
    with ragtrace.call("q", name="by hand", session="s1") as call:
        call.retrieved(["a"])
        call.retrieved([{"text": "b"}])
        call.answered("yes")
    found = seen.call()
    assert (found.query, texts(found), found.answer, found.workflow, found.conversation_id) == (
        "q",
        ["a", "b"],
        "yes",
        "by hand",
        "s1",
    )
    assert "ragtrace.contexts" in (seen.captured.root().attributes or {})


def test_an_exception_in_a_call_by_hand_goes_on(seen: Seen) -> None:
    """And is on the span."""

    async def block() -> None:
        async with ragtrace.call("q"):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        asyncio.run(block())
    assert seen.calls() == []
    assert (seen.captured.root().attributes or {})["error.type"] == "RuntimeError"
    assert ragtrace.stats().sampled_out == {"call_failed": 1}


def test_the_session_is_a_real_one_or_absent(seen: Seen) -> None:
    """A conversation id is taken from an argument, never made up."""

    @ragtrace.trace
    def ask(question: str, session_id: str | None = None) -> str:
        return answer(question)

    ask("q", session_id="chat-7")
    ask("q")
    assert ragtrace.flush()
    roots = [(root.attributes or {}).get("gen_ai.conversation.id") for root in seen.captured.roots()]
    assert roots == ["chat-7", None]


class Ended:
    """Runtime that only collects the finished steps."""

    scores_head_dropped = False
    baggage_tags = ()
    router = None
    looks_around = False

    def __init__(self) -> None:
        runtime = current()
        assert runtime is not None
        self.writer, self.orphans = runtime.writer, runtime.orphans
        self.steps: list[Step] = []

    def step_ended(self, builder: CallBuilder | None, step: Step) -> None:
        self.steps.append(step)

    def call_ended(self, builder: CallBuilder) -> None:
        self.steps.append(builder.root)

    def unrecorded(self, step: Step, reason: str, *, is_call: bool) -> None:
        raise AssertionError(reason)


def run_search(result: object) -> tuple[StepRecorder, Step]:
    def find(query: str) -> object:
        return result

    runtime = Ended()
    spec = StepSpec("retrieve", FunctionArguments(find, "retrieve"))
    recorder = StepRecorder(runtime, spec, ("where?",), {}, False)
    assert recorder.begin() is not None
    recorder.done(result)
    [step] = runtime.steps
    return recorder, step


@pytest.mark.usefixtures("seen")
def test_what_cannot_change_is_read_when_the_step_is_completed() -> None:
    """Not while the application waits: the background thread completes the step, once."""
    _, step = run_search(["a", "b"])
    assert (step.ended, step.query, step.documents) == (True, None, None)
    step.complete()
    assert (step.query, step.documents) == ("where?", (Document("a"), Document("b")))
    step.query = "redacted"
    step.complete()
    assert step.query == "redacted"


@pytest.mark.usefixtures("seen")
def test_what_may_change_is_read_before_the_function_returns() -> None:
    """The application may empty its list at once."""
    found = [{"text": "a"}]
    _, step = run_search(found)
    found.clear()
    assert (step.query, step.documents) == ("where?", (Document("a"),))


@pytest.mark.usefixtures("seen")
def test_a_step_whose_texts_are_not_wanted_is_never_read() -> None:
    """Nothing that was kept stays in memory, either."""
    recorder, step = run_search(["a", "b"])
    step.clear_texts()
    recorder.read()
    assert (step.query, step.documents, step.deferred_reading) == (None, None, None)


class KeepingRecorder(StepRecorder):
    """Recorder that keeps what has ended, as that of a guard does."""

    def _hand_over(self) -> None:
        self._keep_ended()

    def hand_over(self) -> None:
        super()._hand_over()


@pytest.mark.usefixtures("seen")
def test_a_step_that_is_kept_has_ended_as_one_that_is_handed_over() -> None:
    """All that differs is whether the runtime has it."""
    runtime = Ended()
    spec = StepSpec("retrieve", FunctionArguments(run_search, "retrieve"))
    recorders = [kind(runtime, spec, ("where?",), {}, False) for kind in (StepRecorder, KeepingRecorder)]
    for recorder in recorders:
        assert recorder.begin() is not None
        recorder.done(["a"])
    handed_over, kept = recorders
    assert runtime.steps == [handed_over.step]
    assert [(each.step.ended, each.current, each.step.deferred_reading is each) for each in recorders] == [
        (True, None, True),
        (True, None, True),
    ]
    assert isinstance(kept, KeepingRecorder)
    kept.hand_over()
    assert runtime.steps == [handed_over.step, kept.step]
