"""The same judges and metrics without tracing: `score`, `ascore`, `evaluate`."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.context import get_value

import ragtrace
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Judge, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics import registry
from ragtrace.system.sync_bridge import apart
from ragtrace.testing import FakeJudge
from tests.support.watched import ANSWER, GOOD, HALF, WAIT_S, WaitingJudge, ask, watch

QUESTION = "Which places are there?"
PASSAGES = ["Paris is a big city.", "Mars is a planet."]
CALL: dict[str, Any] = {"query": QUESTION, "contexts": PASSAGES, "answer": ANSWER}
NAMES = ["faithfulness", "hallucination", "consistency", "answered"]

Scoring = Callable[..., Mapping[str, Result]]


def ascore_alone(**arguments: Any) -> Mapping[str, Result]:
    """`ascore` on an event loop of its own."""
    return asyncio.run(ragtrace.ascore(**arguments))


def score_in_a_loop(**arguments: Any) -> Mapping[str, Result]:
    """`score` as a notebook calls it: with an event loop running in the same thread."""

    async def cell() -> Mapping[str, Result]:
        return ragtrace.score(**arguments)

    return asyncio.run(cell())


def evaluate_one(*, metrics: Any = None, judge: Any = None, **call: Any) -> Mapping[str, Result]:
    """`evaluate` with one call."""
    return ragtrace.evaluate([call], metrics=metrics, judge=judge)[0].results


WAYS: list[Scoring] = [ragtrace.score, ascore_alone, score_in_a_loop, evaluate_one]


class ClosingJudge(FakeJudge):
    """Remembers on which event loop it was asked and closed, and what it was told it would be asked for."""

    def __init__(self, *script: Judgement | BaseException) -> None:
        super().__init__(*script)
        self.asked_on: list[asyncio.AbstractEventLoop] = []
        self.closed_on: list[asyncio.AbstractEventLoop] = []
        self.told: list[str] = []

    def asking(self, metrics: Sequence[Metric]) -> Judge:
        self.told = [metric.name for metric in metrics]
        return self

    async def judge(self, call: RagCall) -> Judgement:
        self.asked_on.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return await super().judge(call)

    async def aclose(self) -> None:
        self.closed_on.append(asyncio.get_running_loop())


def values(results: Mapping[str, Result]) -> dict[str, float | str]:
    return {name: r.value if isinstance(r, Score) else r.reason for name, r in results.items()}


# --- one call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", WAYS)
def test_every_way_of_scoring_gives_the_same(score: Scoring) -> None:
    """With and without a running event loop, alone or as one of many."""
    assert values(score(**CALL, judge=FakeJudge(HALF), metrics=NAMES)) == {
        "faithfulness": 0.5,
        "hallucination": 0.5,
        "consistency": 0.25,
        "answered": 1.0,
    }


@pytest.mark.parametrize("score", WAYS)
def test_a_judge_that_fails_is_a_reason(score: Scoring) -> None:
    """Not an exception, and not a number."""
    results = score(**CALL, judge=FakeJudge(JudgeError("refused")), metrics=NAMES)
    assert set(values(results).values()) == {"refused"}


@pytest.mark.parametrize("score", WAYS)
def test_a_judge_is_closed_on_the_loop_it_was_asked_on(score: Scoring) -> None:
    """Once, after its last call, and it was told before what it would be asked for."""
    judge = ClosingJudge(HALF)
    score(**CALL, judge=judge, metrics=["faithfulness", "answered"])
    assert judge.told == ["faithfulness", "answered"]
    assert judge.closed_on == judge.asked_on
    assert len(judge.asked_on) == 1


def test_a_judge_is_closed_when_its_last_user_on_a_loop_is_done() -> None:
    """Overlapping calls of `ascore` do not close it under each other's hands, and identical calls are judged once."""
    judge = ClosingJudge(HALF)

    async def several() -> None:
        other = {**CALL, "answer": "Paris is small."}
        await asyncio.gather(
            ragtrace.ascore(**CALL, judge=judge),
            ragtrace.ascore(**CALL, judge=judge),
            ragtrace.ascore(**other, judge=judge),
        )

    asyncio.run(several())
    assert (len(judge.calls), len(judge.closed_on)) == (2, 1)


