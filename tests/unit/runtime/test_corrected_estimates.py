"""`configure(calibration=...)`: estimates and alerts that human labels correct, and calibrations that do not hold."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.alerts import Alerting
from ragtrace.core.types import Judgement
from ragtrace.estimates import CalibrationKey, JudgeCalibration, write_calibration
from ragtrace.estimates.calibration import label_sums
from ragtrace.metrics import registry
from ragtrace.runtime.current_runtime import current
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import GOOD, HALF, WAIT_S, ask, watch

KEY = CalibrationKey("hallucinated", registry.resolve(["hallucinated"])[0].version, "judge", "1", "", "tiny-1")


def calibration(
    key: CalibrationKey = KEY, *, caught: int = 40, bad: int = 50, alarms: int = 20, good: int = 200
) -> Any:
    """A judge that finds 80 % of the bad calls, and 10 % of the good ones, bad."""
    kinds = ((1.0, 1.0, caught), (1.0, 0.0, bad - caught), (0.0, 1.0, alarms), (0.0, 0.0, good - alarms))
    calls = [(z, y, 4.0) for z, y, number in kinds for _ in range(number)]
    return JudgeCalibration(key, 1.0, bad + good, False, 0.5, label_sums(calls))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration())
    return path


def script(bad: int, good: int, served: str = "tiny-1") -> list[Judgement]:
    return [dataclasses.replace(each, attributes={"judge_model": served}) for each in [HALF] * bad + [GOOD] * good]


def run(judgements: Sequence[Judgement], file: Path | None, *, first: int = 0, **settings: Any) -> Captured:
    """As many calls as there are judgements, all of them judged."""
    captured = watch(
        screen=None,
        judge=FakeJudge(*judgements, name="judge"),
        metrics=["hallucinated"],
        sampling=ragtrace.Sampling(rate=1.0),
        calibration=file,
        **settings,
    )
    ask_all(len(judgements), first)
    return captured


def ask_all(count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        ask(f"where? {number}")
    assert ragtrace.flush(WAIT_S)


def test_an_estimate_is_corrected_on_request_alone(file: Path) -> None:
    """17 of 100 calls are found bad by a judge that calls a tenth of the good ones bad: (0.17 - 0.1) / 0.7 are."""
    run(script(17, 83), file)
    plain, found = ragtrace.estimate("hallucinated"), ragtrace.estimate("hallucinated", corrected=True)
    assert (plain.value, plain.corrected, plain.stale) == (pytest.approx(0.17), "", "")
    assert (found.value, found.corrected, found.stale) == (pytest.approx(0.1), "rogan_gladen", "")
    assert found.low is not None
    assert found.high is not None
    assert plain.low is not None
    assert plain.high is not None
    assert found.low < 0.1 < found.high
    assert found.high - found.low > plain.high - plain.low
    assert ragtrace.estimate("hallucinated", window=60.0, workflow="guide", corrected=True).value == found.value


def test_without_a_calibration_there_is_a_reason(tmp_path: Path) -> None:
    """Neither without a file, nor with one about another metric."""
    run(script(1, 3), None)
    found = ragtrace.estimate("hallucinated", corrected=True)
    assert (found.value, found.reason, found.n) == (None, "not_calibrated", 4)
    other = tmp_path / "other.json"
    write_calibration(other, calibration(KEY._replace(metric="faithfulness")))
    run(script(1, 3), other)
    assert ragtrace.estimate("hallucinated", corrected=True).reason == "not_calibrated"


def test_a_file_that_cannot_be_read_stops_configure(tmp_path: Path) -> None:
    """The message names it."""
    with pytest.raises(ragtrace.SettingsError, match=r"none\.json"):
        ragtrace.configure(exporter="none", calibration=tmp_path / "none.json")


def test_a_configure_that_fails_leaves_no_thread(tmp_path: Path) -> None:
    """Neither exporters nor providers are made before every file has been read."""
    before = threading.enumerate()
    with pytest.raises(ragtrace.SettingsError, match=r"none\.json"):
        ragtrace.configure(exporter="otlp", calibration=tmp_path / "none.json")
    assert threading.enumerate() == before


def label_moments(captured: Captured) -> dict[str, float]:
    found = captured.metrics().get("ragtrace.eval.label_moment")
    return {} if found is None else {point.attributes["ragtrace.moment"]: point.value for point in found.data_points}


def holds(captured: Captured) -> list[float]:
    return [point.value for point in captured.metrics()["ragtrace.eval.calibration_holds"].data_points]


def test_the_sums_over_the_labelled_calls_are_exported(file: Path) -> None:
    """As gauges, because every replica has all of them."""
    captured = run(script(1, 3), file)
    assert label_moments(captured) == dict(calibration().sums)
    assert holds(captured) == [1]


@pytest.mark.parametrize("stale", [KEY._replace(evaluator_version="0"), KEY._replace(metric_version="0")])
def test_a_calibration_of_another_version_is_stale(tmp_path: Path, stale: CalibrationKey) -> None:
    """The estimate says so, no sums are exported, and no alert fires."""
    path = tmp_path / "calibration.json"
    write_calibration(path, calibration(stale))
    alert = ragtrace.Alert("hallucinated", above=0.05, corrected=True)
    captured = run(script(60, 0), path, alerts=[alert])
    found = ragtrace.estimate("hallucinated", corrected=True)
    assert "version 1 instead of 0" in found.stale
    assert found.value is not None
    assert (label_moments(captured), holds(captured), states(captured)) == ({}, [0], {"no_calibration"})


def test_a_calibration_of_another_served_model_becomes_stale(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As soon as the server says that it ran another model; the log says so once."""
    captured = run([*script(2, 8), *script(30, 0, served="tiny-2")], file)
    assert ragtrace.estimate("hallucinated", corrected=True).stale == "served model tiny-2 instead of tiny-1"
    assert label_moments(captured) == {}
    assert caplog.text.count("the calibration of hallucinated is stale") == 1


