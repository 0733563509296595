"""The shipped kits: made from the sources, checked by their own programs, naming nothing that is not emitted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import yaml
from opentelemetry.metrics import NoOpMeter

from ragtrace.alerts import State
from ragtrace.core import semconv
from ragtrace.core.settings import resolve_settings
from ragtrace.estimates.promql import prometheus_name
from ragtrace.fleet.fleet_metrics import FleetMetrics
from ragtrace.metrics import registry
from ragtrace.telemetry.scores.instruments import Instruments
from tests.support.all_metrics import observations
from tests.support.kits import KITS, dashboard, filled_in, fleet_dashboard, panels, queries
from tests.support.prometheus_names import Instrument, Kind, received_names, scraped_names

PROMETHEUS: Final = KITS / "prometheus"
RULES: Final = sorted(PROMETHEUS.glob("*.rules.yml"))
RULE_TESTS: Final = ("tests.yml", "records.tests.yml", "fleet.tests.yml", "canaries.tests.yml")
TIMEOUT_S: Final = 300
_WORDS: Final = frozenset(
    "by on group_left group_right and or unless sum count max min avg group increase rate clamp_min clamp_max sqrt abs"
    " vector offset last_over_time histogram_quantile absent ignoring without label_values label_replace round".split()
)
_ON_EVERY_PAGE: Final = frozenset({"target_info"})
_OF_PROMETHEUS: Final = frozenset({"ALERTS", "up", "target_info"})
_LABELS_OF_PROMETHEUS: Final = frozenset({"job", "instance", "le", "alertname", "alertstate"})


class RecordingMeter(NoOpMeter):
    """Writes down what instruments are made."""

    def __init__(self) -> None:
        super().__init__(semconv.SCOPE)
        self.instruments: list[Instrument] = []

    def _made(self, kind: Kind, name: str, unit: str) -> None:
        self.instruments.append(Instrument(kind, name, unit))

    def create_counter(self, name: str, unit: str = "", *args: Any, **kwargs: Any) -> Any:
        self._made("counter", name, unit)
        return super().create_counter(name, unit, *args, **kwargs)

    def create_histogram(self, name: str, unit: str = "", *args: Any, **kwargs: Any) -> Any:
        self._made("histogram", name, unit)
        return super().create_histogram(name, unit, *args, **kwargs)

    def create_observable_counter(self, name: str, callbacks: Any = None, unit: str = "", *args: Any) -> Any:
        self._made("counter", name, unit)
        return super().create_observable_counter(name, callbacks, unit, *args)

    def create_observable_gauge(self, name: str, callbacks: Any = None, unit: str = "", *args: Any) -> Any:
        self._made("gauge", name, unit)
        return super().create_observable_gauge(name, callbacks, unit, *args)


def instruments() -> list[Instrument]:
    """All instruments of the library, those of a runtime with every part among them."""
    meter = RecordingMeter()
    Instruments(lambda: meter, observations, genai_metrics="both").open()
    reader: Any = object()
    FleetMetrics(lambda: None, budget=reader, workers=1).add_to(meter)
    return meter.instruments


def emitted() -> set[str]:
    """Names under which Prometheus has what the library emits."""
    return {name for instrument in instruments() for name in received_names(instrument)}


def rules() -> Iterator[dict[str, Any]]:
    """Every rule of the kit."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            yield from group["rules"]


def expressions() -> list[tuple[str, str]]:
    """Every query of the kits with where it stands, variables filled in so that it is PromQL."""
    of_rules = [(rule.get("record") or rule["alert"], str(rule["expr"])) for rule in rules()]
    of_variables = [
        (one["name"], one["query"]["query"]) for one in dashboard()["templating"]["list"] if one["type"] == "query"
    ]
    of_fleet = [(f"fleet: {title}", expr) for title, expr in queries(fleet_dashboard())]
    return [*of_rules, *queries(), *of_fleet, *of_variables]


def names_in(expr: str) -> tuple[set[str], set[str]]:
    """Names of metrics and of labels in *expr*."""
    expr = re.sub(r"\$\{window\}", "30m", expr)
    labels = set(re.findall(r"([a-zA-Z_]\w*)\s*(?:=~|!=|!~|=)\s*\"", expr))
    expr = re.sub(r'"(?:[^"\\]|\\.)*"', "", expr)
    for inside in re.findall(r"\b(?:by|on|ignoring|without|group_left)\s*\(([^)]*)\)", expr):
        labels.update(re.findall(r"\w+", inside))
    expr = re.sub(r"\b(?:by|on|ignoring|without|group_left)\s*\([^)]*\)", "", expr)
    variable = re.search(r"label_values\((.*), (\w+)\)$", expr)
    if variable:
        labels.add(variable[2])
        expr = variable[1]
    expr = re.sub(r"\{[^}]*\}|\[[^]]*\]|offset \w+", "", expr)
    return set(re.findall(r"[a-zA-Z_:][\w:]*", re.sub(r"\b[\d.]+(?:e[-+]?\d+)?\b", "", expr))) - _WORDS, labels


