"""The demo beside the real Phoenix, Prometheus and Alertmanager."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.kits import KITS
from tests.support.monitoring import wait_until
from tests.support.services import folder, require

pytestmark = pytest.mark.integration

TIMEOUT = 180.0


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def _query(url: str, expr: str) -> list[Any]:
    return list(_get(f"{url}/api/v1/query?query={quote(expr)}")["data"]["result"])


def _left(mark: str) -> list[str]:
    """Processes whose command line or folder has *mark* in it."""
    listed = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, encoding="utf-8", check=True).stdout
    return [line for line in listed.splitlines() if mark in line and " Z" not in line]


def test_every_backend_shows_the_demo_and_is_stopped_with_it(tmp_path: Path) -> None:
    """Addresses answer with the demo's data while it stays up; after Ctrl-C there is no process and no folder."""
    require("phoenix", "arize-phoenix")
    require("prometheus")
    require("prometheus-alertmanager")
    environ = {**os.environ, "TMPDIR": str(tmp_path), "RAGTRACE_SERVICES_DIR": str(folder())}
    process = subprocess.Popen(
        [sys.executable, "examples/demo_backends.py", "--json"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        found = {each["name"]: each for each in told["backends"]}
        assert all(each["url"] for each in told["backends"]), told["backends"]
        groups = {os.getpgid(pid) for pid in _children(process.pid)}
        assert len(groups) == 3
        _check_phoenix(found["Phoenix"]["url"])
        _check_prometheus(found["Prometheus"]["url"])
        url = f"{found['Alertmanager']['url']}/api/v2/alerts"
        wait_until(lambda: any("metric" in each["labels"] for each in _get(url)), 60, "the demo's alert is there")
        alerts = _get(url)
        # Alertmanager hears of the rules of Prometheus, too; only the application's own alerts name a metric so.
        assert [each["labels"]["metric"] for each in alerts if "metric" in each["labels"]] == ["hallucinated"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=240) == 0
    finally:
        _end(process)
    assert not _left(str(tmp_path))
    assert not [group for group in groups if _group_lives(group)]
    assert list(tmp_path.iterdir()) == []


def _end(process: subprocess.Popen[str]) -> None:
    """End the demo as Ctrl-C does: killed at once, it would leave its backends running."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=10)


def _children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, encoding="utf-8", check=True).stdout
    rows = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [pid for pid, above in rows if above == parent and pid != parent]


def _group_lives(group: int) -> bool:
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, encoding="utf-8", check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return any(int(found) == group and not state.startswith("Z") for found, state in rows)


def _check_phoenix(url: str) -> None:
    """The newest calls have their annotations: soon, as Phoenix looks for the span of each every ten seconds."""
    wanted = {"faithfulness", "hallucinated", "consistency"}
    wait_until(lambda: _annotated(url) == wanted, 60, "the annotations are there", every=1.0)


def _annotated(url: str) -> set[str]:
    """The names of the newest calls' annotations; none while Phoenix has no project, or no whole call in it, yet."""
    try:
        spans = _get(f"{url}/v1/projects/ragtrace-demo/spans?limit=50")["data"]
    except urllib.error.HTTPError as error:
        with error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        return set()
    roots = [each["context"]["trace_id"] for each in spans if each["parent_id"] is None]
    if not roots:  # a call's own span ends, and arrives, after those of its steps; Phoenix refuses to be asked for none
        return set()
    asked = "&".join(f"trace_ids={each}" for each in roots)
    scores = _get(f"{url}/v1/projects/ragtrace-demo/trace_annotations?{asked}")["data"]
    return {each["name"] for each in scores}


def _check_prometheus(url: str) -> None:
    query = 'ragtrace:30m:value{gen_ai_evaluation_name="hallucinated"}'
    wait_until(lambda: bool(_query(url, query)), 60, "the recording rules have an estimate")
    rules = _get(f"{url}/api/v1/rules")["data"]["groups"]
    broken = [rule["name"] for group in rules for rule in group["rules"] if rule["health"] == "err"]
    assert {Path(group["file"]).name for group in rules} == {each.name for each in KITS.glob("prometheus/*.rules.yml")}
    assert not broken
    [value] = _query(url, query)
    assert value["metric"]["job"] == "ragtrace-demo"
    assert 0.05 < float(value["value"][1]) < 0.3
    assert _query(url, "up == 1")
