"""`ragtrace score`: a file of calls to a file of scores, killed, resumed, with bad lines and hostile texts."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from ragtrace.cli import main
from ragtrace.cli.score_command import OUT_OF_BOUNDS
from ragtrace.core.errors import SettingsError
from ragtrace.offline.call_records import call_from_record
from ragtrace.offline.score_rows import without_formula
from ragtrace.system.terminal import FAILURE, OK, USAGE
from ragtrace.testing import DecisionServer
from tests.support.decisions import SHORT
from tests.support.offline_judge import WordyJudge

ROOT: Final = Path(__file__).parents[3]
TIMEOUT: Final = 240.0
WORDY: Final = "tests.support.offline_judge:WordyJudge"
SERVED: Final = "tests.support.offline_judge:served"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test in a directory of its own, with a judge that was not asked yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(WordyJudge, "asked", 0)


def call(answer: str | None, **more: Any) -> dict[str, Any]:
    return {"query": "Where is it?", "contexts": ["It is here."], "answer": answer, **more}


def write(*calls: dict[str, Any] | str) -> None:
    """calls.jsonl of these; a string is a line as it is."""
    lines = (line if isinstance(line, str) else json.dumps(line) for line in calls)
    Path("calls.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def score(*options: str, out: str = "scores.jsonl", judge: str = WORDY) -> int:
    """Run the command in this process; its exit status."""
    return main(["score", "calls.jsonl", "--out", out, "--judge", judge, *options])


def rows(out: str = "scores.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(out).read_text(encoding="utf-8").splitlines()]


def table() -> list[dict[str, str]]:
    """The rows of scores.csv."""
    with Path("scores.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def faithfulness(out: str = "scores.jsonl") -> list[float | str]:
    """Of each row the score, or the reason why there is none."""
    results = [row["results"]["faithfulness"] for row in rows(out)]
    return [result.get("score", result.get("reason")) for result in results]


# --- what comes out --------------------------------------------------------------------------------------------------


def test_output_has_one_row_per_call() -> None:
    """The output has a row for each call in order, with line number, id, and a score or a reason."""
    write(call("good 1", id="a"), call("invented 2", id=7), call(None), call("refused 3"))
    assert score() == FAILURE
    assert [(row["line"], row["id"]) for row in rows()] == [(1, "a"), (2, 7), (3, None), (4, None)]
    assert faithfulness() == [1.0, 0.0, "empty_answer", "refused"]
    assert not Path("scores.jsonl.part").exists()


def test_row_has_unsupported_statements() -> None:
    """A row has the unsupported statements with their places in the answer."""
    write(call("invented thing"))
    assert score() == OK
    (claim,) = rows()[0]["unsupported"]
    assert (claim["text"], claim["start"], claim["end"], claim["support"]) == ("invented thing", 0, 14, "not_found")


def test_embedded_judge_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    """The embedded judge needs no key and does not call its comparison of words faithfulness."""
    contexts = ["The tower is in Paris, France."]
    write(call("The tower is in Paris.", contexts=contexts), call("The bridge is in Berlin.", contexts=contexts))
    assert main(["score", "calls.jsonl", "--out", "scores.jsonl"]) == OK
    good, bad = [row["results"]["consistency"]["score"] for row in rows()]
    assert good > 0.9 > 0.5 > bad
    assert "faithfulness" not in capsys.readouterr().out


def test_extractive_judge_scores_faithfulness(capsys: pytest.CaptureFixture[str]) -> None:
    """`embedded:extractive` scores faithfulness."""
    contexts = ["The tower is in Paris, France."]
    write(call("The tower is in Paris.", contexts=contexts), call("The bridge is in Berlin.", contexts=contexts))
    assert main(["score", "calls.jsonl", "--out", "scores.jsonl", "--judge", "embedded:extractive"]) == OK
    assert faithfulness() == [1.0, 0.0]
    assert re.search(r"faithfulness +0\.5000 +2  0", capsys.readouterr().out)


def test_json_summary_has_means_counts_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one object with means, counts and cost."""
    write(call("good 1"), call("invented 2"), call(""), call("unparsable 3"), "{torn", call("good 4", comment="x"))
    assert score("--json", "--metrics", "faithfulness") == FAILURE
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found.pop("duration_s") > 0
    assert found == {
        "calls": 5, "failed": 1, "bad": 1, "resumed": 0, "again": 0, "unread_keys": {"comment": 1},
        "n_calls": 4, "input_tokens": 400, "output_tokens": 40, "cost_usd": 2.0, "unpriced": 0, "out_of_bounds": [],
        "metrics": {"faithfulness": {
            "metric": "faithfulness", "mean": 2 / 3, "scored": 3,
            "unscored": {"not_applicable": {"empty_answer": 1}, "judge_error": {"unparsable": 1}},
            "uncalibrated": False,
        }},
    }  # fmt: skip
    assert "ragtrace: line 4 not judged: unparsable\n" in printed.err
    assert "ragtrace: line 5 skipped: not JSON" in printed.err