def test_metrics_have_the_same_names_on_a_page_and_by_otlp() -> None:
    """One set of rules and dashboards serves a process whose page is fetched, and processes that send by OTLP."""
    assert {name for name in scraped_names(instruments()) if name not in _ON_EVERY_PAGE} == emitted()


def test_queries_name_only_what_is_emitted() -> None:
    """Every metric in a rule, a panel or a variable is one of the library's, a recorded one, or Prometheus's own."""
    known = emitted() | {rule["record"] for rule in rules() if "record" in rule} | _OF_PROMETHEUS
    wrong = {where: names_in(expr)[0] - known for where, expr in expressions()}
    assert not {where: names for where, names in wrong.items() if names}


def test_queries_name_only_labels_that_are_set() -> None:
    """The same for labels: attributes on the wire, or Prometheus's own."""
    names = {name for name in vars(semconv).values() if isinstance(name, str) and "." in name}
    known = {prometheus_name(name) for name in names} | _LABELS_OF_PROMETHEUS
    wrong = {where: names_in(expr)[1] - known for where, expr in expressions()}
    assert not {where: labels for where, labels in wrong.items() if labels}


def test_the_check_of_names_sees_a_wrong_one() -> None:
    """A typing error in a metric or a label would be found."""
    assert names_in('sum by (job, wrokflow) (rate(ragtrace_cals_total{outcome="x"}[5m])) * 3600') == (
        {"ragtrace_cals_total"},
        {"job", "wrokflow", "outcome"},
    )


def test_generated_files_are_current() -> None:
    """What is shipped is what the sources make; else run `python -m exporters.make_kits`."""
    pytest.importorskip("grafana_foundation_sdk")
    from exporters.make_kits.__main__ import made

    old = [name for name, text in made().items() if (KITS / name).read_text(encoding="utf-8") != text]
    assert not old


