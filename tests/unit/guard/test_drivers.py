"""Guarded functions: what they return, and what is told of it, by verdict and action."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from time import monotonic
from types import CodeType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import ragtrace
from ragtrace import decorators
from ragtrace.core import semconv
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Evaluation, Judgement, RagCall, Score
from ragtrace.guard.guarded_call import ShadowCheck
from ragtrace.guard.guards import GuardedFunction, guards_of
from ragtrace.recording import drivers, recorder
from ragtrace.runtime.current_runtime import current
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from ragtrace.types import GuardBlocked, GuardNotice
from tests.functions import KINDS, UNTOUCHED, Callables, KindOfFunction, Reader, plain
from tests.support.guards import BAD, ORDER, HangingJudge, ReadingJudge, guard, outcome, tally, watch
from tests.support.watched import GOOD, WAIT_S, eventually, search

Ask = Callable[[str], Any]
ABSTAINED = Judgement(answer_label="abstained")


def make(kind: str, **options: Any) -> tuple[Ask, object]:
    """A guarded function of *kind*, to be called and awaited alike, and the object that it returns."""
    returned = "".join(["In ", "France."])  # an object of its own

    def ask(question: str) -> Any:
        search(question)
        return returned

    async def aask(question: str) -> Any:
        return ask(question)

    decorate = ragtrace.trace(name="guarded", guard=guard(**options))
    if kind == "sync":
        return decorate(ask), returned
    # A plain function that returns a coroutine is held like a coroutine function.
    function: Any = decorate(aask) if kind == "async" else decorate(lambda question: aask(question))
    return lambda question: asyncio.run(_awaited(function, question)), returned


def running() -> Runtime:
    """The runtime that is configured."""
    found = current()
    assert found is not None
    return found


async def _awaited(function: Any, question: str) -> Any:
    return await function(question)


def each(kinds: Iterable[KindOfFunction]) -> Any:
    return pytest.mark.parametrize("kind", list(kinds), ids=lambda kind: kind.name)


each_kind = pytest.mark.parametrize("kind", ["sync", "async", "plain of coroutine"])


@each_kind
@pytest.mark.parametrize("action", ["shadow", "annotate", "replace", "raise"])
def test_a_good_answer_leaves_as_it_is(kind: str, action: str) -> None:
    """The same object, whatever would be done with a bad one."""
    captured = watch(FakeJudge(GOOD))
    ask, returned = make(kind, action=action)
    assert ask("Where is Paris?") is returned
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("pass", "none", None)
    assert tally().verdicts == {"pass": 1}


@each_kind
def test_a_bad_answer_is_treated_as_configured(kind: str) -> None:
    """Verdict and action are two fields of the span."""
    captured = watch(FakeJudge(BAD))
    found: dict[str, object] = {}
    for action in ("annotate", "replace", "raise"):
        ask, returned = make(kind, action=action)
        try:
            found[action] = ask("Where is Paris?") is returned or "no answer"
        except GuardBlocked as blocked:
            found[action] = blocked.notice
    assert ragtrace.flush()
    assert (found["annotate"], found["replace"]) == (True, "no answer")
    notice = found["raise"]
    assert isinstance(notice, GuardNotice)
    assert (notice.verdict, notice.score, notice.below, notice.workflow) == ("fail", 0.5, 0.75, "guarded")
    assert notice.trace_id == f"{captured.roots()[-1].context.trace_id:032x}"
    done = [outcome(root.attributes)[:2] for root in captured.roots()]
    assert done == [("fail", "annotated"), ("fail", "replaced"), ("fail", "raised")]
    assert tally().actions == {"annotated": 1, "replaced": 1, "raised": 1}


@pytest.mark.parametrize("on_error", ["open", "closed"])
@pytest.mark.parametrize("judged", ["good", "bad", "refused", "unavailable"])
@each_kind
def test_shadow_never_changes_an_answer(kind: str, judged: str, on_error: str) -> None:
    """The object that the function returned is what the caller gets, and no function of the guard is called."""
    script = {"good": GOOD, "bad": BAD}.get(judged) or JudgeError(judged, retryable=False)
    watch(FakeJudge(script))
    told: list[object] = []
    ask, returned = make(kind, action="shadow", on_error=on_error, on_fail=told.append)
    assert ask("Where is Paris?") is returned
    assert ragtrace.flush()
    assert (told, tally().actions) == ([], {"none": 1})


@each(KINDS)
def test_a_shadow_guard_takes_every_kind_of_function(kind: KindOfFunction) -> None:
    """Streams, too: nothing is held, and what a reader sees is what it would see undecorated."""
    watch(FakeJudge(BAD))
    loop = asyncio.new_event_loop()
    decorate = ragtrace.trace(name="guarded", guard=guard("shadow"))
    expected = Reader(kind, kind.build(lambda function: function), "q", loop)
    seen = Reader(kind, kind.build(decorate), "q", loop)
    expected.drain()
    seen.drain()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert seen.log == expected.log
    assert ragtrace.flush()
    assert tally().calls == 1


@each(kind for kind in KINDS if kind.held and not kind.stream)
@pytest.mark.parametrize("query", ["q", "boom", "interrupt"])
def test_a_holding_guard_takes_every_kind_that_does_not_stream(kind: KindOfFunction, query: str) -> None:
    """Results and exceptions are those of the undecorated function; a call without an answer is not counted."""
    captured = watch(FakeJudge(GOOD))
    loop = asyncio.new_event_loop()
    decorate = ragtrace.trace(name="guarded", guard=guard("raise", metric="answered"))
    bare, guarded = kind.build(lambda function: function), kind.build(decorate)
    expected, seen = Reader(kind, bare, query, loop), Reader(kind, guarded, query, loop)
    loop.close()
    assert seen.log == expected.log
    assert inspect.iscoroutinefunction(guarded) == inspect.iscoroutinefunction(bare)
    assert inspect.signature(guarded) == inspect.signature(bare)
    assert ragtrace.flush()
    assert len(captured.roots()) == 1
    assert tally().verdicts == ({"pass": 1} if query == "q" else {})


@each(kind for kind in KINDS if kind.held)
def test_a_bad_answer_of_every_kind_is_blocked(kind: KindOfFunction) -> None:
    """Nothing of it leaves, of a stream neither."""
    watch(FakeJudge(ABSTAINED))
    stream = "all" if kind.stream else None
    loop = asyncio.new_event_loop()
    ask = kind.build(ragtrace.trace(name="guarded", guard=guard("raise", metric="answered", stream=stream)))
    reader = Reader(kind, ask, "q", loop)
    if kind.stream:
        reader.next()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert reader.log[-1][1:3] == ("raised", GuardBlocked)
    assert ragtrace.flush()
    assert (tally().verdicts, tally().actions) == ({"fail": 1}, {"raised": 1})


@each(kind for kind in KINDS if kind.asynchronous and not kind.stream)
@pytest.mark.parametrize("query", ["hang", "q"])
def test_cancelling_is_as_without_a_guard(kind: KindOfFunction, query: str) -> None:
    """While the function works, which is no answer to count, and while its answer is checked."""
    judge = HangingJudge()
    watch(judge)
    ask: Any = kind.build(ragtrace.trace(name="guarded", guard=guard("raise", metric="answered")))

    async def cancel() -> None:
        task = asyncio.ensure_future(_awaited(ask, query))
        if query == "q":
            await asyncio.to_thread(judge.asked.wait, WAIT_S)
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    if query == "q":
        judge.answer()
    assert ragtrace.flush()
    assert tally().verdicts == ({"unscored": 1} if query == "q" else {})
    assert ragtrace.stats().pending == 0


@each(kind for kind in KINDS if not kind.held)
def test_a_kind_that_cannot_be_held_is_refused_at_decoration(kind: KindOfFunction) -> None:
    """Where its annotation says so; the shadow holds nothing."""
    for stream in (None, "after", "sentence", "all"):
        with pytest.raises(ragtrace.SettingsError, match="whose text comes after it has returned"):
            kind.build(ragtrace.trace(guard=guard("annotate", stream=stream)))
    assert kind.build(ragtrace.trace(guard=guard("shadow")))


@each(kind for kind in KINDS if kind.stream)
def test_a_stream_without_a_word_on_its_pieces_is_refused_or_counted(kind: KindOfFunction) -> None:
    """At decoration where the kind of function or its annotation tells; else it leaves and counts as unchecked."""
    captured = watch(FakeJudge(BAD))
    decorate = ragtrace.trace(name="guarded", guard=guard("raise"))
    if kind.lazy or kind.name.startswith("coroutine"):
        with pytest.raises(ragtrace.SettingsError, match="does not say when the pieces may leave"):
            kind.build(decorate)
        return
    loop = asyncio.new_event_loop()
    expected = Reader(kind, kind.build(lambda function: function), "q", loop)
    seen = Reader(kind, kind.build(decorate), "q", loop)
    expected.drain()
    seen.drain()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert seen.log == expected.log
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("unscored", "released", "not_held")
    assert tally().verdicts == {"unscored": 1}


@pytest.mark.parametrize("failed", [False, True])
def test_a_future_that_nothing_announced_leaves_as_it_is(failed: bool) -> None:
    """The very object: counted as unchecked while it has no result, and as no answer where it has failed."""
    watch(FakeJudge(BAD))
    future: Future[str] = Future()
    if failed:
        future.set_exception(LookupError("x"))
    ask = ragtrace.trace(name="guarded", guard=guard("raise"))(lambda question: future)
    assert ask("Where is Paris?") is future
    if not failed:
        future.set_result("In France.")
    assert ragtrace.flush()
    assert tally().actions == ({} if failed else {"released": 1})


@pytest.mark.parametrize("what", UNTOUCHED)
@pytest.mark.parametrize("stream", [None, "sentence", "all"])
def test_what_is_no_text_leaves_as_it_is_and_never_passes(what: str, stream: str | None) -> None:
    """The very object, usable as before, whose text nobody has read; bytes are a text."""
    watch(FakeJudge(GOOD))
    made = UNTOUCHED[what]()
    ask = ragtrace.trace(name="guarded", guard=guard("raise", stream=stream, metric="answered"))(lambda question: made)
    assert ask("Where is Paris?") is made
    assert ragtrace.flush()
    assert tally().verdicts == ({"pass": 1} if what == "bytes" else {"unscored": 1})
    assert tally().calls == 1
    for opened in (made, getattr(made, "connection", made)):
        if hasattr(opened, "close"):
            opened.close()


@pytest.mark.parametrize("made", [Callables, property(plain), "a text"], ids=["class", "property", "text"])
def test_what_is_no_function_is_refused_with_a_guard_too(made: Any) -> None:
    """The message says what can be decorated instead."""
    with pytest.raises(ragtrace.SettingsError, match="cannot decorate"):
        ragtrace.trace(guard=guard("raise"))(made)


@each_kind
def test_a_call_is_judged_once(kind: str) -> None:
    """The score that the guard reads is the call's score, with probability 1 although nothing is sampled."""
    judge = FakeJudge(GOOD)
    captured = watch(judge)
    ask, _ = make(kind)
    ask("Where is Paris?")
    assert ragtrace.flush()
    attributes = captured.root().attributes or {}
    assert len(judge.calls) == 1
    assert (attributes["ragtrace.eval.faithfulness.score"], attributes["ragtrace.eval.probability"]) == (1.0, 1.0)
    assert ragtrace.stats().evaluators["fake"].scored == 1