def states(captured: Captured) -> set[str]:
    points = captured.metrics()["ragtrace.alert.state"].data_points
    return {str(point.attributes["ragtrace.alert.state"]) for point in points if point.value == 1}


def test_an_alert_watches_the_corrected_rate(file: Path) -> None:
    """A share of 60 % found bad is one of 71 % bad."""
    notices: list[Any] = []
    alert = ragtrace.Alert("hallucinated", above=0.05, corrected=True, notify=notices.append)
    captured = run([judgement for _ in range(20) for judgement in script(3, 2)], file, alerts=[alert])
    assert states(captured) == {"spiking"}
    (notice,) = notices
    assert (notice.alert, notice.bound) == ("hallucinated above 0.05 (corrected)", 0.05)
    assert notice.estimate.corrected == "rogan_gladen"
    assert "corrected by human labels" in notice.text


def test_verdicts_that_the_judges_errors_explain_raise_no_alert(file: Path) -> None:
    """10 % of the calls are found bad by a judge that calls 10 % of the good ones bad: an alert above 5 % is silent."""
    alerts = [
        ragtrace.Alert("hallucinated", above=0.05, corrected=True, mean_calls_between_false_alarms=1000),
        ragtrace.Alert("hallucinated", above=0.05, mean_calls_between_false_alarms=1000),
    ]
    run([judgement for _ in range(40) for judgement in script(1, 9)], file, alerts=alerts)
    runtime = current()
    assert runtime is not None
    on = {row.alert: row.state for row in runtime.parts.get(Alerting).states() if row.on}
    assert on == {"hallucinated above 0.05 (corrected)": "ok", "hallucinated above 0.05": "spiking"}


def test_a_spike_stays_open_when_its_calibration_becomes_stale(file: Path) -> None:
    """It is neither notified as over nor again."""
    notices: list[Any] = []
    alert = ragtrace.Alert("hallucinated", above=0.05, corrected=True, notify=notices.append)
    captured = run([*script(60, 0), *script(0, 200, served="tiny-2")], file, alerts=[alert])
    assert [(notice.problem, notice.status) for notice in notices] == [("spiking", "firing")]
    assert states(captured) == {"no_calibration"}


def test_a_spike_is_over_only_when_the_scores_say_so(file: Path) -> None:
    """A calibration that holds again ends no spike by itself; the scores after it do."""
    notices: list[Any] = []
    alert = ragtrace.Alert("hallucinated", above=0.05, corrected=True, notify=notices.append)
    bad = [*script(60, 0), *script(5, 0, served="tiny-2"), *script(10, 0)]
    judge = FakeJudge(*bad, *script(0, 300), name="judge")
    sampling = ragtrace.Sampling(rate=1.0)
    captured = watch(
        screen=None, judge=judge, metrics=["hallucinated"], sampling=sampling, calibration=file, alerts=[alert]
    )
    ask_all(len(bad))
    assert (states(captured), [notice.status for notice in notices]) == ({"spiking"}, ["firing"])
    ask_all(300, len(bad))
    assert (states(captured), [notice.status for notice in notices]) == ({"ok"}, ["firing", "resolved"])


def test_an_alert_on_a_baseline_cannot_be_corrected() -> None:
    """The baseline is of the judge's scores."""
    with pytest.raises(ragtrace.SettingsError, match="exclude each other"):
        ragtrace.Alert("hallucinated", above="baseline", corrected=True)
