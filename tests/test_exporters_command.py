"""`ragtrace exporters`: list, show and copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragtrace.cli import main
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.kits import KITS


def test_list_names_exporters_and_kits(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with a line that says what it is."""
    assert main(["exporters", "list", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert {"otlp", "console", "prometheus", "langfuse"} <= {each["name"] for each in found["exporters"]}
    assert [each["name"] for each in found["kits"]] == ["collector", "grafana", "prometheus"]
    assert all(each["summary"] for each in (*found["exporters"], *found["kits"]))


def test_exporters_of_one_module_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence that is the same for two of them says nothing of either."""
    assert main(["exporters", "list", "--json"]) == OK
    summaries = [each["summary"] for each in json.loads(capsys.readouterr().out)["exporters"]]
    assert len(set(summaries)) == len(summaries)


def test_list_reads_well_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each."""
    assert main(["exporters", "list"]) == OK
    assert "  prometheus     Metrics for Prometheus to fetch" in capsys.readouterr().out


def test_without_an_action_it_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """As somebody who does not know the actions yet would have it."""
    assert main(["exporters"]) == OK
    assert "  prometheus     Metrics for Prometheus to fetch" in capsys.readouterr().out


def test_show_tells_of_the_exporter_and_the_kit_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    """With the variables that it reads, and the kit's files and readme."""
    assert main(["exporters", "show", "prometheus"]) == OK
    shown = capsys.readouterr().out
    assert "RAGTRACE_PROMETHEUS_PORT" in shown
    assert "alerts.rules.yml" in shown
    assert main(["exporters", "show", "otlp", "--json"]) == OK
    (only,) = json.loads(capsys.readouterr().out)["exporters"]
    assert only["object"] == "ragtrace_exporters.otlp:otlp"


def test_copy_writes_the_files_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second time there is nothing to do."""
    target = tmp_path / "deploy"
    assert main(["exporters", "copy", "prometheus", str(target)]) == OK
    assert {path.name for path in target.iterdir()} == {path.name for path in (KITS / "prometheus").iterdir()}
    capsys.readouterr()
    assert main(["exporters", "copy", "prometheus", str(target), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["written"] == []


def test_copy_spares_what_the_user_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless told otherwise; nothing else is written then, either."""
    mine = tmp_path / "objectives.rules.yml"
    mine.write_text("mine")
    assert main(["exporters", "copy", "prometheus", str(tmp_path)]) == FAILURE
    assert "objectives.rules.yml" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert main(["exporters", "copy", "prometheus", str(tmp_path), "--force"]) == OK
    assert mine.read_text() != "mine"


def test_copy_says_why_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where the directory should be."""
    (tmp_path / "file").touch()
    assert main(["exporters", "copy", "grafana", str(tmp_path / "file")]) == FAILURE
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["show", "promtheus"], ["copy", "otlp", "."]])
def test_an_unknown_name_is_wrong_usage(action: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The message names those that there are; an exporter without a kit has nothing to copy."""
    assert main(["exporters", *action]) == USAGE
    assert "known: " in capsys.readouterr().err