@each_kind
def test_an_answer_leaves_at_the_deadline_and_is_scored_all_the_same(kind: str) -> None:
    """The request to the judge goes on, and is not made a second time."""
    judge = HangingJudge(BAD)
    captured = watch(judge)
    ask, returned = make(kind, action="replace", budget_ms=20)
    assert ask("Where is Paris?") is returned
    judge.answer()
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("timeout", "released", "timeout")
    assert (captured.root().attributes or {})["ragtrace.eval.faithfulness.score"] == 0.5
    assert len(judge.calls) == 1
    assert ragtrace.stats().evaluators["fake"].scored == 1


@each_kind
def test_a_closed_guard_blocks_at_the_deadline(kind: str) -> None:
    """It was asked to, and counts it apart from an answer that failed."""
    judge = HangingJudge()
    watch(judge)
    ask, _ = make(kind, action="replace", budget_ms=20, on_error="closed")
    assert ask("Where is Paris?") == "no answer"
    assert (tally().verdicts, tally().actions) == ({"timeout": 1}, {"replaced": 1})
    judge.let_go()


def test_a_judge_that_is_late_ten_times_is_left_alone() -> None:
    """Then answers leave at once, and one of them tries the judge again every now and then."""
    judge = HangingJudge()
    watch(judge)
    ask, returned = make("sync", budget_ms=5)

    def asked_until_left_alone() -> bool:
        assert ask("Where is Paris?") is returned
        return "circuit_open" in tally().verdicts

    assert eventually(asked_until_left_alone)  # how many are released before the worker has counted ten is its affair
    assert set(tally().verdicts) == {"timeout", "circuit_open"}
    assert tally().verdicts["timeout"] >= 10
    assert tally().actions == {"released": tally().calls}
    judge.let_go()


