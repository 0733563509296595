"""Asking a judge that is slow, failing or lying: in time, not too often, each question once; every end has a reason."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Claim, Fact, Nugget, Rating, Sentence
from ragtrace.core.types import Document, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.evaluation.judge_client import JudgeClient
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.metrics import registry
from ragtrace.system.faults import faults
from ragtrace.testing import FakeClock, FakeJudge
from tests.support.watched import ANSWER, GOOD, HALF, WAIT_S

CALL = RagCall(query="where?", contexts=(Document("Paris is a big city."),), answer=ANSWER)
DOWN = JudgeError("unavailable", "HTTP 500")


def other(number: int) -> RagCall:
    """A call unlike all others."""
    return replace(CALL, query=f"question {number}")


def later(seconds: float) -> JudgeError:
    """What a judge raises that was told to come back later."""
    return JudgeError("unavailable", "HTTP 429", retry_after=seconds)


class FakeTime(FakeClock):
    """A clock whose sleepers are woken in order, as soon as nothing else can happen."""

    def __init__(self) -> None:
        super().__init__(1000.0)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    async def sleep(self, seconds: float) -> None:
        """Until that much later on this clock."""
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), wake))
        await wake

    async def pass_until(self, work: asyncio.Future[Any]) -> None:
        """Let time pass until *work* is done."""
        while not work.done():
            await settle()
            if not self._sleepers:
                await asyncio.wait({work}, timeout=WAIT_S)
                assert work.done(), "nothing is left to wait for"
                return
            at, _, wake = heapq.heappop(self._sleepers)
            self.now = max(self.now, at)
            if not wake.done():
                wake.set_result(None)


async def settle() -> None:
    """Let everything happen that waits for nothing but its turn."""
    for _ in range(30):
        await asyncio.sleep(0)


class Timed(FakeJudge):
    """A scripted judge that notes when it was asked."""

    def __init__(self, clock: FakeClock, *script: Judgement | BaseException) -> None:
        super().__init__(*script)
        self._clock = clock
        self.times: list[float] = []

    async def judge(self, call: RagCall) -> Judgement:
        self.times.append(self._clock.now)
        return await super().judge(call)


class Held(FakeJudge):
    """A judge that gives its answers when told to, in the order of the questions."""

    def __init__(self) -> None:
        super().__init__(GOOD)
        self.questions: list[asyncio.Future[Judgement]] = []

    async def judge(self, call: RagCall) -> Judgement:
        self.calls.append(call)
        self.questions.append(asyncio.get_running_loop().create_future())
        return await self.questions[-1]


@dataclass
class Desk:
    """A judge, its judge_client, and the time both live in."""

    time: FakeTime
    judge: FakeJudge
    judge_client: JudgeClient

    async def ask(self, *calls: RagCall) -> list[Judgement | BaseException]:
        """What becomes of *calls*, asked at the same time."""
        asked = asyncio.gather(*(self.judge_client.ask(call) for call in calls), return_exceptions=True)
        await self.time.pass_until(asked)
        return asked.result()

    async def ask_in_turn(self, calls: int, start: int = 0) -> list[Judgement | BaseException]:
        """What becomes of so many different calls, one after the other."""
        return [outcome for n in range(calls) for outcome in await self.ask(other(start + n))]


def desk(
    *script: Judgement | BaseException,
    judge: Callable[[FakeTime], FakeJudge] | None = None,
    timeout: float | None = 30.0,
    chance: float = 0.0,
    **limits: int,
) -> Desk:
    """An judge_client of a scripted judge, on a fake clock."""
    time = FakeTime()
    made = judge(time) if judge else Timed(time, *script)
    judge_client = JudgeClient(made, timeout=timeout, clock=time, sleep=time.sleep, chance=lambda: chance, **limits)
    return Desk(time, made, judge_client)


def times(at: Desk) -> list[float]:
    """When the judge was asked, in seconds since the start."""
    assert isinstance(at.judge, Timed)
    return [round(time - 1000.0, 6) for time in at.judge.times]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


def reasons(outcomes: list[Judgement | BaseException]) -> list[str]:
    return [outcome.reason if isinstance(outcome, JudgeError) else "" for outcome in outcomes]


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


# --- trying again ----------------------------------------------------------------------------------------------------


def test_a_failure_that_may_pass_is_tried_again_later_each_time() -> None:
    """The pauses double."""
    at = desk(DOWN, DOWN, DOWN, GOOD)
    assert run(at.ask(CALL)) == [GOOD]
    assert times(at) == [0, 0.125, 0.375, 0.875]


def test_pauses_are_spread_by_chance() -> None:
    """Up to twice as long, so that processes that failed together do not come back together."""
    at = desk(DOWN, DOWN, GOOD, chance=0.999_999)
    run(at.ask(CALL))
    assert times(at) == pytest.approx([0, 0.25, 0.75], abs=1e-5)


def test_a_failing_judge_is_given_up_after_four_tries() -> None:
    """With what it said last."""
    at = desk(DOWN)
    [error] = run(at.ask(CALL))
    assert str(error) == "unavailable: HTTP 500"
    assert len(at.judge.calls) == 4


@pytest.mark.parametrize("reason", ["refused", "content_filter", "truncated", "unparsable", "coverage"])
def test_what_will_not_change_is_not_tried_again(reason: str) -> None:
    """Asking once more costs money, and brings the same."""
    at = desk(JudgeError(reason), GOOD)
    assert reasons(run(at.ask(CALL))) == [reason]


def test_the_judge_may_say_that_trying_again_is_of_no_use() -> None:
    """A wrong key stays wrong."""
    at = desk(JudgeError("unavailable", "HTTP 401", retryable=False), GOOD)
    assert reasons(run(at.ask(CALL))) == ["unavailable"]
    assert len(at.judge.calls) == 1


def test_the_judge_may_say_that_trying_again_is_of_use() -> None:
    """A garbled reply may be a better one next time."""
    at = desk(JudgeError("unparsable", retryable=True), GOOD)
    assert run(at.ask(CALL)) == [GOOD]


@pytest.mark.parametrize("error", [TimeoutError(), asyncio.TimeoutError(), ConnectionResetError()], ids=repr)
def test_a_network_failure_that_the_judge_lets_through_is_tried_again(error: Exception) -> None:
    """It is foreseeable, so no fault."""
    at = desk(error, GOOD)
    assert run(at.ask(CALL)) == [GOOD]
    assert faults.counts() == {}


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_mistake_of_the_judges_is_not_tried_again(error: BaseException) -> None:
    """And is counted as a fault."""
    at = desk(error, GOOD)
    assert reasons(run(at.ask(CALL))) == ["unavailable"]
    assert (len(at.judge.calls), faults.counts()) == (1, {"judge fake": 1})


def test_no_try_begins_after_the_deadline() -> None:
    """A pause that would end after it is not begun."""
    at = desk(DOWN, timeout=0.3)
    assert reasons(run(at.ask(CALL))) == ["unavailable"]
    assert times(at) == [0, 0.125]


# --- Retry-After -----------------------------------------------------------------------------------------------------


def test_nobody_asks_before_the_judge_wants_to_be_asked() -> None:
    """Neither the call that was told so nor any other."""
    at = desk(later(5.0), GOOD)

    async def main() -> None:
        first = asyncio.gather(at.judge_client.ask(other(1)), at.judge_client.ask(other(2)), return_exceptions=True)
        await settle()
        assert at.judge_client.status.waits_s == 5.0
        assert await at.ask(other(3), other(4)) == [GOOD, GOOD]
        await at.time.pass_until(first)
        assert first.result() == [GOOD, GOOD]

    run(main())
    assert times(at)[:2] == [0, 0]  # both had been sent when the answer came
    assert len(times(at)) == 5
    assert min(times(at)[2:]) == 5.0


def test_those_who_waited_do_not_come_all_at_once() -> None:
    """They are spread over a tenth of the wait."""
    time, chances = FakeTime(), iter(n / 10 for n in range(10))
    judge = Timed(time, later(5.0), GOOD)
    chance = partial(next, chances)
    judge_client = JudgeClient(judge, timeout=30, concurrency=1, clock=time, sleep=time.sleep, chance=chance)
    at = Desk(time, judge, judge_client)
    run(at.ask(*(other(n) for n in range(3))))
    assert times(at)[1:] == sorted(times(at)[1:])
    assert 5.0 < times(at)[1] < 5.5


def test_being_told_to_wait_is_not_failing() -> None:
    """Only the deadline bounds how often; the circuit stays closed."""
    at = desk(*[later(1.0)] * 25, GOOD)
    assert run(at.ask(CALL)) == [GOOD]
    assert times(at) == list(range(26))
    assert at.judge_client.state == "closed"


def test_a_wait_that_cannot_end_in_time_is_not_begun() -> None:
    """The call fails at once, and so does every other until it can be in time; nobody asks."""
    at = desk(later(60.0), GOOD)

    async def main() -> None:
        assert reasons(await at.ask(other(1))) == ["unavailable"]
        outcome = await at.ask(other(2))
        assert reasons(outcome) == ["unavailable"]
        assert "60.0 s" in str(outcome[0])
        assert at.time.now < 1001
        at.time.now = 1000 + 45.0
        assert await at.ask(other(3)) == [GOOD]

    run(main())
    assert times(at) == [0, 60.0]


def test_a_later_answer_does_not_shorten_the_wait() -> None:
    """The longest of what was asked for holds."""
    at = desk(later(10.0), later(2.0), GOOD)
    assert run(at.ask(other(1), other(2))) == [GOOD, GOOD]
    assert times(at)[2:] == [10.0, 10.0]


@pytest.mark.parametrize("seconds", [float("nan"), -5.0, 0.0])
def test_a_retry_after_that_means_nothing_does_not_spin(seconds: float) -> None:
    """Pauses keep their length."""
    at = desk(later(seconds), later(seconds), GOOD)
    assert run(at.ask(CALL)) == [GOOD]
    assert times(at) == [0, 0.125, 0.375]


@pytest.mark.parametrize("seconds", [1e-9, 0.001, 0.5])
def test_a_tiny_retry_after_is_no_permission_to_ask_all_the_time(seconds: float) -> None:
    """Tries stay unlimited within the deadline, as the judge is not failing, but their pauses grow as usual."""
    at = desk(*[later(seconds)] * 100, timeout=30.0)
    assert reasons(run(at.ask(CALL))) == ["unavailable"]
    assert 5 <= len(times(at)) <= 12


def test_a_retry_after_of_a_century_is_an_hour() -> None:
    """A lying judge is not lost for ever."""
    at = desk(later(float("inf")), GOOD)

    async def main() -> None:
        assert reasons(await at.ask(other(1))) == ["unavailable"]
        at.time.advance(3600)
        assert await at.ask(other(2)) == [GOOD]

    run(main())


def test_without_a_deadline_a_judge_that_always_says_later_is_given_up() -> None:
    """After as many tries as one that fails."""
    at = desk(later(1.0), timeout=None)
    assert reasons(run(at.ask(CALL))) == ["unavailable"]
    assert times(at) == [0, 1, 2, 3]


# --- the circuit breaker ---------------------------------------------------------------------------------------------


def opened(*then: Judgement | BaseException, **settings: Any) -> Desk:
    """An judge_client whose circuit has just been opened by ten failures in three calls; the judge goes on as given."""
    return desk(*[DOWN] * 10, *then, **settings)


async def open_circuit(at: Desk) -> None:
    await at.ask_in_turn(3)
    assert at.judge_client.state == "open"
    assert len(at.judge.calls) == 10


def test_a_call_that_no_judge_survives_does_not_open_the_circuit() -> None:
    """It is given up before."""
    at = desk(DOWN, DOWN, DOWN, DOWN, GOOD)
    assert reasons(run(at.ask_in_turn(3))) == ["unavailable", "", ""]
    assert at.judge_client.state == "closed"


def test_a_judge_that_keeps_failing_is_left_alone() -> None:
    """Calls fail at once, without being put to it, with what is the matter."""
    at = opened(GOOD)

    async def main() -> None:
        await open_circuit(at)
        before = at.time.now
        outcomes = await at.ask(other(10), other(11))
        assert reasons(outcomes) == ["unavailable", "unavailable"]
        assert "kept failing" in str(outcomes[0])
        assert (at.time.now, len(at.judge.calls)) == (before, 10)

    run(main())


def test_after_a_pause_one_call_at_a_time_tries_it() -> None:
    """The others fail at once until it is known how that went; then all are let through."""
    at = desk(judge=lambda time: Held())
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> None:
        failing = asyncio.gather(*(at.judge_client.ask(other(n)) for n in range(10)), return_exceptions=True)
        await settle()
        for question in judge.questions:
            question.set_exception(JudgeError("unavailable", retryable=False))
        await failing
        assert at.judge_client.state == "open"
        at.time.advance(5.0)
        assert at.judge_client.state == "half_open"
        probe = asyncio.ensure_future(at.judge_client.ask(other(20)))
        await settle()
        assert reasons(await at.ask(other(21))) == ["unavailable"]
        judge.questions[-1].set_result(GOOD)
        assert await probe == GOOD
        assert at.judge_client.state == "closed"

    run(main())


def test_a_probe_that_fails_doubles_the_pause() -> None:
    """Up to a minute."""
    at = opened(JudgeError("unavailable", retryable=False))

    async def main() -> list[float]:
        await open_circuit(at)
        pauses: list[float] = []
        for n in range(5):
            pauses.append(at.judge_client.status.waits_s)
            at.time.advance(pauses[-1])
            assert reasons(await at.ask(other(10 + n))) == ["unavailable"]
        return [*pauses, at.judge_client.status.waits_s]

    assert run(main()) == [5, 10, 20, 40, 60, 60]
    assert len(at.judge.calls) == 15


def test_a_probe_that_is_cancelled_makes_way_for_the_next() -> None:
    """Nobody would ever ask again otherwise."""
    at = desk(judge=lambda time: Held())
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> None:
        failing = asyncio.gather(*(at.judge_client.ask(other(n)) for n in range(10)), return_exceptions=True)
        await settle()
        for question in judge.questions:
            question.set_exception(JudgeError("unavailable", retryable=False))
        await failing
        at.time.advance(5.0)
        probe = asyncio.ensure_future(at.judge_client.ask(other(20)))
        await settle()
        probe.cancel()
        await asyncio.wait({probe})
        asked = asyncio.ensure_future(at.judge_client.ask(other(21)))
        await settle()
        judge.questions[-1].set_result(GOOD)
        assert await asked == GOOD

    run(main())


def test_answers_to_what_was_asked_before_it_opened_do_not_close_it() -> None:
    """They are old news."""
    at = desk(judge=lambda time: Held())
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> None:
        asked = asyncio.gather(*(at.judge_client.ask(other(n)) for n in range(12)), return_exceptions=True)
        await settle()
        for question in judge.questions[:10]:
            question.set_exception(JudgeError("unavailable", retryable=False))
        await settle()
        assert at.judge_client.state == "open"
        for question in judge.questions[10:]:
            question.set_result(GOOD)
        assert reasons(await asked)[10:] == ["", ""]
        assert at.judge_client.state == "open"

    run(main())


def test_a_judge_that_mostly_fails_is_left_alone_too() -> None:
    """Three quarters of the last forty."""
    once = JudgeError("unavailable", retryable=False)
    at = desk(*[once, once, once, GOOD] * 20)
    outcomes = run(at.ask_in_turn(60))
    assert at.judge_client.state == "open"
    assert len(at.judge.calls) == 40
    assert reasons(outcomes)[40:] == ["unavailable"] * 20


def test_a_call_that_had_little_time_left_does_not_speak_against_the_judge() -> None:
    """It was not the judge that took the time."""

    class Slowly(Held):
        async def judge(self, call: RagCall) -> Judgement:
            if len(self.calls) < 12:
                self.calls.append(call)
                raise later(1.5)
            return await super().judge(call)

    at = desk(judge=lambda time: Slowly(), timeout=2.0)
    assert reasons(run(at.ask(*(other(n) for n in range(12))))) == ["timeout"] * 12
    assert len(at.judge.calls) == 24
    assert at.judge_client.state == "closed"


@pytest.mark.parametrize("reason", ["refused", "unparsable"])
def test_an_answer_that_is_no_judgement_is_not_a_failure_of_the_circuit(reason: str) -> None:
    """The judge is there."""
    at = desk(JudgeError(reason))
    run(at.ask_in_turn(50))
    assert at.judge_client.state == "closed"
    assert len(at.judge.calls) == 50


# --- identical calls -------------------------------------------------------------------------------------------------


def test_an_identical_call_is_judged_once() -> None:
    """The second costs nothing, and says so."""
    at = desk(replace(GOOD, n_calls=2, cost_usd=0.01, attributes={"mode": "x"}))
    first, second = run(at.ask(CALL)) + run(at.ask(replace(CALL, workflow="another")))
    assert (first.n_calls, first.input_tokens, first.cost_usd) == (2, 30, 0.01)
    assert (second.n_calls, second.input_tokens, second.output_tokens, second.cost_usd) == (0, 0, 0, 0.0)
    assert (second.claims, second.attributes) == (first.claims, {"mode": "x", "cached": True})
    assert (len(at.judge.calls), at.judge_client.status.asked, at.judge_client.status.spared) == (1, 1, 1)


@pytest.mark.parametrize(
    "call",
    [
        replace(CALL, query="where is it?"),
        replace(CALL, query=None),
        replace(CALL, query=""),
        replace(CALL, contexts=None),
        replace(CALL, contexts=()),
        replace(CALL, contexts=(Document("Paris is a big city."), Document(""))),
        replace(CALL, contexts=(Document("Paris is a "), Document("big city."))),
        replace(CALL, contexts=(Document("Paris is a big city.", id="7"),)),
        replace(CALL, answer="Paris is big. Paris is on Mars. \ud800"),
        replace(CALL, reference="Paris"),
    ],
    ids=repr,
)
def test_a_call_that_differs_is_judged_anew(call: RagCall) -> None:
    """In anything that a judge may judge by."""
    at = desk(GOOD)
    run(at.ask(CALL))
    run(at.ask(call))
    run(at.ask(call))
    assert len(at.judge.calls) == 2


def test_another_version_of_a_judge_judges_anew() -> None:
    """A rubric may have changed."""
    at = desk(GOOD)
    run(at.ask(CALL))
    at.judge.version = "2"
    assert run(at.ask(CALL)) == [GOOD]


def test_a_failure_is_not_remembered() -> None:
    """The next identical call is judged."""
    at = desk(JudgeError("refused"), GOOD)
    assert reasons(run(at.ask(CALL))) == ["refused"]
    assert run(at.ask(CALL)) == [GOOD]


def test_memory_is_bounded() -> None:
    """What was used longest ago is forgotten first."""
    at = desk(GOOD, remembered=2)
    for n in (1, 2, 1, 3, 1, 2):
        run(at.ask(other(n)))
    assert [call.query for call in at.judge.calls] == ["question 1", "question 2", "question 3", "question 2"]


@pytest.mark.parametrize(
    "judgement",
    [
        replace(GOOD, claims=(Claim("x" * 200_000, 0, 200_000, "supported"),)),
        replace(GOOD, claims=(object(),)),  # type: ignore[arg-type]
        replace(GOOD, sentences=(Sentence("x" * 200_000, 0, 200_000, "yes"),)),
        replace(GOOD, nuggets=(Nugget("x" * 200_000, "vital", None),)),
        replace(GOOD, answer_facts=(Fact("x" * 60_000, None),), reference_facts=(Fact("x" * 60_000, None),)),
        replace(GOOD, ratings={"own": Rating(1.0, "single", "x" * 200_000)}),
        replace(GOOD, questions=("x" * 200_000,)),
        replace(GOOD, intentions=[None]),  # type: ignore[arg-type]
    ],
    ids=["huge", "object", "sentences", "nuggets", "facts", "ratings", "questions", "a list"],
)
def test_a_judgement_that_is_huge_or_malformed_is_not_remembered(judgement: Judgement) -> None:
    """It is handed on as it is."""
    at = desk(judgement)
    assert run(at.ask(CALL)) + run(at.ask(CALL)) == [judgement, judgement]


async def _asked_again(judge: FakeJudge) -> list[Judgement]:
    client = JudgeClient(judge)
    return [await client.ask(CALL), await client.ask(CALL, bypass_cache=True), await client.ask(CALL)]


def test_a_call_can_be_judged_again() -> None:
    """The cache is neither read nor written."""
    judge = FakeJudge(replace(GOOD, mode="first"), replace(GOOD, mode="second"))
    assert [judgement.mode for judgement in asyncio.run(_asked_again(judge))] == ["first", "second", "first"]
    assert len(judge.calls) == 2


@pytest.mark.parametrize(
    ("attributes", "served"),
    [
        ({"judge_model": "big-2", "judge_fingerprint": "fp_1"}, "big-2 fp_1"),
        ({"judge_model": "big-2"}, "big-2"),
        ({"judge_model": 5}, ""),
        ({}, ""),
    ],
)
def test_an_evaluation_names_the_served_model(attributes: dict[str, Any], served: str) -> None:
    """Model and fingerprint, as far as the judge's server sent them."""
    evaluator = Evaluator(FakeJudge(replace(GOOD, attributes=attributes)), registry.resolve(["faithfulness"]))
    assert asyncio.run(evaluate(evaluator, CALL)).served_model == served


