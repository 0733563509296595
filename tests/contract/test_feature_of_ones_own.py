"""A feature is added in one folder, with one line in the table: the worked example of CONTRIBUTING.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.contract.test_layers import PACKAGE, ROOT

PAGE: Final = ROOT / "CONTRIBUTING.md"
LINE: Final = '    "ragtrace.weekday.feature:WeekdayFeature": (),\n'

APPLICATION: Final = """
import json
import ragtrace
from ragtrace.weekday.feature import Weekdays

captured = ragtrace.testing.Captured()
ragtrace.configure(exporter=captured.signals, store="calls.db", weekdays=Weekdays(offset=2))
with ragtrace.call("Where is the tower?") as call:
    call.retrieved(["The tower is in Paris."])
    call.answered("In Paris.")
assert ragtrace.flush()
metrics, doctor = captured.metrics(), str(ragtrace.doctor(probe=False))
ragtrace.shutdown()
print(json.dumps({
    "tag": captured.root().attributes["ragtrace.tag.weekday"],
    "event": captured.events[0].log_record.attributes["ragtrace.tag.weekday"],
    "metric": [dict(point.attributes) for point in metrics["app.calls.by_weekday"].data_points],
    "doctor": doctor,
}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy of the package with the example's folder, and its line in the table."""
    copy = tmp_path / "ragtrace"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (copy / "weekday").mkdir()
    (copy / "weekday" / "__init__.py").write_text('"""Calls by weekday."""\n')
    (copy / "weekday" / "feature.py").write_text(example())
    table = copy / "slices.py"
    before, after = re.split(r"(?<=FEATURES: Final\[Mapping\[str, tuple\[str, \.\.\.\]\]\] = \{\n)", table.read_text())
    table.write_text(before + LINE + after)
    return tmp_path


def example() -> str:
    """Return the module in CONTRIBUTING.md, with which the line in the table stands."""
    text = PAGE.read_text(encoding="utf-8")
    assert LINE.strip() in text
    found: str = re.findall(r"```python\n(.*?)```", text.partition("`ragtrace/weekday/feature.py`")[2], re.DOTALL)[0]
    return found


def run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python with *arguments* in *folder*, with the package that is there."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_its_tag_metric_and_section_are_where_those_of_others_are(folder: Path) -> None:
    """On the span and the event, in the history and its report, in the metrics and in the doctor."""
    done = run(folder, "-c", APPLICATION)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["tag"] == told["event"]
    assert told["metric"] == [{"weekday": told["tag"]}]
    assert f"Calls by weekday\n  {told['tag']}  1 calls" in told["doctor"]
    report = ("-m", "ragtrace", "report", "calls.db", "--tag")
    assert "1 of 1 calls scored" in run(folder, *report, f"weekday={told['tag']}").stdout
    assert "calls scored" not in run(folder, *report, "weekday=never").stdout


def test_its_option_has_a_variable_bounds_and_a_row_in_the_page_of_settings(folder: Path) -> None:
    """A wrong value stops `configure`, from either side; a misspelled variable or argument is pointed at."""
    program = (
        "import ragtrace; ragtrace.configure(exporter='none', weekdays=ragtrace.weekday.feature.Weekdays(offset=30))"
    )
    refused = run(folder, "-c", f"import ragtrace.weekday.feature; {program}").stderr
    assert "expected a whole number from -14 to 14, got 30 (from Weekdays(offset=))" in refused
    program = "import ragtrace; ragtrace.configure(exporter='none')"
    refused = run(folder, "-c", program, RAGTRACE_WEEKDAY_OFFSET="noon").stderr
    assert "expected a number, got 'noon' (from RAGTRACE_WEEKDAY_OFFSET)" in refused
    assert run(folder, "-c", program, RAGTRACE_WEEKDAY_OFFSET="3").stderr == ""
    refused = run(folder, "-c", "import ragtrace; ragtrace.configure(weekday=1)").stderr
    assert "unexpected keyword argument 'weekday'; did you mean 'weekdays'?" in refused
    refused = run(folder, "-c", "import ragtrace; ragtrace.configure(weekdays=1)").stderr
    assert "weekdays" in refused
    assert run(folder, "-m", "docs.make_configuration").returncode == 0
    page = (folder / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert "| `Weekdays(offset=)` | `RAGTRACE_WEEKDAY_OFFSET` | 0 | hours by which" in page
