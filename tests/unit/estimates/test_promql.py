"""The recording rules give what `estimate_mean` gives, in a real Prometheus's arithmetic."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import (
    NAMES,
    CalibrationKey,
    Estimate,
    JudgeCalibration,
    Method,
    Moments,
    Target,
    estimate_mean,
    judged_moments,
    unjudged_moments,
)
from ragtrace.estimates.calibration import UNSURE_SUMS, label_sums
from ragtrace.estimates.moments import OLDEST
from ragtrace.estimates.promql import LABELS, RecordingRule, corrected_rules, recording_rules
from tests.support.populations import Cell, simulate

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
MINUTES = 10
METRIC = "ragtrace_eval_moment_total"


def samples() -> dict[str, Moments]:
    """Moments to try, by the workflow that they are put under."""
    found = {
        "one_bad": unjudged_moments() + judged_moments(1.0, 1.0),
        "none_bad": sum((unjudged_moments() + judged_moments(0.0, 0.5) for _ in range(50)), Moments()),
        "all_half": sum((unjudged_moments(0.5) + judged_moments(0.5, 1.0, 0.5) for _ in range(50)), Moments()),
        "same_scores": sum(
            (unjudged_moments(y / 9) + judged_moments(y / 9, 0.25, y / 9) for y in range(10)), Moments()
        ),
    }
    found["ruled_only"] = sum((judged_moments(y, 1.0, 0.2, seen=1.0, ruled=True) for y in (0.0, 0.5, 1.0)), Moments())
    for number in range(2):
        drawn = simulate(Cell(0.1, 0.1, 0.4, 100, 10.0, always=0.3), number, 1)
        found[f"ruled_{number}"] = Moments.from_sums({name: float(values[0]) for name, values in drawn.sums.items()})
    for cell in (Cell(0.1, 0.1, 0.4, 100, 10.0), Cell(0.5, 0.2, 0.9, 300), Cell(0.02, 0.01, 0.0, 1000, 10.0)):
        for number in range(2):
            drawn = simulate(cell, number, 1)
            sums = {name: float(values[0]) for name, values in drawn.sums.items()}
            found[f"rate_{cell.rate}_{number}".replace(".", "_")] = Moments.from_sums(sums)
            known = {name: value for name, value in sums.items() if name in OLDEST}
            found[f"older_{cell.rate}_{number}".replace(".", "_")] = Moments.from_sums(known)
    return found


def series(workflow: str, moments: Moments, replicas: int) -> list[dict[str, str]]:
    """Counters of that many processes that rise steadily, by *moments* in all in the window."""
    lines = []
    for replica in range(replicas):
        for name, value in zip(NAMES, moments.values(), strict=True):
            if moments.w and not moments.c and name not in OLDEST:
                continue  # a version that did not export it
            labels = f'{LABELS[0]}="hallucination", {LABELS[1]}="{workflow}", {LABELS[2]}="judge"'
            step = value / replicas / MINUTES
            lines.append(
                {
                    "series": f'{METRIC}{{{labels}, ragtrace_moment="{name}", instance="{replica}"}}',
                    "values": f"0+{step!r}x{2 * MINUTES}",
                }
            )
    return lines


def asked(workflow: str, what: str, expected: float) -> dict[str, object]:
    """A promtool expectation that the rule *what* is within a millionth of *expected*."""
    rule = f'ragtrace:bot:{what}{{{LABELS[1]}="{workflow}"}}'
    return {
        "expr": f"count(abs({rule} - {expected!r}) <= {max(abs(expected) * 1e-6, 1e-9)!r})",
        "eval_time": f"{2 * MINUTES}m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


def promtool(
    directory: Path, rules: Sequence[RecordingRule], tests: Mapping[str, object]
) -> subprocess.CompletedProcess[str]:
    """Run the rule test; JSON is YAML."""
    assert PROMTOOL is not None
    group = {"name": "estimates", "interval": "1m", "rules": [{"record": r.record, "expr": r.expr} for r in rules]}
    (directory / "rules.yml").write_text(json.dumps({"groups": [group]}))
    (directory / "test.yml").write_text(
        # What the rules say at the end is looked at, so they are evaluated at the beginning and at the end.
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": f"{2 * MINUTES}m", "tests": [tests]})
    )
    command = [PROMTOOL, "test", "rules", "test.yml"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240, check=False)


@needs_promtool
@pytest.mark.parametrize("method", ["weighted", "fixed", "tuned"])
@pytest.mark.parametrize("target", ["rate", "traffic"])
def test_prometheus_computes_the_same(tmp_path: Path, method: Method, target: Target) -> None:
    """Value and both ends, to a millionth, over two processes, for ordinary moments and for the edges."""
    expected: dict[str, Estimate] = {
        name: estimate_mean(moments, method=method, of=target) for name, moments in samples().items()
    }
    inputs = [line for name, moments in samples().items() for line in series(name, moments, 2)]
    expectations = [
        asked(name, what, number)
        for name, estimate in expected.items()
        for what, number in (("value", estimate.value), ("low", estimate.low), ("high", estimate.high))
        if number is not None
    ]
    rules = recording_rules("bot", f"{MINUTES}m", method=method, of=target)
    done = promtool(tmp_path, rules, {"interval": "1m", "input_series": inputs, "promql_expr_test": expectations})
    assert done.returncode == 0, done.stdout + done.stderr


CALIBRATIONS = {
    "good": ((40, 10, 20, 180), 4.0, 1),
    "certain": ((50, 0, 0, 150), 1.0, 1),
    "one_kind": ((0, 0, 9, 91), 1.0, 1),
    "guesses": ((5, 5, 50, 50), 1.0, 1),
    "stale": ((40, 10, 20, 180), 4.0, 0),
    "unsure": ((40, 10, 20, 180), 4.0, 1),
    "hidden": ((20, 10, 20, 180), 4.0, 1),
    "older": ((40, 10, 20, 180), 4.0, 1),
}
"""Calls found bad and not, of those labelled bad and good; their weight; whether the calibration holds.