def test_identical_calls_in_flight_are_judged_once() -> None:
    """Those that came later wait for the first."""
    at = desk(judge=lambda time: Held())
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> list[Judgement]:
        asked = asyncio.gather(*(at.judge_client.ask(CALL) for _ in range(5)))
        await settle()
        assert len(judge.questions) == 1
        judge.questions[0].set_result(GOOD)
        return list(await asked)

    judgements = run(main())
    assert [judgement.input_tokens for judgement in judgements] == [30, 0, 0, 0, 0]
    assert all(judgement.claims == GOOD.claims for judgement in judgements)


def test_those_who_wait_for_an_identical_call_share_its_failure() -> None:
    """Asking again for each of them would be a burst at a judge in trouble."""
    at = desk(JudgeError("refused", "policy"))
    outcomes = run(at.ask(CALL, CALL, CALL))
    assert [str(outcome) for outcome in outcomes] == ["refused: policy"] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert len(at.judge.calls) == 1


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_who_waits_for_a_call_whose_time_is_over_asks_itself(how: str) -> None:
    """That the first was cancelled, or was short of time, says nothing about the second."""
    at = desk(judge=lambda time: Held())
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> None:
        first, second = (asyncio.ensure_future(at.judge_client.ask(CALL)) for _ in range(2))
        await settle()
        if how == "cancelled":
            first.cancel()
        else:
            judge.questions[0].set_exception(JudgeError("timeout", retryable=False))
        await asyncio.wait({first})
        await settle()
        judge.questions[1].set_result(GOOD)
        assert await second == GOOD

    run(main())


