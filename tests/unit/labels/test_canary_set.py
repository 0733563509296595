"""Reading canaries: which labelled calls are used, and what is refused at start-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.labels.canary_set import read_canaries
from tests.support.canaries import METRIC, rows, write


def read(path: Path, lines: list[dict[str, Any]]) -> Any:
    return read_canaries(str(write(path, lines)), [METRIC], "canaries=")


def test_calls_are_read_by_their_label(tmp_path: Path) -> None:
    """With query, contexts and answer."""
    [found] = read(tmp_path / "canaries.jsonl", rows(bad=12, good=18))
    assert (found.metric, len(found.calls["bad"]), len(found.calls["good"])) == (METRIC, 12, 18)
    first = found.calls["bad"][0]
    assert (first.query, first.answer) == ("where? 1", "bad answer 1")
    assert [document.text for document in first.contexts or ()] == ["Paris is a big city."]


def test_of_several_labels_the_majority_counts(tmp_path: Path) -> None:
    """A call on which reviewers are divided, and one without a label or an answer, is left out."""
    lines = rows(bad=20, good=20)
    lines += [{**lines[0], "reviewer": "bob", "label": "good"}, {**lines[0], "reviewer": "eve", "label": "bad"}]
    lines += [{**lines[1], "reviewer": "bob", "label": "good"}]
    lines[2] |= {"label": "unsure"}
    lines[3] |= {"label": None}
    lines[4] |= {"answer": None, "query": None, "contexts": []}
    [found] = read(tmp_path / "canaries.jsonl", lines)
    assert (len(found.calls["bad"]), len(found.calls["good"])) == (16, 20)


def test_other_canaries_have_another_key(tmp_path: Path) -> None:
    """What was learned with one set does not hold for another."""
    keys = {
        read(tmp_path / "canaries.jsonl", lines)[0].key for lines in (rows(), rows(), rows(bad=16), rows(query="who?"))
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (rows(bad=14, good=15), "14 calls labelled bad and 15 labelled good for .hallucinated.; canaries need"),
        (rows(bad=0, good=40), "0 calls labelled bad"),
        (rows(metric="faithfulness"), "'faithfulness', which the judge does not compute"),
        (rows(label=None), "no labelled call with an answer"),
        (rows(answer=None), "no labelled call with an answer"),
        (rows(label="maybe"), "line 1 of .* label must be bad, good or unsure, got 'maybe'"),
        (rows(answer=5), "line 1 of .* must be texts"),
        (rows(contexts="Paris"), "line 1 of .* must be texts"),
        (rows(metric=None), "names no metric"),
    ],
)  # fmt: skip
def test_too_few_or_wrong_lines_are_refused(tmp_path: Path, lines: list[dict[str, Any]], message: str) -> None:
    """At start-up, with what to do."""
    with pytest.raises(SettingsError, match=message):
        read(tmp_path / "canaries.jsonl", lines)


@pytest.mark.parametrize("content", ["not json\n", "[]\n", "\x00\n"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: str) -> None:
    """Naming the file and the command that writes a right one."""
    path = tmp_path / "canaries.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError, match="ragtrace labels export"):
        read_canaries(str(path), [METRIC], "canaries=")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """As any other."""
    with pytest.raises(SettingsError, match="cannot be read"):
        read_canaries(str(tmp_path / "none.jsonl"), [METRIC], "canaries=")
