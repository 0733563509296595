"""ragtrace without the metadata of distributions, as in vendored source, a frozen program or a stripped layer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.support.otlp import GrpcReceiver, HttpReceiver, Receiver

ROOT: Final = Path(__file__).parents[2]

APPLICATION: Final = """
import sys
from importlib.metadata import distributions
import ragtrace, ragtrace_exporters

assert not [each.name for each in distributions()], "the metadata are visible"
assert ragtrace.__file__.startswith(sys.argv[1]) and ragtrace_exporters.__file__.startswith(sys.argv[1])

@ragtrace.trace
def ask(question):
    search(question)
    return "Paris is a big city."

@ragtrace.retrieve
def search(question):
    return ["Paris is the capital of France."]

ragtrace.configure(exporter=sys.argv[2], service="vendored")
ask("What is Paris?")
assert ragtrace.flush(60.0)
print(ragtrace.doctor(probe=False).version)
ragtrace.shutdown()
assert not ragtrace.stats().faults, ragtrace.stats().faults
"""


@pytest.fixture
def vendored(tmp_path: Path) -> Path:
    """A folder with copies of ragtrace's packages and links to what they need, without any metadata."""
    shutil.copytree(ROOT / "ragtrace", tmp_path / "ragtrace")
    shutil.copytree(ROOT / "exporters" / "ragtrace_exporters", tmp_path / "ragtrace_exporters")
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(folder).iterdir():
            if entry.suffix not in (".dist-info", ".egg-info", ".pth") and not (tmp_path / entry.name).exists():
                (tmp_path / entry.name).symlink_to(entry)
    if "StopIteration" in _run(tmp_path, "-c", "import opentelemetry.context").stderr:
        pytest.skip("this version of opentelemetry-api finds its own context by metadata alone")
    return tmp_path


def _run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python with *folder* as the only place beside the standard library where it finds packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_", "PYTHON"))}
    environ = {**kept, **environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("kind", [HttpReceiver, GrpcReceiver])
def test_calls_reach_a_collector(vendored: Path, kind: type[Receiver]) -> None:
    """The exporter is found by its name, and the version of ragtrace is told as unknown."""
    with kind() as receiver:
        done = _run(vendored, "-c", APPLICATION, str(vendored), "otlp", **receiver.environ)
        assert (done.returncode, done.stdout) == (0, "unknown\n"), done.stderr
        assert {span.name for span in receiver.spans} == {"invoke_workflow ask", "retrieval"}
        assert receiver.logs
        assert receiver.metrics


def test_calls_reach_the_console(vendored: Path) -> None:
    """An exporter that needs no other distribution is found as well."""
    done = _run(vendored, "-c", APPLICATION, str(vendored), "console")
    assert done.returncode == 0, done.stderr
    assert "What is Paris?" in done.stdout + done.stderr


def test_a_misspelled_exporter_is_still_told(vendored: Path) -> None:
    """The names that are offered are those of the built-in exporters."""
    done = _run(vendored, "-c", "import ragtrace; ragtrace.configure(exporter='consle')")
    assert "no exporter named 'consle'" in done.stderr
    assert "did you mean 'console'" in done.stderr


def test_ragtrace_alone_says_that_its_exporters_are_missing(vendored: Path) -> None:
    """A copy of the one package says which other one to copy."""
    shutil.rmtree(vendored / "ragtrace_exporters")
    done = _run(vendored, "-c", "import ragtrace; ragtrace.configure(exporter='console')")
    assert done.stderr.strip().splitlines()[-1].startswith("ragtrace.core.errors.SettingsError: "), done.stderr
    assert "ragtrace_exporters" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--version"], "ragtrace unknown\n"), (["exporters", "list"], "  phoenix "), (["doctor"], "ragtrace unknown")],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_command_line_runs(vendored: Path, arguments: list[str], expected: str) -> None:
    """Commands that tell the version or the exporters do so."""
    done = _run(vendored, "-m", "ragtrace", *arguments)
    assert expected in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
