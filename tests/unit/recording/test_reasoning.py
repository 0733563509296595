"""The reasoning of a model stays on the span, is marked, and is judged nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import RagCall, Unscored
from ragtrace.offline.call_records import CallFile, CallLine
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support import guards
from tests.support.guards import ReadingJudge, guard, outcome, tally
from tests.support.scored import details
from tests.support.watched import GOOD, search, watch

THOUGHT = "Rome? It may be on Mars. I will look at it."
ANSWER = "Rome is old. It is big."
FORMS = {
    "block": f"<think>\n{THOUGHT}\n</think>\n\n",
    "lone end": f"{THOUGHT}\n</think>\n\n",
    "channel": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>",
}
each_form = pytest.mark.parametrize("block", FORMS.values(), ids=FORMS)
MARK = "ragtrace.reasoning_chars"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def returned(text: str) -> Callable[[str], Any]:
    @ragtrace.trace
    def ask(question: str) -> object:
        search(question)
        return {"answer": text}

    return ask


def streamed(text: str) -> Callable[[str], Any]:
    @ragtrace.generate
    def ask(question: str) -> Iterator[str]:
        search(question)
        yield from (text[at : at + 3] for at in range(0, len(text), 3))

    return lambda question: list(ask(question))


@each_form
@pytest.mark.parametrize("make", [returned, streamed])
def test_reasoning_is_on_the_span_and_not_judged(make: Any, block: str) -> None:
    """The span says how long it is, and so does each score."""
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge)
    make(block + ANSWER)("How old is Rome?")
    assert ragtrace.flush()
    (call,) = judge.calls
    assert (call.answer, call.reasoning_chars) == (ANSWER, len(block))
    attributes = captured.root().attributes or {}
    assert attributes[MARK] == len(block)
    assert THOUGHT in str(attributes["gen_ai.output.messages"])
    events = [dict(event.log_record.attributes or {}) for event in captured.events]
    marked = {event["gen_ai.evaluation.name"]: details(event).get("reasoning_chars") for event in events}
    assert marked["consistency"] == marked["answered"] == len(block)


def test_an_answer_without_reasoning_is_not_marked() -> None:
    """Whatever markup it has."""
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge)
    returned(f"<p>{ANSWER}</p>")("How old is Rome?")
    assert ragtrace.flush()
    assert judge.calls[0].answer == f"<p>{ANSWER}</p>"
    assert MARK not in (captured.root().attributes or {})


@pytest.mark.parametrize("text", [f"<think>{THOUGHT}", f"<think>{THOUGHT}</think>\n", f"{THOUGHT}</think>"])
@pytest.mark.parametrize("make", [returned, streamed])
def test_only_reasoning_is_no_answer(make: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """The model was cut off: what it would have said is not known. One line says so."""
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge)
    for _ in range(2):
        make(text)("How old is Rome?")
    assert ragtrace.flush()
    assert judge.calls == []
    for root in captured.roots():
        assert (root.attributes or {})["ragtrace.eval.answered.reason"] == "answer_not_captured"
    assert caplog.text.count("is only the reasoning of its model, and is not scored") == 1


def test_long_reasoning_takes_no_room_from_the_answer() -> None:
    """Texts are cut at a length, and the mark at its end stays."""
    judge = FakeJudge(GOOD)
    captured = watch(screen=judge, redact=ragtrace.Redact(patterns=["Mars"], max_chars=200))
    returned(f"<think>{THOUGHT * 100}</think>\n\n{ANSWER} Not Mars.")("How old is Rome?")
    assert ragtrace.flush()
    (call,) = judge.calls
    assert call.answer == f"{ANSWER} Not [redacted]."
    assert call.answer_cut_chars == 0
    assert call.cut_chars > 0
    attributes = captured.root().attributes or {}
    assert attributes[MARK] == call.reasoning_chars < 300
    assert "Mars" not in str(attributes)


def test_earlier_turns_have_no_reasoning() -> None:
    """A judge that is shown a conversation sees what was said."""
    judge = FakeJudge(GOOD)
    watch(screen=judge)

    @ragtrace.generate
    def ask(messages: list[dict[str, str]]) -> str:
        return FORMS["block"] + ANSWER

    ask(
        [
            {"role": "user", "content": "Is Rome old?"},
            {"role": "assistant", "content": FORMS["block"] + "Yes."},
            {"role": "user", "content": "How old?"},
        ]
    )
    assert ragtrace.flush()
    assert [turn.text for turn in judge.calls[0].turns or ()] == ["Is Rome old?", "Yes.", "How old?", ANSWER]


def test_a_generation_that_thought_of_the_answer_did_not_give_it() -> None:
    """Its reasoning has the words of the answer; what it said was a query."""
    judge = FakeJudge(GOOD)
    watch(screen=judge)

    @ragtrace.generate(model="writer")
    def write(question: str, docs: list[str]) -> str:
        return f"<think>a</think>{ANSWER}"

    @ragtrace.generate(model="checker")
    def check(question: str) -> str:
        return f"<think>They said: {ANSWER}</think>no"

    @ragtrace.trace
    def ask(question: str) -> str:
        said = write(question, search(question)).rpartition(">")[2]
        check(said)
        return said

    ask("How old is Rome?")
    assert ragtrace.flush()
    (call,) = judge.calls
    assert call.model == "writer"


# --- elsewhere --------------------------------------------------------------------------------------------------------


@each_form
def test_scores_without_tracing_leave_it_out(block: str) -> None:
    """Of arguments and of calls that the application has made."""
    contexts = ["Rome is old. It is big."]
    plain = ragtrace.score(query="How old is Rome?", contexts=contexts, answer=ANSWER)
    found = ragtrace.score(query="How old is Rome?", contexts=contexts, answer=block + ANSWER)
    assert {name: each.value for name, each in found.items() if isinstance(each, ragtrace.Score)} == {
        name: each.value for name, each in plain.items() if isinstance(each, ragtrace.Score)
    }
    consistency = found["consistency"]
    assert isinstance(consistency, ragtrace.Score)
    assert consistency.attributes["reasoning_chars"] == len(block)
    judge = FakeJudge(GOOD)
    call = RagCall("How old is Rome?", (), block + ANSWER)
    assert ragtrace.evaluate([call], judge=judge)[0].call.answer == judge.calls[0].answer == ANSWER


def test_a_score_of_only_reasoning_has_its_reason() -> None:
    """It is neither an abstention nor a bad answer."""
    found = ragtrace.score(query="q", contexts=["Rome is old."], answer=f"<think>{THOUGHT}")["answered"]
    assert isinstance(found, Unscored)
    assert found.reason == "answer_not_captured"


def test_files_of_calls_leave_it_out(tmp_path: Path) -> None:
    """Whatever wrote them."""
    path = tmp_path / "calls.jsonl"
    path.write_text(
        json.dumps({"query": "q", "answer": FORMS["block"] + ANSWER, "runs": [f"<think>a</think>{ANSWER}"]})
    )
    (line,) = CallFile(path)
    assert isinstance(line, CallLine)
    assert (line.call.answer, line.call.runs) == (ANSWER, (ANSWER,))


# --- guards -----------------------------------------------------------------------------------------------------------


def guarded_stream(text: str, guarded: ragtrace.Guard, size: int = 4) -> list[str]:
    """What leaves of a stream of *text* in pieces."""

    @ragtrace.trace(name="guarded", guard=guarded)
    def ask(question: str) -> Iterator[str]:
        search(question)
        yield from (text[at : at + size] for at in range(0, len(text), size))

    return list(ask("How old is Rome?"))


@pytest.mark.parametrize("form", ["block", "channel"])
@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_a_guard_of_sentences_judges_no_thought(form: str, size: int) -> None:
    """It leaves with the first sentence of the answer."""
    judge = ReadingJudge(GOOD)
    guards.watch(judge)
    text = FORMS[form] + ANSWER
    assert "".join(guarded_stream(text, guard("raise", stream="sentence"), size)) == text
    assert ragtrace.flush()
    assert judge.asked == ["Rome is old.", "It is big.", ANSWER]
    assert tally().verdicts == {"pass": 1}


def test_nothing_of_a_thought_leaves_before_its_answer() -> None:
    """A sentence that fails withdraws the thought, too."""
    judge = ReadingJudge(GOOD)
    guards.watch(judge)
    assert guarded_stream(f"{FORMS['block']}Rome is on Mars.", guard("replace", stream="sentence")) == ["no answer"]
    assert judge.asked == ["Rome is on Mars."]


def test_marks_around_a_guarded_answer_are_no_sentence() -> None:
    """They come with some models' reasoning."""
    judge = ReadingJudge(GOOD)
    guards.watch(judge)
    text = f"<think>\n{THOUGHT}</think>\n<answer>\n{ANSWER}\n</answer>\n"
    assert "".join(guarded_stream(text, guard("raise", stream="sentence"))) == text
    assert judge.asked == ["Rome is old.", "It is big."]


@pytest.mark.parametrize("stream", ["all", "after"])
@each_form
def test_a_guard_of_the_whole_answer_judges_no_thought(stream: Any, block: str) -> None:
    """Whatever its form."""
    judge = ReadingJudge(GOOD)
    guards.watch(judge)
    text = block + ANSWER
    assert "".join(guarded_stream(text, guard("annotate", stream=stream))) == text
    assert ragtrace.flush()
    assert judge.asked == [ANSWER]


@pytest.mark.parametrize("stream", ["all", "sentence"])
def test_a_guard_does_not_check_what_is_only_a_thought(stream: Any) -> None:
    """It is no answer, and `on_error` decides."""
    judge = ReadingJudge(GOOD)
    captured = guards.watch(judge)
    text = f"<think>{THOUGHT}"
    assert "".join(guarded_stream(text, guard("replace", stream=stream))) == text
    assert guarded_stream(text, guard("replace", stream=stream, on_error="closed")) == ["no answer"]
    assert ragtrace.flush()
    assert judge.asked == []
    assert {outcome(root.attributes) for root in captured.roots()} == {
        ("unscored", "released", "answer_not_captured"),
        ("unscored", "replaced", "answer_not_captured"),
    }
