"""`ragtrace score HISTORY.db`: another judge's scores beside the old ones, within the money, and never paid twice."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest

import ragtrace
from ragtrace.cli import main
from ragtrace.core.types import Document, Evaluation, Judgement, RagCall, Score
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import QueuedCall
from ragtrace.labels.label_store import Label, LabelStore, LabelValue
from ragtrace.offline.backfill import stored_call
from ragtrace.report.analysis import build_report
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period
from ragtrace.system.terminal import FAILURE, OK, USAGE
from ragtrace.testing import FakeJudge
from tests.support.history import BAD, SOURCE, Simulated, call_of, fill, made
from tests.support.offline_judge import WordyJudge
from tests.support.watched import GOOD

JUDGE = "tests.support.offline_judge:WordyJudge"
OLD = Evaluation(
    "judge", "2", "llm_judge", {"faithfulness": Score(0.25, "faithfulness", "1")}, 0.5,
    n_calls=1, input_tokens=900, output_tokens=120, cost_usd=0.001,
)  # fmt: skip


def history(folder: Path, answers: list[str | None], *, texts: bool = True, old: Evaluation = OLD) -> Path:
    """A history of calls of the last hour, each with the score of an earlier judge."""
    rng, path = random.Random(1), folder / "history.db"
    calls = [
        QueuedCall(call_of(rng, answer), (old,), "sampled", time() - 3_600)  # type: ignore[arg-type]
        for answer in answers
    ]
    fill(path, calls, SOURCE, texts=texts)
    return path


def run(capsys: pytest.CaptureFixture[str], path: Path, *options: str, status: int = OK) -> dict[str, Any]:
    """What the command says as JSON."""
    given = ["score", str(path), "--judge", JUDGE, "--json", *options]
    assert main(given) == status
    output = capsys.readouterr()
    found: dict[str, Any] = json.loads(output.out) if output.out else {"error": output.err}
    return found


def scores(path: Path) -> dict[str, list[float]]:
    """Faithfulness of the stored calls by evaluator, in the order of the calls."""
    with closing(HistoryReader(str(path))) as reader:
        columns = reader.columns(0.0, float("inf"))
    found: dict[str, list[tuple[int, float]]] = {}
    for call, series, score in zip(columns.scored_call, columns.scored_series, columns.score, strict=True):
        if columns.series[int(series)].metric == "faithfulness":
            by = columns.evaluators[columns.series[int(series)].evaluator]
            found.setdefault(by, []).append((int(call), float(score)))
    return {by: [score for _, score in sorted(pairs)] for by, pairs in found.items()}


def distinct(number: int) -> list[str | None]:
    """Answers that all differ: identical calls are judged once."""
    return [f"well said {each}." for each in range(number)]


@pytest.fixture(autouse=True)
def _none_asked() -> None:
    WordyJudge.asked = 0


def test_new_scores_stand_beside_the_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With their cost and evidence; the old ones stay as they are."""
    path = history(tmp_path, ["invented this.", "well said."])
    found = run(capsys, path, "--since", "7d")
    assert (found["calls"], found["in_period"], found["n_calls"], found["cost_usd"]) == (2, 2, 2, 1.0)
    assert found["metrics"]["faithfulness"]["mean"] == 0.5
    assert scores(path) == {"judge@2": [0.25, 0.25], "wordy@1": [0.0, 1.0]}


