"""Decorated functions keep their types, under both checkers."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SAMPLES = Path(__file__).parents[1] / "typing_samples"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240


MYPY: Final = ("mypy", "--strict", "--no-error-summary")
PYRIGHT: Final = ("pyright", "--pythonpath", sys.executable)
checkers = pytest.mark.parametrize("checker", [MYPY, PYRIGHT], ids=["mypy", "pyright"])


@cache
def _output(checker: tuple[str, ...]) -> str:
    """Return what *checker* says of both samples; it takes seconds to start."""
    if importlib.util.find_spec(checker[0]) is None:
        pytest.skip(f"{checker[0]} is not installed; it comes with the dependency group dev")
    samples = [str(SAMPLES / sample) for sample in ("decorated.py", "misused.py")]
    argv = [sys.executable, "-m", *checker, *samples]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT)
    return done.stdout + done.stderr


def _error_lines(output: str, sample: str) -> list[int]:
    """Return the lines of *sample* with at least one error."""
    pattern = rf"{re.escape(sample)}:(\d+)(?::\d+)?(?: -|:) error"
    return sorted({int(line) for line in re.findall(pattern, output)})


@checkers
def test_every_kind_of_function_keeps_its_type(checker: tuple[str, ...]) -> None:
    """Sync, async, generators and methods, decorated bare and with arguments, are what they were."""
    output = _output(checker)
    assert _error_lines(output, "decorated.py") == [], output


@checkers
def test_a_wrong_call_is_an_error(checker: tuple[str, ...]) -> None:
    """The checker still sees the parameters of a decorated function, and those of `configure`."""
    source = (SAMPLES / "misused.py").read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(source, 1) if line.endswith("# wrong")]
    output = _output(checker)
    assert _error_lines(output, "misused.py") == wrong, output
