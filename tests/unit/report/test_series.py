"""Score series: what they say of each call, and their sums, compared with loops over the calls to the last digit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from ragtrace.core.types import Evaluation, Score
from ragtrace.estimates import Moments
from ragtrace.estimates.moments import ALWAYS_RULE, NAMES, NEVER_RULE
from ragtrace.history.reading import CallColumns, HistoryReader
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import QueuedCall
from ragtrace.report.comparison import ComparedGroups, ComparedSeries, estimate_by_group
from ragtrace.report.series import ScoreSeries, score_series
from tests.support.history import call_of, fill

BOTH = ("faithfulness", "hallucination")
SOURCES = (
    CallOrigin("a", "1.0", "screen@1", BOTH, "judge@2", BOTH),
    CallOrigin("b", "1.1", "screen@1", ("hallucination",), "judge@2", BOTH),
    CallOrigin("c", "1.2", "", (), "judge@3", BOTH),
    CallOrigin("d", "1.3", "screen@1", BOTH, "", ()),
)
DECISIONS = ("sampled", "not_sampled", ALWAYS_RULE, NEVER_RULE, None)


def evaluation(name: str, version: str, probability: float, rng: random.Random) -> Evaluation:
    """Both metrics, or one of them, in one of two versions."""
    value, of = rng.random(), rng.choice(("1", "2"))
    both = {
        "hallucination": Score(value, "hallucination", of, higher_is_better=False),
        "faithfulness": Score(1.0 - value, "faithfulness", "1"),
    }
    kept = {metric: score for metric, score in both.items() if rng.random() < 0.9}
    return Evaluation(name, version, "llm_judge", kept, probability, 0.1)


def call(source: int, rng: random.Random) -> QueuedCall:
    """A call of one of the sources, perhaps screened, judged and judged once more later."""
    why, found = rng.choice(DECISIONS), list[Evaluation]()
    if SOURCES[source].screen and rng.random() < 0.9:
        found.append(evaluation("screen", "1", 1.0, rng))
    if SOURCES[source].judge and rng.random() < 0.6:
        name, version = SOURCES[source].judge.split("@")
        found.append(evaluation(name, version, 1.0 if why == ALWAYS_RULE else rng.choice((0.3, 0.7)), rng))
    if rng.random() < 0.2:
        found.append(evaluation("late", "1", 1.0, rng))
    made = call_of(rng, workflow=rng.choice(("support", "search", "sales")), model=rng.choice(("small", "large")))
    return QueuedCall(made, tuple(found), why, 1_000.0 + rng.random())


@pytest.fixture(scope="module", params=["several sources", "one source", "a full screen"])
def columns(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CallColumns:
    path, rng = tmp_path_factory.mktemp("series") / "history.db", random.Random(11)
    if request.param == "a full screen":  # which scored every call, and whose scores are then not copied
        decided = [evaluation("screen", "1", 1.0, random.Random(seed)) for seed in range(300)]
        calls = [
            QueuedCall(call_of(rng), (seen, *([evaluation("judge", "2", 0.3, rng)] if at % 3 else [])), "sampled", 1.0)
            for at, seen in enumerate(each for each in decided if len(each.results) == 2)
        ]
        fill(path, calls, SOURCES[0])
    else:
        for number in range(len(SOURCES) if request.param == "several sources" else 1):
            fill(path, [call(number, rng) for _ in range(150)], SOURCES[number])
    with closing(HistoryReader(str(path))) as reader:
        return reader.columns(0.0, 2_000.0)


class Expected:
    """Score, weight and further values of each call, one by one, as the fields of `ScoreSeries` say."""

    def __init__(self, columns: CallColumns, series: ScoreSeries) -> None:
        self._columns, (metric, evaluator) = columns, series.key
        scores, chances = self._scores(metric, evaluator), self._chances(evaluator)
        self.score, self.weight, self.eligible, self.screen_score, self.ruled = [], [], [], [], []
        ours = [columns.sources[n].estimated_by(metric) == evaluator for n in columns.source.tolist()]
        for at, number in enumerate(columns.source.tolist()):
            source, why = columns.sources[number], columns.decisions[int(columns.why[at])]
            y, chance = scores.get(at), chances.get(at, 0.0)
            seen = y is not None and chance > 0.0
            weight, counted, f, ruled = 1.0 / chance if seen else 0.0, False, 0.0, False
            late = series.unit and evaluator not in (source.screen, source.judge)
            if ours[at] and metric in source.judged:
                could = why != NEVER_RULE and (why != "" or chance > 0.0)
                screened = self._scores(metric, source.screen).get(at) if metric in source.screened else 0.0
                weight, counted = weight if could else 0.0, could and screened is not None
                f = min(1.0, max(0.0, screened)) if screened is not None and could else 0.0
                ruled = counted and seen and why == ALWAYS_RULE and chance == 1.0
            elif ours[at] or late:
                counted = seen
            counts = ours[at] or (late and seen) or not series.estimated
            self.score.append(y if seen and counts and y is not None else math.nan)
            self.weight.append(weight if counts else 0.0)
            self.eligible.append(counted)
            self.screen_score.append(f)
            self.ruled.append(ruled)

    def _scores(self, metric: str, evaluator: str) -> dict[int, float]:
        columns = self._columns
        return {
            call: score
            for call, number, score in zip(
                columns.scored_call.tolist(), columns.scored_series.tolist(), columns.score.tolist(), strict=True
            )
            if (columns.series[number].metric, columns.evaluators[columns.series[number].evaluator])
            == (metric, evaluator)
        }

    def _chances(self, evaluator: str) -> dict[int, float]:
        columns = self._columns
        return {
            call: chance
            for call, number, chance in zip(
                columns.evaluation_call.tolist(), columns.evaluator.tolist(), columns.probability.tolist(), strict=True
            )
            if columns.evaluators[number] == evaluator
        }


def test_each_call_has_its_score_and_weight(columns: CallColumns) -> None:
    """Whichever source it is of, whatever rule decided on it, and whoever scored it."""
    found = score_series(columns)
    assert {"faithfulness", "hallucination"} == {series.metric for series in found}
    for series in found:
        expected = Expected(columns, series)
        np.testing.assert_array_equal(series.score_by_call(), expected.score)
        np.testing.assert_array_equal(series.weight_by_call(), expected.weight)
        np.testing.assert_array_equal(series.is_judged(), np.array(expected.weight) > 0)
        np.testing.assert_array_equal(series.eligible, expected.eligible)
        known = np.array(expected.eligible, dtype=bool)
        np.testing.assert_array_equal(series.screen_score[known], np.array(expected.screen_score)[known])
        np.testing.assert_array_equal(series.always_judged, np.array(expected.ruled)[series.scored_call])
        assert (np.diff(series.scored_call) > 0).all()


def products(factor: float, y: float, f: float) -> list[float]:
    return [factor, factor * y, factor * f, factor * y * y, factor * y * f, factor * f * f]


def sums(series: ScoreSeries, group: Sequence[int], count: int) -> list[Moments]:
    """Sums of each group, added call by call in their order."""
    score, weight = series.score_by_call().tolist(), series.weight_by_call().tolist()
    ruled = dict(zip(series.scored_call.tolist(), series.always_judged.tolist(), strict=True))
    found = [[0.0] * len(NAMES) for _ in range(count)]
    for at, of in enumerate(group):
        f, w = float(series.screen_score[at]), weight[at]
        terms = [1.0, f, f * f] if series.eligible[at] else [0.0] * 3
        if w > 0:
            y = min(1.0, max(0.0, score[at]))
            terms += [*products(w, y, f), *products(w * w, y, f), *products(1.0, y, f), w * w * w]
            terms += products(float(ruled[at]), y, f)
        if of >= 0:
            for place, term in enumerate(terms):
                found[of][place] += term
    return [Moments(*each) for each in found]


@pytest.mark.parametrize("count", [1, 7])
def test_sums_of_groups_are_those_of_their_calls(columns: CallColumns, count: int) -> None:
    """To the last digit, with calls in no group among them."""
    group = np.random.default_rng(3).integers(-1, count, len(columns))
    for series in score_series(columns):
        assert series.moments(group, count) == sums(series, group.tolist(), count)
        judged = [int(((group == of) & series.is_judged()).sum()) for of in range(count)]
        assert series.count_judged(group, count) == judged


def test_the_series_of_some_calls_has_their_values(columns: CallColumns) -> None:
    """As of the calls whose texts are read."""
    positions = np.flatnonzero(np.random.default_rng(5).random(len(columns)) < 0.4)
    for series in score_series(columns):
        part = series.among(positions)
        np.testing.assert_array_equal(part.score_by_call(), series.score_by_call()[positions])
        np.testing.assert_array_equal(part.weight_by_call(), series.weight_by_call()[positions])
        np.testing.assert_array_equal(part.eligible, series.eligible[positions])
        assert part.moments(np.zeros(len(positions), int), 1) == series.moments(
            np.where(np.isin(np.arange(len(columns)), positions), 0, -1), 1
        )


def test_estimates_of_compared_groups_are_those_of_each_alone(columns: CallColumns) -> None:
    """Though both are made in one pass, and of all workflows."""
    before = np.random.default_rng(7).random(len(columns)) < 0.5
    groups = ComparedGroups("periods", "before", "after", before, ~before)
    # Of one version, as scores of several are not compared.
    for series in (replace(each, versions=()) for each in score_series(columns) if each.estimated):
        compared = ComparedSeries.of(series, groups)
        assert compared.before == series.estimate(before)
        assert compared.after == series.estimate(~before)
        counted = [series.estimate(side & series.eligible).value for side in (before, ~before)]
        assert compared.values_of_counted(groups) == counted
        rows = estimate_by_group(series, columns.workflow, columns.workflows, ~before, groups, counted)
        for row in rows:
            mine = (columns.workflow == columns.workflows.index(row.name)) & series.eligible
            assert row.moved is not None
            assert row.estimate == series.estimate(mine & ~before)
            assert row.judged == int((mine & ~before & series.is_judged()).sum())
            assert (row.moved.before, row.moved.after) == (series.estimate(mine & before), row.estimate)
