"""`ragtrace calibrate fit` where a decision judge scored every call and a chat judge a sample: all stages count."""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest

from ragtrace.core.types import CALIBRATION, UNCALIBRATED, Evaluation, Score
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.report.analysis import build_report
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period
from ragtrace.system.terminal import OK
from tests.support.history import GIB, call_of
from tests.unit.cli.test_calibrate_decisions import BAD_ANSWER, label_picked, run, score_of

CALLS, BAD_RATE = 6_000, 0.1


def fill(
    path: Path,
    version: str | None = "1",
    *,
    calls: int = CALLS,
    bad_rate: float = BAD_RATE,
    begin: int = 0,
    unscored: float = 0.0,
) -> None:
    """Keep calls all of which a decision judge has scored, and a chat judge a sample, the uncertain ones more often.

    Args:
        path: the history; it may have calls.
        version: of the decision judge; None: there was none.
        calls: how many.
        bad_rate: share of them that is bad.
        begin: number of the first one.
        unscored: share of them to which the decision judge gave no score.
    """
    rng, offered = random.Random(5 + begin), list[QueuedCall]()
    for number in range(begin, begin + calls):
        bad = rng.random() < bad_rate
        call = replace(call_of(rng, BAD_ANSWER if bad else "Within 14 days."), query=f"How long? ({number})")
        s = score_of(call.answer, call.query, apart=2.6)
        score = Score(s, "hallucinated", "1", higher_is_better=False, attributes={CALIBRATION: UNCALIBRATED})
        evaluations: list[Evaluation] = []
        if version is not None and rng.random() >= unscored:
            evaluations.append(Evaluation("decider", version, "model", {"hallucinated": score}, served_model="one"))
        p = min(1.0, 0.25 * (0.5 + 1.5 * (s * (1.0 - s)) ** 0.5))
        chosen = rng.random() < p
        if chosen:
            found = rng.random() < (0.9 if bad else 0.05)
            verdict = Score(float(found), "hallucinated", "1", higher_is_better=False)
            evaluations.append(Evaluation("judge", "1", "llm_judge", {"hallucinated": verdict}, probability=p))
        offered.append(QueuedCall(call, tuple(evaluations), "sampled" if chosen else "not_sampled", time() + number))
    screen = {} if version is None else {"screen": f"decider@{version}", "screened": ("hallucinated",)}
    source = replace(CallOrigin("bot", "1", judge="judge@1", judged=("hallucinated",)), **screen)  # type: ignore[arg-type]
    if not path.exists():
        history_file(str(path)).create()
    with closing(HistoryWriter(str(path), source, most_bytes=GIB, texts=True)) as writer:
        writer.write(offered)


def fitted(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int) -> dict[str, Any]:
    assert run("calibrate", "pick", history, "-n", number, "--seed", 2) == OK
    label_picked(history, tmp_path / "labels.jsonl")
    capsys.readouterr()
    assert run("calibrate", "fit", history, "--json") == OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_all_stages_make_the_interval_narrower(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is in it, and it is as narrow as 1.4 times the labels at least; the text names the cascade."""
    record = fitted(history, tmp_path, capsys, 200)
    assert (record["evaluator"], record["decision_judge"]) == ("judge@1", "decider@1")
    assert record["corrected"]["low"] < BAD_RATE < record["corrected"]["high"]
    assert record["effective_labels"] > 1.4 * record["labelled"]
    assert run("calibrate", "fit", history) == OK
    assert "labels alone (with decider@1's scores: cascade)" in capsys.readouterr().out


@pytest.mark.parametrize("former", ["m/logprobs/questions-1", None])
def test_scores_of_a_part_of_the_time_are_no_stage_of_a_cascade(
    former: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where questions changed, or a decision judge came later, its calls would stand for those of before."""
    path = tmp_path / "history.db"
    fill(path, former, calls=2_800, bad_rate=0.03)
    fill(path, "m/logprobs/questions-2", calls=3_200, bad_rate=0.25, begin=2_800)
    record = fitted(path, tmp_path, capsys, 300)
    assert record["decision_judge"] == ""
    assert record["corrected"]["low"] < (2_800 * 0.03 + 3_200 * 0.25) / 6_000 < record["corrected"]["high"]


def test_a_decision_judge_that_gave_some_calls_no_score_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does where it declines now and then."""
    path = tmp_path / "history.db"
    fill(path, unscored=0.05)
    assert fitted(path, tmp_path, capsys, 200)["decision_judge"] == "decider@1"


def test_unsure_labels_count_both_ways_in_a_cascade(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a tenth of the labels unsure, the interval contains that without them."""
    record = fitted(history, tmp_path, capsys, 200)
    file = tmp_path / "unsure.jsonl"
    assert run("labels", "export", history, "--out", file) == OK
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for row in rows[::10]:
        row["label"] = "unsure"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert run("labels", "import", history, file) == OK
    capsys.readouterr()
    assert run("calibrate", "fit", history, "--json") == OK
    unsure = json.loads(capsys.readouterr().out)
    assert unsure["unsure"] == len(rows[::10])
    assert (
        unsure["corrected"]["high"] - unsure["corrected"]["low"]
        > record["corrected"]["high"] - record["corrected"]["low"]
    )


def test_few_labels_make_no_cascade(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below fifty the chat judge's rate is corrected as without a decision judge."""
    record = fitted(history, tmp_path, capsys, 40)
    assert record["decision_judge"] == ""
    assert record["corrected"]["value"] is not None


def test_a_report_counts_all_stages(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its corrected rate is that of `fit`; of the decision judge it shows no percentage."""
    record = fitted(history, tmp_path, capsys, 200)
    now = time()
    found = build_report(str(history), Period(now - 2 * CALLS, now + 2 * CALLS), made_at=now)
    by = {item.evaluator: item for item in found.measured if item.metric == "hallucinated"}
    corrected = by["judge@1"].corrected
    assert corrected is not None
    assert corrected.estimate.value == pytest.approx(record["corrected"]["value"])
    assert corrected.decision_judge == "decider@1"
    assert "and decider@1's score of every call (cascade)" in render_markdown(found).replace("\\", "")
    assert by["decider@1"].overall is None
