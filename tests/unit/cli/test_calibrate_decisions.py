"""`ragtrace calibrate` for a decision judge: labels make probabilities of its scores, and a rate of these."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import time
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.cli import main
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.labels import Claim, Support
from ragtrace.core.types import (
    CALIBRATION,
    JUDGE_MODEL,
    UNCALIBRATED,
    Evaluation,
    EvaluatorType,
    Judgement,
    Metric,
    RagCall,
    Score,
)
from ragtrace.estimates import read_calibrations
from ragtrace.estimates.score_curve import ScoreCalibration
from ragtrace.history.reading import HistoryReader
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.labels.label_store import LabelStore
from ragtrace.offline.backfill import backfill, select_calls
from ragtrace.offline.progress import Progress
from ragtrace.report.bridging import bridge
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.history import GIB, call_of

CALLS: Final = 2_000
BAD_RATE: Final = 0.2
BAD_ANSWER: Final = "The refund is 90 euros."
MODEL: Final = "decider-1"


def score_of(answer: str | None, query: str | None, *, apart: float = 2.0) -> float:
    """An overconfident score: bad calls are higher by *apart* on the scale of logits, errors are the question's."""
    noise = random.Random(query).gauss(0.0, 1.0)
    return 1.0 / (1.0 + math.exp(-2.0 * ((apart if answer == BAD_ANSWER else 0.0) + noise)))


def fill(
    path: Path,
    *,
    version: str = "1",
    served: str = MODEL,
    calls: int = CALLS,
    bad_rate: float = BAD_RATE,
    begin: int = 0,
) -> None:
    """Keep calls all of which a decision judge has scored."""
    rng, offered = random.Random(served if begin == 0 else f"{served} {begin}"), list[QueuedCall]()
    for number in range(begin, begin + calls):
        call = call_of(rng, BAD_ANSWER if rng.random() < bad_rate else "Within 14 days.", workflow="support")
        call = replace(call, query=f"How long? ({number})")
        value = score_of(call.answer, call.query)
        score = Score(value, "hallucinated", "1", higher_is_better=False, attributes={CALIBRATION: UNCALIBRATED})
        evaluation = Evaluation(
            "decider", version, "model", {"hallucinated": score}, n_calls=1, cost_usd=0.0001, served_model=served
        )
        offered.append(QueuedCall(call, (evaluation,), "sampled", time() + number))
    source = CallOrigin("bot", "1", judge=f"decider@{version}", judged=("hallucinated",))
    if not path.exists():
        history_file(str(path)).create()
    with closing(HistoryWriter(str(path), source, most_bytes=GIB, texts=True)) as writer:
        writer.write(offered)


def run(*arguments: object) -> int:
    return main([str(each) for each in arguments])


def label_picked(history: Path, file: Path, most: int | None = None) -> None:
    """Have a reviewer who is right label the picked calls, or the first of them."""
    assert run("labels", "export", history, "--out", file) == OK
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()][:most]
    for row in rows:
        row["label"], row["reviewer"] = "bad" if row["answer"] == BAD_ANSWER else "good", "ada"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run("labels", "import", history, file) == OK