def test_a_judge_that_refuses_is_an_error() -> None:
    """Not a fail, and not a timeout."""
    watch(FakeJudge(JudgeError("refused", retryable=False)))
    ask, returned = make("sync", action="raise")
    assert ask("Where is Paris?") is returned
    assert (tally().verdicts, tally().actions) == ({"error": 1}, {"released": 1})


@pytest.mark.parametrize("on_error", ["open", "closed"])
@pytest.mark.parametrize("action", ["shadow", "replace"])
def test_an_answer_that_the_judge_saw_in_part_never_passes(action: str, on_error: str) -> None:
    """The score of the call says how much is missing, and the span what the guard made of it."""
    captured = watch(FakeJudge(GOOD), limits=ragtrace.Limits(max_chars=5))
    ask, returned = make("sync", action=action, on_error=on_error)
    blocked = (action, on_error) == ("replace", "closed")
    assert ask("Why?") == ("no answer" if blocked else returned)
    assert ragtrace.flush()
    assert outcome(captured.root().attributes)[::2] == ("unscored", "truncated")
    scores = {
        attributes["gen_ai.evaluation.name"]: attributes.get(semconv.eval_detail("truncated_answer_chars"))
        for event in captured.events
        if (attributes := event.log_record.attributes or {}) and "gen_ai.evaluation.name" in attributes
    }
    assert scores["faithfulness"] == len("In France.") - 5


