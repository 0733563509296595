"""A calibration made with a former version of a decision judge's questions, wherever it is read with the new one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from ragtrace.alerts import Alerting
from ragtrace.estimates import read_calibrations
from ragtrace.judges import DecisionJudge
from ragtrace.report.analysis import build_report
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period
from ragtrace.runtime.current_runtime import current
from ragtrace.system.terminal import OK
from ragtrace.testing import OpenAIServer, Reply
from tests.support.decisions import top_logprobs
from tests.support.watched import WAIT_S, ask, watch
from tests.unit.cli.test_calibrate_decisions import CALLS, fill, label_picked, run

FORMER: Final = "small-1/logprobs/questions-1"
PRESENT: Final = "small-1/logprobs/questions-2"
CHANGED: Final = f"evaluator version {PRESENT} instead of {FORMER}"
SERVED: Final = "small-1"
"""Model that the server of `top_logprobs` reports."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a history of the former questions and the calibration that its labels make."""
    folder = tmp_path_factory.mktemp("former")
    fill(folder / "history.db", version=FORMER, served=SERVED)
    assert run("calibrate", "pick", folder / "history.db", "-n", 700, "--seed", 1) == OK
    label_picked(folder / "history.db", folder / "labels.jsonl")
    assert run("calibrate", "fit", folder / "history.db", "--out", folder / "calibration.json") == OK
    return folder


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    """A copy of the calibration."""
    path = tmp_path / "calibration.json"
    path.write_bytes((made / "calibration.json").read_bytes())
    return path


@pytest.fixture
def history(made: Path, tmp_path: Path) -> Path:
    """A copy of the history, with one newer call by the new questions."""
    path = tmp_path / "history.db"
    path.write_bytes((made / "history.db").read_bytes())
    fill(path, version=PRESENT, served=SERVED, calls=1, begin=CALLS)
    return path


@pytest.fixture
def judge() -> Iterator[DecisionJudge]:
    """The judge as it is, at a server that says yes with a probability of 0.25."""
    with OpenAIServer(Reply(body=json.dumps(top_logprobs({"yes": 0.25, "no": 0.75})))) as server:
        yield DecisionJudge(
            "small-1", protocol="logprobs", base_url=server.url, api_key="none", name="decider",
            limits=ragtrace.JudgeLimits(concurrency=1),
        )  # fmt: skip


def test_the_versions_are_those_of_files_and_judge(file: Path, judge: DecisionJudge) -> None:
    """The file has no entry for the new questions, and the old entry may be called calibrated."""
    (entry,) = read_calibrations(file)
    assert (entry.key.evaluator_version, judge.version) == (FORMER, PRESENT)
    assert entry.scores is not None
    assert entry.scores.is_calibrated


def test_a_process_uses_no_curve_of_other_questions(
    file: Path, judge: DecisionJudge, caplog: pytest.LogCaptureFixture
) -> None:
    """Log, score, estimate, alert, gauge and doctor say that it is stale, from the first call on."""
    alert = ragtrace.Alert("hallucinated", above=0.3, name="rate")
    captured = watch(
        screen=None, judge=judge, metrics=["hallucinated"], sampling=ragtrace.Sampling(rate=1.0), calibration=file,
        alerts=[alert],
    )  # fmt: skip
    assert CHANGED in caplog.text
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    root = dict(captured.root().attributes or {})
    assert root["ragtrace.eval.hallucinated.score"] == 0.75
    assert root["ragtrace.eval.hallucinated.calibration"] == "stale"
    found = ragtrace.estimate("hallucinated", corrected=True)
    assert (found.value, found.reason) == (None, "stale_calibration")
    assert CHANGED in found.stale
    runtime = current()
    assert runtime is not None
    assert runtime.calibrations.current("hallucinated") is None
    rows = runtime.parts.get(Alerting).states()
    assert [row.state for row in rows if row.on and row.alert == "rate"] == ["no_calibration"]
    (point,) = captured.metrics()["ragtrace.eval.calibration_holds"].data_points
    assert point.value == 0
    assert any(f"the calibration of hallucinated is stale ({CHANGED})" in each for each in ragtrace.doctor().problems)


def test_a_guard_takes_no_bound_from_it(file: Path, judge: DecisionJudge) -> None:
    """`configure` is refused, as the answers that it would block are unknown."""
    guarded = ragtrace.trace(name="guarded", guard=ragtrace.Guard("hallucinated", max_false_block=0.05))(ask)
    with pytest.raises(ragtrace.SettingsError, match="its calibration is stale"):
        watch(screen=None, judge=judge, metrics=["hallucinated"], calibration=file)
    assert guarded


def test_the_fit_has_no_rate_and_names_the_bridge(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One newer call is enough; so it is in the report."""
    capsys.readouterr()
    assert run("calibrate", "fit", history) == OK
    said = capsys.readouterr().out
    assert f"STALE: the newest calls are judged by decider@{PRESENT}" in said
    assert "corrected by the labels    unknown: the labels are STALE" in said
    assert "ragtrace calibrate bridge" in said
    report = build_report(str(history), Period(0.0, 4e9), made_at=0.0)
    assert report.rate is not None
    assert report.rate.value is None
    assert f"STALE: decider@{PRESENT}" in render_markdown(report).replace("\\", "")


def test_calls_are_not_picked_by_it(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the new questions are picked by their raw scores, and the command says why."""
    path = tmp_path / "new.db"
    fill(path, version=PRESENT, served=SERVED, calls=300)
    assert run("calibrate", "pick", path, "-n", 50, "--calibration", file) == OK
    assert f"picked by raw scores: the calibration has {CHANGED}" in capsys.readouterr().err


def test_a_bridge_calibrates_the_new_questions_beside_the_former(
    history: Path, file: Path, judge: DecisionJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the labels that there are: the file then has an entry that holds for each of the two."""
    spec = f"decision-logprobs:{SERVED}"
    arguments = ["--judge", spec, "--base-url", judge._client.connection.server, "-n", 300, "--out", file]
    capsys.readouterr()
    assert run("calibrate", "bridge", history, *arguments) == OK
    assert {entry.key.evaluator_version for entry in read_calibrations(file)} == {FORMER, PRESENT}