The process of `older` does not export the sums over unsure calls.
"""
UNSURE = {"unsure": (4, 7), "hidden": (30, 40)}
"""Calls found bad and not, of those that reviewers are unsure about; whatever they are, `hidden` may be a guess."""


def calibrated(metric: str) -> tuple[JudgeCalibration, list[dict[str, str]]]:
    """A calibration of two replicas, and its series."""
    counts, weight, holds = CALIBRATIONS[metric]
    kinds = zip(((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)), counts, strict=True)
    unsure = zip((1.0, 0.0), UNSURE.get(metric, (0, 0)), strict=True)
    sums = label_sums(
        ((z, y, weight) for (z, y), number in kinds for _ in range(number)),
        ((y, weight) for y, number in unsure for _ in range(number)),
    )
    lines = []
    for replica in range(2):
        labels = f'{LABELS[0]}="{metric}", {LABELS[2]}="judge", instance="{replica}"'
        held = f"{holds}x{2 * MINUTES}"
        lines.append({"series": f"ragtrace_eval_calibration_holds{{{labels}}}", "values": held})
        for name, value in sums.items():
            if metric == "older" and name in UNSURE_SUMS:
                continue
            gauge = f'ragtrace_eval_label_moment{{{labels}, ragtrace_moment="{name}"}}'
            lines.append({"series": gauge, "values": f"{value!r}x{2 * MINUTES}"})
    key = CalibrationKey(metric, "1", "judge", "1")
    return JudgeCalibration(key, 0.0, sum(counts), False, None, sums), lines


@needs_promtool
def test_prometheus_corrects_as_the_library_does(tmp_path: Path) -> None:
    """By workflow, with one calibration of the metric; no series where it is stale or corrects nothing."""
    inputs, expectations = [], []
    moments = {name: each for name, each in samples().items() if name in ("none_bad", "rate_0_1_0", "rate_0_5_0")}
    for metric in CALIBRATIONS:
        calibration, lines = calibrated(metric)
        inputs += lines
        for workflow, each in moments.items():
            inputs += [
                {**line, "series": line["series"].replace("hallucination", metric)}
                for line in series(workflow, each, 2)
            ]
            found = calibration.correct(estimate_mean(each))
            for what in ("value", "low", "high"):
                rule = f'ragtrace:bot_corrected:{what}{{{LABELS[0]}="{metric}", {LABELS[1]}="{workflow}"}}'
                value = getattr(found, what)
                missing = metric == "stale" or value is None
                expectations.append(
                    {
                        "expr": rule if missing else f"count(abs({rule} - {value!r}) <= 1e-6)",
                        "eval_time": f"{2 * MINUTES}m",
                        "exp_samples": [] if missing else [{"labels": "{}", "value": 1}],
                    }
                )
    rules = [*recording_rules("bot", f"{MINUTES}m"), *corrected_rules("bot")]
    assert len({rule.record for rule in rules}) == len(rules)
    tests = {"interval": "1m", "input_series": inputs, "promql_expr_test": expectations}
    done = promtool(tmp_path, rules, tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(expectations) == len(CALIBRATIONS) * len(moments) * 3 == 72


@needs_promtool
def test_where_nothing_was_judged_there_is_no_series(tmp_path: Path) -> None:
    """Not 0 and not NaN, although calls were seen."""
    rules = recording_rules("bot", f"{MINUTES}m")
    nothing = {"expr": "ragtrace:bot:value", "eval_time": f"{2 * MINUTES}m", "exp_samples": []}
    moments = sum((unjudged_moments(0.5) for _ in range(20)), Moments())
    tests = {"interval": "1m", "input_series": series("idle", moments, 2), "promql_expr_test": [nothing]}
    done = promtool(tmp_path, rules, tests)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_raw_probabilities_have_a_mean_and_no_value(tmp_path: Path) -> None:
    """Also for as long as calls of a process that has ended are in the window; another evaluator's value is there."""
    moments = samples()["rate_0_5_0"]
    inputs = [
        line if by == "judge" else {**line, "series": line["series"].replace('"judge"', f'"{by}"')}
        for by in ("judge", "screen")
        for line in series("bot", moments, 1)
    ]
    of = f'{LABELS[0]}="hallucination", {LABELS[2]}="judge"'
    inputs.append({"series": f"ragtrace_eval_raw_probability{{{of}}}", "values": f"1x{MINUTES + 5} stale"})
    at = f"{2 * MINUTES}m"
    expected = {"value": 0, "low": 0, "high": 0, "mean_score": 1, "mean_score_low": 1, "mean_score_high": 1}
    cases = [
        {
            "expr": f'count(ragtrace:bot:{end}{{{LABELS[2]}="{by}"}})',
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": 1}] if by == "screen" or seen else [],
        }
        for end, seen in expected.items()
        for by in ("judge", "screen")
    ]
    rules = recording_rules("bot", f"{MINUTES}m")
    done = promtool(tmp_path, rules, {"interval": "1m", "input_series": inputs, "promql_expr_test": cases})
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_stands_on_those_before_it() -> None:
    """No rule refers to a later one, and value, low and high are there."""
    rules = recording_rules("bot", "10m")
    names = [rule.record for rule in rules]
    assert len(names) == len(set(names))
    assert {"ragtrace:bot:value", "ragtrace:bot:low", "ragtrace:bot:high"} <= set(names)
    for number, rule in enumerate(rules):
        used = [word for word in re.findall(r"[\w:]+", rule.expr) if word.startswith("ragtrace:")]
        assert set(used) <= set(names[:number]), rule


def test_a_selector_is_in_every_sum() -> None:
    """It is in the sums, where raw probabilities are left out, and in no other rule."""
    rules = recording_rules("bot", "10m", selector='service_name="bot"')
    found = [rule.expr.count('service_name="bot"') for rule in rules]
    assert found == [1] * len(NAMES) + [0] * (len(rules) - len(NAMES) - 3) + [1] * 3


def test_scores_of_two_evaluators_are_never_summed() -> None:
    """Labels must keep metric and evaluator; names must do in a rule."""
    with pytest.raises(SettingsError, match="ragtrace_evaluator_id"):
        recording_rules("bot", "10m", labels=[LABELS[0]])
    with pytest.raises(SettingsError, match="letters, digits"):
        recording_rules("my bot", "10m")