@pytest.mark.parametrize("made", [dashboard, fleet_dashboard])
def test_the_dashboard_is_of_grafanas_schema(made: Callable[[], dict[str, Any]]) -> None:
    """As Grafana's own library reads it: no unknown key, no value of another type, of panels, queries and variables."""
    pytest.importorskip("grafana_foundation_sdk")
    from tests.support.grafana import faults

    assert faults(made()) == []
    assert made()["schemaVersion"] >= 41


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("timezoen",), "utc", "dashboard.timezoen is unknown"),
        (("panels", 2, "gridPos", "w"), "6", "dashboard.panels[2].grid_pos.w is '6'"),
        (("panels", 2, "options", "grpahMode"), "none", "dashboard.panels[2].options.grpahMode is unknown"),
        (("panels", 2, "options", "graphMode"), "lines", "dashboard.panels[2].options.graph_mode is 'lines'"),
        (("panels", 2, "targets", 0, "exprr"), "up", "dashboard.panels[2].targets[0].exprr is unknown"),
        (("panels", 2, "targets", 0, "range"), "yes", "dashboard.panels[2].targets[0].range_val is 'yes'"),
        (("panels", 2, "type"), "staat", "there is no type 'staat' with options"),
        (("panels", 5, "fieldConfig", "defaults", "custom", "lineWidht"), 2, "custom.lineWidht is unknown"),
        (("panels", 5, "fieldConfig", "overrides", 0, "properties", 1, "id"), "custom.fil", "is unknown: custom.fil"),
        (("templating", "list", 1, "refresh"), 7, "list_val[1].refresh is 7"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_the_check_of_the_schema_sees_a_wrong_one(path: tuple[Any, ...], value: object, said: str) -> None:
    """A typing error anywhere would be found."""
    pytest.importorskip("grafana_foundation_sdk")
    from tests.support.grafana import faults

    wrong = inside = dashboard()
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    assert any(said in fault for fault in faults(wrong)), faults(wrong)


@pytest.fixture(scope="module")
def promtool() -> str:
    """Path of promtool."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def checked(*command: str) -> None:
    environ = {**os.environ, "GOGC": "400"}  # its memory is collected more seldom: a fifth less of processor time
    done = subprocess.run(
        command, cwd=PROMETHEUS, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_configuration_and_rules(promtool: str) -> None:
    """As promtool reads them."""
    checked(promtool, "check", "config", "prometheus.yml")


def test_alertmanager_takes_its_configuration() -> None:
    """As amtool reads it."""
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not installed")
    checked(amtool, "check-config", "alertmanager.yml")


@pytest.mark.integration
@pytest.mark.parametrize("file", RULE_TESTS)
def test_every_rule_gives_what_it_should(promtool: str, file: str) -> None:
    """The shipped tests pass."""
    checked(promtool, "test", "rules", file)


@pytest.mark.parametrize("names", [("operation",), ("inference",), ("operation", "inference")], ids="-".join)
def test_the_mean_time_of_steps_is_right_under_either_name(promtool: str, tmp_path: Path, names: list[str]) -> None:
    """Inferences under the released name, the unreleased one, or both: what is sent twice counts once."""
    of_each = {"retrieval": (("operation",), "0+30x10"), "chat": (names, "0+120x10")}
    series = [
        {
            "series": f"gen_ai_client_{name}_duration_seconds_{end}"
            f'{{job="bot", instance="a", gen_ai_operation_name="{operation}"}}',
            "values": values,
        }
        for operation, (sent, seconds) in of_each.items()
        for name in sent
        for end, values in (("count", "0+60x10"), ("sum", seconds))
    ]
    [panel] = [panel for panel in panels() if panel["title"].startswith("Mean answer time")]
    samples = [
        {"labels": '{gen_ai_operation_name="chat"}', "value": 2},
        {"labels": '{gen_ai_operation_name="retrieval"}', "value": 0.5},
    ]
    expr = filled_in(panel["targets"][1]["expr"], {"service": "bot", "__rate_interval": "5m"})
    case = {"expr": expr, "eval_time": "10m", "exp_samples": samples}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [case]}
    file = tmp_path / "steps.yml"
    file.write_text(yaml.safe_dump({"tests": [test]}), encoding="utf-8")
    checked(promtool, "test", "rules", str(file))


def test_a_stale_calibration_and_a_drifting_judge_are_shown(promtool: str, tmp_path: Path) -> None:
    """Of several processes, one with a stale calibration makes it stale; raw scores without one are no rate."""
    of = 'job="bot", gen_ai_evaluation_name="{}", ragtrace_evaluator_id="judge"'
    gauges = {
        "ragtrace_eval_calibration_holds": (
            ("hallucinated", "a", 1),
            ("hallucinated", "b", 0),
            ("faithfulness", "a", 1),
        ),
        "ragtrace_canary_drift": (("hallucinated", "a", 1), ("faithfulness", "a", 0)),
        "ragtrace_eval_raw_probability": (
            ("hallucinated", "a", 1),
            ("faithfulness", "a", 1),
            ("answer_relevancy", "a", 1),
        ),
    }
    series = [
        {"series": f'{name}{{{of.format(metric)}, instance="{instance}"}}', "values": f"{value}x10"}
        for name, values in gauges.items()
        for metric, instance, value in values
    ]
    [panel] = [panel for panel in panels() if panel["title"].startswith("Calibration and canaries")]
    named = {
        number: each["text"] for number, each in panel["fieldConfig"]["defaults"]["mappings"][0]["options"].items()
    }
    wanted = (
        {"hallucinated": "stale", "faithfulness": "holds"},
        {"hallucinated": "drifts", "faithfulness": "as before"},
        {"hallucinated": "uncalibrated: not a rate", "answer_relevancy": "uncalibrated: not a rate"},
    )
    cases = [
        {
            "expr": filled_in(target["expr"], {"service": "bot"}),
            "eval_time": "5m",
            "exp_samples": [
                {
                    "labels": f'{{gen_ai_evaluation_name="{metric}", ragtrace_evaluator_id="judge"}}',
                    "value": next(int(number) for number, text in named.items() if text == state),
                }
                for metric, state in states.items()
            ],
        }
        for target, states in zip(panel["targets"], wanted, strict=True)
    ]
    file = tmp_path / "calibration.yml"
    test = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    file.write_text(yaml.safe_dump({"tests": [test]}), encoding="utf-8")
    checked(promtool, "test", "rules", str(file))


def test_every_rule_is_tested_both_ways() -> None:
    """Each alert fires and does not; each recording rule has a value and has none, sums over nothing aside."""
    texts = [(PROMETHEUS / file).read_text(encoding="utf-8") for file in RULE_TESTS]
    tests = [test for text in texts for test in yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["tests"]]
    cases = [case for test in tests for case in test["promql_expr_test"]]
    for rule in rules():
        name = rule.get("record") or rule["alert"]
        mine = [case for case in cases if re.search(rf"[\"(]?\b{name}\b(?![\w:])", case["expr"])]
        assert any(case["exp_samples"] for case in mine), f"{name} is never tested to give a result"
        is_sum = "increase(ragtrace_eval_moment_total" in rule["expr"] and rule.get("record", "").count(":") == 2
        if not is_sum and "objective:least" not in name:
            assert any(not case["exp_samples"] for case in mine), f"{name} is never tested to give none"


@pytest.mark.parametrize("made", [dashboard, fleet_dashboard])
def test_every_panel_explains_itself(made: Callable[[], dict[str, Any]]) -> None:
    """A description, a title, an id of its own, and data that come from the chosen data source."""
    found = list(panels(made()))
    assert all(len(panel["description"]) > 25 and panel["title"] for panel in found)
    ids = [panel["id"] for panel in made()["panels"]]
    assert len(set(ids)) == len(ids)
    targets = [target for panel in found for target in panel.get("targets") or ()]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}


@pytest.mark.parametrize("made", [dashboard, fleet_dashboard])
def test_panels_do_not_overlap(made: Callable[[], dict[str, Any]]) -> None:
    """Each has a place of its own on the grid of 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in made()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_has_its_variables() -> None:
    """Service, workflow, metric and evaluator, and the window of the estimates."""
    found = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert found == ["datasource", "service", "workflow", "metric", "evaluator", "window"]


def test_every_state_of_an_alert_has_a_colour() -> None:
    """A row of the alerts shows each state of an alert and of a circuit breaker as a number that has a name."""
    (panel,) = [panel for panel in panels() if panel["title"] == "Alerts and their states"]
    named = {
        int(number): each["text"] for number, each in panel["fieldConfig"]["defaults"]["mappings"][0]["options"].items()
    }
    own = panel["targets"][0]["expr"]
    shown = dict(re.findall(r'state="(\w+)"} == 1\) \* (\d)', own))
    assert {state: named[int(number)].replace(" ", "_") for state, number in shown.items()} == {
        state: state for state in get_args(State)
    }
    numbers = {int(number) for target in panel["targets"] for number in re.findall(r"\* (\d)", target["expr"])}
    assert numbers <= set(named)


def test_what_came_from_memory_is_not_in_the_time_to_judge() -> None:
    """A judge that nobody asks would look fast."""
    (panel,) = [panel for panel in panels() if panel["title"].startswith("Time to judge")]
    assert all(f'{prometheus_name(semconv.CACHED)}=""' in target["expr"] for target in panel["targets"])


def collector() -> dict[str, Any]:
    """The collector's configuration."""
    found: dict[str, Any] = yaml.safe_load((KITS / "collector" / "collector.yaml").read_text(encoding="utf-8"))
    return found


def test_the_collector_carries_all_three_signals() -> None:
    """Every pipeline is made of components that are configured, memory_limiter first; none is left over."""
    config = collector()
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"traces", "metrics", "logs"}
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in pipelines.values() for name in pipeline[kind]}
        assert used == set(config[kind])
    assert all(pipeline["processors"][0] == "memory_limiter" for pipeline in pipelines.values())


