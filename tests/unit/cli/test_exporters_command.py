"""`ragtrace exporters`: list, show and copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragtrace.cli import main
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.kits import KITS


def test_list_names_exporters_and_kits(capsys: pytest.CaptureFixture[str]) -> None:
    """`list` names each exporter and kit with a summary."""
    assert main(["exporters", "list", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert {"otlp", "console", "prometheus", "langfuse"} <= {each["name"] for each in found["exporters"]}
    assert [each["name"] for each in found["kits"]] == ["collector", "fleet", "grafana", "prometheus"]
    assert all(each["summary"] for each in (*found["exporters"], *found["kits"]))


def test_exporters_of_one_module_have_their_own_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    """Exporters of the same module have different summaries."""
    assert main(["exporters", "list", "--json"]) == OK
    summaries = [each["summary"] for each in json.loads(capsys.readouterr().out)["exporters"]]
    assert len(set(summaries)) == len(summaries)


def test_list_prints_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """`list` without --json prints one line for each exporter and kit."""
    assert main(["exporters", "list"]) == OK
    assert "  prometheus     Metrics of one process for Prometheus to fetch" in capsys.readouterr().out


def test_list_is_the_default_action(capsys: pytest.CaptureFixture[str]) -> None:
    """`ragtrace exporters` without an action lists."""
    assert main(["exporters"]) == OK
    assert "  prometheus     Metrics of one process for Prometheus to fetch" in capsys.readouterr().out


def test_show_explains_exporter_and_kit(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints the exporter's variables and the kit's files and readme."""
    assert main(["exporters", "show", "prometheus"]) == OK
    shown = capsys.readouterr().out
    assert "RAGTRACE_PROMETHEUS_PORT" in shown
    assert "alerts.rules.yml" in shown
    assert main(["exporters", "show", "otlp", "--json"]) == OK
    (only,) = json.loads(capsys.readouterr().out)["exporters"]
    assert only["object"] == "ragtrace_exporters.otlp:otlp"


def test_copy_writes_the_files_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`copy` writes the files, and nothing when it is repeated."""
    target = tmp_path / "deploy"
    assert main(["exporters", "copy", "prometheus", str(target)]) == OK
    assert {path.name for path in target.iterdir()} == {path.name for path in (KITS / "prometheus").iterdir()}
    capsys.readouterr()
    assert main(["exporters", "copy", "prometheus", str(target), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["written"] == []


def test_copy_keeps_changed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`copy` writes nothing if a file has other content, unless --force is given."""
    mine = tmp_path / "objectives.rules.yml"
    mine.write_text("mine")
    assert main(["exporters", "copy", "prometheus", str(tmp_path)]) == FAILURE
    assert "objectives.rules.yml" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert main(["exporters", "copy", "prometheus", str(tmp_path), "--force"]) == OK
    assert mine.read_text() != "mine"


def test_copy_reports_why_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`copy` reports a path that cannot be written."""
    (tmp_path / "file").touch()
    assert main(["exporters", "copy", "grafana", str(tmp_path / "file")]) == FAILURE
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["show", "promtheus"], ["copy", "otlp", "."]])
def test_unknown_name_is_wrong_usage(action: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name is refused with the known ones."""
    assert main(["exporters", *action]) == USAGE
    assert "known: " in capsys.readouterr().err