@pytest.mark.parametrize("score", WAYS)
def test_what_the_judge_asks_for_is_not_the_applications(score: Scoring) -> None:
    """Instrumented HTTP clients are told to leave its requests alone, and only its."""
    seen: list[object] = []

    class Looking(FakeJudge):
        async def judge(self, call: RagCall) -> Judgement:
            seen.append(get_value("suppress_instrumentation"))
            return HALF

    score(**CALL, judge=Looking(HALF))
    assert seen == [True]
    assert get_value("suppress_instrumentation") is None


@pytest.mark.parametrize("score", WAYS)
def test_everything_known_of_a_call_reaches_the_judge(score: Scoring) -> None:
    """References, conversation, runs and parts, in plain data."""
    judge = FakeJudge(HALF)
    score(
        **CALL,
        judge=judge,
        reference="Paris.",
        reference_contexts=["Paris is in France."],
        turns=[{"role": "user", "text": "Hello"}, {"role": "assistant", "content": "Hi"}],
        runs=["Paris.", "Rome."],
        parts=[{"text": "Paris is big.", "cited": [1, "d2"]}],
        conversation_id="c1",
    )
    (call,) = judge.calls
    assert (call.reference, call.conversation_id, call.runs) == ("Paris.", "c1", ("Paris.", "Rome."))
    assert [document.text for document in call.reference_contexts or ()] == ["Paris is in France."]
    assert [(turn.role, turn.text) for turn in call.turns or ()] == [("user", "Hello"), ("assistant", "Hi")]
    assert [(part.text, part.cited) for part in call.parts or ()] == [("Paris is big.", ("1", "d2"))]


@pytest.mark.parametrize("score", WAYS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"contexts": 7},
        {"answer": 7},
        {"query": ["x"]},
        {"turns": [{"role": "system", "text": "x"}]},
        {"turns": "hello"},
        {"runs": [1]},
        {"parts": [{"text": "x"}]},
        {"reference_contexts": 7},
        {"metrics": []},
        {"metrics": [7]},
        {"judge": FakeJudge},
    ],
    ids=repr,
)
def test_what_cannot_be_understood_is_refused(score: Scoring, wrong: dict[str, Any]) -> None:
    """With the name of the argument, before anything is judged."""
    judge = FakeJudge(HALF)
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        score(**{**CALL, "judge": judge, **wrong})
    assert not judge.calls


def test_a_metric_that_needs_no_label_needs_no_judge() -> None:
    """Its reason is its own, also when the judge fails."""
    results = ragtrace.score(**CALL, judge=FakeJudge(JudgeError("refused")), metrics=["duration_s", "faithfulness"])
    assert values(results) == {"duration_s": "not_streamed", "faithfulness": "refused"}
    assert list(results) == ["duration_s", "faithfulness"]


def test_other_runs_are_another_call() -> None:
    """What is remembered of a call is not given for one that differs in its runs alone."""
    judge = FakeJudge(HALF, GOOD)
    results = ragtrace.evaluate([{**CALL, "runs": ["a"]}, {**CALL, "runs": ["b"]}], judge=judge, concurrency=1)
    assert [values(each.results)["faithfulness"] for each in results] == [0.5, 1.0]


@pytest.mark.skipif(sys.platform == "win32", reason="no signal to one thread on Windows")
def test_an_interrupted_caller_stops_the_judge() -> None:
    """Ctrl-C while `score` waits: the judge is cancelled, nothing goes on in the background."""
    stopped: list[str] = []

    async def work() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.wait_for(asyncio.Event().wait(), WAIT_S)
        except asyncio.CancelledError:
            stopped.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        apart(work)
    assert stopped == ["cancelled"]


