"""The command line, in this process and as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ragtrace.cli import main
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.model_server import ModelServer

TIMEOUT = 60.0
BLOCKED = "import sys; sys.modules['rich'] = None; from ragtrace.cli import main; sys.exit(main())"
"""Runs the command line as if rich were not installed."""


@pytest.fixture
def serve() -> Iterator[Callable[..., ModelServer]]:
    """Starts model servers and stops them after the test."""
    running: list[ModelServer] = []

    def start(**options: Any) -> ModelServer:
        server = ModelServer(**options)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A directory with a short manual, quick to read."""
    sections = (
        f"# Part {name}\n\nThe {name} part lasts {number} years. Clean the {name} part with water.\n"
        for number, name in enumerate(("pump", "valve", "filter", "motor", "gauge", "hose"), start=2)
    )
    (tmp_path / "manual.md").write_text("\n".join(sections), encoding="utf-8")
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what steers telemetry or colours, and with *more*."""
    steering = ("OTEL_", "RAGTRACE_", "OPENAI_", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "COLUMNS")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(steering)}, **more}


def run(*command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with *command* and return what it printed."""
    return subprocess.run(
        [sys.executable, *command],
        env=env or environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=TIMEOUT,
        check=False,
    )


def demo(docs: Path, *options: str) -> list[str]:
    """The arguments of a short demo over *docs*."""
    return ["demo", "--docs", str(docs), "--questions", "8", *options]


# --- wrong usage ----------------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    """`ragtrace --version`."""
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == OK
    assert capsys.readouterr().out == f"ragtrace {version('ragtrace-otel')}\n"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """It is wrong usage, and standard output stays empty."""
    assert main([]) == USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "demo" in printed.err


@pytest.mark.parametrize(
    "arguments", [["report-all"], ["demo", "--questions", "many"], ["demo", "--questions", "1"], ["demo", "--sed", "x"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The message is on standard error."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == USAGE
    assert capsys.readouterr().err


def test_the_help_tells_keys_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads the JSON object or the status needs no source code."""
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    text = capsys.readouterr().out
    for part in ("wrongly_flagged", "exit status", "130", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        assert part in text


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_missing_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback: what was wrong and what to do."""
    assert main(["demo", "--docs", str(tmp_path / "nowhere")]) == FAILURE
    message = capsys.readouterr().err
    assert message.startswith("ragtrace: no directory")
    assert message.count("\n") == 1


def test_a_model_without_a_server_is_refused(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The variables to set are named."""
    assert main(["demo", "--docs", str(docs), "--model", "tiny"]) == FAILURE
    assert "OPENAI_BASE_URL" in capsys.readouterr().err


def test_a_bad_setting_in_the_environment_is_one_line(
    docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable stops the demo as it stops `configure`: with its name."""
    monkeypatch.setenv("RAGTRACE_HOLD_SECONDS", "soon")
    assert main(["demo", "--docs", str(docs), "--questions", "4"]) == FAILURE
    assert "RAGTRACE_HOLD_SECONDS" in capsys.readouterr().err


def test_a_model_that_keeps_failing_ends_the_demo(
    docs: Path,
    serve: Callable[..., ModelServer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three failures in a row are enough; the last one is printed."""
    server = serve(status=401)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert main(["demo", "--docs", str(docs), "--questions", "8", "--model", "tiny"]) == FAILURE
    assert "failed 3 times in a row" in capsys.readouterr().err
    assert len(server.asked) == 3


# --- output ---------------------------------------------------------------------------------------------------------


def test_json_is_one_object(docs: Path) -> None:
    """Nothing else on standard output, nothing on standard error, and the documented keys."""
    done = run("-m", "ragtrace", *demo(docs, "--json"))
    assert (done.returncode, done.stderr) == (OK, "")
    found = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert set(found) == {
        *("documents", "model", "judge", "seed", "questions", "simulated_regression"),
        *("before", "after", "alerts", "worst", "stats", "sent_to", "seconds", "notes"),
    }
    assert found["before"]["calls"] + found["after"]["calls"] == found["questions"] == 8
    assert found["sent_to"]["endpoint"] is None


def test_the_standard_library_by_json() -> None:
    """The demo as it is first run, shortened: judged, with something invented and something caught."""
    done = run("-m", "ragtrace", "demo", "--json", "--questions", "40")
    assert (done.returncode, done.stderr) == (OK, "")
    found = json.loads(done.stdout)
    assert found["documents"]["passages"] > 3_000
    assert found["after"]["invented"] > 0
    assert (
        found["after"]["caught"]
        <= found["after"]["invented"]
        <= sum(found["simulated_regression"]["inventions"].values())
    )


def test_without_rich_the_report_is_plain(docs: Path) -> None:
    """The same content, no traceback."""
    done = run("-c", BLOCKED, *demo(docs))
    assert (done.returncode, done.stderr) == (OK, "")
    assert "SIMULATED" in done.stdout
    assert "nowhere: set OTEL_EXPORTER_OTLP_ENDPOINT" in done.stdout


def test_without_a_terminal_there_are_no_colours(
    docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets plain characters."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert main(demo(docs)) == OK
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "SIMULATED" in printed


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_narrow_encoding_does_not_fail(docs: Path, encoding: str) -> None:
    """What it cannot show is replaced."""
    done = run("-m", "ragtrace", *demo(docs), env=environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0"))
    assert (done.returncode, done.stderr) == (OK, "")


def test_no_color_is_respected(docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when colours are forced on, NO_COLOR wins; a narrow terminal is no reason to fail."""
    for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "50"}.items():
        monkeypatch.setenv(name, value)
    assert main(demo(docs)) == OK
    printed = capsys.readouterr().out
    assert "SIMULATED" in printed
    assert "\x1b[31m" not in printed
    assert "\x1b[1;31m" not in printed


# --- a model behind a server ----------------------------------------------------------------------------------------


def test_a_served_model_is_asked_and_judged(
    docs: Path,
    serve: Callable[..., ModelServer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answers are streamed from the server and judged; it is given the passages."""
    server = serve()
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert main(demo(docs, "--model", "tiny", "--json")) == OK
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert found["model"] == "tiny"
    assert found["before"]["scored"] == 4
    assert len(server.asked) == 8
    assert "Clean the" in server.asked[0]["messages"][1]["content"]
