"""promtool tests of the shipped rules: every rule, where it gives a result and where it must give none."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from exporters.make_kits import rules
from ragtrace.estimates import NAMES, Moments, judged_moments, unjudged_moments
from ragtrace.estimates.calibration import informedness, label_rates, label_sums, transported_bounds
from ragtrace.estimates.formulas import RecordedFloats, interval_bounds
from ragtrace.estimates.promql import CALIBRATION_HOLDS, LABEL_MOMENT, MEANS, RAW_PROBABILITY

Test = dict[str, Any]
_Scenario = tuple[list[Test], ...]
"""Input series, and lists of checks of what the rules make of them."""
_TIMING: Final = rules.Timing()
_LABELLED: Final = label_sums(
    [(1.0, 1.0, 2.0), (1.0, 0.0, 2.0), (0.0, 1.0, 1.0), (0.0, 0.0, 9.0)], [(1.0, 0.25), (0.0, 0.5)]
)
_BOT: Final = f'{rules.JOB}="bot"'
"""Label of the service in a scenario, which `alert_tests` replaces by the scenario's name."""
_JUDGE: Final = f'{_BOT}, {rules.METRIC}="hallucinated", {rules.EVALUATOR}="judge"'
_MINUTES: Final = {_TIMING.spike: 30, _TIMING.slow: 360}


def of(metric: str = "hallucinated", workflow: str = "ask", job: str = "bot") -> str:
    """Return the Prometheus labels of the moment counters of one metric, workflow and service."""
    return f'{rules.JOB}="{job}", {rules.METRIC}="{metric}", {rules.WORKFLOW}="{workflow}", {rules.EVALUATOR}="judge"'


def rate(bad: float, judged: float = 10.0) -> Moments:
    """Return the moments of *judged* calls, of which the share *bad* has the score 1 and the rest 0."""
    calls = {1.0: judged * bad, 0.0: judged * (1 - bad)}
    one = {score: (unjudged_moments() + judged_moments(score, 1.0)).values() for score in calls}
    return sum((Moments(*(count * value for value in one[score])) for score, count in calls.items()), Moments())


def _sampled() -> Moments:
    """Return the moments of screened calls, some of which are judged, with different probabilities."""
    calls = [unjudged_moments(f) for f in (0.0, 0.1, 0.1, 0.4, 0.9, 0.2, 0.0, 0.3)]
    judged = [
        judged_moments(y, p, f) for y, p, f in ((1.0, 0.5, 0.9), (0.0, 0.2, 0.1), (0.5, 0.5, 0.4), (0.0, 0.2, 0.0))
    ]
    ruled = [judged_moments(y, 1.0, f, seen=1.0, ruled=True) for y, f in ((1.0, 0.2), (0.0, 0.3), (0.5, 0.0))]
    return sum([*calls, *judged, *ruled], Moments())


def recorded() -> Test:
    """Return the test that each recording rule gives what the library computes, and nothing without judged calls."""
    expected: list[tuple[str, str, float | None]] = []
    for window, minutes in _MINUTES.items():
        for workflow, moments in (("ask", _sampled()), ("guide", rate(0.1))):
            sums = {name: value * minutes for name, value in zip(NAMES, moments.values(), strict=True)}
            steps, corrected = RecordedFloats(), RecordedFloats()
            judge, known = interval_bounds(sums, steps, "tuned", "rate"), label_rates(_LABELLED, corrected)
            informedness(_LABELLED, known, corrected)
            transported_bounds(judge, _LABELLED, corrected)
            means = {mean: steps.named[end] for end, mean in MEANS.items()}
            steps.named |= {**sums, **means, "judged": sums["w"], "calls": sums["n"]}
            corrected.named |= {**_LABELLED, "judge": judge.value, "usable": 0.0}
            for name, each in ((window, steps), (f"{window}_corrected", corrected)):
                expected += [(f"ragtrace:{name}:{step}", workflow, value) for step, value in each.named.items()]
        records = {rule["record"] for group in rules.estimates(_TIMING) for rule in group["rules"]}
        judged_only = records - {f"ragtrace:{window}:{name}" for name in NAMES}
        expected += [(n, "idle", None) for n in sorted(judged_only) if n.startswith(f"ragtrace:{window}")]
    gauges = {f'{LABEL_MOMENT}{{{of()}, {rules.MOMENT}="{name}"}}': value for name, value in _LABELLED.items()}
    gauges[f"{CALIBRATION_HOLDS}{{{of()}}}"] = 1
    inputs = [("ask", _sampled()), ("guide", rate(0.1)), ("idle", unjudged_moments(0.5))]
    return {
        "name": "estimates",
        "interval": "1m",
        "input_series": [line for workflow, each in inputs for line in _phases(of(workflow=workflow), (each, 421))]
        + [{"series": name, "values": f"{value!r}x420"} for name, value in gauges.items()],
        "promql_expr_test": [_asked(*each) for each in expected],
    }


