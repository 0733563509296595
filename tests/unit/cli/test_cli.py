"""The command line, in the process of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from ragtrace.cli import main
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.command_line import demo_arguments, model_servers, write_manual
from tests.support.model_server import ModelServer


@pytest.fixture
def serve() -> Iterator[Callable[..., ModelServer]]:
    """Starts model servers and stops them after the test."""
    with model_servers() as start:
        yield start


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A directory with a short manual, quick to read."""
    return write_manual(tmp_path)


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


def test_without_a_terminal_there_are_no_colours(
    docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets plain characters."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert main(demo_arguments(docs)) == OK
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "SIMULATED" in printed


def test_no_color_is_respected(docs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when colours are forced on, NO_COLOR wins; a narrow terminal is no reason to fail."""
    for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "50"}.items():
        monkeypatch.setenv(name, value)
    assert main(demo_arguments(docs)) == OK
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
    assert main(demo_arguments(docs, "--model", "tiny", "--json")) == OK
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert found["model"] == "tiny"
    assert found["before"]["scored"] == 4
    assert len(server.asked) == 8
    assert "Clean the" in server.asked[0]["messages"][1]["content"]
