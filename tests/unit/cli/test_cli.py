"""The command line, in the process of the tests."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from ragtrace.cli import command_line_parser, main
from ragtrace.gateway.serving import GatewaySettings
from ragtrace.system.terminal import FAILURE, OK, USAGE
from tests.support.command_line import demo_arguments

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


def _parsers(parser: argparse.ArgumentParser, name: str = "ragtrace") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield *parser* and those of its commands and their actions, each with its command line."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each, of_command in action.choices.items():
                yield from _parsers(of_command, f"{name} {each}")


PARSERS: Final = dict(_parsers(command_line_parser()))
PAGE: Final = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PARSERS)
def test_every_help_fits_on_a_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 lines of 80 characters."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = PARSERS[name].format_help().splitlines()
    assert len(lines) <= 24
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("name", [name for name in PARSERS if " " in name])
def test_every_help_leads_to_its_section(name: str) -> None:
    """The page of the command line has the rest, with the exit statuses."""
    section = name.split()[1]
    assert f"docs/command-line.md#ragtrace-{section}\n" in PARSERS[name].format_help()
    assert "Exit status: " in PAGE.partition(f"\n## ragtrace {section}\n")[2].partition("\n## ")[0]


def test_the_page_tells_the_keys_of_the_demo() -> None:
    """Whoever reads the JSON object needs no source code."""
    section = PAGE.partition("\n## ragtrace demo\n")[2].partition("\n## ")[0]
    for part in ("wrongly_flagged", "simulated_regression", "report", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        assert part in section


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_bad_setting_in_the_environment_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong variable stops the demo as it stops `configure`: with its name."""
    monkeypatch.setenv("RAGTRACE_HOLD_SECONDS", "soon")
    assert main(["demo", "--questions", "4"]) == FAILURE
    assert "RAGTRACE_HOLD_SECONDS" in capsys.readouterr().err


# --- output ---------------------------------------------------------------------------------------------------------


def test_without_a_terminal_there_are_no_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets plain characters."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert main(demo_arguments()) == OK
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "SIMULATED" in printed


def test_no_color_is_respected(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when colours are forced on, NO_COLOR wins; a narrow terminal is no reason to fail."""
    for name, value in {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "50"}.items():
        monkeypatch.setenv(name, value)
    assert main(demo_arguments()) == OK
    printed = capsys.readouterr().out
    assert "SIMULATED" in printed
    assert "\x1b[31m" not in printed
    assert "\x1b[1;31m" not in printed


def test_the_options_of_serve_have_the_defaults_of_the_gateways_settings() -> None:
    """The parser repeats them, as importing the gateway would slow every command down."""
    options, settings = command_line_parser().parse_args(["serve"]), GatewaySettings()
    seconds = {name: getattr(options, name) for name in ("settle_seconds", "parent_seconds", "drain_seconds")}
    assert seconds == {name: getattr(settings, name) for name in seconds}
    sizes = (options.max_body_mib, options.max_in_flight_mib, options.queue_mib)
    assert [size << 20 for size in sizes] == [
        settings.most_body_bytes, settings.most_in_flight_bytes, settings.queue_bytes
    ]  # fmt: skip
    assert (options.host, options.http_port, options.grpc_port, options.no_forward) == (
        settings.host, settings.http_port, settings.grpc_port, not settings.forward
    )  # fmt: skip