def test_a_chunk_that_the_judge_saw_in_part_may_support_the_answer() -> None:
    """So that the answer does not fail; what other retrievals found and the judge is not shown does not count."""
    watch(ReadingJudge(GOOD), limits=ragtrace.Limits(max_chars=20))

    @ragtrace.retrieve
    def find(question: str) -> list[str]:
        return [f"{question} is a big city." + "!" * (40 if question == "Rome" else 0)]

    @ragtrace.trace(name="guarded", guard=guard("replace"))
    def ask(question: str) -> str:
        found = find(question)
        return f"{found[0][:4]} is on Mars."

    assert [ask("Rome"), ask("Bonn")] == ["Rome is on Mars.", "no answer"]
    assert tally().verdicts == {"unscored": 1, "fail": 1}


def test_orders_to_the_judge_do_not_turn_a_fail_into_a_pass() -> None:
    """A document persuades the judge; the answer is unchecked then, and a closed guard blocks it."""
    captured = watch(FakeJudge(GOOD))
    for on_error, expected in (("open", "In France."), ("closed", "no answer")):

        @ragtrace.trace(name="guarded", guard=guard("replace", on_error=on_error))
        def ask(question: str) -> str:
            _find(question)
            return "In France."

        assert ask("Where is Paris?") == expected
    assert ragtrace.flush()
    assert {outcome(root.attributes)[::2] for root in captured.roots()} == {("unscored", "injection_suspected")}


@ragtrace.retrieve
def _find(question: str) -> list[str]:
    return ["Paris is in France.", ORDER]


