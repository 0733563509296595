"""Alerts of a configured ragtrace in a real Alertmanager, and from there at its receiver."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import ragtrace
from ragtrace.alerts import Alertmanager
from ragtrace.testing import FakeJudge
from tests.support.monitoring import alertmanager, wait_until, webhook
from tests.support.watched import GOOD, HALF, WAIT_S, ask, watch

pytestmark = pytest.mark.integration


def test_a_spike_and_its_end_pass_through_alertmanager(tmp_path: Path) -> None:
    """It takes both as one alert: firing when the spike begins, resolved when it is over."""
    with webhook() as told, alertmanager(tmp_path, told) as address:
        alert = ragtrace.Alert(
            "hallucination",
            above=0.05,
            name="bad answers",
            per="workflow",
            notify=Alertmanager(f"http://{address}", {"team": "search"}),
        )
        script = [*[GOOD] * 100, *[HALF] * 60, *[GOOD] * 200]
        watch(service="bot", screen=FakeJudge(*script, name="screen"), alerts=[alert])
        for number in range(160):
            ask(f"where? {number}")
        assert ragtrace.flush(WAIT_S)
        wait_until(lambda: told.has("bad answers", "firing"), 20, "the alert fires")
        for number in range(160, 360):
            ask(f"where? {number}")
        assert ragtrace.flush(WAIT_S)
        wait_until(lambda: told.has("bad answers", "resolved"), 20, "the alert is resolved")
    assert told.told == [("bad answers", "firing"), ("bad answers", "resolved")]


def of_rule(name: str, metric: str, workflow: str = "ask") -> dict[str, dict[str, str]]:
    """An alert as Prometheus posts it."""
    place = {"job": "bot", "gen_ai_workflow_name": workflow, "gen_ai_evaluation_name": metric}
    return {"labels": {"alertname": name, **place}}


def test_one_event_is_one_page(tmp_path: Path) -> None:
    """While the share of hallucinated answers spikes, what else shows the same event in that workflow is inhibited."""
    own = {"problem": "spiking", "service": "bot", "workflow": "ask"}
    posted = [
        of_rule("RagtraceSpike", "hallucinated"),
        of_rule("RagtraceSpike", "faithfulness"),
        of_rule("RagtraceSlowBurn", "hallucination"),
        of_rule("RagtraceConsistencyFell", "consistency"),
        of_rule("RagtraceSpike", "faithfulness", "other"),
        of_rule("RagtraceCorrectedSpike", "hallucinated", "labelled"),
        of_rule("RagtraceSpike", "hallucinated", "labelled"),
        {"labels": {"alertname": "headline", "metric": "hallucinated", **own}},
        {"labels": {"alertname": "second", "metric": "faithfulness", **own}},
    ]
    with webhook() as told, alertmanager(tmp_path, told) as address:
        url = f"http://{address}/api/v2/alerts"
        body = json.dumps(posted).encode()
        urlopen(Request(url, data=body, headers={"Content-Type": "application/json"}), timeout=WAIT_S).close()

        def paged() -> set[tuple[str, str, str]]:
            with urlopen(url, timeout=WAIT_S) as answer:
                found = [each["labels"] for each in json.load(answer) if each["status"]["state"] == "active"]
            workflow = "gen_ai_workflow_name"
            metrics = [labels.get("gen_ai_evaluation_name") or labels["metric"] for labels in found]
            return {
                (labels["alertname"], metric, labels.get(workflow, ""))
                for labels, metric in zip(found, metrics, strict=True)
            }

        wanted = {
            ("RagtraceSpike", "hallucinated", "ask"),
            ("RagtraceSpike", "faithfulness", "other"),
            ("RagtraceCorrectedSpike", "hallucinated", "labelled"),
            ("headline", "hallucinated", ""),
        }
        wait_until(lambda: paged() == wanted, 20, "the others are inhibited")