def _check(expr: str, minute: int) -> Test:
    """Return the check that *expr* gives 1 at the *minute*, or nothing if the minute is negative."""
    wanted = [{"labels": "{}", "value": 1}] if minute > 0 else []
    return {"expr": expr, "eval_time": f"{abs(minute)}m", "exp_samples": wanted}


def _asked(record: str, workflow: str, value: float | None) -> Test:
    rule = f'{record}{{{rules.WORKFLOW}="{workflow}"}}'
    if value is None:
        return _check(rule, -420)
    # Near 0 an absolute tolerance: a difference of equal sums is rounding.
    return _check(f"count(abs({rule} - {value!r}) <= {max(abs(value) * 1e-6, 1e-9)!r})", 420)


def _is(record: str, labels: str, *minutes: int) -> list[Test]:
    """Return checks that one series exists at each of the *minutes*, or none at those that are negative."""
    return [_check(f"count({record}{{{labels}}})", minute) for minute in minutes]


def _fires(alert: str, *minutes: int) -> list[Test]:
    return _is("ALERTS", f'alertname="Ragtrace{alert}", alertstate="firing", {_BOT}', *minutes)


def _phases(labels: str, *phases: tuple[Moments | None, int]) -> list[dict[str, str]]:
    """Return counters that rise by the moments of each phase in each of its minutes; None: the process is down."""
    lines: list[dict[str, str]] = []
    for index, name in enumerate(NAMES):
        parts, at = list[str](), 0.0
        for moments, minutes in phases:
            if moments is None:
                parts.append(f"stale _x{minutes - 1}")
                continue
            step = moments.values()[index]
            parts.append(f"{at!r}+{step!r}x{minutes - 1}")
            at += step * minutes
        lines.append({"series": f'{rules.MOMENTS}{{{labels}, {rules.MOMENT}="{name}"}}', "values": " ".join(parts)})
    return lines


def _calibration(holds: str, minutes: int) -> list[dict[str, str]]:
    """Return the gauges of a calibration of a judge with sensitivity and specificity 0.9, whose sums are there for *minutes*."""
    bad, good = [(1.0, 1.0, 1.0)] * 90 + [(1.0, 0.0, 1.0)] * 10, [(0.0, 0.0, 1.0)] * 180 + [(0.0, 1.0, 1.0)] * 20
    sums = [
        {"series": f'{LABEL_MOMENT}{{{_JUDGE}, {rules.MOMENT}="{name}"}}', "values": f"{value!r}x{minutes}"}
        for name, value in label_sums([*bad, *good]).items()
    ]
    return [*sums, {"series": f"{CALIBRATION_HOLDS}{{{_JUDGE}}}", "values": holds}]


