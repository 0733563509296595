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
from ragtrace.system.sync_bridge import run_on_own_loop
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
def test_all_entry_points_give_the_same_scores(score: Scoring) -> None:
    """`score`, `ascore` and `evaluate` give the same scores, with and without a running event loop."""
    assert values(score(**CALL, judge=FakeJudge(HALF), metrics=NAMES)) == {
        "faithfulness": 0.5,
        "hallucination": 0.5,
        "consistency": 0.25,
        "answered": 1.0,
    }


@pytest.mark.parametrize("score", WAYS)
def test_judge_failure_is_an_unscored_reason(score: Scoring) -> None:
    """A failing judge leaves an unscored reason, neither an exception nor a number."""
    results = score(**CALL, judge=FakeJudge(JudgeError("refused")), metrics=NAMES)
    assert set(values(results).values()) == {"refused"}


@pytest.mark.parametrize("score", WAYS)
def test_judge_is_closed_on_its_event_loop(score: Scoring) -> None:
    """A judge learns its metrics first and is closed once, on the event loop on which it judged."""
    judge = ClosingJudge(HALF)
    score(**CALL, judge=judge, metrics=["faithfulness", "answered"])
    assert judge.told == ["faithfulness", "answered"]
    assert judge.closed_on == judge.asked_on
    assert len(judge.asked_on) == 1


def test_overlapping_ascore_calls_share_a_judge() -> None:
    """Overlapping calls of `ascore` share one judge, which the last of them closes."""
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
def test_judge_requests_are_not_instrumented(score: Scoring) -> None:
    """Instrumentation of HTTP clients is suppressed for the requests of the judge, and only for these."""
    seen: list[object] = []

    class Looking(FakeJudge):
        async def judge(self, call: RagCall) -> Judgement:
            seen.append(get_value("suppress_instrumentation"))
            return HALF

    score(**CALL, judge=Looking(HALF))
    assert seen == [True]
    assert get_value("suppress_instrumentation") is None


@pytest.mark.parametrize("score", WAYS)
def test_all_parts_of_a_call_reach_the_judge(score: Scoring) -> None:
    """References, conversation, runs and cited parts given as plain data reach the judge."""
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
        {"contexts": [("a passage, or another query", [])]},
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
def test_wrong_argument_is_refused(score: Scoring, wrong: dict[str, Any]) -> None:
    """An argument that cannot be read is refused by name before anything is judged."""
    judge = FakeJudge(HALF)
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        score(**{**CALL, "judge": judge, **wrong})
    assert not judge.calls


def test_metric_without_labels_needs_no_judge() -> None:
    """A metric that needs no label has its own reason, also when the judge fails."""
    results = ragtrace.score(**CALL, judge=FakeJudge(JudgeError("refused")), metrics=["duration_s", "faithfulness"])
    assert values(results) == {"duration_s": "not_streamed", "faithfulness": "refused"}
    assert list(results) == ["duration_s", "faithfulness"]


def test_calls_with_other_runs_are_judged_again() -> None:
    """A call that differs only in its runs does not get the cached judgement of the other."""
    judge = FakeJudge(HALF, GOOD)
    results = ragtrace.evaluate([{**CALL, "runs": ["a"]}, {**CALL, "runs": ["b"]}], judge=judge, concurrency=1)
    assert [values(each.results)["faithfulness"] for each in results] == [0.5, 1.0]


@pytest.mark.skipif(sys.platform == "win32", reason="no signal to one thread on Windows")
def test_interrupt_cancels_the_judge() -> None:
    """Ctrl-C during `score` cancels the judge, and nothing goes on in the background."""
    stopped: list[str] = []

    async def work() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.wait_for(asyncio.Event().wait(), WAIT_S)
        except asyncio.CancelledError:
            stopped.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        run_on_own_loop(work)
    assert stopped == ["cancelled"]


# --- online, offline and in the pytest helper ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "judgement", [HALF, GOOD, Judgement(answer_label="abstained", reasons={"claims": "abstained"})]
)
def test_online_and_offline_scores_are_equal(judgement: Judgement) -> None:
    """The same judge reply gives the same scores and reasons online and offline."""
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
    assert values(ragtrace.testing.assert_scores(CALL, judge=FakeJudge(judgement), **expected)) == online


# --- many calls ------------------------------------------------------------------------------------------------------


