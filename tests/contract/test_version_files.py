"""Files of every version, which tests/support/version_files.py wrote with that version, are read by this one."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from ragtrace.cli import main
from ragtrace.estimates import Baseline, read_calibrations
from ragtrace.fleet.call_message import read_message
from ragtrace.fleet.spool import Spool
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import HistoryWriter
from ragtrace.labels.canary_set import read_canaries
from ragtrace.labels.label_store import labels_in, picks_in
from ragtrace.offline.labelled_calls import read_labelled_calls
from ragtrace.system.terminal import OK
from tests.support import version_files
from tests.support.history import GIB, SOURCE, Simulated, made
from tests.support.version_files import (
    FOLDER,
    INVENTED,
    PICKED,
    UNSCORED,
    WORKFLOW,
    answer_of,
    current_version,
)

REMOVED: Final[frozenset[str]] = frozenset()
"""Names of earlier versions that are gone, each with a line under "Removed" in CHANGELOG.md."""
VERSIONS: Final = sorted(FOLDER.iterdir())
EVER: Final = (0.0, 1e11)


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    """The files of one version."""
    path: Path = request.param
    return path


@pytest.fixture
def expected(folder: Path) -> dict[str, Any]:
    """What is known of them."""
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def history(folder: Path, tmp_path: Path) -> Path:
    """The history of that version, as a file of SQLite."""
    return _database(folder / "history.sql", tmp_path / "history.db")


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as the script writes them now."""
    path = tmp_path_factory.mktemp("version")
    version_files.write_files(path)
    return path


def _database(script: Path, path: Path) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script.read_text(encoding="utf-8"))
    return path


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    capsys.readouterr()
    assert main([str(each) for each in arguments]) == OK
    return json.loads(capsys.readouterr().out)


def test_this_version_has_its_files() -> None:
    """A version that is released keeps them: `python -m tests.support.version_files`."""
    assert current_version() in [folder.name for folder in VERSIONS]


def test_the_scores_and_texts_of_a_history_are_read(history: Path, expected: dict[str, Any]) -> None:
    """Every call, with the judge's verdict that the application's answer deserves."""
    with closing(HistoryReader(str(history))) as reader:
        columns = reader.columns(*EVER)
        numbers = columns.number.tolist()
        bodies = reader.bodies(numbers)
        results = list(reader.results(numbers[0], numbers[-1], "hallucinated"))
    assert len(numbers) == expected["calls"] == len(results)
    assert [bodies[number]["answer"] for number in numbers] == [answer_of(number) for number in range(len(numbers))]
    assert sum(each.score or 0.0 for each in results) == expected["bad"]
    assert {each.number for each in results if each.score} == {
        number for number, body in bodies.items() if INVENTED in body["answer"]
    }


def test_what_people_guards_and_alerts_said_is_read(history: Path, expected: dict[str, Any]) -> None:
    """Feedback, picks, labels, verdicts of a guard in the shadow, and the incident of an alert."""
    with closing(HistoryReader(str(history))) as reader:
        (stars,) = reader.feedback()
        numbers = reader.columns(*EVER).number.tolist()
        verdicts = [each.verdict for each in reader.guard_verdicts(numbers[0], numbers[-1])]
        (incident,) = reader.alerts(*EVER)
        labels, picks = labels_in(reader), picks_in(reader, "hallucinated")
    assert (stars.name, stars.score, stars.comment) == ("stars", 0.75, "nearly right")
    assert stars.identity.hex() == "".join(expected["first_call"].split("-")[1:3])
    assert {each.metric for each in verdicts} == {"consistency"}
    assert [each.verdict for each in verdicts].count("fail") == expected["bad"]
    assert (incident.metric, incident.direction, incident.bound) == ("hallucinated", "above", 0.05)
    assert len(picks) == len(labels) == PICKED
    assert {each: sum(label.label == each for label in labels) for each in ("bad", "good")} == expected["labels"]