# --- online, offline and in the pytest helper ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "judgement", [HALF, GOOD, Judgement(answer_label="abstained", reasons={"claims": "abstained"})]
)
def test_online_and_offline_give_the_same(judgement: Judgement) -> None:
    """The same metric objects and the same reply of the judge: the same numbers and reasons everywhere."""
    captured = watch(screen=None, judge=FakeJudge(judgement), metrics=NAMES, sampling=ragtrace.Sampling(rate=1.0))
    ask(QUESTION)
    assert ragtrace.flush(WAIT_S)
    attributes = captured.root().attributes or {}
    online = {
        name: attributes.get(f"ragtrace.eval.{name}.score", attributes.get(f"ragtrace.eval.{name}.reason"))
        for name in NAMES
    }
    metrics = [registry.get(name) for name in NAMES]
    for score in WAYS:
        assert values(score(**CALL, judge=FakeJudge(judgement), metrics=metrics)) == online
    expected: dict[str, Any] = {
        name: f"== {value}" if isinstance(value, float) else f"unscored: {value}" for name, value in online.items()
    }
    assert values(ragtrace.assert_scores(CALL, judge=FakeJudge(judgement), **expected)) == online


# --- many calls ------------------------------------------------------------------------------------------------------


def test_many_calls_come_back_in_order() -> None:
    """With their results, whatever the order in which they were judged."""
    calls = [{**CALL, "answer": f"Answer {number}."} for number in range(50)]
    found = ragtrace.evaluate(iter(calls), judge=FakeJudge(HALF), metrics=NAMES)
    assert len(found) == 50
    assert [each.call.answer for each in found] == [call["answer"] for call in calls]
    assert [each.call.answer for each in found[:2]] == ["Answer 0.", "Answer 1."]


def test_calls_may_be_objects() -> None:
    """As tracing makes them."""
    call = RagCall(QUESTION, None, ANSWER)
    assert ragtrace.evaluate([call], judge=FakeJudge(HALF), metrics=NAMES)[0].call is call


def test_means_are_over_scores_alone() -> None:
    """What has no score is counted by status and reason, and is in no mean."""
    judge = FakeJudge(HALF, GOOD, JudgeError("refused"), Judgement(claims=(), answer_label="answered"))
    calls = [{**CALL, "answer": f"Answer {number}."} for number in range(4)]
    summary = ragtrace.evaluate(calls, judge=judge, metrics=["faithfulness"], concurrency=1).summary
    faithfulness = summary.metrics["faithfulness"]
    assert (faithfulness.mean, faithfulness.scored) == (0.75, 2)
    assert faithfulness.unscored == {"not_applicable": {"no_claims": 1}, "judge_error": {"refused": 1}}
    assert (summary.calls, summary.failed) == (4, 1)


def test_no_score_is_no_mean() -> None:
    """Not 0 and not NaN."""
    summary = ragtrace.evaluate([CALL], judge=FakeJudge(JudgeError("refused")), metrics=["faithfulness"]).summary
    assert summary.metrics["faithfulness"].mean is None


def test_tokens_and_cost_add_up() -> None:
    """Of the calls whose price is known; the others are counted."""
    priced = Judgement(claims=GOOD.claims, n_calls=1, input_tokens=100, output_tokens=10, cost_usd=0.25)
    unpriced = Judgement(claims=GOOD.claims, n_calls=2, input_tokens=7, output_tokens=1)
    calls = [{**CALL, "answer": f"Answer {number}."} for number in range(3)]
    summary = ragtrace.evaluate(calls, judge=FakeJudge(priced, priced, unpriced), concurrency=1).summary
    assert (summary.n_calls, summary.input_tokens, summary.output_tokens) == (4, 207, 21)
    assert (summary.cost_usd, summary.unpriced) == (0.5, 1)


