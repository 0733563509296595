"""Estimates from moments: what they are, where they end, and that the sums behind them are exact."""

from __future__ import annotations

import gc
import math
import random
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragtrace
from ragtrace.core.errors import SettingsError, UnknownMetricError
from ragtrace.core.types import Evaluation, Judgement, RagCall, SamplingDecision, Score, Unscored
from ragtrace.estimates import (
    NAMES,
    Estimate,
    Method,
    MetricAssignment,
    Moments,
    RunningMoments,
    SeriesKey,
    Target,
    difference,
    estimate_mean,
    judged_moments,
    unjudged_moments,
)
from ragtrace.estimates.moments import MOST_SERIES, OLDEST
from ragtrace.system.faults import faults
from ragtrace.testing import FakeClock, FakeJudge
from tests.support.scored import EVERY, screen
from tests.support.watched import CLAIMS, GOOD, ask, watch

METHODS: tuple[Method, ...] = ("weighted", "fixed", "tuned")
TARGETS: tuple[Target, ...] = ("rate", "traffic")
SERIES = SeriesKey("hallucination", "judge", "guide")


def judged(*ys: float, p: float = 1.0, f: float = 0.0) -> Moments:
    """Calls that were all judged, with these scores."""
    return sum((unjudged_moments(f) + judged_moments(y, p, f) for y in ys), Moments())


def ends(estimate: Estimate) -> tuple[float, float, float]:
    """Low, value, high of an estimate that exists."""
    assert estimate.low is not None
    assert estimate.value is not None
    assert estimate.high is not None
    return estimate.low, estimate.value, estimate.high


scores = st.floats(0, 1, allow_subnormal=False)
calls = st.lists(st.tuples(scores, scores, st.floats(1e-4, 1), st.booleans()), min_size=1, max_size=30)
"""y, f, p and whether it was judged."""
sixteenths = st.integers(0, 16).map(lambda part: part / 16)
coarse_calls = st.lists(st.tuples(sixteenths, sixteenths, st.floats(1e-2, 1), st.booleans()), min_size=1, max_size=30)
"""The same where 1 - y is exact: what is near the rounding of 0 may be it on one side only."""


def moments_of(found: list[tuple[float, float, float, bool]]) -> Moments:
    total = Moments()
    for y, f, p, was_judged in found:
        total += unjudged_moments(f)
        if was_judged:
            total += judged_moments(y, p, f)
    return total


# --- the estimate ----------------------------------------------------------------------------------------------------


def test_a_judged_call_stands_for_as_many_as_it_was_drawn_from() -> None:
    """One bad call at p = 1 and one good at p = 0.1: one in eleven."""
    estimate = estimate_mean(judged(1.0) + judged(0.0, p=0.1), method="weighted")
    assert estimate.value == pytest.approx(1 / 11)


def test_alike_weights_give_the_wilson_interval_nearly() -> None:
    """8 of 100: Wilson with continuity correction is [0.0377, 0.1561]; ours is close."""
    low, value, high = ends(estimate_mean(judged(*[1.0] * 8, *[0.0] * 92), method="weighted"))
    assert value == pytest.approx(0.08)
    assert (low, high) == (pytest.approx(0.0377, abs=0.001), pytest.approx(0.1561, abs=0.001))


def test_the_effective_number_of_alike_calls_is_their_number() -> None:
    """This holds however small the common probability is."""
    assert estimate_mean(judged(*[0.0, 1.0] * 20, p=0.01)).effective_n == pytest.approx(40)