def test_the_calls_of_a_tag_are_judged_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a history; a file of calls is scored whole."""
    path, rng = tmp_path / "history.db", random.Random(1)
    answers = {"invented this.": "acme", "well said.": "globex", "well said, too.": "acme"}
    fill(
        path,
        [
            QueuedCall(replace(call_of(rng, answer), tags={"tenant": tenant}), (OLD,), "sampled", time() - 60)
            for answer, tenant in answers.items()
        ],
    )
    assert run(capsys, path, "--tag", "tenant=acme", "--preview")["to_judge"] == 2
    assert run(capsys, path, "--tag", "tenant=acme")["calls"] == 2
    assert scores(path) == {"judge@2": [0.25] * 3, "wordy@1": [0.0, 1.0]}
    lines = tmp_path / "calls.jsonl"
    lines.write_text('{"answer": "well said."}\n')
    refused = run(capsys, lines, "--tag", "tenant=acme", status=USAGE)
    assert "--tag is for a history" in refused["error"]


def test_the_report_has_a_row_for_each_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both estimates are of all calls of the time, in every form; a note says that they have no common mean."""
    path, rng, now = tmp_path / "history.db", random.Random(2), time()
    fill(path, [made(now - number, Simulated(0.5, 0.5), rng) for number in range(60)])
    run(capsys, path, "--metrics", "faithfulness")
    report = build_report(str(path), Period(now - 86_400, now + 1), compare="none")
    rows = [(item.evaluator, item.overall) for item in report.measured if item.metric == "faithfulness"]
    assert [(by, rate.n, rate.value) for by, rate in rows if rate] == [
        ("judge@2", 60, pytest.approx(0.6, abs=0.2)),
        ("wordy@1", 60, 1.0),
    ]
    for text in (render_html(report), render_markdown(report).replace("\\", ""), render_terminal(report)):
        words = " ".join(text.split())
        assert "Several evaluators scored the same metric (judge@2, wordy@1)" in words
        assert "100.0%" in words


def test_either_judge_can_be_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By default the one that saw the calls as they came; its calibration stays valid beside another judge of them."""
    path, rng, now = tmp_path / "history.db", random.Random(2), time()
    fill(path, [made(now - number, Simulated(0.5, 0.5), rng) for number in range(60)])
    run(capsys, path, "--metrics", "faithfulness")
    for options, evaluator in (([], "judge@2"), (["--evaluator", "wordy@1", "--again"], "wordy@1")):
        assert main(["calibrate", "pick", str(path), "-n", "10", "--metric", "faithfulness", "--json", *options]) == OK
        assert json.loads(capsys.readouterr().out)["evaluator"] == evaluator
        assert ragtrace.calibrate(path, "faithfulness").stale == ""


def test_labels_calibrate_a_judge_of_stored_calls_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls picked from the old judge's sample stand for all that the new judge scored, in `fit` and report."""
    path, rng, now = tmp_path / "history.db", random.Random(4), time()
    calls = [made(now - number, Simulated(0.3, 0.5), rng) for number in range(600)]
    bad = [call.call.answer == BAD for call in calls]
    for number, one in enumerate(calls):  # the new judge sees nine of ten bad answers
        answer = f"{'invented' if bad[number] and rng.random() < 0.9 else 'well said'} {number}."
        calls[number] = replace(one, call=replace(one.call, answer=answer))
    fill(path, calls)
    assert main(["calibrate", "pick", str(path), "-n", "80", "--metric", "faithfulness", "--seed", "1"]) == OK
    with closing(LabelStore(str(path))) as store:
        numbers = {identity: number for number, identity in store.identities().items()}
        picked = [pick.identity for pick in store.picks("faithfulness")]
        labels: dict[bytes, LabelValue] = {each: "bad" if bad[numbers[each] - 1] else "good" for each in picked}
        store.add(Label(each, "faithfulness", "ada", label) for each, label in labels.items())
    capsys.readouterr()
    run(capsys, path, "--metrics", "faithfulness")
    old, new = (ragtrace.calibrate(path, "faithfulness", evaluator=each) for each in (None, "wordy@1"))
    assert (new.evaluator, new.picked, new.labelled, new.stale) == ("wordy@1", 80, 80, "")
    assert [sum(point.weight for point in found.points) for found in (old, new)] == [pytest.approx(600, rel=0.3)] * 2
    assert new.agreement is not None
    assert new.agreement.sensitivity is not None
    assert new.agreement.sensitivity.low < 0.9 < new.agreement.sensitivity.high
    assert new.judge.value == pytest.approx(0.27, abs=0.05)
    assert new.corrected.low is not None
    assert new.corrected.high is not None
    assert new.corrected.low < sum(bad) / 600 < new.corrected.high
    report = build_report(str(path), Period(now - 86_400, now + 1), compare="none")
    corrected = {item.evaluator: item.corrected for item in report.measured if item.metric == "faithfulness"}
    assert {by: each and (each.labels, each.estimate.stale) for by, each in corrected.items()} == {
        "judge@2": (80, ""),
        "wordy@1": (80, ""),
        "screen@1": None,
    }


