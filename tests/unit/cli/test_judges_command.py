"""`ragtrace judges`: judges on the same labelled calls, in one table, whose raw results are kept."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ragtrace.core.types import JUDGE_MODEL, EvaluatorType, Judgement, Metric, RagCall
from ragtrace.offline.judge_comparison import Comparison, Contestant, MetricResult, measure_judges
from ragtrace.offline.labelled_calls import LabelledFileCall, read_labelled_calls
from ragtrace.system.terminal import FAILURE, OK, USAGE
from ragtrace.testing import OpenAIServer
from tests.unit.cli.test_calibrate_decisions import BAD_ANSWER, Badness, run

CALLS = 400


class Scorer:
    """A judge whose scores have an error of a given size, which is the question's; a price; other scores each time."""

    version = "1"
    type: EvaluatorType = "model"

    def __init__(self, name: str, noise: float, usd: float | None, *, shaky: float = 0.0) -> None:
        self.id, self._noise, self._usd, self._shaky = name, noise, usd, shaky
        self._random = random.Random(name)
        self.asked = 0

    def offers(self, metric: Metric) -> bool:
        return metric.name == "hallucinated"

    def judge(self, call: RagCall) -> Judgement:
        self.asked += 1
        rng = random.Random(f"{self.id} {call.query}")
        value = (0.7 if call.answer == BAD_ANSWER else 0.3) + rng.gauss(0.0, self._noise)
        value += self._random.gauss(0.0, self._shaky)
        return Judgement(
            consistency=min(1.0, max(0.0, value)),
            n_calls=1,
            input_tokens=900,
            output_tokens=30,
            cost_usd=self._usd,
            attributes={JUDGE_MODEL: "m-1"},
        )


def good_judge() -> Scorer:
    return Scorer("good", 0.15, 0.01)


def weak_judge() -> Scorer:
    return Scorer("weak", 0.9, 0.0001)


def labelled_calls(number: int = CALLS) -> list[LabelledFileCall]:
    rng = random.Random(3)
    calls = []
    for at in range(number):
        bad = rng.random() < 0.3
        call = RagCall(f"q {at}", (), BAD_ANSWER if bad else "Within 14 days.")
        calls.append(LabelledFileCall(call, bad))
    return calls


def measure(folder: Path, *judges: Any, number: int = CALLS, restart: bool = False) -> Comparison:
    contestants = [Contestant(judge.id, judge, (Badness(),)) for judge in judges]
    return measure_judges(contestants, labelled_calls(number), folder, restart=restart, quiet=True)