def test_waiting_for_an_identical_call_ends_with_the_deadline() -> None:
    """Even if that call has no end."""

    class Stubborn(Held):
        async def judge(self, call: RagCall) -> Judgement:
            await super().judge(call)
            raise AssertionError

    at = desk(judge=lambda time: Stubborn(), timeout=0.02)
    assert reasons(run(at.ask(CALL, CALL))) == ["timeout", "timeout"]


# --- time and number -------------------------------------------------------------------------------------------------


def test_a_judge_that_hangs_is_given_up_at_the_deadline() -> None:
    """With the time it had."""
    at = desk(judge=lambda time: Held(), timeout=0.02)
    [error] = run(at.ask(CALL))
    assert error.reason == "timeout"
    assert "0.02 s" in str(error)


def test_waiting_for_a_place_counts_as_the_calls_time() -> None:
    """It is not queued for ever."""
    at = desk(judge=lambda time: Held(), timeout=0.05, concurrency=1)
    outcomes = run(at.ask(other(1), other(2), other(3)))
    assert reasons(outcomes) == ["timeout"] * 3
    assert sum("all 1 concurrent judge calls were busy" in str(outcome) for outcome in outcomes) >= 1
    assert (at.judge_client.status.in_flight, at.judge_client.status.queued) == (0, 0)