def test_what_is_in_is_not_judged_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a metric is added later: then the cost adds up."""
    path = history(tmp_path, ["well said.", "well done."])
    run(capsys, path, "--metrics", "faithfulness")
    assert run(capsys, path, "--metrics", "faithfulness")["judged"] == 2
    assert WordyJudge.asked == 2
    found = run(capsys, path, "--metrics", "faithfulness,hallucination")
    assert (found["calls"], found["judged"], WordyJudge.asked) == (2, 0, 4)
    with closing(HistoryReader(str(path))) as reader:
        columns = reader.columns(0.0, float("inf"))
    [number] = [number for number, name in columns.evaluators.items() if name == "wordy@1"]
    assert columns.cost_usd[columns.evaluator == number].tolist() == [1.0, 1.0]


def test_a_preview_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls, tokens and money; here from what the other judge of the history took."""
    path = history(tmp_path, distinct(10))
    found = run(capsys, path, "--preview")
    assert WordyJudge.asked == 0
    assert (found["to_judge"], found["n_calls"], found["input_tokens"], found["output_tokens"]) == (10, 10, 9000, 1200)
    assert found["cost_usd"] is None
    assert found["basis"] == "what judge@2 took for 10 calls of this history"
    assert scores(path).keys() == {"judge@2"}


def test_a_preview_goes_by_what_the_judge_itself_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its price."""
    path = history(tmp_path, distinct(10))
    assert run(capsys, path, "--max-usd", "2")["calls"] == 4
    found = run(capsys, path, "--preview")
    assert (found["to_judge"], found["judged"], found["cost_usd"]) == (6, 4, 3.0)
    assert "wordy@1 took for 4 calls" in found["basis"]


def test_a_preview_without_any_experience_counts_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the list price of the model."""
    screened = Evaluation("screen", "1", "deterministic", {"faithfulness": Score(0.5, "faithfulness", "1")})
    path = history(tmp_path, distinct(10), old=screened)
    options = ["--judge", "openai:gpt-4o-mini", "--base-url", "https://api.openai.com/v1", "--preview"]
    found = run(capsys, path, *options)
    assert (found["to_judge"], found["n_calls"]) == (10, 10)
    assert 10_000 < found["input_tokens"] < 30_000
    assert 0.001 < found["cost_usd"] < 0.01
    careful = run(capsys, path, *options, "--mode", "careful")
    assert careful["n_calls"] == 20


def test_the_money_is_not_exceeded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However many calls are judged at a time; the next run goes on with the calls that are left."""
    path = history(tmp_path, distinct(20))
    found = run(capsys, path, "--max-usd", "3.4", "--concurrency", "8")
    assert (found["calls"], found["cost_usd"], found["left"]) == (6, 3.0, 14)
    found = run(capsys, path, "--max-usd", "100")
    assert (found["calls"], found["judged"], found["left"]) == (14, 6, 0)
    assert WordyJudge.asked == 20


def test_calls_without_content_or_answer_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And not judged."""
    path = history(tmp_path, ["well said.", None])
    assert run(capsys, path)["no_answer"] == 1
    (tmp_path / "other").mkdir()
    path = history(tmp_path / "other", ["well said."] * 3, texts=False)
    found = run(capsys, path, "--preview")
    assert (found["no_content"], found["to_judge"]) == (3, 0)
    assert main(["score", str(path), "--judge", JUDGE]) == OK
    assert "3 without stored texts (NO_CONTENT)" in capsys.readouterr().out


