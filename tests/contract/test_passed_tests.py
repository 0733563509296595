"""Which tests the stage `tests` of `.ci/run` may leave out: those that passed in the stage `bare`, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
TESTS: Final = """
import pytest

@pytest.fixture
def fails_at_the_end():
    yield
    raise ValueError

def test_passes(): pass
def test_fails(): raise ValueError
def test_skips(): pytest.skip("no server")
def test_fails_at_the_end(fails_at_the_end): pass
"""


UNUSED: Final = ("cacheprovider", "langsmith_plugin", "anyio", "hypothesispytest")
"""Plugins that the four tests do not need: together they take most of the time that pytest needs to start."""


def _run(folder: Path, *arguments: str) -> str:
    """Run the four tests with the options of our `conftest.py`, and return what pytest prints."""
    (folder / "test_four.py").write_text(TESTS, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        *(option for name in UNUSED for option in ("-p", f"no:{name}")),
        "--rootdir",
        str(folder),
    ]
    return subprocess.run(
        [*command, "-c", "/dev/null", "-q", "-rA", *arguments, str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        check=False,
    ).stdout


def test_only_tests_of_which_every_part_passed_are_recorded_and_left_out(tmp_path: Path) -> None:
    """Failed tests, skipped tests and tests whose clean-up failed run again."""
    record = tmp_path / "passed"
    printed = _run(tmp_path, f"--passed-to={record}")
    assert record.read_text("utf-8") == "test_four.py::test_passes\n", printed
    again = _run(tmp_path, f"--except={record}")
    assert "test_passes" not in again
    assert "1 failed, 1 passed, 1 skipped, 1 deselected, 1 error" in again


def test_workers_report_to_one_record(tmp_path: Path) -> None:
    """With tests in parallel, each passed test is in the record once."""
    record = tmp_path / "passed"
    printed = _run(tmp_path, "-n2", f"--passed-to={record}")
    assert record.read_text("utf-8") == "test_four.py::test_passes\n", printed