def test_a_judge_sees_no_more_calls_at_a_time_than_it_may() -> None:
    """The others wait, and come in the order of their arrival."""
    at = desk(judge=lambda time: Held(), concurrency=3)
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> None:
        asked = asyncio.gather(*(at.judge_client.ask(other(n)) for n in range(8)))
        await settle()
        standing = at.judge_client.status
        assert (len(judge.questions), standing.in_flight, standing.queued) == (3, 3, 5)
        for n in range(8):
            judge.questions[n].set_result(GOOD)
            await settle()
        await asked

    run(main())
    assert [call.query for call in judge.calls] == [f"question {n}" for n in range(8)]


def test_a_cancelled_call_gives_its_place_back() -> None:
    """Whether it was being judged or waiting."""
    at = desk(judge=lambda time: Held(), concurrency=1)
    judge = at.judge
    assert isinstance(judge, Held)

    async def main() -> None:
        tasks = [asyncio.ensure_future(at.judge_client.ask(other(n))) for n in range(3)]
        await settle()
        tasks[1].cancel()
        tasks[0].cancel()
        await settle()
        judge.questions[-1].set_result(GOOD)
        assert await tasks[2] == GOOD
        assert tasks[0].cancelled()
        assert tasks[1].cancelled()

    run(main())
    assert (at.judge_client.status.in_flight, at.judge_client.status.queued) == (0, 0)