@pytest.fixture
def fitted(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Pick and label calls, and fit: exit status, JSON and text."""

    def fit(number: int, *more: object, labelled: int | None = None) -> tuple[int, dict[str, Any], str]:
        assert run("calibrate", "pick", history, "-n", number, "--seed", 1, "--again") == OK
        label_picked(history, tmp_path / "labels.jsonl", labelled)
        capsys.readouterr()
        status = run("calibrate", "fit", history, "--json", *more)
        record = json.loads(capsys.readouterr().out)
        run("calibrate", "fit", history)
        return status, record, capsys.readouterr().out

    return fit


def test_calls_are_picked_where_their_label_is_least_certain(history: Path) -> None:
    """Half alike and half by sqrt(g (1 - g)) of the raw score; the probabilities are kept and add up to the number."""
    assert run("calibrate", "pick", history, "-n", 200, "--seed", 1) == OK
    with closing(LabelStore(str(history))) as store:
        picks = store.picks("hallucinated")
    assert len(picks) in (199, 200, 201)
    least, most = min(pick.probability for pick in picks), max(pick.probability for pick in picks)
    assert 0.05 <= least < 0.1 < most < 0.3
    assert sum(1.0 / pick.probability for pick in picks) == pytest.approx(CALLS, rel=0.15)


def test_labels_make_a_rate_of_the_scores(fitted: Callable[..., tuple[int, dict[str, Any], str]]) -> None:
    """The interval holds the true rate and is narrower than that of the labels; the judge's own mean is no rate."""
    status, record, text = fitted(300)
    assert status == OK
    assert record["corrected"]["low"] < BAD_RATE < record["corrected"]["high"]
    widths = [record[name]["high"] - record[name]["low"] for name in ("corrected", "labels")]
    assert widths[0] < widths[1]
    assert record["judge"]["value"] is None
    assert record["effective_labels"] > record["labelled"]
    assert record["scores"]["is_calibrated"]
    assert 0 < len(record["diagram"]) <= 10
    assert min(bar["labels"] for bar in record["diagram"]) >= 25
    assert "by the judge, uncorrected  uncalibrated: not a rate" in text
    assert f"error at most {record['scores']['promised_error']:.3f}" in text
    assert f"as narrow as ~{record['effective_labels']:,.0f} labels alone" in text


def test_few_labels_correct_nothing(fitted: Callable[..., tuple[int, dict[str, Any], str]]) -> None:
    """Below fifty there is no corrected rate, and the number that is missing is named; so is what calibration lacks."""
    _, record, text = fitted(60, labelled=42)
    assert record["corrected"]["value"] is None
    assert "too few labels (42 of 50: 8 more are needed)" in text
    assert "uncalibrated: not a rate: 42 of 100 labels" in text


def test_another_served_model_makes_the_labels_stale(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One newer call by another model is enough: the rate is unknown, and the curve is not used."""
    run("calibrate", "pick", history, "-n", 200, "--seed", 1)
    label_picked(history, tmp_path / "labels.jsonl")
    fill(history, served="decider-2", calls=1, begin=CALLS)
    capsys.readouterr()
    assert run("calibrate", "fit", history) == OK
    text = capsys.readouterr().out
    assert "STALE: the newest calls are judged by decider@1 served by decider-2" in text
    assert "corrected by the labels    unknown: the labels are STALE" in text


def test_without_a_bad_label_only_an_upper_limit_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 of n, and what the rate is below: no point."""
    path = tmp_path / "good.db"
    fill(path, calls=300, bad_rate=0.0)
    run("calibrate", "pick", path, "-n", 100, "--seed", 1)
    label_picked(path, tmp_path / "labels.jsonl")
    capsys.readouterr()
    assert run("calibrate", "fit", path) == OK
    text = capsys.readouterr().out
    assert "corrected by the labels    0 of " in text
    assert "below " in text


def test_a_calibration_file_keeps_the_curve(
    fitted: Callable[..., tuple[int, dict[str, Any], str]], history: Path, tmp_path: Path
) -> None:
    """The key names the served model; later picks may be drawn by the calibrated probabilities."""
    file = tmp_path / "calibration.json"
    _, record, _ = fitted(300, "--out", file)
    (entry,) = read_calibrations(file)
    assert entry.key.served_model == MODEL
    assert entry.scores is not None
    assert ScoreCalibration.read_record(json.loads(json.dumps(entry.scores.record()))) == entry.scores
    assert entry.scores.labels == record["labelled"]
    low, middle, high = (entry.scores.curve.probability(score) for score in (0.01, 0.5, 0.99))
    assert 0.0 < low < middle < high < 1.0
    assert run("calibrate", "pick", history, "-n", 100, "--again", "--calibration", file) == OK


class Badness:
    """Metric that is the score which the judge gives as its consistency."""

    name, version, higher_is_better, range = "hallucinated", "1", False, (0.0, 1.0)
    needs = frozenset({"consistency"})

    def __call__(self, call: RagCall, judgement: Judgement) -> Score:
        assert judgement.consistency is not None
        return Score(judgement.consistency, self.name, self.version, higher_is_better=False)


class NewModel:
    """The judge after a change of its model: it separates calls less, and more of its scores are high."""

    id, version = "decider", "1"
    type: EvaluatorType = "model"

    def __init__(self, served: Callable[[int], str] = lambda number: "decider-2") -> None:
        self._served, self._asked = served, 0

    def offers(self, metric: Metric) -> bool:
        return metric.name == "hallucinated"

    def judge(self, call: RagCall) -> Judgement:
        self._asked += 1
        score = score_of(call.answer, call.query, apart=1.5) ** 0.8
        return Judgement(consistency=score, attributes={JUDGE_MODEL: self._served(self._asked)})


class Verdicts:
    """A judge of the command line, which is right: its scores are verdicts."""

    id, version = "verdicts", "1"
    type: EvaluatorType = "model"

    def offers(self, metric: Metric) -> bool:
        return metric.name == "hallucinated"

    def judge(self, call: RagCall) -> Judgement:
        support: Support = "contradicted" if call.answer == BAD_ANSWER else "supported"
        return Judgement((Claim(call.answer or "", 0, 5, support, relevant="yes"),), "answered")


class Requesting(Verdicts):
    """The same at a server of unknown price."""

    def judge(self, call: RagCall) -> Judgement:
        return replace(super().judge(call), n_calls=1)


def test_scoring_the_history_is_no_bridge_to_another_served_model(history: Path, tmp_path: Path) -> None:
    """Its calls are judged already by that judge, and a fit writes the entry of the model before."""
    run("calibrate", "pick", history, "-n", 120, "--seed", 1)
    label_picked(history, tmp_path / "labels.jsonl")
    fill(history, served="decider-2", calls=1, begin=CALLS)
    chosen = select_calls(str(history), 0.0, math.inf, None, NewModel(), [Badness()])
    assert (chosen.to_judge, chosen.judged) == ((), CALLS + 1)
    file = tmp_path / "calibration.json"
    assert run("calibrate", "fit", history, "--evaluator", "decider@1", "--out", file) == OK
    assert [entry.key.served_model for entry in read_calibrations(file)] == [MODEL]
    found = bridge(history, Badness(), NewModel(), most=300).calibration
    assert found is not None
    assert found.key.served_model == "decider-2"


def test_a_fit_takes_no_labels_from_another_judge_that_judges_live_calls(history: Path, tmp_path: Path) -> None:
    """Scores of the stored calls are added to its own, and the picks do not stand for both; a bridge holds for it."""
    run("calibrate", "pick", history, "-n", 120, "--seed", 1)
    label_picked(history, tmp_path / "labels.jsonl")
    fill(history, version="2", served="decider-2", calls=1, begin=CALLS)
    judge = NewModel()
    judge.version = "2"
    chosen = select_calls(str(history), 0.0, math.inf, None, judge, [Badness()])
    backfill(str(history), chosen, judge=judge, metrics=[Badness()], quiet=True)
    assert run("calibrate", "fit", history, "--evaluator", "decider@2") == USAGE
    found = bridge(history, Badness(), judge, evaluator="decider@1", most=300).calibration
    assert found is not None
    assert found.key.evaluator_version == "2"


def test_a_bridge_says_how_far_the_judge_moved(history: Path, tmp_path: Path) -> None:
    """Within one point, from as many calls as the differences ask for; the labels calibrate the new model's scores."""
    run("calibrate", "pick", history, "-n", 200, "--seed", 1)
    label_picked(history, tmp_path / "labels.jsonl")
    found = bridge(history, Badness(), NewModel(), most=1_500)
    assert (found.before, found.after) == ((MODEL,), "decider-2")
    assert found.offset is not None
    assert found.offset.half_width <= 0.0105
    assert 300 <= found.offset.n == min(1_500, found.needed) or found.offset.n >= found.needed
    with closing(HistoryReader(str(history))) as reader:
        bodies = [reader.body(number) for number in reader.columns(0.0, float("inf")).number.tolist()]
    true = fmean(
        score_of(each["answer"], each["query"], apart=1.5) ** 0.8 - score_of(each["answer"], each["query"])
        for each in bodies
    )
    assert found.offset.low <= true <= found.offset.high
    assert found.labelled in range(195, 206)
    assert found.calibration is not None
    assert found.calibration.key.served_model == "decider-2"
    assert found.calibration.scores is not None
    assert found.calibration.scores.is_calibrated


class Away(Verdicts):
    """A judge whose server cannot be reached."""

    asked = 0

    def judge(self, call: RagCall) -> Judgement:
        Away.asked += 1
        raise JudgeError("unavailable", "connection refused", retryable=False)


def test_a_bridge_to_a_server_that_is_away_says_so_at_once(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first call, instead of trying each one for minutes without a word."""
    Away.asked = 0
    assert run("calibrate", "bridge", history, "--judge", f"{__name__}:Away") == FAILURE
    assert "the judge failed: unavailable: connection refused" in capsys.readouterr().err
    assert Away.asked == 1


def test_a_bridge_counts_the_calls_that_the_judge_has_seen(history: Path) -> None:
    """For the display of its progress."""
    shown: list[str] = []
    progress = Progress(lambda _, text: shown.append(text), None, every_s=0.0)
    bridge(history, Badness(), Unpriced(), most=300, progress=progress)
    assert shown[-1] == "300 calls, 300 requests"


@pytest.mark.parametrize(("argument", "most"), [(None, 2), (3, 3)])
def test_a_bridge_keeps_to_the_judges_own_concurrency(history: Path, argument: int | None, most: int) -> None:
    """Unless it is given another."""

    class OneByOne(NewModel):
        limits = ragtrace.JudgeLimits(concurrency=2)
        now = most = 0

        async def judge(self, call: RagCall) -> Judgement:  # type: ignore[override]
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1
            return super().judge(call)

    judge = OneByOne()
    bridge(history, Badness(), judge, most=300, concurrency=argument)
    assert judge.most == most


class Unpriced(NewModel):
    """The new model, at a server whose price nobody knows."""

    def judge(self, call: RagCall) -> Judgement:
        return replace(super().judge(call), n_calls=1)


def test_a_bridge_without_a_price_says_that_its_cost_is_not_known(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of a cost of nothing."""
    assert bridge(history, Badness(), Unpriced(), most=300).unpriced == 300
    assert bridge(history, Badness(), NewModel(), most=300).unpriced == 0
    run("calibrate", "bridge", history, "--judge", f"{__name__}:Requesting", "-n", 300)
    assert "cost of these requests: 0.0000 dollars; price of 300 calls not known" in capsys.readouterr().out


def test_a_stale_fit_of_a_decision_judge_names_the_bridge(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The labels stay valid: the new judge may score the labelled calls."""
    run("calibrate", "pick", history, "-n", 120, "--seed", 1)
    label_picked(history, tmp_path / "labels.jsonl")
    fill(history, served="decider-2", calls=1, begin=CALLS)
    capsys.readouterr()
    run("calibrate", "fit", history)
    said = capsys.readouterr().out
    assert "or have the new judge score these calls (ragtrace calibrate bridge, whose file then holds for it)" in said


def test_two_models_behind_one_name_are_no_bridge(history: Path) -> None:
    """A calibration holds for one model: where they take turns, the command says which answered."""
    with pytest.raises(SettingsError, match="several models answered meanwhile: 'a', 'b'"):
        bridge(history, Badness(), NewModel(lambda number: "ab"[number % 2]), most=300)


def test_the_command_writes_the_calibration_of_the_model_that_answers(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the judge it says what is missing; with it, the new entry stands beside the others of the file."""
    with pytest.raises(SystemExit) as left:
        run("calibrate", "bridge", history)
    assert left.value.code == USAGE
    run("calibrate", "pick", history, "-n", 120, "--seed", 1)
    label_picked(history, tmp_path / "labels.jsonl")
    capsys.readouterr()
    file = tmp_path / "calibration.json"
    judge = f"{__name__}:Verdicts"
    assert run("calibrate", "bridge", history, "--judge", judge, "-n", 300, "--out", file, "--json") == OK
    record = json.loads(capsys.readouterr().out)
    assert record["offset"]["n"] == 300
    assert record["calibration"]["evaluator"] == "verdicts"
    (entry,) = read_calibrations(file)
    assert entry.labels == record["labelled"]
    assert run("calibrate", "bridge", history, "--judge", judge, "-n", 300) == OK
    assert "that both scored" in capsys.readouterr().out


def test_plans_name_what_to_spend(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 300 dollars, with both judges, at most a third goes to verdicts, and they are five a label at least."""
    assert run("calibrate", "plan", "--usd", 300, "--calls", 100_000, "--rate", 0.1, "--json") == OK
    best = json.loads(capsys.readouterr().out)["plans"][0]
    assert best["stages"] == "decision judge -> chat judge -> people"
    assert best["usd"] <= 300
    assert best["usd_of_verdicts"] <= 100
    assert best["verdicts"] >= 5 * best["labels"]
    assert best["effective_labels"] > 1.4 * 300
    assert run("calibrate", "plan", "--usd", 300, "--calls", 100_000) == OK
    assert capsys.readouterr().out.count("labels,") == 4


@pytest.mark.parametrize(
    "arguments", [("--usd", 20, "--calls", 1000), ("--usd", 100), ("--usd", 100, "--calls", 10, "--rate", 2)]
)
def test_a_plan_needs_money_and_calls(arguments: tuple[object, ...]) -> None:
    """Fewer dollars than fifty labels cost, no calls, a rate above 1."""
    assert run("calibrate", "plan", *arguments) == USAGE


@pytest.mark.parametrize("arguments", [("bridge",), ("plan", "--calls", 1000), ("fit",)])
def test_what_an_action_cannot_do_without_is_asked_for(arguments: tuple[object, ...]) -> None:
    """A history and a judge, the money, a history."""
    with pytest.raises(SystemExit) as left:
        run("calibrate", *arguments)
    assert left.value.code == USAGE