def scenarios() -> dict[str, _Scenario]:
    """Return the tests of alerts that fire and alerts that do not."""
    healthy, spiking, flagged, real = rate(0.01), rate(0.4), rate(0.11), rate(0.6)
    return {
        "a spike fires and is over when the rate is back": (
            _phases(of(), (healthy, 60), (spiking, 60), (healthy, 90)),
            _fires("Spike", -59, 75, 119, -180),
            _is(rules.ACTIVE, _BOT, -59, 75, -180),
            _fires("NoData", -119, -205),
        ),
        "a spike of a metric that should be high": (
            _phases(of("faithfulness"), (rate(0.99), 60), (rate(0.5), 60)),
            _fires("Spike", -59, 90),
        ),
        "a spike during which the application is killed is not over, and missed": (
            _phases(of(), (healthy, 60), (spiking, 40), (None, 90)),
            _fires("Spike", -59, 90, 101, 150, 185),
            _fires("NoData", -99, 110, 185),
            _is(rules.FRESH, _BOT, 99, -101),
            _is(rules.KNOWN, _BOT, 99, 185),
        ),
        "a short restart is no lack of data": (
            _phases(of(), (healthy, 60), (None, 3), (healthy, 60)),
            _fires("NoData", -59, -64, -100),
        ),
        "a little too much for hours": (
            _phases(of(), (rate(0.075), 180)),
            _fires("SlowBurn", 175),
            _fires("Spike", -175),
        ),
        "a little less than too much": (
            _phases(of(), (rate(0.045), 180)),
            _fires("SlowBurn", -175),
            _fires("Spike", -175),
        ),
        "few calls, one of them bad": (
            _phases(of(), (rate(0.2, 0.1), 120)),
            _fires("Spike", -60, -119),
            _fires("SlowBurn", -119),
        ),
        "a judge that finds a tenth of the good answers bad: corrected, that is no spike, and a real one is": (
            [*_phases(of(), (flagged, 60), (real, 60), (flagged, 90)), *_calibration("1x300", 300)],
            _fires("CorrectedSpike", -59, 90, 119, -205),
            _is(rules.CORRECTED_ACTIVE, _BOT, -59, 119, -205),
            _fires("Spike", 59),
        ),
        "a corrected spike is not over because the calibration is stale or the application is killed": (
            [*_phases(of(), (flagged, 60), (real, 60), (flagged, 40), (None, 50)), *_calibration("1x99 0x60 _x60", 99)],
            _fires("CorrectedSpike", -59, 95, 155, 205),
        ),
        "a stale calibration corrects nothing": (
            [*_phases(of(), (real, 120)), *_calibration("0x120", 0)],
            _fires("CorrectedSpike", -119),
            _fires("Spike", 119),
        ),
        "probabilities of a decision model are no rate, so that their mean is no spike": (
            [*_phases(of(), (real, 120)), {"series": f"{RAW_PROBABILITY}{{{_JUDGE}}}", "values": "1x120"}],
            _fires("Spike", -119),
            _is("ragtrace:30m:value", _BOT, -119),
            _is("ragtrace:30m:mean_score", _BOT, 119),
            _fires("SlowBurn", -119),
        ),
        "labels make a rate of a decision model's probabilities, and a spike of it is one": (
            [
                *_phases(of(), (flagged, 60), (real, 60)),
                *_calibration("1x120", 120),
                {"series": f"{RAW_PROBABILITY}{{{_JUDGE}}}", "values": "1x120"},
            ],
            _fires("CorrectedSpike", -59, 119),
            _fires("Spike", -119),
        ),
        **_of_operation(),
    }


def _objectives() -> Test:
    """Return the test of the shipped objectives, which no service has for itself."""
    of_metric = f'{rules.METRIC}="{{}}"'
    opposites = f"sum({rules.MOST}{{{of_metric.format('hallucination')}}}) + sum({rules.LEAST})"
    checks = [
        *_is(rules.MOST, of_metric.format("hallucinated"), 5),
        *_is(rules.MOST, of_metric.format("answered_without_context"), 5),
        *_is(rules.KNOWN, "", -5),
        *_is(rules.LEAST, of_metric.format("faithfulness"), 5),
        _check(f"count(abs({opposites} - 1) < 1e-9)", 5),
        *_is(rules.MOST, of_metric.format("faithfulness"), -5),
    ]
    return {"name": "objectives", "interval": "1m", "input_series": [], "promql_expr_test": checks}


