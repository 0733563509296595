"""`ragtrace judges`: judges on the same labelled calls, in one table."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ragtrace.core.types import JUDGE_MODEL, EvaluatorType, Judgement, Metric, RagCall
from ragtrace.offline.judge_comparison import Contestant, compare_judges
from ragtrace.offline.labelled_calls import LabelledFileCall, read_labelled_calls
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.unit.cli.test_calibrate_decisions import BAD_ANSWER, Badness, run

CALLS = 400


class Scorer:
    """A judge whose scores have an error of a given size, which is the question's; a price; other scores each time."""

    version = "1"
    type: EvaluatorType = "model"

    def __init__(self, name: str, noise: float, usd: float | None, *, shaky: float = 0.0) -> None:
        self.id, self._noise, self._usd, self._shaky = name, noise, usd, shaky
        self._random = random.Random(name)

    def offers(self, metric: Metric) -> bool:
        return metric.name == "hallucinated"

    def judge(self, call: RagCall) -> Judgement:
        rng = random.Random(f"{self.id} {call.query}")
        value = (0.7 if call.answer == BAD_ANSWER else 0.3) + rng.gauss(0.0, self._noise)
        value += self._random.gauss(0.0, self._shaky)
        return Judgement(
            consistency=min(1.0, max(0.0, value)), n_calls=1, cost_usd=self._usd, attributes={JUDGE_MODEL: "m-1"}
        )


def good_judge() -> Scorer:
    return Scorer("good", 0.15, 0.01)


def weak_judge() -> Scorer:
    return Scorer("weak", 0.9, 0.0001)


def labelled_calls(number: int = CALLS) -> list[LabelledFileCall]:
    rng = random.Random(3)
    calls = []
    for at in range(number):
        bad = rng.random() < 0.3
        call = RagCall(f"q {at}", (), BAD_ANSWER if bad else "Within 14 days.")
        calls.append(LabelledFileCall(call, bad))
    return calls


