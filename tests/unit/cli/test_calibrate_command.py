"""`ragtrace calibrate` and `ragtrace labels`: from picked calls by way of a file to a corrected rate."""

from __future__ import annotations

import csv
import json
import random
import re
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any, Final

import numpy as np
import pytest

from ragtrace.cli import main
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, Score
from ragtrace.estimates import CalibrationKey, read_calibrations
from ragtrace.history.reading import HistoryReader
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.labels.label_store import LabelStore, call_of_identity, labels_in, picks_in
from ragtrace.report.calibration import calibrate, judged_calls, pick_calls
from ragtrace.report.calibration_page import calibration_figures
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.history import GIB, call_of

CALLS: Final = 1_500
BAD_RATE: Final = 0.10
BAD_ANSWER: Final = "=1+1 is what the refund is."


def fill(
    path: Path,
    *,
    calls: int = CALLS,
    texts: bool = True,
    version: str = "2",
    metric_version: str = "1",
    served: str = "",
) -> None:
    """Keep calls of two workflows: 10 % are bad, of which the judge sees four fifths, and a tenth of the good ones."""
    rng, offered = random.Random(f"{version} {metric_version} {served}"), list[QueuedCall]()
    for number in range(calls):
        bad = rng.random() < BAD_RATE
        marked = rng.random() < (0.8 if bad else 0.1)
        suspicious = rng.random() < (0.6 if bad else 0.2)
        chance = 0.9 if suspicious else 0.4
        consistency = Score(0.3 if suspicious else 0.9, "consistency", "1")
        evaluations = [Evaluation("screen", "1", "deterministic", {"consistency": consistency})]
        judged = rng.random() < chance
        if judged:
            score = Score(float(marked), "hallucinated", metric_version, higher_is_better=False)
            results = {"hallucinated": score}
            evaluations.append(Evaluation("judge", version, "llm_judge", results, chance, served_model=served))
        call = call_of(rng, BAD_ANSWER if bad else "Within 14 days.", workflow=("support", "sales")[number % 2])
        call = replace(call, query=f"{call.query} ({number})")
        offered.append(QueuedCall(call, tuple(evaluations), "sampled" if judged else "not_sampled", time()))
    source = CallOrigin("bot", "1", "screen@1", ("consistency",), f"judge@{version}", ("hallucinated",))
    history_file(str(path)).create()
    with closing(HistoryWriter(str(path), source, most_bytes=GIB, texts=texts)) as writer:
        writer.write(offered)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def run(*arguments: object) -> int:
    return main([str(each) for each in arguments])


def exported(history: Path, file: Path) -> list[dict[str, Any]]:
    """The rows of an export as JSON lines."""
    assert run("labels", "export", history, "--out", file) == OK
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def label_all(history: Path, file: Path, reviewer: str = "ada") -> list[dict[str, Any]]:
    """Have a reviewer who is right label every picked call."""
    rows = exported(history, file)
    for row in rows:
        row["label"], row["reviewer"] = "bad" if row["answer"] == BAD_ANSWER else "good", reviewer
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run("labels", "import", history, file) == OK
    return rows