# --- judges that are plain functions, and judges that compute --------------------------------------------------------


class Plain(FakeJudge):
    """A judge whose `judge` is a plain function."""

    def __init__(self, give: Callable[[RagCall], Any]) -> None:
        super().__init__(GOOD)
        self.give = give

    def judge(self, call: RagCall) -> Any:
        return self.give(call)


def test_a_plain_function_runs_in_a_thread_that_ends_with_the_process() -> None:
    """And so blocks nobody."""
    seen: list[threading.Thread] = []

    def give(call: RagCall) -> Judgement:
        seen.append(threading.current_thread())
        return GOOD

    assert run(JudgeClient(Plain(give), timeout=WAIT_S).ask(CALL)) == GOOD
    assert seen[0] is not threading.current_thread()
    assert seen[0].daemon


def test_several_plain_functions_run_at_a_time() -> None:
    """As many as the judge may see."""
    together = threading.Barrier(4)

    def give(call: RagCall) -> Judgement:
        together.wait(WAIT_S)
        return GOOD

    judge_client = JudgeClient(Plain(give), timeout=WAIT_S, concurrency=4)

    async def main() -> list[Judgement]:
        return list(await asyncio.gather(*(judge_client.ask(other(n)) for n in range(4))))

    assert run(main()) == [GOOD] * 4


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (JudgeError("refused"), "refused"),
        (RuntimeError("boom"), "unavailable"),
        (SystemExit(3), "unavailable"),
        (KeyboardInterrupt(), "unavailable"),
        (StopIteration(), "unavailable"),
    ],
    ids=repr,
)
def test_a_plain_function_that_raises_leaves_a_reason(error: BaseException, reason: str) -> None:
    """Whatever it raises."""

    def give(call: RagCall) -> Judgement:
        raise error

    with pytest.raises(JudgeError) as raised:
        run(JudgeClient(Plain(give), timeout=WAIT_S).ask(CALL))
    assert raised.value.reason == reason


