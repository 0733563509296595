"""`ragtrace baseline`, and where else a baseline is shown: doctor and report."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path
from time import time
from typing import Any

import pytest

import ragtrace
from ragtrace.cli import main
from ragtrace.core.types import Evaluation, Score
from ragtrace.diagnosis import diagnose_environment
from ragtrace.estimates import Adjustment, Baseline, BaselineKey, CallTraits, CollectedScores
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.system.terminal import FAILURE, OK, USAGE
from ragtrace.testing import FakeJudge
from tests.support.history import GIB, call_of
from tests.support.watched import HALF, ask, watch

DAY = 86_400.0
KEY = BaselineKey("support", "consistency", "screen@1")


def fill(path: Path, scores: list[float], *, release: str, days_ago: float, query: str | None = None) -> None:
    """Keep a screened call for each of *scores*, as a process of that release would."""
    rng = random.Random(len(scores))
    source = CallOrigin("bot", release, "screen@1", ("consistency", "suspicious"), "judge@2", ("faithfulness",))
    offered: list[QueuedCall] = []
    for n, score in enumerate(scores):
        at = time() - days_ago * DAY + n / 1000
        call = call_of(rng, workflow="support")
        results = {"consistency": Score(score, "consistency", "1"), "suspicious": Score(0.0, "suspicious", "1")}
        screened = Evaluation("screen", "1", "deterministic", results)
        judged = Evaluation("judge", "2", "llm_judge", {"faithfulness": Score(score, "faithfulness", "1")}, 0.5)
        offered.append(QueuedCall(call, (screened, judged)[: 1 + n % 2], "sampled", at))
    if not path.exists():
        from ragtrace.history.schema import history_file

        history_file(str(path)).create()
    with closing(HistoryWriter(str(path), source, most_bytes=GIB, texts=query is not None)) as writer:
        writer.write(offered)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "history.db"
    fill(path, [0.8] * 150 + [0.9] * 150, release="1.4.0", days_ago=10)
    fill(path, [0.3] * 200, release="1.5.0", days_ago=2)
    return path


def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_baseline_is_learned_from_a_release(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A baseline is learned from one release of the history, for every metric except `suspicious`."""
    assert main(["baseline", str(history), "--service-version", "1.4.0"]) == OK
    out = capsys.readouterr().out
    assert "learned from 300 calls of 1.4.0, 10 days ago" in out
    baseline = Baseline.load(f"{history}.baseline.json")
    assert {key.metric for key in baseline.distributions} == {"consistency", "faithfulness"}
    found = baseline.distributions[KEY]
    assert (found.n, found.mean, found.versions) == (300, pytest.approx(0.85), ("1.4.0",))