def _calls(outcome: str, values: str, reason: str = "") -> dict[str, str]:
    labels = f'{_BOT}, {rules.WORKFLOW}="ask", {rules.EVALUATOR}="judge", {rules.OUTCOME}="{outcome}"'
    return {"series": f"{rules.CALLS}{{{labels}{f', {rules.REASON}={reason!r}' if reason else ''}}}", "values": values}


def _guarded(verdict: str, values: str) -> dict[str, str]:
    return {
        "series": f'{rules.GUARDED}{{{_BOT}, {rules.WORKFLOW}="ask", {rules.VERDICT}="{verdict}"}}',
        "values": values,
    }


def _of_operation() -> dict[str, _Scenario]:
    state = f'{rules.JUDGE_STATE}{{{_BOT}, {rules.EVALUATOR}="judge", {rules.BREAKER}="open"}}'
    posted = f'{rules.POSTED}{{{_BOT}, ragtrace_sink="phoenix", {rules.OUTCOME}="{{}}", {rules.REASON}="http_500"}}'
    dropped = f'sum by ({rules.REASON}) (ALERTS{{alertname="RagtraceCallsDropped", {_BOT}, alertstate="firing"}})'
    of_reason = [
        {
            "expr": dropped,
            "eval_time": minute,
            "exp_samples": [{"labels": f'{{{rules.REASON}="{reason}"}}', "value": 1}],
        }
        for minute, reason in (("33m", "queue_full"), ("65m", "shutdown"))
    ]
    return {
        "a judge that fails, and recovers": (
            [_calls("scored", "0+10x30 300+5x30 450+10x60"), _calls("failed", "0+0x30 0+5x30 150+0x60", "timeout")],
            _fires("JudgeFailing", -30, 50, -110),
        ),
        "a judge that fails rarely": (
            [_calls("scored", "0+10x60"), _calls("failed", "0+1x60", "timeout")],
            _fires("JudgeFailing", -50),
        ),
        "a circuit breaker opens": (
            [{"series": state, "values": "0x30 1x10 0x20"}],
            _fires("JudgeFailing", -29, 35, -50),
        ),
        "calls are dropped, of a new reason and of an old one, and then none": (
            [_calls("dropped", "_x30 7x60", "queue_full"), _calls("dropped", "3x60 5x30", "shutdown")],
            of_reason,
            _fires("CallsDropped", -50, -85),
        ),
        "calls that are kept for later are not dropped": (
            [_calls("dropped", "0+5x60", "spooled")],
            _fires("CallsDropped", -50),
        ),
        "a guard fails more answers": (
            [_guarded("pass", "0+10x200"), _guarded("fail", "0+0.2x150 30+5x50")],
            _fires("GuardBlocks", -148, 188) + _fires("GuardBlind", -188),
        ),
        "a guard does not check answers any more": (
            [_guarded("pass", "0+10x150 1500+0x50"), _guarded("circuit_open", "_x151 0+10x49")],
            _fires("GuardBlind", -148, 188) + _fires("GuardBlocks", -188),
        ),
        "a guard fails as many answers as ever": (
            [_guarded("pass", "0+10x200"), _guarded("fail", "0+1x200"), _guarded("timeout", "0+1x200")],
            _fires("GuardBlocks", -188) + _fires("GuardBlind", -188),
        ),
        "scores that a backend does not take": (
            [
                {"series": posted.replace("{}", "failed"), "values": "0x30 0+2x10 20x40"},
                {"series": posted.replace("{}", "posted"), "values": "0+5x80"},
            ],
            _fires("ScoresNotPosted", -29, 38, -70),
        ),
    }