def test_from_picked_calls_to_a_corrected_rate(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The judge says 17 %, of which the labels leave about 10 %, in an interval narrower than that of the labels."""
    assert run("calibrate", "pick", history, "-n", 150, "--seed", 1, "--json") == OK
    picked = printed(capsys)
    assert (picked["metric"], picked["evaluator"]) == ("hallucinated", "judge@2")
    assert abs(picked["picked"] - 150) <= 1
    label_all(history, tmp_path / "labels.jsonl")
    capsys.readouterr()
    assert run("calibrate", "fit", history, "--json") == OK
    found = printed(capsys)
    assert found["labelled"] == picked["picked"]
    assert found["reviewers"] == ["ada"]
    assert found["judge"]["low"] > BAD_RATE
    assert found["corrected"]["low"] < BAD_RATE < found["corrected"]["high"]
    widths = [found[name]["high"] - found[name]["low"] for name in ("corrected", "labels")]
    assert widths[0] < widths[1]
    assert found["agreement"]["sensitivity"]["low"] < 0.8 < found["agreement"]["sensitivity"]["high"]
    assert found["agreement"]["specificity"]["low"] < 0.9 < found["agreement"]["specificity"]["high"]
    assert found["disagreements"][0]["call"].startswith("00-")
    assert run("calibrate", "fit", history) == OK
    text = capsys.readouterr().out
    assert "corrected by the labels" in text
    assert "Cohen's kappa" in text


def test_a_fit_recommends_a_threshold_and_writes_a_calibration_file(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has one entry for each key; a second fit replaces its own entry."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    capsys.readouterr()
    file = tmp_path / "calibration.json"
    for _ in range(2):
        assert run("calibrate", "fit", history, "--out", file, "--json") == OK
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["threshold"]["badness"] == found["score_threshold"] == 0.5
    # A judge of verdicts has one threshold: its error on other questions is its error.
    assert found["threshold"]["error"]["sensitivity"] == found["agreement"]["sensitivity"]
    (entry,) = read_calibrations(file)
    assert entry.key == CalibrationKey("hallucinated", "1", "judge", "2")
    assert (entry.labels, entry.threshold, entry.unusable) == (found["labelled"], 0.5, "")
    assert entry.sums["w"] == pytest.approx(CALLS, rel=0.2)
    corrected = entry.correct(calibrate(history).judge)
    assert corrected.value == pytest.approx(found["corrected"]["value"], abs=0.02)
    assert "(cross-fitted)" in "".join(text_of_fit(history, capsys))


def test_the_text_of_a_fit_has_the_figures_of_its_page(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each by its name, with its interval or what it means; the threshold's error has intervals, too."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    figures = list(calibration_figures(calibrate(history)))
    assert [name for name, _, _ in figures] == [
        "Agreement", "Best constant verdict", "Cohen's kappa", "Sensitivity", "Specificity", "Recommended threshold",
    ]  # fmt: skip
    text = text_of_fit(history, capsys)
    for name, value, told in figures:
        assert any(line.split() == f"{name} {value}: {told}".split() for line in text.splitlines())
    assert re.search(r"sensitivity [\d.]+% \([\d.]+% to [\d.]+%\)", text)


def text_of_fit(history: Path, capsys: pytest.CaptureFixture[str], *more: object) -> str:
    capsys.readouterr()
    assert run("calibrate", "fit", history, *more) == OK
    return capsys.readouterr().out


def test_a_guard_is_told_what_it_would_block(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth of the good answers has the score 1: a limit of 2 % allows no bound, one of 30 % does."""
    assert run("calibrate", "guard", history, "--json") == FAILURE
    unlabelled = printed(capsys)
    assert (unlabelled["missing_labels"], unlabelled["labelled_good"]) == (149, 0)
    assert unlabelled["curve"][50]["blocked"] == pytest.approx(0.17, abs=0.03)
    assert unlabelled["curve"][50]["good_blocked"] is None
    run("calibrate", "pick", history, "-n", 200, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    capsys.readouterr()
    assert run("calibrate", "guard", history) == FAILURE
    assert "labels of good ones are missing" in capsys.readouterr().out
    assert run("calibrate", "guard", history, "--max-false-block", 0.3, "--json") == OK
    found = printed(capsys)
    assert (found["above"], found["missing_labels"]) == (0.0, 0)
    at = found["curve"][50]
    assert at["good_blocked"] < at["good_blocked_at_most"] <= 0.3
    assert at["bad_blocked"]["low"] < 0.8 < at["bad_blocked"]["high"]
    assert run("calibrate", "guard", history, "--max-false-block", 0.3) == OK
    assert "ragtrace.Guard('hallucinated', above=0)" in capsys.readouterr().out
    assert run("calibrate", "guard", history, "--max-false-block", 2) == USAGE


def test_a_guard_takes_its_bound_from_the_calibration_file(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of `fit` has the numbers of blocked answers; one that is damaged is refused."""
    run("calibrate", "pick", history, "-n", 200, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    file = tmp_path / "calibration.json"
    assert run("calibrate", "fit", history, "--out", file) == OK
    (entry,) = read_calibrations(file)
    assert entry.blocks is not None
    assert entry.blocks == calibrate(history).blocks
    assert entry.blocks.threshold(0.3) == 0.0
    record = json.loads(file.read_text())
    record["calibrations"][0]["blocks"]["good_blocked"][3] = 10_000
    file.write_text(json.dumps(record))
    with pytest.raises(SettingsError, match="numbers of blocked answers cannot be"):
        read_calibrations(file)


def test_every_disagreement_is_listed_worst_first(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Judge and label furthest apart first; of equal ones that which stands for the most calls."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    found = calibrate(history)
    order = [(-abs(each.badness - each.label), -each.weight) for each in found.disagreements]
    assert order == sorted(order)
    assert len(order) > 10
    assert text_of_fit(history, capsys).count("stands for") == len(order)


def test_a_page_shows_the_calibration(history: Path, tmp_path: Path) -> None:
    """Rates, agreement, labels by score and every disagreement; a reviewer's name cannot act as markup."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl", reviewer="<script>ada</script>")
    page, found = tmp_path / "page.html", calibrate(history)
    assert run("calibrate", "fit", history, "--report", page) == OK
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;ada" in text
    assert f"{found.corrected.value:.1%} of the calls are bad" in text
    assert all(call_of_identity(each.identity) in text for each in found.disagreements)
    assert text.count('class="whisker"') == 3 + 2
    for figure in ("Cohen&#39;s kappa", "Sensitivity", "Best constant verdict", "cross-fitted"):
        assert figure in text


def test_a_calibration_file_is_checked(tmp_path: Path, history: Path) -> None:
    """A damaged or foreign file is an error that names it, and is not overwritten."""
    file = tmp_path / "calibration.json"
    for text in ("{}", "[", '{"format": "ragtrace-calibration", "version": 9}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError, match=re.escape(str(file))):
            read_calibrations(file)
    run("calibrate", "pick", history, "-n", 50)
    label_all(history, tmp_path / "labels.jsonl")
    assert run("calibrate", "fit", history, "--out", file) == USAGE
    assert file.read_text(encoding="utf-8").endswith("9}")
    file.unlink()
    assert run("calibrate", "fit", history, "--out", file) == OK
    good = json.loads(file.read_text(encoding="utf-8"))
    for change in ({"sums": {"w": 1}}, {"labels": "7"}, {"metric": None}):
        bad = {**good, "calibrations": [{**good["calibrations"][0], **change}]}
        file.write_text(json.dumps(bad), encoding="utf-8")
        with pytest.raises(SettingsError, match="damaged"):
            read_calibrations(file)


def test_each_call_is_picked_with_its_recorded_probability(history: Path) -> None:
    """Over 300 picks; none has the probability 0, and what the judge finds bad is picked more often."""
    with closing(HistoryReader(str(history))) as reader:
        calls = judged_calls(reader, reader.columns(0.0, float("inf")), "hallucinated")
        times: dict[bytes, int] = {}
        probability: dict[bytes, float] = {}
        for seed in range(300):
            picks = pick_calls(calls, 100, seed)
            assert abs(len(picks) - 100) <= 1
            for pick in picks:
                times[pick.identity] = times.get(pick.identity, 0) + 1
                probability[pick.identity] = pick.probability
    expected = np.array([300 * probability[identity] for identity in times])
    seen = np.array(list(times.values()))
    # The counts are binomial: their squared deviations, in units of the variance, are 1 in the mean.
    spread = np.mean((seen - expected) ** 2 / (expected * (1 - expected / 300) + 1e-9))
    assert 0.8 < spread < 1.2
    assert min(probability.values()) >= 0.5 * 100 / calls.judged.sum() * 0.99
    assert len(times) == pytest.approx(calls.judged.sum(), rel=0.02)


def test_a_second_pick_needs_again(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would leave labels unused."""
    assert run("calibrate", "pick", history, "-n", 20) == OK
    assert run("calibrate", "pick", history, "-n", 20) == USAGE
    assert "--again" in capsys.readouterr().err
    assert run("calibrate", "pick", history, "-n", 20, "--again") == OK


def report_of(history: Path, capsys: pytest.CaptureFixture[str], *more: object) -> dict[str, Any]:
    """The entry of the labelled metric in the JSON form of the report."""
    capsys.readouterr()
    assert run("report", history, "--format", "json", "--worst", 0, *more) == OK
    (item,) = [each for each in printed(capsys)["measured"] if each["metric"] == "hallucinated"]
    return dict(item)


def test_a_report_shows_the_corrected_rate_beside_the_judges(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the labels of its own calls; in every form."""
    assert report_of(history, capsys)["corrected"] is None
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    item = report_of(history, capsys)
    found, fitted = item["corrected"]["estimate"], calibrate(history).corrected
    assert (found["value"], found["low"], found["high"]) == (fitted.value, fitted.low, fitted.high)
    assert (found["corrected"], found["stale"], item["corrected"]["labels"]) == ("labels", "", 150)
    assert item["overall"]["value"] > found["high"]
    for form in ("markdown", "html", "terminal"):
        capsys.readouterr()
        assert run("report", history, "--format", form) == OK
        text = capsys.readouterr().out
        assert "Corrected by human labels" in text
        assert "150 labelled" in text


def test_the_headline_is_the_corrected_rate_where_labels_hold(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate at the top of a report is the judge's, and said to be, until labels correct it."""
    own = re.compile(r"Hallucination rate by the judge is (\d+\.\d)%")
    corrected = re.compile(r"Hallucination rate is (\d+\.\d)%.{0,200}corrected by 150 labelled calls", re.DOTALL)

    def shown(form: str) -> str:
        capsys.readouterr()
        assert run("report", history, "--format", form) == OK
        text = " ".join(capsys.readouterr().out.split()).replace("\\", "")
        return re.sub(r"<[^>]*>", "", text)

    for form in ("markdown", "html", "terminal"):
        assert own.search(shown(form)), form
    rate = json.loads(shown("json"))["rate"]
    assert (rate["corrected"], rate["value"]) == ("", report_of(history, capsys)["overall"]["value"])

    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    found = report_of(history, capsys)["corrected"]["estimate"]
    for form in ("markdown", "html", "terminal"):
        match = corrected.search(shown(form))
        assert match, form
        assert float(match[1]) == pytest.approx(100 * found["value"], abs=0.051), form
        assert not own.search(shown(form))
    assert json.loads(shown("json"))["rate"] == found


def test_a_report_without_labels_of_its_time_uses_those_of_all_times(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the judge's sensitivity and specificity, with a wider interval."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_all(history, tmp_path / "labels.jsonl")
    with closing(sqlite3.connect(history)) as database, database:
        database.execute("UPDATE calls SET at = at - 864000")
    fill(history, calls=500, served="tiny")
    item = report_of(history, capsys)
    found = item["corrected"]["estimate"]
    assert (found["corrected"], item["corrected"]["labels"]) == ("rogan_gladen", 150)
    assert found["low"] < BAD_RATE < found["high"] < 0.3
    fill(history, calls=100, version="3")
    capsys.readouterr()
    assert run("report", history, "--format", "markdown") == OK
    assert "STALE" in capsys.readouterr().out


def test_labels_survive_a_round_trip_as_csv(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts that a spreadsheet would take for formulas are marked; the file is the owner's alone."""
    run("calibrate", "pick", history, "-n", 200)
    file = tmp_path / "labels.csv"
    assert run("labels", "export", history, "--out", file) == OK
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert "judge" not in rows[0]
    assert any(row["answer"] == f"'{BAD_ANSWER}" for row in rows)
    assert not any(value.startswith("=") for row in rows for value in row.values())
    rows[0] |= {"label": "Unsure", "comment": "'=odd", "statements": '[{"start": 0, "label": "not"}]'}
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    capsys.readouterr()
    assert run("labels", "import", history, file, "--reviewer", "ada", "--json") == OK
    assert printed(capsys) == {"imported": 1, "without_label": len(rows) - 1, "unwanted": 0, "unknown_calls": 0}
    (row,) = [each for each in exported(history, tmp_path / "again.jsonl") if each["label"]]
    assert (row["label"], row["reviewer"], row["comment"]) == ("unsure", "ada", "=odd")
    assert row["statements"] == [{"start": 0, "label": "not"}]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"label": "fine"}, "label must be one of bad, good, unsure"),
        ({"call": "nonsense"}, "call must be the id of a call"),
        ({"reviewer": ""}, "has no reviewer"),
        ({"metric": None}, "has no metric"),
        ({"statements": [{"label": "maybe"}]}, "statements must be a list"),
        ({"statements": "{"}, "statements must be a list"),
    ],
)
def test_one_wrong_line_and_nothing_is_imported(
    history: Path, tmp_path: Path, row: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the line."""
    good = {"call": f"00-{'ab' * 16}-{'cd' * 8}-01", "metric": "hallucinated", "label": "bad", "reviewer": "ada"}
    file = tmp_path / "labels.jsonl"
    file.write_text(f"{json.dumps(good)}\n{json.dumps({**good, **row})}\n", encoding="utf-8")
    assert run("labels", "import", history, file) == FAILURE
    error = capsys.readouterr().err
    assert said in error
    assert "line 2" in error
    with closing(LabelStore(str(history))) as store:
        assert store.labels() == []


def test_labels_of_calls_that_are_not_there_are_said(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are kept, and count nowhere."""
    run("calibrate", "pick", history, "-n", 30)
    label_all(history, tmp_path / "labels.jsonl")
    stranger = {"call": f"00-{'ab' * 16}-{'cd' * 8}-01", "metric": "hallucinated", "label": "bad", "reviewer": "ada"}
    file = tmp_path / "stranger.jsonl"
    file.write_text(json.dumps(stranger), encoding="utf-8")
    capsys.readouterr()
    assert run("labels", "import", history, file) == OK
    assert "1 of calls that the history does not hold" in capsys.readouterr().out
    assert run("calibrate", "fit", history, "--json") == OK
    assert printed(capsys)["elsewhere"] == 1


def test_reviewers_who_differ_are_averaged(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With Krippendorff's alpha between them; a reviewer who relabels replaces the earlier label."""
    run("calibrate", "pick", history, "-n", 40, "--seed", 2)
    rows = label_all(history, tmp_path / "ada.jsonl")
    label_all(history, tmp_path / "ada.jsonl")
    for row in rows:
        row |= {"label": "good", "reviewer": "bob"}
    file = tmp_path / "bob.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run("labels", "import", history, file) == OK
    capsys.readouterr()
    assert run("calibrate", "fit", history, "--json") == OK
    found = printed(capsys)
    assert found["reviewers"] == ["ada", "bob"]
    assert found["alpha"] < 0.5
    assert found["labelled"] == len(rows)


@pytest.mark.parametrize(
    ("newest", "stale"),
    [
        ({"version": "3"}, "judge@3"),
        ({"metric_version": "4"}, "judge@2 with version 4 of the metric"),
        ({"served": "tiny-2026-11-01"}, "judge@2 served by tiny-2026-11-01"),
        ({"served": "tiny-2026-01-01"}, ""),
    ],
)
def test_a_calibration_of_another_judge_is_stale(
    tmp_path: Path, newest: dict[str, str], stale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest calls are those of another version of the judge, of the metric, or of the model behind the judge."""
    history = tmp_path / "history.db"
    fill(history, calls=300, served="tiny-2026-01-01")
    run("calibrate", "pick", history, "-n", 30)
    label_all(history, tmp_path / "labels.jsonl")
    fill(history, calls=100, **newest)  # type: ignore[arg-type]
    assert ("STALE: the newest calls are judged by" in text_of_fit(history, capsys)) is bool(stale)
    found = json.loads(text_of_fit(history, capsys, "--json"))
    assert (found["evaluator"], found["stale"]) == ("judge@2", stale)
    assert found["key"]["served_model"] == "tiny-2026-01-01"


def test_the_guide_lists_every_key_of_the_json_object(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of `pick` and those of `fit`, and no others."""
    guide = (Path(__file__).parents[3] / "docs" / "calibration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (both|`pick`|`fit`) \| (.+?) \|", guide, re.MULTILINE)
    listed = {(of.strip("`"), key) for of, keys in rows for key in re.findall(r"`(\w+)`", keys)}
    assert run("calibrate", "pick", history, "-n", 50, "--seed", 1, "--json") == OK
    picked = printed(capsys)
    label_all(history, tmp_path / "labels.jsonl")
    fitted = json.loads(text_of_fit(history, capsys, "--json"))
    shared = {("both", key) for key in ("metric", "evaluator")}
    own = {("pick", key) for key in picked} | {("fit", key) for key in fitted}
    assert listed == shared | {(of, key) for of, key in own if key not in ("metric", "evaluator")}


def test_labels_that_may_be_wrong_are_not_trusted_silently(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One reviewer's errors are unknown; a second one shows them: what each says, and that they are unreliable."""
    run("calibrate", "pick", history, "-n", 150, "--metric", "hallucinated", "--seed", 1)
    rng, file = random.Random(3), tmp_path / "labels.jsonl"
    rows = exported(history, file)
    for row in rows:  # sam is wrong about a tenth of the calls
        row["label"] = "bad" if (row["answer"] == BAD_ANSWER) != (rng.random() < 0.1) else "good"
    file.write_text("".join(json.dumps({**row, "reviewer": "sam"}) + "\n" for row in rows), encoding="utf-8")
    assert run("labels", "import", history, file) == OK
    capsys.readouterr()
    assert run("calibrate", "fit", history) == OK
    assert "no call is labelled by two reviewers, so errors of the labels are not known" in capsys.readouterr().out
    label_all(history, file)
    capsys.readouterr()
    assert run("calibrate", "fit", history, "--json") == OK
    found = printed(capsys)
    assert found["between_reviewers"]["compared"] == 150
    assert found["between_reviewers"]["differing"] == found["divided"] > 5
    assert found["by_reviewer"]["ada"]["low"] < BAD_RATE < found["by_reviewer"]["ada"]["high"]
    assert found["by_reviewer"]["sam"]["value"] > found["corrected"]["value"] > found["by_reviewer"]["ada"]["value"]
    assert found["doubt"].startswith("UNRELIABLE: reviewers differ in")
    assert run("calibrate", "fit", history, "--report", tmp_path / "page.html") == OK
    assert run("report", history) == OK
    shown = " ".join(capsys.readouterr().out.split())
    assert f"without {found['divided']} on which reviewers are divided" in shown
    assert "settle these calls first" in shown
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "By the labels of sam alone" in page
    assert f"Agreement, without {found['divided']} divided calls" in page
    assert shown.count("UNRELIABLE") == 3  # in the headline, in the table of corrected rates, and by fit
    assert re.search(r"Hallucination rate by the judge is \d", shown)
    assert "Trust" not in shown


def label_with_doubts(history: Path, file: Path) -> int:
    """Label picked calls, a third of the bad ones and a tenth of the good ones as unsure; return how many these are."""
    rows, seen = exported(history, file), {"bad": 0, "good": 0}
    for row in rows:
        row["label"], row["reviewer"] = "bad" if row["answer"] == BAD_ANSWER else "good", "ada"
        seen[row["label"]] += 1
        if seen[row["label"]] % (3 if row["label"] == "bad" else 10) == 0:
            row["label"] = "unsure"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run("labels", "import", history, file) == OK
    return sum(row["label"] == "unsure" for row in rows)


def test_unsure_labels_count_both_ways(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The interval contains the rates with all of them good and with all bad; every form says how many there are."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    file = tmp_path / "labels.jsonl"
    unsure = label_with_doubts(history, file)
    found, calibration = json.loads(text_of_fit(history, capsys, "--json")), calibrate(history)
    assert found["unsure"] == len(calibration.unsure_points) == unsure > 10
    assert found["labelled"] == 150 - unsure
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for filled in ("good", "bad"):
        copy, decided = tmp_path / f"{filled}.db", tmp_path / f"{filled}.jsonl"
        copy.write_bytes(history.read_bytes())
        lines = ({**row, "label": filled if row["label"] == "unsure" else row["label"]} for row in rows)
        decided.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        assert run("labels", "import", copy, decided) == OK
        whole = json.loads(text_of_fit(copy, capsys, "--json"))
        assert whole["unsure"] == 0
        for name in ("labels", "corrected"):
            assert found[name]["low"] <= whole[name]["low"] < whole[name]["high"] <= found[name]["high"]
    said = f"{unsure} picked calls are labelled unsure: the rates leave such calls out, and the intervals contain"
    page = tmp_path / "page.html"
    assert said in text_of_fit(history, capsys, "--report", page)
    assert said in page.read_text(encoding="utf-8")
    corrected = report_of(history, capsys)["corrected"]
    assert (corrected["unsure"], corrected["labels"]) == (unsure, 150 - unsure)
    assert corrected["estimate"]["high"] == pytest.approx(found["corrected"]["high"])
    for form in ("markdown", "html"):
        capsys.readouterr()
        assert run("report", history, "--format", form) == OK
        assert f"{unsure} unsure" in capsys.readouterr().out


def test_a_calibration_file_holds_what_unsure_labels_may_be(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gives other traffic wider intervals; a file of an older release, which lacks these sums, is read."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    unsure, file = label_with_doubts(history, tmp_path / "labels.jsonl"), tmp_path / "calibration.json"
    assert run("calibrate", "fit", history, "--out", file) == OK
    capsys.readouterr()
    (entry,) = read_calibrations(file)
    assert entry.labels == 150 - unsure
    assert entry.sums["uw"] > unsure
    record = json.loads(file.read_text(encoding="utf-8"))
    sums = record["calibrations"][0]["sums"]
    record["calibrations"][0]["sums"] = {name: value for name, value in sums.items() if not name.startswith("u")}
    file.write_text(json.dumps(record), encoding="utf-8")
    (older,) = read_calibrations(file)
    judge = calibrate(history).judge
    (now, before) = (each.correct(judge) for each in (entry, older))
    assert now.value == before.value
    assert (now.high or 0.0) - (now.low or 0.0) > (before.high or 0.0) - (before.low or 0.0) + 0.1


def test_a_second_reviewer_decides_unsure_calls(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call that any reviewer labels good or bad is no longer unsure."""
    run("calibrate", "pick", history, "-n", 150, "--seed", 1)
    label_with_doubts(history, tmp_path / "ada.jsonl")
    label_all(history, tmp_path / "bob.jsonl", reviewer="bob")
    found = json.loads(text_of_fit(history, capsys, "--json"))
    assert (found["labelled"], found["unsure"]) == (150, 0)
    assert "unsure" not in text_of_fit(history, capsys)
    alone = found["by_reviewer"]
    assert alone["ada"]["low"] < alone["bob"]["low"] < alone["bob"]["high"] < alone["ada"]["high"]


def test_what_is_missing_is_said(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No pick, no label, no such metric, no history, no file."""
    assert run("calibrate", "fit", history) == USAGE
    assert "begin with `ragtrace calibrate pick`" in capsys.readouterr().err
    assert run("calibrate", "pick", history, "--metric", "faithfulnes") == USAGE
    assert "it has: consistency, hallucinated" in capsys.readouterr().err
    assert run("calibrate", "pick", tmp_path / "none.db") == FAILURE
    assert run("calibrate", "pick", history, "-n", 10) == OK
    assert run("calibrate", "fit", history) == FAILURE
    assert "no picked call is labelled yet" in capsys.readouterr().err
    assert run("labels", "import", history, tmp_path / "none.jsonl") == FAILURE
    assert run("labels", "import", history) == USAGE
    assert not (tmp_path / "none.db").exists()


def test_a_history_without_texts_can_be_labelled_by_call_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Picking says that there are no texts; the export has the ids, and no query and no answer."""
    path = tmp_path / "history.db"
    fill(path, calls=50, texts=False)
    assert run("calibrate", "pick", path, "-n", 5) == OK
    assert "5 of them have no stored texts (NO_CONTENT)" in capsys.readouterr().out
    rows = exported(path, tmp_path / "rows.jsonl")
    assert all(row["query"] is None and row["answer"] is None and row["call"] for row in rows)


LAYOUTS: Final = ("history_version_1.sql", "history_with_feedback.sql", "history_with_labels.sql")
"""Statements that made the histories of former releases, each after those before it."""


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_a_history_of_a_former_release_is_read_and_goes_on(
    tmp_path: Path, layout: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps its rows and its version, so that the former release reads it, too; calls are added and labelled."""
    path = tmp_path / "history.db"
    files = Path(__file__).parents[2] / "files"
    with closing(sqlite3.connect(path)) as database:
        for name in LAYOUTS[: layout + 1]:
            database.executescript((files / name).read_text(encoding="utf-8"))
    assert run("report", path, "--since", "2023-11-14", "--until", "2023-11-15", "--format", "json", "--worst", 0) == OK
    reported = printed(capsys)
    assert reported["calls"] == 2
    (item,) = [each for each in reported["measured"] if each["metric"] == "faithfulness"]
    assert (item["corrected"] is not None) is (layout == 2)
    with closing(HistoryReader(str(path))) as reader:
        assert [len(reader.feedback()), len(labels_in(reader)), len(picks_in(reader, "faithfulness"))] == [
            int(layout >= 1), int(layout == 2), int(layout == 2),
        ]  # fmt: skip
    fill(path, calls=60)
    assert run("calibrate", "pick", path, "-n", 20) == OK
    label_all(path, tmp_path / "labels.jsonl")
    assert run("calibrate", "fit", path) == OK
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM calls").fetchone() == (62,)


def test_few_labels_leave_the_judges_rate_at_the_top(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten labels correct nothing: every form says how many are missing, and none shows the corrected figure."""
    run("calibrate", "pick", history, "-n", 10, "--seed", 1)
    picked = len(label_all(history, tmp_path / "labels.jsonl"))
    item = report_of(history, capsys)
    assert (item["corrected"]["labels"], item["corrected"]["labels_needed"]) == (picked, 20)
    low, high = (item["corrected"]["estimate"][end] for end in ("low", "high"))
    guess = f"{100 * low:.1f}% to {100 * high:.1f}%"
    said = f"too few labels ({picked} of 20: {20 - picked} more are needed)"
    for form in ("markdown", "html", "terminal"):
        capsys.readouterr()
        assert run("report", history, "--format", form) == OK
        text = " ".join(re.sub(r"<[^>]*>", "", capsys.readouterr().out).replace("\\", "").split())
        assert text.count("Hallucination rate by the judge is") >= 1, form
        assert f"Not corrected by human labels: {said}" in text, form
        assert guess not in text, form
    assert run("report", history, "--format", "json") == OK
    assert printed(capsys)["rate"]["corrected"] == ""
    page = tmp_path / "page.html"
    assert run("calibrate", "fit", history, "--report", page) == OK
    assert f"corrected by the labels    {said}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert text.count(said) == 2
    assert "by human labels; the judge says" not in text