def test_csv_has_one_row_per_call() -> None:
    """The CSV has columns for scores and reasons, and several statements in one cell."""
    write(call('invented "thing",\n2', id="a"), call("refused"))
    assert score(out="scores.csv") == FAILURE
    first, second = table()
    assert (first["id"], first["faithfulness"], first["faithfulness.reason"]) == ("a", "0.0", "")
    assert first["unsupported"] == 'invented "thing",\n2'
    assert (second["line"], second["faithfulness"], second["faithfulness.reason"]) == ("2", "", "refused")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "＝"])  # noqa: RUF001
def test_no_csv_cell_is_a_formula(start: str) -> None:
    """A text that a spreadsheet would run as a formula has a quote before it."""
    text = f'{start}HYPERLINK("http://evil.example","x")'
    write(call("good", id=text))
    assert score(out="scores.csv") == OK
    (row,) = table()
    assert row["id"] == f"'{text}"


def test_numbers_are_not_quoted() -> None:
    """A negative number is not taken for a formula."""
    assert [without_formula(cell) for cell in (-0.5, 1, None, "plain", "-0.5")] == [-0.5, 1, None, "plain", "'-0.5"]


@pytest.mark.parametrize("out", ["scores.jsonl", "scores.csv"])
def test_unusual_texts_are_kept(out: str) -> None:
    """Other scripts, line separators and lone surrogates come through unchanged."""
    write(call("invented \u2028 \u4e2d\u6587 \ud83d", id="\ud800"))
    assert score(out=out) == OK
    assert Path(out).read_bytes().decode("utf-8")
    if out.endswith("jsonl"):
        (row,) = (json.loads(line) for line in Path(out).read_bytes().split(b"\n") if line)
        assert (row["id"], row["unsupported"][0]["text"]) == ("\ud800", "invented \u2028 \u4e2d\u6587 \ud83d")