def test_evaluate_keeps_the_order() -> None:
    """`evaluate` returns calls and results in the given order."""
    calls = [{**CALL, "answer": f"Answer {number}."} for number in range(50)]
    found = ragtrace.evaluate(iter(calls), judge=FakeJudge(HALF), metrics=NAMES)
    assert len(found) == 50
    assert [each.call.answer for each in found] == [call["answer"] for call in calls]
    assert [each.call.answer for each in found[:2]] == ["Answer 0.", "Answer 1."]


def test_evaluate_takes_call_objects() -> None:
    """`evaluate` takes `RagCall` objects as well as dicts."""
    call = RagCall(QUESTION, None, ANSWER)
    assert ragtrace.evaluate([call], judge=FakeJudge(HALF), metrics=NAMES)[0].call is call


def test_mean_is_over_scored_calls() -> None:
    """The mean is over scored calls; unscored ones are counted by status and reason."""
    judge = FakeJudge(HALF, GOOD, JudgeError("refused"), Judgement(claims=(), answer_label="answered"))
    calls = [{**CALL, "answer": f"Answer {number}."} for number in range(4)]
    summary = ragtrace.evaluate(calls, judge=judge, metrics=["faithfulness"], concurrency=1).summary
    faithfulness = summary.metrics["faithfulness"]
    assert (faithfulness.mean, faithfulness.scored) == (0.75, 2)
    assert faithfulness.unscored == {"not_applicable": {"no_claims": 1}, "judge_error": {"refused": 1}}
    assert (summary.calls, summary.failed) == (4, 1)


def test_mean_without_scores_is_none() -> None:
    """A metric without any score has no mean, neither 0 nor NaN."""
    summary = ragtrace.evaluate([CALL], judge=FakeJudge(JudgeError("refused")), metrics=["faithfulness"]).summary
    assert summary.metrics["faithfulness"].mean is None


def test_tokens_and_cost_add_up() -> None:
    """Tokens and known prices add up, and calls without a price are counted."""
    priced = Judgement(claims=GOOD.claims, n_calls=1, input_tokens=100, output_tokens=10, cost_usd=0.25)
    unpriced = Judgement(claims=GOOD.claims, n_calls=2, input_tokens=7, output_tokens=1)
    calls = [{**CALL, "answer": f"Answer {number}."} for number in range(3)]
    summary = ragtrace.evaluate(calls, judge=FakeJudge(priced, priced, unpriced), concurrency=1).summary
    assert (summary.n_calls, summary.input_tokens, summary.output_tokens) == (4, 207, 21)
    assert (summary.cost_usd, summary.unpriced) == (0.5, 1)


def test_identical_calls_are_judged_once() -> None:
    """Identical calls are judged, and paid for, once."""
    judge = FakeJudge(GOOD)
    summary = ragtrace.evaluate([CALL] * 40, judge=judge).summary
    assert len(judge.calls) == 1
    assert summary.input_tokens == GOOD.input_tokens
    assert summary.metrics["faithfulness"].scored == 40


def test_rows_are_flat() -> None:
    """`rows()` has a column for each score and one for the reason why there is none."""
    (row,) = ragtrace.evaluate([CALL], judge=FakeJudge(Judgement(answer_label="answered")), metrics=NAMES).rows()
    assert (row["query"], row["answered"], row["answered.reason"]) == (QUESTION, 1.0, None)
    assert (row["faithfulness"], row["faithfulness.reason"]) == (None, "unparsable")


def test_evaluations_print_their_means() -> None:
    """`Evaluations` is shown as the means of its metrics in a notebook."""
    found = ragtrace.evaluate([CALL] * 3, judge=FakeJudge(HALF), metrics=["faithfulness"])
    assert repr(found) == "<Evaluations of 3 calls: faithfulness 0.5 (3 scored)>"


def test_wrong_call_is_refused_before_judging() -> None:
    """A call that cannot be read is refused by its number before the first call is judged."""
    judge = FakeJudge(GOOD)
    with pytest.raises(SettingsError, match=r"calls\[1\].*'answer'"):
        ragtrace.evaluate([CALL, {"query": "x"}], judge=judge)
    assert not judge.calls


def test_concurrency_bounds_the_judge() -> None:
    """`concurrency=` is the number of calls that the judge sees at a time."""

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
def test_concurrency_must_be_a_count(wrong: Any) -> None:
    """`concurrency=` must be a whole number of at least 1."""
    with pytest.raises(SettingsError, match="concurrency="):
        ragtrace.evaluate([CALL], concurrency=wrong)