@each_kind
def test_an_answer_that_fails_is_asked_for_once_more(kind: str) -> None:
    """The second run is a call of its own, whose answer leaves: here it passes."""
    captured = watch(ReadingJudge(GOOD))
    told: list[GuardNotice] = []
    answers = iter(["It is on Mars.", "It is in France."])

    def ask(question: str) -> str:
        search(question)
        return next(answers)

    async def aask(question: str) -> str:
        return ask(question)

    decorate = ragtrace.trace(name="guarded", guard=guard("retry", on_fail=told.append))
    if kind == "sync":
        answer = decorate(ask)("Where is Paris?")
    else:
        guarded: Any = decorate(aask if kind == "async" else lambda question: aask(question))
        answer = asyncio.run(_awaited(guarded, "Where is Paris?"))
    assert answer == "It is in France."
    assert ragtrace.flush()
    assert [outcome(root.attributes)[:2] for root in captured.roots()] == [("fail", "retried"), ("pass", "none")]
    assert (tally().actions, told) == ({"retried": 1, "none": 1}, [])


@each_kind
def test_a_second_answer_that_fails_leaves_annotated(kind: str) -> None:
    """There is no third call; the application is told."""
    captured = watch(FakeJudge(BAD))
    told: list[GuardNotice] = []
    ask, returned = make(kind, action="retry", on_fail=told.append)
    assert ask("Where is Paris?") is returned
    assert ragtrace.flush()
    assert {outcome(root.attributes)[:2] for root in captured.roots()} == {("fail", "retried"), ("fail", "annotated")}
    assert [notice.verdict for notice in told] == ["fail"]


def test_a_second_run_that_raises_raises() -> None:
    """As the function does; the first answer has failed."""
    watch(FakeJudge(BAD))
    answers = iter(["In France."])

    @ragtrace.trace(name="guarded", guard=guard("retry"))
    def ask(question: str) -> str:
        search(question)
        return next(answers)

    with pytest.raises(StopIteration):
        ask("Where is Paris?")
    assert tally().actions == {"retried": 1}


def test_functions_of_the_application_get_the_notice() -> None:
    """`on_fail` first; what `fallback` makes is returned as it is."""
    watch(FakeJudge(BAD))
    told: list[GuardNotice] = []

    @ragtrace.trace(guard=guard("replace", on_fail=told.append, fallback=lambda notice: {"score": notice.score}))
    def ask(question: str) -> dict[str, Any]:
        search(question)
        return {"answer": "In France."}

    assert ask("Where is Paris?") == {"score": 0.5}
    assert [notice.verdict for notice in told] == ["fail"]


def test_a_function_of_the_application_that_raises_changes_nothing() -> None:
    """It is counted, and an answer that could not be replaced leaves."""

    def fail(notice: GuardNotice) -> Any:
        raise LookupError("x")

    faults.clear()  # of other tests in this process
    captured = watch(FakeJudge(BAD))
    ask, returned = make("sync", action="replace", on_fail=fail, fallback=fail)
    assert ask("Where is Paris?") is returned
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("fail", "released", "not_replaced")
    assert set(ragtrace.stats().faults) == {"on_fail= of a guard", "fallback= of a guard"}


def test_a_text_does_not_replace_an_object() -> None:
    """Where nothing said before what the function returns: it leaves, and is counted."""
    watch(FakeJudge(BAD))
    ask = ragtrace.trace(name="guarded", guard=guard("replace"))(lambda q: {"answer": search(q)[0]})
    assert ask("Where is Paris?") == {"answer": "Paris is a big city."}
    assert (tally().verdicts, tally().actions) == ({"fail": 1}, {"released": 1})


def test_a_closed_guard_raises_where_nothing_can_replace_an_answer() -> None:
    """No answer leaves that has not passed."""
    captured = watch(FakeJudge(BAD))
    ask = ragtrace.trace(name="guarded", guard=guard("replace", on_error="closed"))(lambda q: {"answer": search(q)[0]})
    with pytest.raises(GuardBlocked, match="fail"):
        ask("Where is Paris?")
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("fail", "raised", "not_replaced")