# --- what goes in ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ('{"answer": "x", "id": 1e400}', "1e400 is not finite"),
        ('{"answer": "x", "contexts": [{"text": "a", "score": -1e999}]}', "-1e999 is not finite"),
        ('{"answer": "x", "answer": "y"}', "the key 'answer' comes twice"),
        (
            '{"answer": "x", "turns": [{"role": "user", "role": "user"}]}',
            "the key 'role' comes twice",
        ),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"query": "x"}', "'answer'"),
        ('{"answer": 7}', "answer="),
        ('{"answer": "x", "contexts": 7}', "contexts="),
        ('{"answer": "x", "id": [1]}', "id must be"),
        ('{"answer": NaN}', "NaN"),
        ("[" * 100_000, "nested too deeply"),
        ('{"answer": "x", "turns": [{"role": "king", "text": "x"}]}', "turns[0]"),
    ],
    ids=range(14),
)
def test_bad_line_is_reported_and_skipped(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad line is reported by number and skipped, and the exit status is 1."""
    write(call("good 1"), line, call("good 2"))
    assert score() == FAILURE
    errors = capsys.readouterr().err
    assert "line 2 skipped" in errors
    assert said in errors
    assert [row["line"] for row in rows()] == [1, 3]


def test_line_that_is_not_utf_8_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    """A line that is not UTF-8 is reported with the position of the byte."""
    Path("calls.jsonl").write_bytes(b'{"answer": "good"}\n{"answer": "\xff"}\n')
    assert score() == FAILURE
    assert "line 2 skipped: not UTF-8 at byte 12" in capsys.readouterr().err


def test_only_first_bad_lines_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the first bad lines are reported one by one; the others are counted."""
    write(*["nonsense"] * 50)
    assert score() == FAILURE
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 21
    assert errors[-1] == "ragtrace: 30 more lines skipped"


def test_blank_lines_and_byte_order_mark_are_no_errors() -> None:
    """Blank lines, a byte order mark and a missing final newline are no errors."""
    Path("calls.jsonl").write_bytes(b'\xef\xbb\xbf{"answer": "good 1"}\r\n\r\n\n{"answer": "good 2"}')
    assert score() == OK
    assert [row["line"] for row in rows()] == [1, 4]


def test_empty_file_gives_an_empty_file() -> None:
    """An empty file of calls gives an empty file of scores."""
    write()
    assert score() == OK
    assert Path("scores.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metrics", "faithfullness"], "did you mean 'faithfulness'"),
        (["--metrics", "answered"], "does not offer answered"),
        (["--metrics", ","], "metrics= is empty"),
        (["--judge", "gpt-4o"], "openai:MODEL"),
        (["--judge", "openai:"], "openai:MODEL"),
        (["--judge", "no_such_module:judge"], "no judge at"),
        (["--judge", "tests.support.offline_judge:nobody"], "no judge at"),
        (["--judge", "tests.support.offline_judge:NOT_A_JUDGE"], "is no judge"),
        (["--judge", "embedded", "--mode", "careful"], "leave it out"),
        (["--out", "scores.xlsx"], "*.jsonl or *.csv"),
        (["--out", "calls.jsonl"], "itself"),
        (["--out", "nowhere/scores.jsonl"], "no such file or directory"),
    ],
    ids=str,
)
def test_wrong_usage_judges_nothing(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage ends with one line and status 2 before anything is judged."""
    write(call("good"))
    assert score(*options) == USAGE
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1
    assert WordyJudge.asked == 0


def test_missing_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file of calls is wrong usage and leaves no journal."""
    assert score() == USAGE
    assert "calls.jsonl" in capsys.readouterr().err
    assert not list(Path().iterdir())


# --- without a file of scores ----------------------------------------------------------------------------------------


def test_the_table_needs_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The plain command prints mean and reasons of each metric, and leaves nothing behind."""
    write(call("good"), call("invented"), call("It cannot be said.", contexts=None))
    assert main(["score", "calls.jsonl", "--judge", WORDY]) == OK
    text = capsys.readouterr().out
    assert re.search(r"^faithfulness +0\.5000 +2 +1 contexts_missing$", text, re.MULTILINE)
    assert "calls: 3, 0 failed" in text
    assert "scores:" not in text
    assert [each.name for each in tmp_path.iterdir()] == ["calls.jsonl"]


@pytest.mark.parametrize(("bound", "status"), [("0.4", OK), ("0.8", OUT_OF_BOUNDS)])
def test_a_gate_needs_no_file(bound: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """`--fail-under` decides the exit status, as text and as JSON."""
    write(call("good"), call("invented"))
    gate = ["score", "calls.jsonl", "--judge", WORDY, "--fail-under", f"faithfulness={bound}"]
    assert main(gate) == status
    assert ("out of bounds: faithfulness" in capsys.readouterr().out) is (status == OUT_OF_BOUNDS)
    assert main([*gate, "--json"]) == status
    assert len(json.loads(capsys.readouterr().out)["out_of_bounds"]) == (status == OUT_OF_BOUNDS)


def test_what_a_run_without_a_file_does_not_keep_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a judge that is away nor calls to be judged again may promise that the same command goes on."""
    write(call("good"), call("away"))
    assert main(["score", "calls.jsonl", "--judge", WORDY]) == FAILURE
    assert "with --out FILE a second run judges these alone" in capsys.readouterr().out
    write(*(call(f"away {number}") for number in range(300)))
    assert main(["score", "calls.jsonl", "--judge", WORDY, "--timeout", "0.2", "--concurrency", "2"]) == FAILURE
    assert "what was judged is not kept; with --out FILE" in capsys.readouterr().err
    assert main(["score", "calls.jsonl", "--judge", WORDY, "--restart"]) == USAGE
    assert "--restart is for a file of scores" in capsys.readouterr().err


# --- going on where it was -------------------------------------------------------------------------------------------


def test_identical_lines_are_judged_once() -> None:
    """A line that describes the same call as another costs nothing and is marked as cached."""
    write(call("good 1"), call("good 2"), call("good 1", id="again"))
    assert score() == OK
    assert WordyJudge.asked == 2
    assert [(row["cached"], row["cost_usd"]) for row in rows()] == [(False, 0.5), (False, 0.5), (True, 0.0)]
    assert faithfulness() == [1.0, 1.0, 1.0]


def test_finished_scores_are_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    """A finished output is only replaced with --restart."""
    write(call("good 1"))
    assert score() == OK
    assert score() == USAGE
    assert "--restart" in capsys.readouterr().err
    assert WordyJudge.asked == 1
    assert score("--restart") == OK
    assert WordyJudge.asked == 2


def test_retryable_failures_are_judged_again() -> None:
    """The same command judges calls again that failed because the judge was unavailable, and no others."""
    write(call("good 1"), call("away 2"), call("refused 3"))
    assert score() == FAILURE
    assert faithfulness() == [1.0, "unavailable", "refused"]
    assert WordyJudge.asked == 3
    assert score() == FAILURE
    assert WordyJudge.asked == 4


def test_changed_line_is_judged_again() -> None:
    """A line whose call differs from the journal's entry is judged again."""
    write(call("good 1"), call("away 2"))
    assert score() == FAILURE
    write(call("invented 1"), call("good 2"), call("good 3"))
    assert score() == OK
    assert faithfulness() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("options", [["--metrics", "hallucination"], ["--judge", "embedded"]], ids=str)
def test_journal_of_another_run_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A journal of another judge or other metrics is refused."""
    write(call("away 1"))
    assert score() == FAILURE
    capsys.readouterr()
    assert score(*options) == USAGE
    assert "--restart" in capsys.readouterr().err
    assert score(*options, "--restart") in (OK, FAILURE)


@pytest.mark.parametrize(
    "tail", [b'{"key": "00', b"\x00" * 100, b'{"key": "zz", "again": false, "row": {"line": 1}}\n', b"[]\n"]
)
def test_torn_journal_end_is_repaired(tail: bytes) -> None:
    """A torn last entry of the journal is cut off."""
    write(call("good 1"), call("away 2"))
    assert score() == FAILURE
    whole = Path("scores.jsonl").read_bytes()
    with Path("scores.jsonl.part").open("ab") as journal:
        journal.write(tail)
    assert score() == FAILURE
    assert Path("scores.jsonl").read_bytes() == whole
    assert WordyJudge.asked == 3


@pytest.mark.parametrize("size", range(0, 700, 50))
def test_journal_torn_anywhere_gives_the_same_scores(size: int) -> None:
    """A journal cut at any byte leads to the same scores."""
    write(call("good 1"), call("invented 2"), call("away 3"))
    assert score() == FAILURE
    whole = Path("scores.jsonl").read_bytes()
    os.truncate("scores.jsonl.part", min(size, Path("scores.jsonl.part").stat().st_size))
    assert score() == FAILURE
    assert Path("scores.jsonl").read_bytes() == whole


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks on Windows")
def test_journal_is_locked_against_a_second_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A second run on the same output is refused."""
    import fcntl

    write(call("away 1"))
    assert score() == FAILURE
    with Path("scores.jsonl.part").open("rb") as journal:
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX)
        assert score() == USAGE
    assert "another run" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of file sizes on Windows")