def test_identical_calls_are_judged_once() -> None:
    """And cost once."""
    judge = FakeJudge(GOOD)
    summary = ragtrace.evaluate([CALL] * 40, judge=judge).summary
    assert len(judge.calls) == 1
    assert summary.input_tokens == GOOD.input_tokens
    assert summary.metrics["faithfulness"].scored == 40


def test_rows_are_flat() -> None:
    """For a table: a column for the score and one for the reason why there is none."""
    (row,) = ragtrace.evaluate([CALL], judge=FakeJudge(Judgement(answer_label="answered")), metrics=NAMES).rows()
    assert (row["query"], row["answered"], row["answered.reason"]) == (QUESTION, 1.0, None)
    assert (row["faithfulness"], row["faithfulness.reason"]) == (None, "unparsable")


def test_many_calls_are_printed_as_their_means() -> None:
    """A notebook shows what a cell ends with; a thousand answers are of no use there."""
    found = ragtrace.evaluate([CALL] * 3, judge=FakeJudge(HALF), metrics=["faithfulness"])
    assert repr(found) == "<Evaluations of 3 calls: faithfulness 0.5 (3 scored)>"


def test_a_wrong_call_costs_nothing() -> None:
    """All are read before the first is judged; the message has its number."""
    judge = FakeJudge(GOOD)
    with pytest.raises(SettingsError, match=r"calls\[1\].*'answer'"):
        ragtrace.evaluate([CALL, {"query": "x"}], judge=judge)
    assert not judge.calls


def test_the_judge_sees_no_more_calls_at_a_time_than_allowed() -> None:
    """`concurrency=` bounds it, and is used."""

    class Crowded(FakeJudge):
        now = most = 0

        async def judge(self, call: RagCall) -> Judgement:
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1
            return GOOD

    judge = Crowded(GOOD)
    ragtrace.evaluate([{**CALL, "answer": f"{number}"} for number in range(40)], judge=judge, concurrency=3)
    assert judge.most == 3


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "many"])
def test_concurrency_is_a_count(wrong: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(SettingsError, match="concurrency="):
        ragtrace.evaluate([CALL], concurrency=wrong)


def test_no_calls_are_no_error() -> None:
    """An empty list has an empty summary."""
    found = ragtrace.evaluate([])
    assert (len(found), found.summary.calls, found.rows()) == (0, 0, [])


def test_a_judge_that_hangs_is_given_up() -> None:
    """After its time."""
    judge = WaitingJudge()
    results = ragtrace.evaluate([CALL], judge=judge, metrics=["faithfulness"], timeout=0.05)[0].results
    assert isinstance(results["faithfulness"], Unscored)
    assert results["faithfulness"].reason == "timeout"


def test_a_judge_that_stays_away_ends_the_waiting_once() -> None:
    """A call waits for a judge that keeps failing; when one has waited in vain the rest do not wait as well."""
    judge = FakeJudge(JudgeError("unavailable", retryable=False))
    calls = [{**CALL, "answer": f"{number}"} for number in range(200)]
    found = ragtrace.evaluate(calls, judge=judge, metrics=["faithfulness"], timeout=0.3)
    assert found.duration_s < WAIT_S
    assert found.summary.metrics["faithfulness"].unscored == {"judge_error": {"unavailable": 200}}
    assert len(judge.calls) < 100


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, which from now on is a terminal. Not a fixture: pytest changes it between set-up and test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a bar."""
    stream = terminal(monkeypatch)
    ragtrace.evaluate([CALL] * 10, judge=FakeJudge(GOOD))
    assert stream.getvalue()


def test_without_rich_progress_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many of how many."""
    monkeypatch.setitem(sys.modules, "rich", None)
    stream = terminal(monkeypatch)
    ragtrace.evaluate([CALL] * 10, judge=FakeJudge(GOOD))
    assert "10 of 10 calls" in stream.getvalue()


def test_progress_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written at all."""
    stream = terminal(monkeypatch)
    ragtrace.evaluate([CALL] * 10, judge=FakeJudge(GOOD), progress=False)
    assert stream.getvalue() == ""