def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    """A decorated coroutine function looks plain."""

    async def give(call: RagCall) -> Judgement:
        return GOOD

    assert run(JudgeClient(Plain(give), timeout=WAIT_S).ask(CALL)) == GOOD


def test_a_thread_that_hangs_is_left_to_itself_and_counted() -> None:
    """Until it returns; when too many hang, the judge is unavailable at once."""
    release = threading.Event()

    def give(call: RagCall) -> Judgement:
        release.wait(WAIT_S)
        return GOOD

    judge_client = JudgeClient(Plain(give), timeout=2.0, concurrency=2)  # time for the threads to begin

    async def main() -> None:
        hung = await asyncio.gather(*(judge_client.ask(other(n)) for n in range(2)), return_exceptions=True)
        assert reasons(list(hung)) == ["timeout", "timeout"]
        assert judge_client.status.hung_threads == 2
        assert faults.counts() == {"hung thread: judge fake": 2}
        with pytest.raises(JudgeError, match=r"2 threads of .* still hang"):
            await judge_client.ask(other(5))
        release.set()
        while judge_client.status.hung_threads:  # noqa: ASYNC110  # no event says that a thread has returned
            await asyncio.sleep(0)
        assert await judge_client.ask(other(6)) == GOOD

    run(main())


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "plain"])
def test_a_judge_that_computes_is_asked_directly(plain: bool) -> None:
    """In the caller's own task and thread, every time, without a time limit."""
    seen: list[tuple[object, object]] = []

    class Computing(FakeJudge):
        computes = True

        async def judge(self, call: RagCall) -> Judgement:
            seen.append((asyncio.current_task(), threading.current_thread()))
            return GOOD

    def give(call: RagCall) -> Judgement:
        seen.append((asyncio.current_task(), threading.current_thread()))
        return GOOD

    judge = Plain(give) if plain else Computing(GOOD)
    judge.computes = True  # type: ignore[union-attr]
    judge_client = JudgeClient(judge, timeout=1e-9)

    async def main() -> None:
        assert [await judge_client.ask(CALL), await judge_client.ask(CALL)] == [GOOD, GOOD]
        assert seen == [(asyncio.current_task(), threading.current_thread())] * 2

    run(main())