def test_failures_that_may_pass_are_tried_again_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others are stored with their reason."""
    path = history(tmp_path, ["refused it.", "well said."])
    found = run(capsys, path, status=FAILURE)
    assert (found["failed"], found["again"]) == (1, 0)
    assert run(capsys, path)["judged"] == 2
    (tmp_path / "other").mkdir()
    path = history(tmp_path / "other", ["away it is."])
    assert run(capsys, path, status=FAILURE)["again"] == 1
    assert run(capsys, path, "--preview")["to_judge"] == 1


def test_the_sample_of_a_live_judge_is_not_spoilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its probabilities say how estimates are made."""
    live = Evaluation("wordy", "1", "llm_judge", {"faithfulness": Score(1.0, "faithfulness", "1")}, 0.05)
    path = history(tmp_path, ["well said."], old=live)
    assert "has judged a sample of these calls" in run(capsys, path, status=USAGE)["error"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "scores.jsonl"], "--out is for a file of calls"),
        (["--restart"], "--restart is for a file of calls"),
        (["--format", "otlp"], "--format is for a file of calls"),
        (["--since", "yesterday"], "--since must be a time"),
        (["--metrics", "time_to_first_token_s"], "--metrics"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    """Before anything is judged."""
    assert message in run(capsys, history(tmp_path, ["well said."]), *options, status=USAGE)["error"]
    assert WordyJudge.asked == 0


def test_options_of_a_history_are_refused_for_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is read."""
    path = tmp_path / "calls.jsonl"
    path.write_text('{"answer": "well said."}\n', encoding="utf-8")
    assert "--preview is for a history" in run(capsys, path, "--preview", status=USAGE)["error"]


def test_a_later_judge_knows_what_of_a_stored_call_was_cut(tmp_path: Path) -> None:
    """Else it would judge a part as if it were the whole."""
    path, rng = tmp_path / "history.db", random.Random(1)
    whole, cut = (call_of(rng, "The tower is 330 metres tall.") for _ in range(2))
    cut = replace(
        cut,
        contexts=(Document("The tower", cut_chars=20), Document("Paris")),
        answer_cut_chars=12,
        contexts_in_part=True,
        defect="texts_truncated",
    )
    fill(path, [QueuedCall(each, (OLD,), "sampled", time()) for each in (whole, cut)], SOURCE)
    with closing(HistoryReader(str(path))) as reader:
        found = [stored_call(reader.body(number)) for number in (1, 2)]
    assert [(each.answer_cut_chars, each.contexts_in_part, each.defect) for each in found] == [
        (0, False, ""),
        (12, True, "texts_truncated"),
    ]
    assert [document.cut_chars for document in found[1].contexts or ()] == [20, 0]


class Counting(FakeJudge):
    """Counts how many calls it sees at a time, and remembers the most of all such judges."""

    most = 0

    def __init__(self) -> None:
        super().__init__(GOOD, limits=ragtrace.JudgeLimits(concurrency=2))
        self.now, Counting.most = 0, 0

    async def judge(self, call: RagCall) -> Judgement:
        """After a moment in which others may come."""
        self.now += 1
        Counting.most = max(Counting.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().judge(call)


@pytest.mark.parametrize(("options", "most"), [([], 2), (["--concurrency", "3"], 3)])
def test_a_judges_own_concurrency_holds(tmp_path: Path, options: list[str], most: int) -> None:
    """Unless the command is given another."""
    path = history(tmp_path, distinct(12))
    assert main(["score", str(path), "--judge", f"{__name__}:Counting", "--json", *options]) == OK
    assert Counting.most == most
