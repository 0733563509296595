"""The document of the first hour, followed to the letter: its code and its commands give what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

DOCUMENT: Final = (Path(__file__).parents[2] / "docs" / "first-hour.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
COMMANDS: Final = [line for block in re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL) for line in
                   block.splitlines()]  # fmt: skip
PYTHON: Final = ".venv-first-hour/bin/python "


def with_configure(application: str, configure: str) -> str:
    """*application* with its `configure` replaced, as the document tells the reader to do."""
    imports, _, function = configure.rpartition("def configure")
    replaced, count = re.subn(r"def configure\(\) -> None:\n(?:    .*\n)+", f"def configure{function}", application)
    assert count == 1
    return imports + replaced


def run(folder: Path, command: str) -> str:
    """Run *command* of the document with the interpreter of the tests; its output."""
    assert command in COMMANDS
    settings, _, arguments = command.partition(PYTHON)
    environ = {**os.environ, **dict(setting.split("=") for setting in settings.split())}
    done = subprocess.run(
        [sys.executable, *arguments.split()], cwd=folder, env=environ, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder with the application of step 2."""
    (tmp_path / "shop.py").write_text(BLOCKS[0], encoding="utf-8")
    return tmp_path


def test_the_calls_are_printed_one_line_each(shop: Path) -> None:
    """With consistency, and without where the answer declines."""
    lines = run(shop, "RAGTRACE_EXPORTER=console .venv-first-hour/bin/python shop.py").splitlines()
    assert len(lines) == 4
    [declined] = [line for line in lines if "Do you sell hats?" in line]
    assert "answered=0" in declined
    assert "no_contexts" in declined
    assert all("consistency=1" in line for line in lines if line != declined)


def test_the_judge_tells_the_healthy_release_from_the_bad_one(shop: Path) -> None:
    """By the rule of the server that comes along."""
    (shop / "shop.py").write_text(with_configure(BLOCKS[0], BLOCKS[2]), encoding="utf-8")
    good = run(shop, "RAGTRACE_EXPORTER=console .venv-first-hour/bin/python shop.py").splitlines()
    bad = run(shop, "SHOP_RELEASE=bad RAGTRACE_EXPORTER=console .venv-first-hour/bin/python shop.py").splitlines()
    # A line is printed when its call is scored, and calls are judged side by side.
    assert ["hallucinated=0" in line for line in good if "hats" not in line] == [True] * 3
    assert ["hallucinated=1" in line for line in bad if "hats" not in line] == [True] * 3
    assert not [line for line in (*good, *bad) if "hats" in line and "hallucinated" in line]


def test_the_alert_is_for_the_bad_release_alone(shop: Path) -> None:
    """It says what is unsupported."""
    configure = BLOCKS[2].partition("def configure")[0] + BLOCKS[3]
    (shop / "shop.py").write_text(with_configure(BLOCKS[0], configure), encoding="utf-8")
    assert run(shop, ".venv-first-hour/bin/python shop.py 100") == ""
    told = run_with_warnings(shop)
    assert "Gift vouchers worth 25 euros are included." in told
    assert "hallucinated" in told


def run_with_warnings(shop: Path) -> str:
    """The run of the bad release, whose alert also goes to the log, on standard error."""
    environ = {**os.environ, "SHOP_RELEASE": "bad"}
    done = subprocess.run(
        [sys.executable, "shop.py", "100"], cwd=shop, env=environ, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_report_marks_the_sentence_that_a_decision_model_doubts(shop: Path) -> None:
    """With its probability, for every call; and it gives no rate."""
    (shop / "shop.py").write_text(with_configure(BLOCKS[0], BLOCKS[4]), encoding="utf-8")
    assert run(shop, ".venv-first-hour/bin/python shop.py 100") == ""
    assert run(shop, "SHOP_RELEASE=bad .venv-first-hour/bin/python shop.py 100") == ""
    command = ".venv-first-hour/bin/ragtrace report shop.db"
    assert command in COMMANDS
    done = subprocess.run(
        [sys.executable, "-m", "ragtrace", *command.split()[1:]], cwd=shop, capture_output=True, text=True, timeout=240
    )
    printed = " ".join(done.stdout.split())
    assert "150 of 200 calls scored" in printed
    assert "[[Gift vouchers worth 25 euros are included.]]" in printed
    assert "probability of support 0.0539" in printed
    assert "Hallucination rate is not known (uncalibrated: not a rate)" in printed


def test_the_doctor_says_why_a_call_has_no_score(shop: Path) -> None:
    """Nothing was retrieved for it."""
    assert "no consistency, suspicious: no_contexts" in run(shop, ".venv-first-hour/bin/python shop.py 8 --why")


def test_every_command_of_the_document_is_one_that_the_tests_know() -> None:
    """A command that is changed in the document alone is noticed."""
    ours = [command for command in COMMANDS if PYTHON in command]
    assert len(ours) == 9
    others = [command for command in COMMANDS if command not in ours]
    assert [command.split()[0] for command in others] == [
        "python3", ".venv-first-hour/bin/pip", "python3", ".venv-phoenix/bin/pip", ".venv-phoenix/bin/phoenix",
        *([".venv-first-hour/bin/ragtrace"] * 3),
    ]  # fmt: skip