def test_a_history_is_reported_and_goes_on(
    history: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is corrected by the labels in it; calls of this version stand beside those of the other."""
    period = ("--since", "2020-01-01", "--until", "2200-01-01")
    reported = _run(capsys, "report", history, *period, "--format", "json", "--worst", 1)
    (item,) = [each for each in reported["measured"] if each["metric"] == "hallucinated"]
    assert reported["calls"] == expected["calls"]
    assert item["corrected"]["labels"] == PICKED
    corrected = item["corrected"]["estimate"]
    assert 0 < corrected["low"] < expected["bad"] / expected["calls"] < corrected["high"] < 1
    with closing(sqlite3.connect(history)) as database:
        before = database.execute("PRAGMA user_version").fetchone()
    with closing(HistoryWriter(str(history), SOURCE, most_bytes=GIB, texts=True)) as writer:
        assert writer.write([made(2e9, Simulated(), random.Random(1))]) == 0
    with closing(HistoryReader(str(history))) as reader:
        assert len(reader.columns(*EVER)) == expected["calls"] + 1
    with closing(sqlite3.connect(history)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == before


def test_a_call_in_a_spool_is_read(folder: Path, tmp_path: Path) -> None:
    """With every field, as it was left there."""
    spool = Spool(str(_database(folder / "spool.sql", tmp_path / "spool.db")))
    spool.prepare("the test")
    (claimed,) = spool.claim(9)
    unscored = claimed.unscored
    assert (unscored.call, unscored.pending_evaluators, unscored.response_id, unscored.probability) == (
        UNSCORED, ("judge",), "response-1", 0.25,
    )  # fmt: skip
    spool.delete([claimed.number])
    assert spool.contents().calls == 0


def test_a_message_of_a_fleet_is_read(folder: Path) -> None:
    """Applications and workers may be of different versions."""
    message = read_message((folder / "fleet_message.json").read_text(encoding="utf-8"))
    assert message.unscored.call == UNSCORED
    assert (message.unscored.response_id, message.unscored.probability, message.tries) == ("response-1", 0.25, 0)


def test_a_baseline_is_read(folder: Path, expected: dict[str, Any]) -> None:
    """With the numbers of calls and the means that were learned."""
    baseline = Baseline.load(folder / "baseline.json")
    assert expected["baseline"].keys() == {"consistency", "hallucinated"}
    for key, found in baseline.distributions.items():
        if key.metric in expected["baseline"]:
            assert key.workflow == WORKFLOW
            assert [found.n, found.mean] == expected["baseline"][key.metric]


def test_a_calibration_is_read(folder: Path, expected: dict[str, Any]) -> None:
    """With its labels and the sums from which rates are corrected."""
    (calibration,) = read_calibrations(folder / "calibration.json")
    assert (calibration.key.metric, calibration.labels) == ("hallucinated", PICKED)
    assert dict(calibration.sums) == pytest.approx(expected["calibration"]["sums"])
    assert calibration.unusable == ""


def test_labels_are_read_as_labels_and_as_canaries(
    folder: Path, history: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """By `ragtrace judges`, by `Canaries`, and by `ragtrace labels import`."""
    path = folder / "labels.jsonl"
    found = read_labelled_calls(path, "hallucinated")
    assert (len(found.calls), sum(each.bad for each in found.calls)) == (PICKED, expected["labels"]["bad"])
    (canaries,) = read_canaries(str(path), ["hallucinated"], "the test")
    assert {label: len(calls) for label, calls in canaries.calls.items()} == expected["labels"]
    with closing(sqlite3.connect(history)) as database, database:
        database.execute("DELETE FROM labels")
    assert main(["labels", "import", str(history), str(path)]) == OK
    with closing(HistoryReader(str(history))) as reader:
        assert len(labels_in(reader)) == PICKED


def test_scores_are_reported(
    folder: Path, tmp_path: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """With their mean, beside the calls that they are of."""
    files = [Path(shutil.copy(folder / name, tmp_path)) for name in ("scores.jsonl", "calls.jsonl")]
    reported = _run(capsys, "report", files[0], "--calls", files[1], "--format", "json")
    (item,) = [each for each in reported["measured"] if each["metric"] == "consistency"]
    mean = sum(expected["consistency"]) / len(expected["consistency"])
    assert (item["judged"], item["overall"]["value"]) == (6, pytest.approx(mean))


def test_cases_are_scored(
    folder: Path, tmp_path: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases of a history are recorded calls."""
    found = _run(capsys, "score", folder / "cases.jsonl", "--out", tmp_path / "scores.jsonl", "--json")
    assert found["calls"] == expected["cases"] == expected["bad"]


def test_the_names_of_earlier_versions_are_there(folder: Path, rewritten: Path) -> None:
    """Public names, their arguments, variables, attributes, metrics, reasons, exporters, commands, options and keys."""
    promised, there = (json.loads((path / "names.json").read_text(encoding="utf-8")) for path in (folder, rewritten))
    assert promised.keys() == there.keys()
    assert all(len(names) > 5 for names in promised.values())
    gone = {name for kind, names in promised.items() for name in names if name not in there[kind]}
    assert gone - REMOVED == set(), (
        "keep them, or say so in the changelog and in REMOVED; before that version is released, write its files anew"
    )


def test_who_implements_a_protocol_need_not_add_to_it(folder: Path, rewritten: Path) -> None:
    """A member that is new must be optional, and so be looked for elsewhere: a judge of an earlier version lacks it."""
    promised, there = (
        json.loads((path / "names.json").read_text(encoding="utf-8"))["protocols"] for path in (folder, rewritten)
    )
    assert "Judge.judge" in promised
    assert [name for name in there if name not in promised] == []


def test_what_is_removed_is_in_the_changelog() -> None:
    """By its name."""
    text = (version_files.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [name for name in REMOVED if name not in text] == []


def test_the_script_writes_the_files_that_are_kept(rewritten: Path) -> None:
    """Every kind of file, so that a version that is released has them all."""
    kept = FOLDER / current_version()
    assert sorted(path.name for path in rewritten.iterdir()) == sorted(path.name for path in kept.iterdir())
    tables = [_tables(path / "history.sql") for path in (rewritten, kept)]
    assert tables[0] == tables[1], "the history has other tables: write the files anew before the release"


def _tables(script: Path) -> set[str]:
    return {line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("CREATE ")}