def contestants(*judges: Scorer) -> list[Contestant]:
    return [Contestant(judge.id, judge, Badness()) for judge in judges]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    rows = [
        {
            "call": f"c{at}",
            "metric": "hallucinated",
            "query": each.call.query,
            "contexts": ["Within 14 days."],
            "answer": each.call.answer,
            "label": "bad" if each.bad else "good",
        }
        for at, each in enumerate(labelled_calls(60))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_cheapest_that_is_not_worse_is_named() -> None:
    """A judge as good at a fiftieth of the price wins; a weak one, cheaper still, is significantly worse."""
    cheap = Scorer("cheap", 0.15, 0.0002)
    found = compare_judges(contestants(good_judge(), cheap, weak_judge()), labelled_calls())
    by = {each.name: each for each in found.results}
    assert found.compared == CALLS
    assert found.best in ("good", "cheap")
    assert found.cheapest == "cheap"
    assert by["weak"].is_worse
    assert not by["cheap"].is_worse
    assert by["good"].usd_a_call == pytest.approx(0.01)
    assert by["good"].served_models == ("m-1",)


def test_two_runs_show_how_far_a_judge_agrees_with_itself() -> None:
    """One that always says the same agrees in all calls, a shaky one does not; with one run it is not known."""
    steady, shaky = Scorer("steady", 0.2, 0.0), Scorer("shaky", 0.2, 0.0, shaky=0.3)
    found = compare_judges(contestants(steady, shaky), labelled_calls())
    first, second = found.results
    assert first.same_verdict is not None
    assert second.same_verdict is not None
    assert first.same_verdict.value == 1.0
    assert second.same_verdict.high < 0.95
    assert (first.mean_change, round(second.mean_change or 0.0, 1)) == (0.0, 0.3)
    [once] = compare_judges(contestants(steady), labelled_calls(50), runs=1).results
    assert once.same_verdict is None


def test_labels_calibrate_scores_that_are_not() -> None:
    """The raw calibration error is far from 0; that of curves that were not fitted to the calls is smaller."""
    [found] = compare_judges(contestants(Scorer("narrow", 0.05, 0.0)), labelled_calls(), runs=1).results
    assert found.quality is not None
    assert found.calibrated is not None
    assert found.quality.auroc is not None
    assert found.quality.auroc.value > 0.99
    assert found.quality.calibration_error.low > 0.2
    assert found.calibrated.quality.calibration_error.high < 0.1
    assert found.calibrated.quality.brier.high < found.quality.brier.low
    assert found.calibrated.calibration.is_calibrated


def test_an_unknown_price_wins_nothing() -> None:
    """A judge that does not say what it costs is not called cheap."""
    found = compare_judges(contestants(good_judge(), Scorer("free?", 0.15, None)), labelled_calls())
    assert found.cheapest == "good"


def test_labels_of_one_kind_rank_no_judge() -> None:
    """There is no AUROC, so none is best."""
    calls = [each for each in labelled_calls() if each.bad]
    found = compare_judges(contestants(good_judge(), weak_judge()), calls, runs=1)
    assert (found.best, found.cheapest) == ("", "")


def test_compare_prints_one_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row a judge, then who is worse and who is cheapest; as JSON the same figures."""
    judges = ("--judge", "embedded:extractive", "--judge", "embedded=consistency")
    assert run("judges", "compare", file, *judges) == OK
    text = capsys.readouterr().out
    assert text.startswith("60 labelled calls (0 without a clear label are left out); 60 scored by every judge")
    assert "two runs agree" in text
    assert "cheapest that is not significantly worse than the best: embedded" in text
    assert run("judges", "compare", file, *judges, "--once", "--json") == OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [each["metric"] for each in record["results"]] == ["hallucinated", "consistency"]
    assert record["results"][0]["quality"]["auroc"]["value"] > 0.9
    assert record["results"][0]["same_verdict"] is None


def test_accuracy_prints_raw_and_calibrated(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With sixty labels the scores stay uncalibrated, and the number that is missing is named."""
    assert run("judges", "accuracy", file, "--judge", "embedded=consistency") == OK
    text = capsys.readouterr().out
    assert "embedded=consistency: consistency by embedded@" in text
    assert "calibrated, cross-fitted" in text
    assert "uncalibrated: not a rate (60 of 100 labels" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("compare", "--judge", "embedded"), "name two judges or more"),
        (("accuracy", "--judge", "nobody"), "nobody"),
        (("accuracy", "--judge", "embedded=consistency", "--metric", "other"), "has no labelled call for 'other'"),
    ],
)
def test_wrong_usage_says_what_to_write(
    file: Path, arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One judge to compare, a judge that does not exist, a metric without labels."""
    assert run("judges", arguments[0], file, *arguments[1:]) == USAGE
    assert says in capsys.readouterr().err


def test_a_judge_that_scores_nothing_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Answers without any context have no consistency: nothing can be compared."""
    path = tmp_path / "labels.jsonl"
    path.write_text('{"query": "q", "answer": "a", "label": "good"}\n', encoding="utf-8")
    assert run("judges", "accuracy", path, "--judge", "embedded=consistency") == FAILURE
    assert "1 calls have no score: contexts_missing" in capsys.readouterr().out


def test_several_reviewers_vote(tmp_path: Path) -> None:
    """The majority counts; divided and unsure calls are left out and counted; CSV is read as well."""
    path = tmp_path / "labels.csv"
    rows = ["call,query,contexts,answer,label", *('a,q,"[""x""]",y,bad' for _ in range(2)), 'a,q,"[""x""]",y,good']
    rows += ['b,q,"[""x""]",y,good', 'b,q,"[""x""]",y,bad', 'c,q,"[""x""]",y,unsure', 'd,q,"[""x""]",y,0']
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    found = read_labelled_calls(path, "hallucinated")
    assert [each.bad for each in found.calls] == [True, False]
    assert found.undecided == 2
    assert found.calls[0].call.contexts is not None