def test_no_calls_give_an_empty_summary() -> None:
    """An empty list of calls gives an empty summary."""
    found = ragtrace.evaluate([])
    assert (len(found), found.summary.calls, found.rows()) == (0, 0, [])


def test_hanging_judge_times_out() -> None:
    """A judge that hangs is cancelled after the timeout."""
    judge = WaitingJudge()
    results = ragtrace.evaluate([CALL], judge=judge, metrics=["faithfulness"], timeout=0.05)[0].results
    assert isinstance(results["faithfulness"], Unscored)
    assert results["faithfulness"].reason == "timeout"


def test_unavailable_judge_is_waited_for_once() -> None:
    """Calls wait for an unavailable judge; once one has waited in vain, the others do not wait."""
    judge = FakeJudge(JudgeError("unavailable", retryable=False))
    calls = [{**CALL, "answer": f"{number}"} for number in range(200)]
    found = ragtrace.evaluate(calls, judge=judge, metrics=["faithfulness"], timeout=0.3)
    assert found.duration_s < WAIT_S
    reasons = found.summary.metrics["faithfulness"].unscored["judge_error"]
    assert sum(reasons.values()) == 200
    assert reasons["unavailable"] > 100
    assert set(reasons) <= {"unavailable", "timeout"}  # on a busy machine a call's time may end in the first request
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


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is shown as a bar on a terminal."""
    stream = terminal(monkeypatch)
    ragtrace.evaluate([CALL] * 10, judge=FakeJudge(GOOD))
    assert stream.getvalue()


def test_progress_without_rich_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rich, progress is a line with the number of calls."""
    monkeypatch.setitem(sys.modules, "rich", None)
    stream = terminal(monkeypatch)
    ragtrace.evaluate([CALL] * 10, judge=FakeJudge(GOOD))
    assert "10 of 10 calls" in stream.getvalue()


def test_progress_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """`progress=False` writes nothing."""
    stream = terminal(monkeypatch)
    ragtrace.evaluate([CALL] * 10, judge=FakeJudge(GOOD), progress=False)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("score", WAYS)
def test_a_judges_own_time_limit_holds_offline(score: Scoring) -> None:
    """A judge that hangs is given up after the time that its own limits say."""

    class Limited(WaitingJudge):
        limits = ragtrace.JudgeLimits(timeout=0.05)

    judge = Limited()
    result = score(**CALL, judge=judge)["faithfulness"]
    assert isinstance(result, Unscored)
    assert (result.reason, "0.05 s" in (result.explanation or "")) == ("timeout", True)


class Counting(FakeJudge):
    """Counts how many calls it sees at a time, and remembers the most."""

    now = most = 0

    async def judge(self, call: RagCall) -> Judgement:
        """After a moment in which others may come."""
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().judge(call)


@pytest.mark.parametrize(("argument", "most"), [(None, 2), (3, 3)])
def test_a_judges_own_concurrency_holds_offline(argument: int | None, most: int) -> None:
    """Unless the run is given another."""
    judge = Counting(GOOD, limits=ragtrace.JudgeLimits(concurrency=2))
    calls = [{**CALL, "query": f"question {number}"} for number in range(12)]
    ragtrace.evaluate(calls, judge=judge, concurrency=argument)
    assert judge.most == most


@pytest.mark.parametrize("score", WAYS)
def test_a_judges_own_number_of_turns_holds_offline(score: Scoring) -> None:
    """A judge that wants no earlier turns sees none of them before the query."""
    judge = FakeJudge(GOOD, limits=ragtrace.JudgeLimits(turns=0))
    turns = [{"role": "user", "text": "Hello"}, {"role": "assistant", "text": "Hello!"}]
    score(**CALL, turns=turns, judge=judge)
    plain = FakeJudge(GOOD)
    score(**CALL, turns=turns, judge=plain)
    assert (judge.calls[0].earlier_turns or ()) == ()
    assert [turn.text for turn in plain.calls[0].earlier_turns or ()] == ["Hello", "Hello!"]


@pytest.mark.parametrize("limits", [{"timeout": 1}, ragtrace.JudgeLimits(timeout=-1)])
@pytest.mark.parametrize("score", WAYS)
def test_wrong_limits_of_a_judge_are_refused_offline(score: Scoring, limits: Any) -> None:
    """As `configure` refuses them."""
    judge = FakeJudge(GOOD)
    judge.limits = limits
    with pytest.raises(SettingsError, match=r"JudgeLimits|judge_timeout"):
        score(**CALL, judge=judge)