def test_the_collector_waits_for_scores() -> None:
    """Traces are decided later than ragtrace holds a root span back."""
    wait = collector()["processors"]["tail_sampling"]["decision_wait"]
    assert float(wait.removesuffix("s")) >= resolve_settings({}, {}).hold_seconds + 5


def test_the_collector_asks_for_attributes_that_exist() -> None:
    """Every attribute in a policy is one that the library sets, and statuses are those that it gives."""
    policies = collector()["processors"]["tail_sampling"]["policies"]
    metrics = ("hallucinated", "suspicious", "answered_without_context", "faithfulness", "hallucination")
    assert set(metrics) <= {metric.name for metric in registry.all()}
    known = {semconv.eval_score(m) for m in metrics} | {semconv.eval_label(m) for m in metrics}
    known |= {semconv.EVAL_STATUS, semconv.OPERATION_NAME}
    text = json.dumps(policies)
    named = set(re.findall(r'attributes\[\\"([^"\\]+)\\"\]', text)) | set(re.findall(r'"key": "([^"]+)"', text))
    assert named <= known
    by_key = {
        p["string_attribute"]["key"]: p["string_attribute"]["values"] for p in policies if "string_attribute" in p
    }
    statuses = {value for name, value in vars(semconv).items() if name.startswith("STATUS_")}
    assert set(by_key[semconv.EVAL_STATUS]) <= statuses
    assert by_key[semconv.OPERATION_NAME] == [semconv.OPERATION_EVALUATION]


def test_every_kit_has_a_readme_to_begin_with() -> None:
    """Without it the command line does not list the kit."""
    assert {path.name for path in KITS.iterdir() if (path / "README.md").is_file()} == {
        "collector",
        "fleet",
        "grafana",
        "prometheus",
    }