# --- metrics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slow:
    """A user's metric that does what it was told."""

    give: Callable[[], Result]
    name: str = "slow"
    version: str = "1"
    higher_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    needs: frozenset[str] = frozenset({"claims"})
    computes: bool = False

    def __call__(self, call: RagCall, judgement: Judgement) -> Result:
        return self.give()


def score(metric: Metric, timeout: float = WAIT_S) -> Result:
    evaluator = Evaluator(FakeJudge(HALF), (metric, *registry.all()), timeout)
    return run(evaluate(evaluator, CALL)).results["slow"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("computes", [False, True])
def test_a_users_metric_runs_in_a_thread_unless_it_only_computes(computes: bool) -> None:
    """A model or a request in it must not hold up the background."""
    seen: list[threading.Thread] = []

    def give() -> Result:
        seen.append(threading.current_thread())
        return Score(0.5)

    assert isinstance(score(Slow(give, computes=computes)), Score)
    assert (seen == [threading.current_thread()]) is computes


def test_a_metric_that_hangs_is_unscored() -> None:
    """The others have their numbers."""
    release = threading.Event()

    def give() -> Result:
        release.wait(WAIT_S)
        return Score(0.5)

    result = score(Slow(give), timeout=0.05)
    release.set()
    assert isinstance(result, Unscored)
    assert (result.reason, result.explanation) == ("metric_error", "no result within 0.05 s")


def test_a_metric_that_ends_the_program_does_not() -> None:
    """It has an error, and is counted."""

    def give() -> Result:
        raise SystemExit(3)

    result = score(Slow(give))
    assert isinstance(result, Unscored)
    assert (result.reason, faults.counts()) == ("metric_error", {"metric slow": 1})


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_retry_after_that_is_no_pause_leaves_tries_limited(seconds: float) -> None:
    """A judge that says so is failing like one that says nothing: four tries, and then its circuit opens."""
    at = desk(later(seconds), timeout=60.0)
    outcomes = run(at.ask_in_turn(20))
    assert reasons(outcomes) == ["unavailable"] * 20
    assert len(at.judge.calls) == 10
    assert at.judge_client.state == "open"
