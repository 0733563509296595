"""Conversations gathered by id, and references attached to a call in progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import ragtrace
from ragtrace.core.labels import Turn
from ragtrace.core.types import Judgement, RagCall
from ragtrace.evaluation.earlier_turns import with_earlier_turns
from ragtrace.recording.conversations import Conversations
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeClock, FakeJudge, OpenAIServer
from ragtrace.testing.replies import Request
from tests.support.logged import logged

ONE = RagCall("Where?", None, "In Ghent.", conversation_id="one")


def test_turns_are_gathered_by_conversation_id() -> None:
    """Each call has all turns up to its own answer, and none of another conversation."""
    store = Conversations()
    store.follow(ONE)
    store.follow(replace(ONE, conversation_id="two", query="Why?", answer="Because."))
    second = store.follow(replace(ONE, query="When?", answer="At nine."))
    assert second.turns == (
        Turn("user", "Where?"), Turn("assistant", "In Ghent."), Turn("user", "When?"), Turn("assistant", "At nine."),
    )  # fmt: skip


@pytest.mark.parametrize("call", [replace(ONE, conversation_id=None), replace(ONE, turns=(Turn("user", "Hi."),))])
def test_a_call_without_id_or_with_turns_stays_as_it_is(call: RagCall) -> None:
    """And nothing is kept of it."""
    store = Conversations()
    assert store.follow(call) is call
    assert len(store) == 0


def test_a_failed_call_is_a_question_without_an_answer() -> None:
    """The user has asked all the same."""
    assert Conversations().follow(replace(ONE, answer=None)).turns == (Turn("user", "Where?"),)


def test_a_silent_conversation_is_over() -> None:
    """What follows under its id is a new one."""
    clock = FakeClock()
    store = Conversations(seconds=60, clock=clock)
    store.follow(ONE)
    clock.now = 61
    again = store.follow(ONE)
    assert again.turns is not None
    assert len(again.turns) == 2
    assert len(store) == 1


@pytest.mark.parametrize("limits", [{"turns": 3}, {"chars": 8 * 20}])
def test_a_conversation_that_is_too_long_has_no_turns(limits: dict[str, int]) -> None:
    """Part of it would look like all of it; it stays so until it is over."""
    clock = FakeClock()
    store = Conversations(seconds=60, clock=clock, **limits)
    assert store.follow(ONE).turns is not None
    assert store.follow(ONE).turns is None
    assert store.follow(ONE).turns is None
    clock.now = 61
    assert store.follow(ONE).turns is not None


def test_the_store_is_bounded() -> None:
    """The conversation silent for longest is given up, and known to be incomplete."""
    store = Conversations(capacity=2)
    for name in ("a", "b", "c"):
        store.follow(replace(ONE, conversation_id=name))
    assert len(store) == 2
    assert store.follow(replace(ONE, conversation_id="a")).turns is None
    assert store.follow(replace(ONE, conversation_id="c")).turns is not None


def test_only_the_latest_turns_are_kept_for_a_judge_that_is_shown_them() -> None:
    """They stand before the query, not with it; metrics that need the whole conversation get nothing."""
    store = Conversations(whole=False, latest=2)
    first = store.follow(ONE)
    assert (first.turns, first.earlier_turns) == (None, None)
    store.follow(replace(ONE, query="When?", answer="At nine."))
    third = store.follow(replace(ONE, query="Why?", answer="Because."))
    assert third.turns is None
    assert third.earlier_turns == (Turn("user", "When?"), Turn("assistant", "At nine."))


def test_whole_conversations_give_the_latest_turns_too() -> None:
    """One store serves both: the judge is shown the end of the whole conversation."""
    store = Conversations(latest=2)
    store.follow(ONE)
    second = store.follow(replace(ONE, query="When?", answer="At nine."))
    assert len(second.turns or ()) == 4
    assert with_earlier_turns(second).earlier_turns == (Turn("user", "Where?"), Turn("assistant", "In Ghent."))


def test_of_a_conversation_that_is_too_long_the_latest_turns_are_known() -> None:
    """It has no turns for metrics of the whole conversation."""
    store = Conversations(turns=3, latest=2)
    for _ in range(3):
        store.follow(ONE)
    last = store.follow(replace(ONE, query="When?", answer="At nine."))
    assert last.turns is None
    assert last.earlier_turns == (Turn("user", "Where?"), Turn("assistant", "In Ghent."))
    assert len(store) == 1


def test_turns_of_the_prompt_go_before_those_of_the_store() -> None:
    """The prompt is what the answer was made from."""
    store = Conversations(whole=False, latest=2)
    store.follow(ONE)
    given = (Turn("user", "Hello!"),)
    assert store.follow(replace(ONE, earlier_turns=given)).earlier_turns == given


def test_the_store_of_latest_turns_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """The conversation silent for longest begins anew; the log says so once."""
    faults.clear()
    store = Conversations(whole=False, latest=2, capacity=2)
    with caplog.at_level(logging.WARNING, "ragtrace"):
        for name in ("a", "b", "c", "d"):
            store.follow(replace(ONE, conversation_id=name))
    assert len(store) == 2
    assert store.follow(replace(ONE, conversation_id="a")).earlier_turns is None
    assert store.follow(replace(ONE, conversation_id="d")).earlier_turns is not None
    assert [message.partition(":")[0] for message in logged(caplog)] == [
        "more conversations run at a time than are kept (2, with 8000000 characters in all)"
    ]


@pytest.mark.parametrize("whole", [False, True])
def test_conversations_of_one_call_each_are_no_failure(whole: bool, caplog: pytest.LogCaptureFixture) -> None:
    """With a new id for each call nothing is ever missing; what is counted is a conversation that goes on."""
    faults.clear()
    store = Conversations(whole=whole, latest=2, capacity=2)
    with caplog.at_level(logging.WARNING, "ragtrace"):
        for number in range(100):
            store.follow(replace(ONE, conversation_id=f"id-{number}"))
        assert not faults.counts()
        assert not logged(caplog)
        for name in ("id-5", "id-5", "id-6"):
            store.follow(replace(ONE, conversation_id=name))
    assert dict(faults.counts()) == {"conversations" if whole else "earlier turns": 2}
    assert len(logged(caplog)) == 1


def test_long_turns_are_kept_short() -> None:
    """The memory of the store does not grow with the texts of the calls."""
    store = Conversations(whole=False, latest=6, chars=25_000)
    for _ in range(20):
        store.follow(replace(ONE, query="q" * 100_000, answer="a" * 100_000))
    last = store.follow(ONE)
    assert [len(turn.text) for turn in last.earlier_turns or ()] == [4_000] * 6


# --- references ------------------------------------------------------------------------------------------------------
@ragtrace.generate
def answer(question: str) -> str:
    return "It is in Ghent."


@ragtrace.trace
def ask(question: str) -> str:
    ragtrace.reference("It lies in Ghent.")
    return answer(question)


@ragtrace.generate
def answer_alone(question: str) -> str:
    ragtrace.reference("It lies in Ghent.")
    return "It is in Ghent."


@pytest.fixture
def judge() -> FakeJudge:
    captured, judge = Captured(), FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
    ragtrace.configure(exporter=captured.signals, screen=judge, judge=None)
    return judge


@pytest.mark.parametrize("function", [ask, answer_alone])
def test_a_reference_reaches_the_judge(judge: FakeJudge, function: Callable[[str], str]) -> None:
    """From anywhere inside the call."""
    function("Where is it?")
    assert ragtrace.flush(10)
    assert [call.reference for call in judge.calls] == ["It lies in Ghent."]


def test_a_reference_can_be_given_inside_a_block(judge: FakeJudge) -> None:
    """As by its argument."""
    with ragtrace.call("Where is it?") as call:
        ragtrace.reference("It lies in Ghent.")
        call.answered("It is in Ghent.")
    assert ragtrace.flush(10)
    assert [call.reference for call in judge.calls] == ["It lies in Ghent."]


def test_a_reference_outside_a_call_is_reported_once(judge: FakeJudge, caplog: pytest.LogCaptureFixture) -> None:
    """And changes nothing."""
    faults.clear()
    with caplog.at_level(logging.WARNING, "ragtrace"):
        ragtrace.reference("lost")
        ragtrace.reference("lost")
    assert [message.split(";")[0] for message in logged(caplog)] == [
        "ragtrace.reference(...) was called outside a traced call and was ignored"
    ]
    answer("Where is it?")
    assert ragtrace.flush(10)
    assert [call.reference for call in judge.calls] == [None]


def test_without_configuration_a_reference_is_nothing() -> None:
    """An application that is not configured pays for nothing."""
    ragtrace.reference("unused")
    assert ask("Where is it?") == "It is in Ghent."


# --- live ------------------------------------------------------------------------------------------------------------


def _state(request: Request) -> Mapping[str, object] | None:
    """A model to which a conversation has one intention, satisfied once the answer names the depot."""
    data = request.data
    if data is None or "turns" not in data:
        return None
    turns: list[dict[str, str]] = data["turns"]
    done = any("Ghent" in turn["text"] for turn in turns)
    asked = [turn["id"] for turn in turns if turn["role"] == "user"]
    state = "satisfied" if done else "unsatisfied"
    return {"intentions": [{"id": "i1", "turn_ids": asked, "text": "where the depot is", "state": state}]}


@ragtrace.generate
def reply(question: str, session_id: str) -> str:
    return "It is in Ghent." if "depot" in question else "Which building?"


def _watch(server: OpenAIServer, **settings: Any) -> Captured:
    captured = Captured()
    judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
    ragtrace.configure(
        exporter=captured.signals, screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0), **settings
    )
    return captured


def _values(captured: Captured) -> list[object]:
    events = [event.log_record.attributes or {} for event in captured.events]
    return [event.get("gen_ai.evaluation.score.value", event.get("ragtrace.reason")) for event in events]


def test_completeness_of_a_live_conversation() -> None:
    """Each call is judged with all turns of its conversation up to its answer, and none of another's."""
    with OpenAIServer(_state) as server:
        captured = _watch(server, metrics=["completeness"])
        for question, session in (("Where is it?", "a"), ("Where is it?", "b"), ("I mean the depot.", "a")):
            reply(question, session_id=session)
            assert ragtrace.flush(10)
        assert _values(captured) == [0.0, 0.0, 1.0]
        turns = [[turn["text"] for turn in (chat.data or {})["turns"]] for chat in server.chats]
    assert turns == [
        ["Where is it?", "Which building?"],
        ["Where is it?", "Which building?", "I mean the depot.", "It is in Ghent."],
    ]  # the second session's call was the first one's, and so judged with it


