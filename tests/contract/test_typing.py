"""Decorated functions keep their types, under both checkers."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "typing_samples"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240


def _mypy(sample: str) -> str:
    return _run([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(SAMPLES / sample)])


def _pyright(sample: str) -> str:
    return _run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(SAMPLES / sample)])


def _run(argv: list[str]) -> str:
    if importlib.util.find_spec(argv[2]) is None:
        pytest.skip(f"{argv[2]} is not installed; it comes with the dependency group dev")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT)
    return done.stdout + done.stderr


def _error_lines(output: str) -> list[int]:
    """The lines of the sample with at least one error."""
    return sorted({int(line) for line in re.findall(r"\.py:(\d+)(?::\d+)?(?: -|:) error", output)})


checkers = pytest.mark.parametrize("check", [_mypy, _pyright], ids=["mypy", "pyright"])


@checkers
def test_every_kind_of_function_keeps_its_type(check: Callable[[str], str]) -> None:
    """Sync, async, generators and methods, decorated bare and with arguments, are what they were."""
    output = check("decorated.py")
    assert _error_lines(output) == [], output


@checkers
def test_a_wrong_call_is_an_error(check: Callable[[str], str]) -> None:
    """The checker still sees the parameters of a decorated function, and those of `configure`."""
    source = (SAMPLES / "misused.py").read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(source, 1) if line.endswith("# wrong")]
    output = check("misused.py")
    assert _error_lines(output) == wrong, output