def test_the_screen_corrects_for_the_luck_of_the_sample() -> None:
    """A screen that is always right, and a sample with too many bad calls: the estimate is near the screen's mean."""
    traffic = sum((unjudged_moments(float(i % 10 == 0)) for i in range(1000)), Moments())
    sample = sum((judged_moments(float(i < 20), 0.1, float(i < 20)) for i in range(100)), Moments())
    plain, powered = estimate_mean(traffic + sample, method="weighted"), estimate_mean(traffic + sample)
    assert plain.value == pytest.approx(0.2)
    assert powered.value == pytest.approx(0.1, abs=0.01)
    assert powered.weight == pytest.approx(1.0, abs=0.05)
    assert ends(powered)[2] - ends(powered)[0] < 0.6 * (ends(plain)[2] - ends(plain)[0])


def test_a_screen_that_knows_nothing_is_not_used() -> None:
    """Its weight stays near 0 and the interval as wide as without it."""
    chance = random.Random(1)
    total = Moments()
    for _ in range(4000):
        f = chance.random()
        total += unjudged_moments(f)
        if chance.random() < 0.1:
            total += judged_moments(float(chance.random() < 0.3), 0.1, f)
    estimate = estimate_mean(total)
    assert abs(estimate.weight) < 0.2
    plain = estimate_mean(total, method="weighted")
    assert ends(estimate)[2] - ends(estimate)[0] == pytest.approx(ends(plain)[2] - ends(plain)[0], rel=0.02)


def test_without_a_screen_the_judged_calls_stand_alone() -> None:
    """f = 0 everywhere: all methods agree."""
    total = judged(*[0.0] * 30, 1.0, 0.5, p=0.2)
    found = [ends(estimate_mean(total, method=method))[1] for method in METHODS]
    assert found == [pytest.approx(found[0])] * 3
    assert estimate_mean(total).weight == 0.0


def test_what_was_judged_entirely_is_known() -> None:
    """The traffic that happened has no error left; the rate behind it has."""
    low, value, high = ends(estimate_mean(judged(1.0, *[0.0] * 49), of="traffic"))
    assert (low, high) == (pytest.approx(value, abs=1e-9), pytest.approx(value, abs=1e-9))
    low, _, high = ends(estimate_mean(judged(1.0, *[0.0] * 49), of="rate"))
    assert high - low > 0.08


# --- the edges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_nothing_judged_is_no_estimate(method: Method) -> None:
    """Not 0, not NaN: a reason, and how many calls there were."""
    estimate = estimate_mean(unjudged_moments(0.3) + unjudged_moments(0.1), method=method)
    assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
    assert (estimate.n, estimate.effective_n, estimate.reason) == (2, 0.0, "nothing_judged")


@pytest.mark.parametrize("y", [0.0, 0.5, 1.0])
def test_one_judged_call_says_little(y: float) -> None:
    """The interval of a single judged call covers most of the scale."""
    low, value, high = ends(estimate_mean(judged(y)))
    assert value == y
    assert high - low > 0.6


@pytest.mark.parametrize("count", [10, 100, 10_000])
def test_no_bad_call_seen_does_not_mean_there_is_none(count: int) -> None:
    """The upper end is at least four fifths of the exact one (Clopper and Pearson), and falls with the count."""
    low, value, high = ends(estimate_mean(judged(*[0.0] * count)))
    exact = 1 - 0.025 ** (1 / count)
    assert (low, value) == (0.0, 0.0)
    assert 0.8 * exact < high < 2 * exact


