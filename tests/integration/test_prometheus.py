"""The page, the rules and the dashboard with a real Prometheus and Alertmanager, and a running application."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from exporters.make_kits.rules import Timing, files
from ragtrace.estimates import NAMES, CalibrationKey, JudgeCalibration, Moments, estimate_mean, write_calibration
from ragtrace.estimates.calibration import label_sums
from ragtrace.metrics import registry
from tests.support.canaries import rows as canary_rows
from tests.support.canaries import write as write_canaries
from tests.support.kits import filled_in, queries
from tests.support.monitoring import Application, Prometheus, alertmanager, application, prometheus, wait_until, webhook
from tests.support.services import free_ports

pytestmark = pytest.mark.integration

SHORT = Timing(interval="1s", spike="20s", slow="60s", quiet="5s", patience="4s", memory="5m", trouble="20s")
VALUE = 'ragtrace:20s:value{gen_ai_evaluation_name="hallucination"}'
AGREEMENT = "ragtrace_canary_agreement"
SPIKE = 'ALERTS{alertname="RagtraceSpike", gen_ai_evaluation_name="hallucination", alertstate="firing"}'


@contextmanager
def watched(work: Path, *, alerts_to: str = "", **environ: str) -> Iterator[tuple[Prometheus, Application]]:
    """An application whose page a Prometheus fetches, with the rules of the kit at a quick pace."""
    with (
        free_ports(1) as (port,),
        prometheus(work, [f"127.0.0.1:{port}"], files(SHORT), alerts_to=alerts_to) as server,
        application(work, port, **environ) as app,
    ):
        server.wait_for(VALUE)
        yield server, app


def test_a_spike_fires_resolves_and_is_not_forgotten_when_the_application_dies(tmp_path: Path) -> None:
    """Fires within two evaluations of its condition, is over after recovery, and stays when there are no data."""
    with (
        webhook() as told,
        alertmanager(tmp_path, told) as address,
        watched(tmp_path, alerts_to=address) as (server, app),
    ):
        assert not server.query(SPIKE)
        app.share("0.5")
        wait_until(lambda: told.has("RagtraceSpike", "firing"), 60, "the spike is told of")
        estimate = r"20s: [\d.]+% \(95 % interval [\d.]+% to [\d.]+%\), scored by wordy\."
        assert re.search(estimate, told.descriptions["RagtraceSpike"])
        app.share("0.0")
        wait_until(lambda: told.has("RagtraceSpike", "resolved"), 90, "the spike is over")
        condition = server.range('ragtrace:20s:low{gen_ai_evaluation_name="hallucination"} > 0.05', 120)
        fired = server.range(SPIKE, 120)
        begun, alarmed = condition[0][1][0][0], fired[0][1][0][0]
        assert 0 <= alarmed - begun <= 2, (begun, alarmed)

        told.told.clear()
        app.share("0.5")
        wait_until(lambda: told.has("RagtraceSpike", "firing"), 60, "the second spike is told of")
        told.told.clear()  # the end of the first one may have been told twice
        app.kill()
        wait_until(lambda: told.has("RagtraceNoData", "firing"), 60, "the lack of data is told of")
        server.wait_for("absent(ragtrace:20s:value)", 60)  # nothing is left in the window
        threading.Event().wait(5)
        assert server.query(SPIKE)
        assert not told.has("RagtraceSpike", "resolved")


def test_every_query_of_the_dashboard_returns_data(tmp_path: Path) -> None:
    """With a judge, labels, failures and an alert, for windows as short as those of the rules here."""
    pytest.importorskip("grafana_foundation_sdk")
    from exporters.make_kits.dashboard import text_of

    board = json.loads(text_of(SHORT))
    variables = {"window": "20s", "service": "guide-service", "workflow": ".+", "metric": "hallucination",
                 "evaluator": "wordy", "__rate_interval": "20s", "__range": "1m"}  # fmt: skip
    with watched(tmp_path, **_labels(tmp_path), SHARE="0.5", GUARDED="1") as (server, app):
        server.wait_for(SPIKE)
        server.wait_for(AGREEMENT)
        app.share("fail")
        server.wait_for('increase(ragtrace_calls_total{ragtrace_outcome="failed"}[20s]) > 0')
        silent = [
            (title, expr)
            for title, expr in queries(board)
            if "ragtrace:week:" not in expr  # a Prometheus that was started just now remembers no week
            and not ("_corrected:" in expr and '"hallucinat' not in expr)  # no labels correct the other metrics
            and "raw_probability" not in expr  # the judge here is no decision model
            and not server.query(filled_in(expr, variables))
            and not server.range(filled_in(expr, variables), 60)
        ]
        assert not silent


def _labels(folder: Path) -> dict[str, str]:
    """Write labels of people as a calibration and as canaries; return the variables that name these files."""
    calibration = folder / "calibration.json"
    verdicts = [(1.0, 1.0)] * 40 + [(1.0, 0.0)] * 10 + [(0.0, 1.0)] * 5 + [(0.0, 0.0)] * 95
    sums = label_sums([(judge, person, 4.0) for judge, person in verdicts])
    for name in ("hallucination", "hallucinated"):
        key = CalibrationKey(name, registry.resolve([name])[0].version, "wordy", "1")
        write_calibration(calibration, JudgeCalibration(key, 1.0, len(verdicts), False, 0.5, sums))
    first = {"bad": "invented", "good": "answer"}
    rows = [{**row, "answer": f"{first[row['label']]} {number}"} for number, row in enumerate(canary_rows())]
    return {
        "RAGTRACE_CALIBRATION": str(calibration),
        "RAGTRACE_CANARY_INTERVAL": "1",
        "RAGTRACE_CANARIES": str(write_canaries(folder / "canaries.jsonl", rows)),
    }


def test_several_processes_give_the_estimate_of_the_library(tmp_path: Path) -> None:
    """Four processes with a page each: no call is lost or counted twice, and the rules add up what they counted."""
    timing = Timing(interval="1s", spike="10m", slow="20m", quiet="5s", memory="1h")
    labels = '{gen_ai_evaluation_name="hallucination"}'
    with free_ports(4) as ports, ExitStack() as stack:
        targets = [f"127.0.0.1:{port}" for port in ports]
        server = stack.enter_context(prometheus(tmp_path, targets, files(timing)))
        for port in ports:
            stack.enter_context(application(tmp_path, port, CALLS="60", SHARE="0.2", STAY="1"))
        assert server.wait_for(f'sum(ragtrace_eval_moment_total{{ragtrace_moment="n", {labels[1:]}) == 240')
        server.wait_for(f"ragtrace:10m:value{labels}")
        _agree(server, labels)


def test_several_processes_send_to_prometheus_by_otlp(tmp_path: Path) -> None:
    """Each is a series of its own, the same rules add them up, and exemplars lead to traces."""
    timing = Timing(interval="1s", spike="10m", slow="20m", quiet="5s", memory="1h")
    labels = '{gen_ai_evaluation_name="hallucination"}'
    with ExitStack() as stack:
        server = stack.enter_context(prometheus(tmp_path, [], files(timing), receives=True))
        environ = {"EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "1000", "SHARE": "0.2", "STAY": "1",
                   "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
                   "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{server.url}/api/v1/otlp/v1/metrics"}  # fmt: skip
        for _ in range(4):
            stack.enter_context(application(tmp_path, 0, CALLS="200", **environ))
        counted = f'ragtrace_eval_moment_total{{job="guide-service", ragtrace_moment="n", {labels[1:]}'
        server.wait_for(f"sum({counted}) == 800", 60)
        assert len({of["instance"] for of, _ in server.query(counted)}) == 4
        server.wait_for(f"ragtrace:10m:value{labels}")
        _agree(server, labels)
        assert server.exemplars("ragtrace_eval_score_bucket")


def _agree(server: Prometheus, labels: str) -> None:
    """What the rules record is what the library says of the sums of the same evaluation."""
    asked = " or ".join(f'label_replace(ragtrace:10m:{name}{labels}, "r", "{name}", "", "")'
                        for name in (*NAMES, "value", "low", "high"))  # fmt: skip

    def compared() -> bool:
        found = {of["r"]: value for of, value in server.query(asked)}
        estimate = estimate_mean(Moments.from_sums({name: found[name] for name in NAMES}))
        own = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        return {name: found[name] for name in own} == pytest.approx(own, rel=1e-6)

    # Asked while the rules are being evaluated, the server has some results of this evaluation and some of the last.
    wait_until(compared, 30.0, "the rules and the library agree", every=0.3)