def by_judge(found: Comparison) -> dict[str, MetricResult]:
    return {row.judge: row for row in found.rows}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    rows = [
        {
            "call": f"c{at}",
            "metric": "hallucinated",
            "query": each.call.query,
            "contexts": ["Within 14 days."],
            "answer": each.call.answer,
            "label": "bad" if each.bad else "good",
        }
        for at, each in enumerate(labelled_calls(60))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_weak_judge_is_significantly_below_the_best(tmp_path: Path) -> None:
    """Two judges that are as good as each other are not told apart; a weak one is, on the same calls."""
    found = measure(tmp_path, good_judge(), Scorer("other", 0.15, 0.0002), weak_judge())
    rows = by_judge(found)
    assert found.rows[0].below_best is None
    [equal] = [each for name in ("good", "other") if (each := rows[name].below_best)]
    assert equal.low <= 0.0
    weak = rows["weak"].below_best
    assert weak is not None
    assert weak.low > 0.0


def test_what_a_judge_takes_is_a_mean_of_a_call(tmp_path: Path) -> None:
    """Requests, tokens, dollars and the model that the server names; an unknown price is not known."""
    found = measure(tmp_path, good_judge(), Scorer("free?", 0.15, None), number=20)
    good, free = found.costs
    assert (good.requests, good.input_tokens, good.output_tokens) == (1.0, 900.0, 30.0)
    assert good.usd == pytest.approx(0.01)
    assert good.served_models == ("m-1",)
    assert free.usd is None


def test_labels_of_one_kind_rank_no_judge(tmp_path: Path) -> None:
    """Where all calls are bad there is no AUROC, no curve and no best judge, and no number is invented."""
    calls = [each for each in labelled_calls() if each.bad]
    contestants = [Contestant(each.id, each, (Badness(),)) for each in (good_judge(), weak_judge())]
    found = measure_judges(contestants, calls, tmp_path, quiet=True)
    for row in found.rows:
        assert row.scored == row.bad == len(calls)
        assert (row.auroc, row.average_precision, row.best_f1) == (None, None, None)
        assert row.below_best is None


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    """The second run asks only for the calls that the first had not judged, and the figures are those of one run."""
    measure(tmp_path / "raw", good_judge())
    [raw] = (tmp_path / "raw").iterdir()
    lines = raw.read_bytes().splitlines(keepends=True)
    raw.write_bytes(b"".join(lines[:151]) + lines[151][:40])  # a header, 150 calls, and the torn entry of a killed run
    second = good_judge()
    found = measure(tmp_path / "raw", second)
    assert second.asked == CALLS - 150
    assert found.rows == measure(tmp_path / "whole", good_judge()).rows
    third = good_judge()
    measure(tmp_path / "raw", third)
    assert third.asked == 0
    measure(tmp_path / "raw", third, restart=True)
    assert third.asked == CALLS


def test_another_version_of_a_judge_is_measured_anew(tmp_path: Path) -> None:
    """Results of one version of the questions do not stand for another version."""
    measure(tmp_path, good_judge(), number=20)
    newer = good_judge()
    newer.version = "2"
    measure(tmp_path, newer, number=20)
    assert newer.asked == 20
    assert len(list(tmp_path.iterdir())) == 2


def test_a_row_and_the_costs_are_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row a judge and metric, then what each took, then where the raw results are; as JSON the same figures."""
    judges = ("--judge", "embedded:extractive=hallucinated", "--judge", "embedded")
    assert run("judges", file, *judges) == OK
    shown = capsys.readouterr()
    assert shown.out.startswith("60 labelled calls, ")
    assert "embedded                          consistency   60" in shown.out
    assert f"raw results: {file}.judges" in shown.out
    assert "embedded: 60 calls to judge, 0 are judged already" in shown.err
    assert run("judges", file, *judges, "--json") == OK
    shown = capsys.readouterr()
    record: dict[str, Any] = json.loads(shown.out)
    assert {each["metric"] for each in record["results"]} == {"hallucinated", "consistency"}
    assert record["results"][0]["auroc"]["value"] > 0.9
    assert shown.err == ""


@pytest.mark.parametrize(
    ("judge", "more", "says"),
    [
        ("nobody", (), "nobody"),
        ("embedded", ("--judge", "embedded"), "two judges are the same"),
        ("embedded", ("--metric", "other"), "has no labelled call for 'other'"),
        ("embedded=faithfulness", (), "does not offer faithfulness"),
    ],
)
def test_wrong_usage_says_what_to_write(
    file: Path, judge: str, more: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A judge that does not exist or is named twice, a metric without labels, a metric that the judge lacks."""
    assert run("judges", file, "--judge", judge, *more) == USAGE
    assert says in capsys.readouterr().err


def test_a_judge_that_scores_nothing_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Answers without any context have no consistency: the reason is named, and no figure is shown."""
    path = tmp_path / "labels.jsonl"
    path.write_text('{"query": "q", "answer": "a", "label": "good"}\n', encoding="utf-8")
    assert run("judges", path, "--judge", "embedded") == FAILURE
    assert "1 calls have no score: 1 contexts_missing" in capsys.readouterr().out


def test_a_local_model_is_measured_without_a_key(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --base-url both modes of a chat model are rows of one table, though no key is set anywhere."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with OpenAIServer() as server:
        judges = ("--judge", "openai:local", "--judge", "openai-careful:local")
        assert run("judges", file, *judges, "--base-url", server.url, "--json") == OK
    record = json.loads(capsys.readouterr().out)
    assert {(each["judge"], each["metric"]) for each in record["results"]} == {
        (judge, metric) for judge in judges[1::2] for metric in ("hallucinated", "faithfulness")
    }
    fast, careful = record["costs_a_call"]
    assert fast["requests"] < careful["requests"]


def test_several_reviewers_vote(tmp_path: Path) -> None:
    """The majority counts; divided and unsure calls are left out and counted; CSV is read as well."""
    path = tmp_path / "labels.csv"
    rows = ["call,query,contexts,answer,label", *('a,q,"[""x""]",y,bad' for _ in range(2)), 'a,q,"[""x""]",y,good']
    rows += ['b,q,"[""x""]",y,good', 'b,q,"[""x""]",y,bad', 'c,q,"[""x""]",y,unsure', 'd,q,"[""x""]",y,0']
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    found = read_labelled_calls(path, "hallucinated")
    assert [each.bad for each in found.calls] == [True, False]
    assert found.undecided == 2
    assert found.calls[0].call.contexts is not None