def test_a_tiny_p_is_a_wide_interval() -> None:
    """One call judged at one in a million, after a hundred at p = 1: it outweighs them, and the interval knows."""
    low, value, high = ends(estimate_mean(judged(*[0.0] * 100) + judged(1.0, p=1e-6), method="weighted"))
    assert value > 0.99
    assert low < 0.2
    assert high == pytest.approx(1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", TARGETS)
@given(found=calls)
def test_an_interval_is_within_0_and_1_around_its_value(
    method: Method, target: Target, found: list[tuple[float, float, float, bool]]
) -> None:
    """Whatever the calls: finite, ordered, or a reason."""
    estimate = estimate_mean(moments_of(found), method=method, of=target)
    if estimate.value is None:
        assert estimate.reason
        return
    low, value, high = ends(estimate)
    assert all(math.isfinite(x) for x in (low, value, high))
    assert 0.0 <= low <= value <= high <= 1.0


@given(found=calls)
def test_tuning_never_widens_the_interval(found: list[tuple[float, float, float, bool]]) -> None:
    """This holds for the rate and for the traffic."""
    moments = moments_of(found)
    for target in TARGETS:
        tuned, plain = estimate_mean(moments, of=target), estimate_mean(moments, method="weighted", of=target)
        if tuned.value is not None:
            assert ends(tuned)[2] - ends(tuned)[0] <= (ends(plain)[2] - ends(plain)[0]) * (1 + 1e-9) + 1e-12


@given(found=coarse_calls)
def test_good_and_bad_are_treated_alike(found: list[tuple[float, float, float, bool]]) -> None:
    """The interval for 1 - y is the mirror image of that for y: faithfulness and hallucination agree."""
    mirrored = [(1.0 - y, 1.0 - f, p, was_judged) for y, f, p, was_judged in found]
    for method in METHODS:
        here, there = (
            estimate_mean(moments_of(found), method=method),
            estimate_mean(moments_of(mirrored), method=method),
        )
        if here.value is not None:
            low, value, high = ends(there)
            assert ends(here) == pytest.approx((1.0 - high, 1.0 - value, 1.0 - low), abs=1e-6)


def older(moments: Moments) -> Moments:
    """As a version has recorded them that did not know the sums without weights."""
    return Moments(*(value if name in OLDEST else 0.0 for name, value in zip(NAMES, moments.values(), strict=True)))


def test_sums_of_an_older_version_give_the_same_mean() -> None:
    """With an interval around it, which no longer knows where bad calls may hide."""
    total = judged(*[0.0] * 30, p=0.05, f=0.1) + judged(*[1.0] * 10, *[0.0] * 5, p=0.5, f=0.7)
    low, value, high = ends(estimate_mean(older(total), method="weighted"))
    assert value == ends(estimate_mean(total, method="weighted"))[1]
    assert low < value < high


def test_a_bad_call_may_hide_where_calls_are_seldom_judged() -> None:
    """All suspicious calls bad, no other: the screen counts less than where its own scores tell bad from good."""
    others = judged(*[0.0] * 30, p=0.05, f=0.1)
    all_bad = others + judged(*[1.0] * 10, p=0.5, f=0.9)
    separated = others + judged(*[1.0] * 10, p=0.5, f=0.9) + judged(*[0.0] * 20, p=0.5, f=0.3)
    found = [ends(estimate_mean(moments, method="weighted")) for moments in (all_bad, separated)]
    upper = [high - value for _, value, high in found]
    assert upper[0] > 1.5 * upper[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", TARGETS)
@given(found=calls, mixed=st.booleans())
def test_a_fleet_of_two_versions_has_an_interval(
    method: Method, target: Target, found: list[tuple[float, float, float, bool]], mixed: bool
) -> None:
    """Whether all replicas are of the older one or some: finite and ordered."""
    half = len(found) // 2 if mixed else len(found)
    estimate = estimate_mean(older(moments_of(found[:half])) + moments_of(found[half:]), method=method, of=target)
    if estimate.value is not None:
        low, value, high = ends(estimate)
        assert 0.0 <= low <= value <= high <= 1.0


def test_numbers_that_no_calls_can_have_are_refused() -> None:
    """A negative sum or a NaN: the caller passed rates or differences."""
    for wrong in (Moments(w=-1.0), Moments(w=math.nan, ww=1.0)):
        with pytest.raises(SettingsError, match="pass sums"):
            estimate_mean(wrong)


def test_an_unknown_method_is_refused() -> None:
    """The message says which there are."""
    with pytest.raises(SettingsError, match="weighted, fixed, tuned"):
        estimate_mean(judged(1.0), method="best")  # type: ignore[arg-type]


def test_a_score_outside_its_range_has_no_moments() -> None:
    """A probability of 0 has none, either."""
    for y, p in ((1.5, 1.0), (0.5, 0.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="in \\[0, 1\\]"):
            judged_moments(y, p)


def test_sums_by_name_are_moments() -> None:
    """They are read as a backend returns them; an unknown name is refused."""
    total = judged(1.0, 0.25, p=0.5, f=0.75)
    assert Moments.from_sums(dict(zip(NAMES, total.values(), strict=True))) == total
    with pytest.raises(ValueError, match="no moment is called wwww"):
        Moments.from_sums({"wwww": 1.0})


def test_an_estimate_reads_as_text() -> None:
    """The text is value and interval, or the reason why there is none."""
    assert str(estimate_mean(judged(0.0, 1.0), metric="hallucination")).startswith("hallucination 0.5 [")
    assert str(estimate_mean(Moments(), metric="hallucination")) == "hallucination unknown (nothing_judged)"


# --- the difference --------------------------------------------------------------------------------------------------


def test_a_difference_has_an_interval_of_its_own() -> None:
    """5 % against 15 % of 400 calls each: above 0, and narrower than the two intervals together."""
    before, after = judged(*[1.0] * 20, *[0.0] * 380), judged(*[1.0] * 60, *[0.0] * 340)
    found = difference(estimate_mean(after), estimate_mean(before))
    assert found is not None
    value, low, high = found
    assert value == pytest.approx(0.1)
    assert 0.0 < low < value < high < 0.2


def test_what_is_unknown_has_no_difference() -> None:
    """This holds for an unknown estimate on either side."""
    known, unknown = estimate_mean(judged(1.0)), estimate_mean(Moments())
    assert difference(known, unknown) is None
    assert difference(unknown, known) is None


# --- the running sums ------------------------------------------------------------------------------------------------


def test_sums_of_processes_add_up() -> None:
    """Estimates from the pooled calls and from the sum of two processes' moments are the same."""
    first, second = judged(1.0, 0.0, 0.5, p=0.5, f=0.25), judged(0.0, 0.0, 1.0, p=0.1, f=0.75)
    pooled = RunningMoments()
    for moments in (first, second):
        pooled.add(SERIES, moments)
    assert estimate_mean(pooled.sum("hallucination")) == estimate_mean(first + second)


def test_nothing_is_lost_between_threads() -> None:
    """Eight threads, 2,000 calls each, all in the sums."""
    running, together = RunningMoments(), threading.Barrier(8)

    def work(y: float) -> None:
        together.wait()
        for _ in range(2000):
            running.add(SERIES, unjudged_moments(0.5) + judged_moments(y, 0.5, 0.5))

    threads = [threading.Thread(target=work, args=(number / 8,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = running.sum("hallucination")
    assert (total.n, total.f, total.w, total.ww) == (16_000, 8_000, 32_000, 64_000)
    assert total.wy == pytest.approx(2 * 2000 * sum(number / 8 for number in range(8)))


def test_a_window_forgets() -> None:
    """After an hour nothing of the first calls is in any window; the counters keep them."""
    clock = FakeClock()
    running = RunningMoments(clock=clock)
    running.add(SERIES, judged(1.0))
    clock.advance(600)
    running.add(SERIES, judged(0.0))
    assert running.sum("hallucination", window=60).wy == 0.0
    assert running.sum("hallucination", window=900).wy == 1.0
    clock.advance(4000)
    running.add(SERIES, judged(0.0))
    assert running.sum("hallucination", window=3600).n == 1
    assert running.sum("hallucination").n == 3


@pytest.mark.parametrize("window", [0, -1, 3601, math.nan])
def test_a_window_that_is_not_kept_is_refused(window: float) -> None:
    """The message names the longest window."""
    with pytest.raises(SettingsError, match="3600"):
        RunningMoments().sum("hallucination", window=window)


def test_series_are_kept_apart() -> None:
    """By workflow and by model; without either, all of them."""
    running = RunningMoments()
    running.add(SERIES._replace(model="a"), judged(1.0))
    running.add(SERIES._replace(model="b"), judged(0.0))
    running.add(SERIES._replace(workflow="other"), judged(0.0))
    assert running.sum("hallucination").n == 3
    assert running.sum("hallucination", workflow="guide").n == 2
    assert running.sum("hallucination", model="a").wy == 1.0
    assert running.sum("faithfulness").n == 0


def test_the_exported_sums_are_by_metric_evaluator_and_workflow() -> None:
    """Further labels are summed: they are not on the wire."""
    running = RunningMoments()
    running.add(SERIES._replace(model="a"), judged(1.0))
    running.add(SERIES._replace(model="b"), judged(0.0))
    assert running.totals() == {("hallucination", "judge", "guide"): judged(1.0, 0.0)}


def test_too_many_workflows_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    """No call is lost, and one warning is logged."""
    faults.clear()
    running = RunningMoments()
    for number in range(MOST_SERIES + 5):
        running.add(SERIES._replace(workflow=f"w{number}"), judged(0.0))
    assert running.sum("hallucination").n == MOST_SERIES + 5
    assert running.sum("hallucination", workflow="other").n == 5
    assert faults.counts() == {"too many combinations to estimate": 5}
    assert "metric, evaluator, workflow and model" in caplog.text
    faults.clear()


def test_the_fork_hook_does_not_keep_the_sums_alive() -> None:
    """Reconfiguring must not leak."""
    running = RunningMoments()
    gone = weakref.ref(running)
    del running
    gc.collect()
    assert gone() is None


# --- through the pipeline --------------------------------------------------------------------------------------------

BAD = Judgement(claims=CLAIMS[1:], answer_label="answered", consistency=0.1)


def test_a_judged_process_estimates_what_its_judge_says() -> None:
    """Three calls, one bad; the screen, which says 0.5 each time, does not matter."""
    watch(screen=screen(), judge=FakeJudge(GOOD, BAD, GOOD, name="judge"), sampling=EVERY, metrics=["hallucination"])
    for question in ("a", "b", "c"):
        ask(question)
    assert ragtrace.flush()
    estimate = ragtrace.estimate("hallucination", workflow="guide")
    assert (estimate.value, estimate.n, estimate.evaluator) == (pytest.approx(1 / 3), 3, "judge")
    assert ragtrace.estimate("hallucination", window=3600, model="tiny").value == pytest.approx(1 / 3)
    assert ragtrace.estimate("hallucination", workflow="elsewhere").reason == "nothing_judged"


def test_with_a_screen_alone_its_scores_are_estimated() -> None:
    """Every call is judged by it: p = 1."""
    watch(screen=screen())
    ask("a")
    assert ragtrace.flush()
    estimate = ragtrace.estimate("consistency")
    assert (estimate.value, estimate.evaluator, estimate.effective_n) == (0.25, "screen", 1.0)


def test_unjudged_calls_count_with_what_the_screen_says() -> None:
    """No call is sampled: n is known, the rate is not."""
    watch(
        screen=screen(),
        judge=FakeJudge(GOOD, name="judge"),
        sampling=ragtrace.Sampling(rate=0.0),
        metrics=["hallucination"],
    )
    ask("a")
    ask("b")
    assert ragtrace.flush()
    estimate = ragtrace.estimate("hallucination")
    assert (estimate.value, estimate.n, estimate.reason) == (None, 2, "nothing_judged")


def test_calls_that_are_never_judged_are_in_no_estimate() -> None:
    """A `never` rule leaves them out of what the estimate speaks of, screen included."""
    watch(
        metrics=["hallucination"],
        screen=screen(),
        judge=FakeJudge(GOOD, name="judge"),
        sampling=ragtrace.Sampling(rate=1.0, never=[lambda call: call.query == "test"]),
    )
    ask("test")
    ask("real")
    assert ragtrace.flush()
    assert ragtrace.estimate("hallucination").n == 1


def test_the_moments_are_exported_whole() -> None:
    """All of them, zeros too, with metric, workflow, evaluator and nothing else."""
    captured = watch(screen=screen(), judge=FakeJudge(BAD, name="judge"), sampling=EVERY, metrics=["hallucination"])
    ask("a")
    ask("b")
    assert ragtrace.flush()
    points = captured.metrics()["ragtrace.eval.moment"].data_points
    assert {p.attributes["ragtrace.moment"]: p.value for p in points} == {
        "n": 2.0, "f": 1.0, "ff": 0.5,
        "w": 2.0, "wy": 2.0, "wf": 1.0, "wyy": 2.0, "wyf": 1.0, "wff": 0.5,
        "ww": 2.0, "wwy": 2.0, "wwf": 1.0, "wwyy": 2.0, "wwyf": 1.0, "wwff": 0.5,
            "c": 2.0, "cy": 2.0, "cf": 1.0, "cyy": 2.0, "cyf": 1.0, "cff": 0.5, "www": 2.0,
        "r": 0.0, "ry": 0.0, "rf": 0.0, "ryy": 0.0, "ryf": 0.0, "rff": 0.0,
    }  # fmt: skip
    for point in points:
        assert {key: value for key, value in point.attributes.items() if key != "ragtrace.moment"} == {
            "gen_ai.evaluation.name": "hallucination",
            "gen_ai.workflow.name": "guide",
            "ragtrace.evaluator.id": "judge",
        }


def test_a_metric_without_an_evaluator_has_no_estimate() -> None:
    """The message says which have one; a duration is on no scale from 0 to 1."""
    watch(screen=screen())
    for name in ("halucination", "duration_s"):
        with pytest.raises(UnknownMetricError, match=r"estimated now: .*hallucinated"):
            ragtrace.estimate(name)


def test_unconfigured_there_is_a_reason_and_no_error() -> None:
    """An application asks without knowing whether tracing is on."""
    ragtrace.shutdown()
    assert ragtrace.estimate("hallucination").reason == "not_configured"


# --- what counts as what ---------------------------------------------------------------------------------------------

PLAN = MetricAssignment("screen", frozenset({"hallucination"}), "judge", frozenset({"hallucination"}))


def evaluation(evaluator: str, value: float | None, probability: float = 1.0) -> Evaluation:
    result = Unscored("unscorable_script") if value is None else Score(value)
    return Evaluation(evaluator, "1", "model", {"hallucination": result}, probability)


def observed(*calls: tuple[list[Evaluation], str | None]) -> Moments:
    """The moments after these evaluations and decisions."""
    running = RunningMoments(PLAN)
    for evaluations, reason in calls:
        decision = None if reason is None else SamplingDecision(reason != "not_sampled", 1.0, reason)
        running(RagCall(None, None, None, workflow="guide"), evaluations, decision)
    return running.sum("hallucination")


def test_a_call_that_the_screen_could_not_score_shifts_nothing() -> None:
    """It counts with the mean of what the screen scored, and not among the screened."""
    found = observed(
        ([evaluation("screen", 0.2)], "not_sampled"),
        ([evaluation("screen", 0.4)], "not_sampled"),
        ([evaluation("screen", None), evaluation("judge", 1.0, 0.5)], "sampled"),
    )
    assert (found.n, found.w, found.wy) == (2.0, 2.0, 2.0)
    assert found.wf / found.w == pytest.approx(found.f / found.n)


def test_a_call_that_was_decided_in_another_process_counts() -> None:
    """There is a judgement with its probability, and no decision of ours."""
    found = observed(([evaluation("judge", 1.0, 0.25)], None))
    assert (found.n, found.w, found.ww) == (0.0, 4.0, 16.0)


def test_a_call_without_a_sampling_decision_does_not_count() -> None:
    """Scoring was broken off after the screen: nothing is known of the judge."""
    assert observed(([evaluation("screen", 0.2)], None)) == Moments()


def test_calls_of_an_always_rule_are_counted_apart() -> None:
    """Those that were sure to be judged (no budget had lowered the probability) and that the screen has scored."""
    found = observed(
        ([evaluation("screen", 0.5), evaluation("judge", 1.0)], "always_rule"),
        ([evaluation("screen", None), evaluation("judge", 1.0)], "always_rule"),
        ([evaluation("screen", 0.5), evaluation("judge", 1.0, 0.5)], "always_rule"),
        ([evaluation("screen", 0.5), evaluation("judge", 1.0)], "sampled"),
    )
    assert (found.c, found.r, found.ry, found.rf, found.ryy, found.ryf, found.rff) == (4, 1, 1, 0.5, 1, 0.5, 0.25)


def test_calls_of_an_always_rule_say_nothing_of_the_others() -> None:
    """A hundred good ones beside ten sampled calls leave the interval as far open as the ten alone, for their part."""
    ruled = sum((judged_moments(0.0, 1.0, seen=1.0, ruled=True) for _ in range(100)), Moments())
    others = sum((unjudged_moments() for _ in range(190)), Moments())
    few = sum((judged_moments(0.0, 0.05, seen=1.0) for _ in range(10)), Moments())
    both, alone = estimate_mean(ruled + others + few), estimate_mean(others + few)
    assert both.high is not None
    assert alone.high is not None
    assert both.high >= alone.high * 200 / 300


@pytest.mark.parametrize("method", ["weighted", "fixed", "tuned"])
def test_calls_that_nobody_judged_may_be_all_good_or_all_bad(method: Method) -> None:
    """A rule has half of the calls judged, a fifth of which are bad; of the other half none is judged."""
    ruled = sum((judged_moments(float(n < 20), 1.0, seen=1.0, ruled=True) for n in range(100)), Moments())
    moments = ruled + sum((unjudged_moments() for _ in range(100)), Moments())
    assert ends(estimate_mean(moments, method=method, of="traffic")) == pytest.approx((0.1, 0.2, 0.6))
    low, _, high = ends(estimate_mean(moments, method=method))
    assert low < 0.1
    assert high > 0.6


def test_the_share_of_a_rule_is_counted_and_not_estimated() -> None:
    """One call of 66 is judged, with a weight of 50: the 98 calls of the rule are 98 of 164 all the same."""
    ruled = sum((judged_moments(float(n < 39), 1.0, seen=1.0, ruled=True) for n in range(98)), Moments())
    others = sum((unjudged_moments() for _ in range(65)), Moments())
    found = estimate_mean(ruled + others + judged_moments(0.0, 0.02, seen=1.0))
    assert found.value == pytest.approx(39 / 164)


def test_only_calls_of_an_always_rule_are_one_group() -> None:
    """Where nothing was sampled the estimate is of what was judged, as ever."""
    found = [
        estimate_mean(sum((judged_moments(y, 1.0, seen=1.0, ruled=ruled) for y in (1.0, 0.0, 0.0)), Moments()))
        for ruled in (True, False)
    ]
    assert ends(found[0]) == pytest.approx(ends(found[1]))


def test_a_failed_judgement_is_no_score() -> None:
    """The call was seen; it is not among the judged."""
    found = observed(([evaluation("screen", 0.2), evaluation("judge", None, 0.5)], "sampled"))
    assert (found.n, found.w) == (1.0, 0.0)


def test_a_score_that_oversteps_its_range_by_rounding_counts() -> None:
    """The score counts as the end of the range."""
    assert observed(([evaluation("judge", 1.0 + 1e-12)], "sampled")).wy == 1.0