def test_completeness_without_a_conversation_costs_nothing() -> None:
    """A call of no conversation has a reason."""
    with OpenAIServer(_state) as server:
        captured = _watch(server, metrics=["completeness"])
        reply("Where is the depot?", session_id="")
        assert ragtrace.flush(10)
        assert server.n_chats == 0
    assert _values(captured) == ["needs_conversation"]


def test_a_rating_of_a_conversation_is_shown_it() -> None:
    """As of any metric that declares the field `turns`."""
    patience = ragtrace.metrics.g_eval("patience", steps=["Rate the patience."], needs=("turns",), method="single")
    with OpenAIServer() as server:
        captured = _watch(server, metrics=[patience])
        reply("Where is the depot?", session_id="a")
        assert ragtrace.flush(10)
        assert server.n_chats == 1
    assert [type(value) for value in _values(captured)] == [float]


def test_calls_that_are_not_judged_are_turns_all_the_same() -> None:
    """The sampler leaves out most calls; the conversation goes on."""
    rare = ragtrace.Sampling(rate=0.0, always=[lambda call: "depot" in (call.query or "")])
    with OpenAIServer(_state) as server:
        captured = Captured()
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        ragtrace.configure(exporter=captured.signals, screen=None, judge=judge, sampling=rare, metrics=["completeness"])
        for question in ("Where is it?", "I mean the depot."):
            reply(question, session_id="a")
        assert ragtrace.flush(10)
        assert [len((chat.data or {})["turns"]) for chat in server.chats] == [4]


def test_nothing_is_gathered_that_no_metric_needs() -> None:
    """The texts of conversations are kept for an hour: only where there is a use for it."""
    judge = FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
    ragtrace.configure(exporter=Captured().signals, screen=judge, judge=None)
    reply("Where is the depot?", session_id="a")
    assert ragtrace.flush(10)
    assert [call.turns for call in judge.calls] == [None]