def test_full_disk_loses_nothing() -> None:
    """A full disk ends the run with what was judged kept, and the next run judges only the rest."""
    import resource

    write(*(call(f"good {number}") for number in range(100)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        assert score("--concurrency", "1") == FAILURE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = len(Path("scores.jsonl.part").read_bytes().splitlines()) - 1
    assert 10 < kept < 100
    WordyJudge.asked = 0
    assert score() == OK
    assert WordyJudge.asked == 100 - kept
    assert faithfulness() == [1.0] * 100


def test_unavailable_judge_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A judge that stays unavailable ends the run, and what it had judged is kept."""
    write(call("good 0"), *(call(f"away {number}") for number in range(300)))
    assert score("--timeout", "0.2", "--concurrency", "2") == FAILURE
    assert "kept failing" in capsys.readouterr().err
    assert WordyJudge.asked < 100
    assert not Path("scores.jsonl").exists()
    asked = WordyJudge.asked
    write(call("good 0"), *(call(f"good {number}") for number in range(1, 4)))
    assert score("--timeout", "0.2", "--concurrency", "2") == OK
    assert WordyJudge.asked == asked + 3


# --- bounds, other libraries' names, a report ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "status", "said"),
    [
        (["--fail-under", "faithfulness=0.5"], OK, ""),
        (["--fail-under", "faithfulness=0.8"], OUT_OF_BOUNDS, "faithfulness: mean 0.5000 of 2 calls is under 0.8"),
        (["--fail-over", "hallucination=0.5"], OK, ""),
        (["--fail-over", "hallucination=0.05"], OUT_OF_BOUNDS, "hallucination: mean 0.5000 of 2 calls is over 0.05"),
        (
            ["--fail-under", "faithfulness=0.9", "--fail-over", "hallucination=0.1"],
            OUT_OF_BOUNDS,
            "hallucination: mean",
        ),
    ],
)
def test_mean_out_of_bounds_has_its_own_status(
    bounds: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mean beyond --fail-under or --fail-over ends with status 3; a mean at the bound does not."""
    write(call("good answer"), call("invented answer"))
    assert score(*bounds) == status
    assert said in capsys.readouterr().out
    assert len(rows()) == 2, "the scores are there all the same"


def test_metric_without_scores_is_out_of_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    """A bound on a metric without any score counts as exceeded."""
    write(call("refused this"))
    assert score("--fail-under", "faithfulness=0.1", "--json") == OUT_OF_BOUNDS
    said = json.loads(capsys.readouterr().out)["out_of_bounds"]
    assert said == ["faithfulness: no call was scored, so it is not known to keep --fail-under 0.1"]


@pytest.mark.parametrize(
    ("bound", "advice"),
    [
        (["--fail-over", "faithfulness=0.8"], "write --fail-under faithfulness=0.8"),
        (["--fail-under", "hallucination=0.05"], "write --fail-over hallucination=0.05"),
        (["--fail-under", "answer_relevancy=0.8"], "name one of faithfulness"),
    ],
)
def test_senseless_bound_is_refused(bound: list[str], advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bound on the good side of a metric, or on a metric that is not computed, is refused before judging."""
    write(call("good answer"))
    assert score(*bound) == USAGE
    assert advice in capsys.readouterr().err
    assert WordyJudge.asked == 0


@pytest.mark.parametrize("bound", ["faithfulness", "=0.5", "faithfulness=high", "faithfulness=nan"])
def test_bound_needs_a_metric_and_a_number(bound: str) -> None:
    """A bound without a metric or a number is wrong usage."""
    write(call("good answer"))
    with pytest.raises(SystemExit) as stopped:
        score("--fail-under", bound)
    assert stopped.value.code == USAGE


@pytest.mark.parametrize(
    "record",
    [
        {"user_input": "Where?", "retrieved_contexts": ["Here."], "response": "good", "reference": "Here."},
        {"question": "Where?", "contexts": ["Here."], "answer": "good", "ground_truth": "Here."},
        {"input": "Where?", "retrieval_context": ["Here."], "actual_output": "good", "expected_output": "Here."},
    ],
    ids=["ragas", "older ragas", "deepeval"],
)
def test_keys_of_ragas_and_deepeval_are_understood(record: dict[str, Any]) -> None:
    """The keys of RAGAS and DeepEval describe the same parts of a call."""
    found = call_from_record(record)
    texts = (found.query, [document.text for document in found.contexts or ()], found.answer, found.reference)
    assert texts == ("Where?", ["Here."], "good", "Here.")


def test_context_key_is_read_in_deepeval_records_only() -> None:
    """`context` means the reference contexts in records of DeepEval and is ignored elsewhere."""
    theirs = call_from_record({"input": "Where?", "actual_output": "good", "context": ["There."]})
    assert [document.text for document in theirs.reference_contexts or ()] == ["There."]
    assert call_from_record({"query": "Where?", "answer": "good", "context": ["There."]}).reference_contexts is None


def test_tags_are_read_with_their_types() -> None:
    """As `ragtrace dataset` writes them; null is none."""
    tags = {"tenant": "acme", "paying": True, "seats": 3, "share": 0.5}
    found = call_from_record({"answer": "yes", "tags": tags}).tags
    assert {name: (value, type(value)) for name, value in found.items()} == {n: (v, type(v)) for n, v in tags.items()}
    assert call_from_record({"answer": "yes", "tags": None}).tags == {}


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ("acme", "tags= must be a dict of names and values, got str"),
        ({"1st": "acme"}, "the name of a tag"),
        ({"tenant": None}, "the value of the tag 'tenant' must be"),
        ({"tenant": ["acme"]}, "the value of the tag 'tenant' must be"),
        ({f"t{number}": 1 for number in range(17)}, "at most 16 tags, got 17"),
    ],
)
def test_wrong_tags_are_an_error_in_words(tags: object, why: str) -> None:
    """None is left out in silence."""
    with pytest.raises(SettingsError, match=re.escape(why)):
        call_from_record({"answer": "yes", "tags": tags})


def test_two_keys_for_one_part_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A line with two keys for the same part of a call is bad."""
    write({**call("good answer"), "response": "another"}, call("good answer"))
    assert score() == FAILURE
    assert "line 1 skipped: 'response' and another key both mean 'answer'" in capsys.readouterr().err
    assert len(rows()) == 1


def test_score_file_becomes_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """`ragtrace report` on a score file with its calls shows the worst answers and their unsupported statements."""
    write(call("good answer", workflow="shop"), "not json", call("invented <answer>", workflow="shop"))
    assert score() == FAILURE
    assert main(["report", "scores.jsonl", "--calls", "calls.jsonl", "--out", "page.html"]) == OK
    page = Path("page.html").read_text(encoding="utf-8")
    assert "50%" in page
    assert "<mark>invented &lt;answer&gt;</mark>" in page or "invented &lt;answer&gt;" in page
    assert "good answer" not in page
    capsys.readouterr()
    assert main(["report", "scores.jsonl", "--format", "json"]) == OK
    found = json.loads(capsys.readouterr().out)
    by_name = {each["metric"]: each["overall"]["value"] for each in found["measured"]}
    assert (by_name["faithfulness"], found["calls"], found["path"]) == (0.5, 2, "scores.jsonl")


def test_report_on_a_wrong_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no score file, or calls that were not scored, are refused with what to name."""
    write(call("good answer"))
    assert main(["report", "calls.jsonl"]) == USAGE
    assert "line 1 of calls.jsonl is no score" in capsys.readouterr().err
    assert score() == OK
    Path("calls.jsonl").write_text("")
    assert main(["report", "scores.jsonl", "--calls", "calls.jsonl"]) == USAGE
    assert "has a score for line 1, but calls.jsonl has no call there" in capsys.readouterr().err


def test_scores_of_a_decision_judge_are_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    """Statements have probabilities in the output; table, JSON and report say that means are not rates."""
    write({"query": SHORT.query, "answer": SHORT.answer, "contexts": [each.text for each in SHORT.contexts or ()]})
    given = {"s1": 0.9, "s2": 0.8, "s3": 0.25}
    with DecisionServer(given) as server:
        assert score("--base-url", server.url, "--json", judge="decision:local") == OK
        summary = json.loads(capsys.readouterr().out)
        assert main(["score", "calls.jsonl", "--base-url", server.url, "--judge", "decision-systemone:local"]) == OK
    assert "0.7500       1  0  uncalibrated: not a rate" in capsys.readouterr().out
    assert [request.path.rpartition("/")[2] for request in server.decisions] == ["decisions", "systemone"]
    (row,) = rows()
    statements = [(each["probability"], each["chunks"][:1]) for each in row["statements"]]
    assert statements == [(0.9, [1]), (0.8, [2]), (0.25, [])]
    assert row["results"]["hallucinated"]["attributes"]["calibration"] == "uncalibrated"
    assert summary["metrics"]["hallucinated"]["uncalibrated"] is True
    assert main(["report", "scores.jsonl", "--calls", "calls.jsonl", "--format", "json"]) == OK
    report = json.loads(capsys.readouterr().out)
    assert report["headline"]["overall"]["reason"] == "uncalibrated"
    assert [each["probability"] for each in report["problems"][0]["statements"]] == [0.9, 0.8, 0.25]


def test_the_limits_of_the_judge_itself_hold() -> None:
    """A call ends as a failure that may pass, 0.1 s after it began"""
    write(call("answer"))
    assert score(judge="tests.support.offline_judge:patient") == FAILURE
    assert faithfulness() == ["timeout"]