def test_a_guarded_function_inside_a_call_is_not_held() -> None:
    """The outer call has another answer. The inner one is counted as unchecked, never as passed."""
    captured = watch(FakeJudge(BAD))
    for action in ("raise", "shadow"):
        inner = ragtrace.trace(name=action, guard=guard(action))(lambda question: "In France.")
        assert ragtrace.trace(lambda question, inner=inner: inner(question))("Where is Paris?") == "In France."
    assert ragtrace.flush()
    assert (tally("raise").verdicts, tally("raise").actions) == ({"unscored": 1}, {"released": 1})
    assert (tally("shadow").verdicts, tally("shadow").actions) == ({"unscored": 1}, {"none": 1})
    assert len(captured.roots()) == 2


@pytest.mark.parametrize("action", ["raise", "shadow"])
def test_a_trace_that_the_head_sampler_drops_is_unchecked_and_counted(action: str) -> None:
    """There is no call to judge."""
    provider = TracerProvider(sampler=ALWAYS_OFF)
    watch(FakeJudge(BAD), exporter=None, telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
    ask, returned = make("sync", action=action)
    assert ask("Where is Paris?") is returned
    assert tally().verdicts == {"unscored": 1}


@each_kind
@pytest.mark.parametrize("action", ["raise", "shadow"])
def test_without_a_runtime_the_function_runs_unguarded(kind: str, action: str) -> None:
    """Before configure and after shutdown, as any decorated function."""
    ask, returned = make(kind, action=action)
    assert ask("Where is Paris?") is returned
    watch(FakeJudge(BAD))
    ragtrace.shutdown()
    assert ask("Where is Paris?") is returned
    assert tally().calls == 0


@each_kind
def test_a_runtime_that_ends_while_an_answer_is_checked_releases_it(kind: str) -> None:
    """At the end of its time, not at the deadline, and the call is counted like any other that ends so late."""
    judge = HangingJudge()
    watch(judge)
    ask, returned = make(kind, action="raise")
    got: list[object] = []
    asking = threading.Thread(target=lambda: got.append(ask("Where is Paris?")))
    asking.start()
    assert judge.asked.wait(WAIT_S)
    assert not ragtrace.shutdown(0.2)
    asking.join(WAIT_S / 2)
    assert got == [returned]
    assert (tally().verdicts, tally().actions) == ({"error": 1}, {"released": 1})
    counts = ragtrace.stats()
    assert counts.offered + counts.after_shutdown == 1
    assert counts.pending == 0


@each_kind
@pytest.mark.parametrize("ending", ["flush", "shutdown", "configure"])
def test_what_ends_waits_for_answers_that_are_checked(kind: str, ending: str) -> None:
    """Within its time: the judge is paid for the call, whose score is delivered, and the caller gets the verdict."""
    judge = HangingJudge(BAD)
    captured = watch(judge)
    runtime = running()
    ask, _ = make(kind, action="replace", on_error="closed")
    got: list[object] = []
    asking = threading.Thread(target=lambda: got.append(ask("Where is Paris?")))
    asking.start()
    assert judge.asked.wait(WAIT_S)
    if ending == "flush":
        assert not ragtrace.flush(0.05)
    ends = {"flush": lambda: ragtrace.flush(WAIT_S), "shutdown": lambda: ragtrace.shutdown(WAIT_S)}
    done: list[object] = []
    ender = threading.Thread(target=lambda: done.append(ends.get(ending, lambda: watch(FakeJudge(GOOD)))()))
    ender.start()
    if ending != "flush":
        eventually(lambda: runtime.worker.queue.closed)
    judge.answer()
    ender.join(WAIT_S)
    asking.join(WAIT_S)
    assert got == ["no answer"]
    assert done[0] is True or ending == "configure"
    eventually(lambda: bool(captured.roots()))  # the former runtime exports it in the background
    root = captured.root().attributes or {}
    assert (root["ragtrace.eval.status"], outcome(root)[0]) == ("ok", "fail")


def test_a_shutdown_waits_for_a_sentence_and_for_those_after_it() -> None:
    """A stream goes on while ragtrace shuts down, and its call is scored."""
    judge = HangingJudge(GOOD)
    captured = watch(judge)

    @ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence", on_error="closed"))
    def ask(question: str) -> Iterator[str]:
        search(question)
        yield from ("Paris is big. ", "Rome is old. ", "Bonn is small.")

    got: list[str] = []
    reading = threading.Thread(target=lambda: got.extend(ask("Where is Paris?")))
    reading.start()
    assert judge.asked.wait(WAIT_S)
    done: list[bool] = []
    ender = threading.Thread(target=lambda: done.append(ragtrace.shutdown(WAIT_S)))
    ender.start()
    judge.let_go()
    reading.join(WAIT_S)
    ender.join(WAIT_S)
    assert "".join(got) == "Paris is big. Rome is old. Bonn is small."
    assert done == [True]
    root = captured.root().attributes or {}
    assert (root["ragtrace.eval.status"], outcome(root)[0]) == ("ok", "pass")


def test_a_flush_on_the_thread_whose_answer_is_checked_does_not_wait_for_itself() -> None:
    """An event loop that flushes in the middle of a check gets False when the check has had its time."""
    judge = HangingJudge(GOOD)
    watch(judge)

    @ragtrace.trace(name="guarded", guard=guard("annotate", budget_ms=50))
    async def wait(question: str) -> str:
        return question

    async def flush_meanwhile() -> bool:
        task = asyncio.ensure_future(wait("Where is Paris?"))
        await asyncio.to_thread(judge.asked.wait, WAIT_S)
        flushed = ragtrace.flush(WAIT_S)
        await task
        return flushed

    began = monotonic()
    assert not asyncio.run(flush_meanwhile())
    assert monotonic() - began < WAIT_S / 2
    judge.let_go()
    assert ragtrace.flush(WAIT_S)


@pytest.mark.parametrize("first", ["verdict", "end"])
def test_a_shadow_guard_counts_an_answer_once(first: str) -> None:
    """A shutdown gives a call up while a judge answers: whichever comes first counts."""
    watch(FakeJudge(GOOD))
    check = ShadowCheck(GuardedFunction(guard("shadow"), "guarded"), guards_of(running()))
    evaluation = Evaluation("fake", "1", "llm_judge", {"faithfulness": Score(1.0, "faithfulness", "1", True)})

    async def evaluate() -> Evaluation:
        if first == "end":
            check.close("shutdown")
        return evaluation

    call = RagCall(query="Where is Paris?", contexts=(), answer="In France.")
    asyncio.run(check.evaluation(call, evaluate))
    check.close("shutdown")
    assert tally().verdicts == {"pass" if first == "verdict" else "unscored": 1}
    assert check.attributes()["ragtrace.guard.verdict"] == ("pass" if first == "verdict" else "unscored")


def test_a_runtime_that_ends_while_the_function_runs_releases_the_answer() -> None:
    """The guard that the call began with has no worker any more."""
    watch(FakeJudge(BAD))

    @ragtrace.trace(name="guarded", guard=guard("raise"))
    def ask(question: str) -> str:
        ragtrace.shutdown()
        return "In France."

    assert ask("Where is Paris?") == "In France."
    assert (tally().verdicts, tally().actions) == ({"error": 1}, {"released": 1})


def test_a_cancelled_wait_is_counted_and_scored() -> None:
    """The client has gone: nobody gets the answer, which is judged all the same."""
    judge = HangingJudge()
    captured = watch(judge)

    @ragtrace.trace(name="guarded", guard=guard("raise"))
    async def ask(question: str) -> str:
        return "In France."

    async def leave() -> None:
        task = asyncio.ensure_future(ask("Where is Paris?"))
        await asyncio.to_thread(judge.asked.wait, WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    judge.answer()
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("unscored", "none", "cancelled")
    assert ragtrace.stats().evaluators["fake"].scored == 1


def test_the_event_loop_is_free_while_an_answer_is_checked() -> None:
    """A task of the application runs while the judge thinks."""
    judge = HangingJudge()
    watch(judge)

    @ragtrace.trace(guard=guard("annotate"))
    async def ask(question: str) -> str:
        return "In France."

    async def both() -> str:
        asking = asyncio.ensure_future(ask("Where is Paris?"))
        await asyncio.to_thread(judge.asked.wait, WAIT_S)
        judge.answer()
        return await asking

    assert asyncio.run(both()) == "In France."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_guards_its_own_calls() -> None:
    """It has counts, a circuit and a worker of its own."""
    watch(FakeJudge(BAD))
    ask, _ = make("sync", action="replace")
    assert ask("Where is Paris?") == "no answer"
    child = os.fork()
    if child == 0:
        good = ask("Where is Paris?") == "no answer" and tally().verdicts == {"fail": 1}
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tally().verdicts == {"fail": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_call_that_began_before_a_fork_is_released_in_the_child() -> None:
    """The call belongs to the parent process, which guards it."""
    watch(FakeJudge(BAD))

    @ragtrace.trace(name="guarded", guard=guard("replace"))
    def ask(question: str) -> str:
        nonlocal child
        search(question)
        child = os.fork()
        return "In France."

    child = -1
    answer = ask("Where is Paris?")
    if child == 0:
        os._exit(0 if answer == "In France." and tally().verdicts == {"unscored": 1} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answer == "no answer"


@pytest.mark.parametrize("action", ["annotate", "shadow"])
def test_the_span_in_a_provider_of_the_application_has_the_verdict(action: str) -> None:
    """Of a holding guard at once; in shadow mode the verdict comes with the scores, on the carrier span."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    watch(FakeJudge(BAD), exporter=None, telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
    ask, _ = make("sync", action=action)
    ask("Where is Paris?")
    assert ragtrace.flush()
    found = {span.name.split(" ")[0]: outcome(span.attributes)[0] for span in spans.get_finished_spans()}
    assert found["invoke_workflow"] == ("fail" if action == "annotate" else None)
    assert found["evaluate"] == "fail"


def test_the_event_and_the_metrics_tell_verdict_and_action_apart() -> None:
    """One event and one count for each answer; the histogram has the time that was added."""
    captured = watch(FakeJudge(BAD, GOOD))
    ask, _ = make("sync", action="replace")
    for question in ("Where is Paris?", "Where is Rome?"):
        ask(question)
    assert ragtrace.flush()
    events = [
        record.log_record for record in captured.events if record.log_record.event_name == "ragtrace.guard.result"
    ]
    assert [outcome(event.attributes)[:2] for event in events] == [("fail", "replaced"), ("pass", "none")]
    assert [(event.attributes or {})["gen_ai.evaluation.score.value"] for event in events] == [0.5, 1.0]
    metrics = captured.metrics()
    counted = {outcome(point.attributes)[:2]: point.value for point in metrics["ragtrace.guard.results"].data_points}
    assert counted == {("fail", "replaced"): 1, ("pass", "none"): 1}
    assert sum(point.count for point in metrics["ragtrace.guard.added"].data_points) == 2


def test_a_full_queue_drops_the_call_and_keeps_the_verdict() -> None:
    """A holding guard does not need a place in the queue; in shadow mode the call is unchecked, and counted."""
    judge = HangingJudge(name="screen")
    ragtrace.configure(exporter="none", screen=judge, limits=ragtrace.Limits(capacity=1, queue_bytes=1_000_000))
    shadow, _ = make("sync", action="shadow")
    for _ in range(40):
        shadow("Where is Paris?")
    assert judge.asked.wait(WAIT_S)
    judge.answer()
    assert ragtrace.flush()
    assert tally().calls == 40
    assert set(tally().verdicts) <= {"pass", "unscored"}
    assert tally().verdicts.get("pass", 0) == ragtrace.stats().evaluators["screen"].scored


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def test_without_a_guard_the_request_path_knows_nothing_of_guards() -> None:
    """No instruction of what a decorated call runs names a guard; the wrapper is the one of the other decorators."""
    traced, generated = ragtrace.trace(lambda question: question), ragtrace.generate(lambda question: question)
    path = [traced._self_observed.__code__, decorators._ObservedFunction.__call__.__code__]
    assert path[0] is generated._self_observed.__code__
    path += [value.__code__ for value in vars(drivers).values() if inspect.isfunction(value)]
    path += [value.__code__ for value in vars(recorder.StepRecorder).values() if inspect.isfunction(value)]
    codes = [inner for code in path for inner in _codes(code)]
    named = {name for code in codes for name in (*code.co_names, *code.co_varnames, *code.co_freevars)}
    assert {"runtime", "begin", "_hand_over"} <= named
    assert not [name for name in named if "guard" in name and name != "guarded"]  # which catches our own failures