def week() -> Test:
    """Return the test of the comparison with the days before: two days."""

    def scores(*values: float) -> Moments:
        """Return what fifty screened calls in five minutes add, with these scores in turn."""
        return sum((judged_moments(values[number % len(values)], 1.0, seen=1.0) for number in range(50)), Moments())

    usual, lower = scores(0.7, 0.9), scores(0.5, 0.7)
    inputs = [
        *_phases(of("consistency", "fell"), (usual, 552), (lower, 25)),
        *_phases(of("consistency", "same"), (usual, 577)),
        *_phases(of("consistency", "judged"), (usual, 552), (lower, 25)),
        *_phases(of("hallucinated", "judged"), (rate(0.0), 577)),
        *_phases(of("consistency", "new"), (lower, 12)),
    ]
    # Two services whose judge is a decision model, one of them with labels that hold.
    for job, holds in (("raw", 0), ("calibrated", 1)):
        inputs += _phases(of("consistency", job, job), (usual, 552), (lower, 25))
        inputs += _phases(of("hallucinated", job, job), (rate(0.0), 577))
        judge = _JUDGE.replace(_BOT, f'{rules.JOB}="{job}"')
        inputs.append({"series": f"{RAW_PROBABILITY}{{{judge}}}", "values": "1x577"})
        inputs.append({"series": f"{CALIBRATION_HOLDS}{{{judge}}}", "values": f"{holds}x577"})
    # 300 calls in the half hour of the day before, 300 now; all scores are 0.1 from their mean.
    error = (0.01 / 300 + 0.01 / 300) ** 0.5
    values = {"mean": 0.8, "change": -0.2, "error": error, "change_low": -0.2 - 1.96 * error}
    values["change_high"] = -0.2 + 1.96 * error
    values |= {"past_w": 300.0, "past_ww": 300.0, "past_wy": 240.0, "past_wyy": 195.0}
    checks: list[Test] = []
    for name, value in values.items():
        record = f'{rules.WEEK.format(name)}{{{rules.WORKFLOW}="fell"}}'
        checks.append(_check(f"count(abs({record} - {value!r}) < {0.0005 * max(1.0, value)!r})", 2880))
        checks += _is(rules.WEEK.format(name), f'{rules.WORKFLOW}="new"', -2880)
    ends = {"fell": 2880, "same": -2880, "judged": -2880, "raw": 2880, "calibrated": -2880}
    for workflow, end in ends.items():
        checks += _is(rules.WEEK.format("fallen"), f'{rules.WORKFLOW}="{workflow}"', -2730, end)
    checks += _fires("ConsistencyFell", -2730, 2880)
    return {"name": "week", "interval": "5m", "input_series": inputs, "promql_expr_test": checks}


def alert_tests() -> Test:
    """Return the test file of alerts and their states, evaluated every five minutes: promtool takes its time.

    Each scenario is a service of its own, with the scenario's name: one evaluation of the rules is for all of them.
    """
    inputs: list[Test] = []
    checks: list[Test] = []
    for name, (series, *asked) in scenarios().items():
        inputs += [{**each, "series": _renamed(each["series"], name)} for each in series]
        checks += [{**each, "expr": _renamed(each["expr"], name)} for each in chain(*asked)]
    together = {"name": "alerts", "interval": "1m", "input_series": inputs, "promql_expr_test": checks}
    return _test_file("5m", [together, _objectives()])


def _renamed(text: str, service: str) -> str:
    if _BOT not in text:
        raise ValueError(f"no {_BOT} in {text}: it would be of the services of all scenarios")
    return text.replace(_BOT, f'{rules.JOB}="{service}"')


def record_tests() -> Test:
    """Return the test file of recorded values, which take hours and days: evaluated every half hour."""
    return _test_file("30m", [recorded(), week()])


def _test_file(interval: str, tests: list[Test]) -> Test:
    return {
        "rule_files": list(rules.files()),
        "evaluation_interval": interval,
        "group_eval_order": [group["name"] for groups in rules.files().values() for group in groups],
        "tests": tests,
    }