def test_baseline_is_learned_from_a_period_and_the_first_calls(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--since, --until and --calls select the calls that a baseline is learned from."""
    out = str(history.with_name("other.json"))
    assert main(["baseline", str(history), "--since", "3d", "--calls", "120", "--out", out, "--json"]) == OK
    printed = shown(capsys)
    assert printed["path"] == out
    assert [(each["metric"], each["n"], each["versions"]) for each in printed["distributions"]] == [
        ("consistency", 120, ["1.5.0"]),
        ("faithfulness", 100, ["1.5.0"]),
    ]


def test_other_entries_of_the_file_are_kept(history: Path) -> None:
    """Only the entries that were learned anew are replaced in the file."""
    path = Path(f"{history}.baseline.json")
    other = KEY._replace(workflow="other")
    old = Baseline.of([0.1] * 9, evaluator="screen@1", workflow="support").distributions[KEY]
    Baseline(
        {KEY: old, other: old}, {KEY._replace(metric="answered"): CollectedScores.single(1.0, 1.0, "q", 0.0, "")}
    ).save(path)
    assert main(["baseline", str(history), "--service-version", "1.4.0"]) == OK
    kept = Baseline.load(path)
    assert (kept.distributions[KEY].n, kept.distributions[other], len(kept.learning)) == (300, old, 1)


def test_judged_calls_are_weighted_by_their_probability(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Judged calls are weighted by the inverse of their sampling probability."""
    assert main(["baseline", str(history), "--json"]) == OK
    by_metric = {each["metric"]: each for each in shown(capsys)["distributions"]}
    assert by_metric["faithfulness"]["n"] == 250


def test_too_few_calls_make_no_baseline(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With too few calls nothing is written; the message has their number and the known releases."""
    assert main(["baseline", str(history), "--service-version", "2.0"]) == FAILURE
    assert "release '2.0' (known: 1.4.0, 1.5.0)" in capsys.readouterr().err
    fill(history, [0.5] * 40, release="1.6.0", days_ago=1)
    assert main(["baseline", str(history), "--service-version", "1.6.0"]) == FAILURE
    assert "at most 40 scored calls of release '1.6.0'" in capsys.readouterr().err
    assert not Path(f"{history}.baseline.json").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], USAGE, "name one history"),
        (["a", "b", "c"], USAGE, "name one history"),
        (["nowhere.db"], FAILURE, "there is no history"),
        (["{}", "--since", "yesterday"], USAGE, "--since"),
        (["show", "nowhere.json"], FAILURE, "No such file"),
        (["show", "{}"], FAILURE, "the baseline cannot be read"),
        (["{}", "--out", "/nowhere/baseline.json"], FAILURE, "the baseline cannot be written"),
        (["{}", "--out", "{}"], USAGE, "the baseline cannot be read"),
    ],
)
def test_errors_have_message_and_status(
    history: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, said: str
) -> None:
    """Each error has a message and an exit status, and no file is changed."""
    before = history.read_bytes()
    assert main(["baseline", *(argument.format(history) for argument in arguments)]) == status
    assert said in capsys.readouterr().err
    assert history.read_bytes() == before


def test_baseline_is_shown_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints the baseline as a table without control characters."""
    path = tmp_path / "baseline.json"
    bad = KEY._replace(workflow="sup\x1b[31mport")
    found = Baseline.of([0.5, 0.9], evaluator="screen@1").distributions[KEY._replace(workflow="")]
    Baseline({bad: found}, {KEY: CollectedScores.single(0.5, 1.0, "q", 0.0, "")}).save(path)
    assert main(["baseline", "show", str(path)]) == OK
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "learned from 2 calls" in out
    assert "1 calls so far" in out


def swinging(path: Path) -> Baseline:
    """Save a baseline of two topics in turns of 300 calls about documents that never come again; and one without."""
    rng = random.Random(12)
    scores = [min(1.0, max(0.0, rng.gauss(0.85 - 0.1 * (call // 300 % 2), 0.1))) for call in range(2_000)]
    traits = [CallTraits(call, 1_000) for call in range(2_000)]
    found = Adjustment.learn(scores, traits, weights=[1.0] * 2_000, questions=range(2_000))
    even = Baseline.of([0.8, 0.9] * 250, evaluator="screen@1").find("", "consistency", "screen@1")
    assert even is not None
    known = {KEY: found.distribution, KEY._replace(workflow="even"): even, KEY._replace(metric="of my own"): even}
    baseline = Baseline(known, adjustments={KEY: found})
    baseline.save(path)
    return baseline


def test_show_says_what_an_alert_can_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For each metric of which is known which scores are worse, with a warning where it takes thousands of calls."""
    path = tmp_path / "baseline.json"
    swinging(path)
    assert main(["baseline", "show", str(path)]) == OK
    out = capsys.readouterr().out
    assert "alert (even, consistency): a fall of the mean by 0.05 is noticed after about 140 scored calls\n" in out
    assert "alert (support, consistency): a fall of the mean by 0.05 is noticed only after about " in out
    assert "warning: that is slow. Usual scores swing with topics" in out
    assert "of my own):" not in out
    assert main(["baseline", "show", str(path), "--change", "0.02"]) == OK
    assert "a fall of the mean by 0.02 is not noticed within 20,000 scored calls" in capsys.readouterr().out
    assert main(["baseline", "show", str(path), "--change", "0.2", "--json"]) == OK
    noticed = {(e["workflow"], e["metric"]): e["calls_to_notice"] for e in shown(capsys)["distributions"]}
    assert noticed["support", "of my own"] is None
    assert 20 < noticed["even", "consistency"] < 100 < noticed["support", "consistency"] < 2_000
    with pytest.raises(SystemExit):
        main(["baseline", "show", str(path), "--change", "5"])


def test_a_baseline_of_an_older_version_does_not_say_what_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file has no course of the scores, from which that is computed; all else is read."""
    path = tmp_path / "baseline.json"
    record = json.loads(swinging(path).encode())
    for each in record["adjustments"]:
        del each["course"], each["least_known"]
    record["distributions"] = record["distributions"][2:]
    path.write_text(json.dumps(record))
    assert main(["baseline", "show", str(path)]) == OK
    assert "alert (" not in capsys.readouterr().out


# --- doctor and report -----------------------------------------------------------------------------------------------


def test_doctor_shows_the_progress_of_baselines() -> None:
    """The doctor shows what a baseline was learned from, or how many calls there are so far."""
    known = Baseline({KEY._replace(workflow="guide"): Baseline.of([0.5] * 200, evaluator="e@1", versions=["1.4.0"])
                      .distributions[BaselineKey("", "consistency", "e@1")]})  # fmt: skip
    watch(screen=FakeJudge(HALF, name="screen", metrics=["consistency", "answered"]), baseline=known)
    ask("where?")
    assert ragtrace.flush()
    diagnosis = ragtrace.doctor(probe=False)
    printed = {each.metric: (each.calls, each.complete, each.told) for each in diagnosis.baselines}
    assert printed == {
        "answered": (1, False, "1 of 500 calls so far"),
        "consistency": (200, True, "learned from 200 calls of 1.4.0"),
    }
    assert "Baselines\n  guide  answered     screen@1  1 of 500 calls so far" in str(diagnosis)
    assert json.dumps(diagnosis.as_dict())


def test_doctor_says_what_an_alert_can_notice(tmp_path: Path) -> None:
    """With the alert's own settings; a slow one is a note."""
    known = swinging(tmp_path / "baseline.json")
    alerts = [ragtrace.Alert("consistency")]
    watch(screen=FakeJudge(HALF, name="screen", metrics=["consistency", "answered"]), baseline=known, alerts=alerts)
    diagnosis = ragtrace.doctor(probe=False)
    told = {each.workflow: each.told for each in diagnosis.baselines if each.metric == "consistency"}
    assert "a fall of the mean by 0.05 is noticed after about 140 scored calls" in told["even"]
    assert "a fall of the mean by 0.05 is noticed only after about" in told["support"]
    [note] = [note for note in diagnosis.notes if "is slow" in note]
    assert note.startswith("the alert 'consistency below baseline' in workflow 'support' is slow (a fall of the mean")


@pytest.mark.parametrize(
    ("content", "ok", "seen"),
    [
        (None, True, "not made yet, but it can be"),
        (Baseline.of([0.5], evaluator="e@1").encode(), True, "1 baselines, 0 more are being learned"),
        ("broken", False, "the baseline cannot be read"),
    ],
)
def test_doctor_reads_the_baseline_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, ok: bool, seen: str
) -> None:
    """The doctor reads the baseline file and reports a broken one as a problem."""
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    diagnosis = diagnose_environment({"RAGTRACE_BASELINE": str(path), "RAGTRACE_EXPORTER": "none"})
    (check,) = [check for check in diagnosis.checks if check.what == "baseline"]
    assert (check.ok, seen in check.seen) == (ok, True)
    assert diagnosis.ok is ok


def test_report_describes_the_baseline(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the baseline's age, size and release."""
    assert main(["baseline", str(history), "--service-version", "1.4.0"]) == OK
    assert main(["report", str(history), "--since", "20d"]) == OK
    out = " ".join(capsys.readouterr().out.split())
    assert "Baseline of consistency (support, screen@1: learned from 300 calls of 1.4.0, 10 days ago)." in out


def test_broken_baseline_is_a_note_in_the_report(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken baseline file is a note in the report."""
    Path(f"{history}.baseline.json").write_text("broken")
    assert main(["report", str(history), "--since", "20d"]) == OK
    assert "the baseline cannot be read" in " ".join(capsys.readouterr().out.split())
