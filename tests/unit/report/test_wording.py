"""Words of reports and pages: a comparison of words is never worded as a verdict."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from ragtrace.alerts import Notice
from ragtrace.alerts.notifiers.alertmanager import alert_body
from ragtrace.alerts.notifiers.notifier import event_attributes
from ragtrace.alerts.notifiers.slack import slack_message
from ragtrace.cli import main
from ragtrace.history.reading import HistoryReader
from ragtrace.labels.label_store import LabelStore, Review
from ragtrace.labels.review_queue import ReviewQueue
from ragtrace.report import wording
from ragtrace.report.analysis import build_report
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period, Report, to_json
from ragtrace.testing import Captured
from ragtrace.web.call_view import read_call
from ragtrace_exporters.console import call_text, event_text, span_text
from tests.support.browser import Parsed
from tests.support.kits import dashboard
from tests.support.watched import watch

VERDICT: Final = re.compile(
    r"\b(bad|invented|contradict\w*|overstated|hallucinated|pass(es|ed)?|fail(s|ed)?)\b", re.IGNORECASE
)
CHUNK: Final = "Worn shoes may be returned within 14 days of delivery; refunds are paid to the card used."
APPROVED: Final = (
    "You have two weeks to send footwear back once it has been on the street.",
    "The money goes back to your account.",
    "Worn shoes may be returned within 14 days of delivery.",
)
"""Correct answers, of which two share hardly a word with the chunk."""
STYLE: Final = re.compile(r"<style>.*?</style>", re.DOTALL)
COST_TABLE: Final = re.compile(r"What judging cost.*", re.DOTALL)
"""Last part of a report, which says how many requests of an evaluator failed."""

ACCOUNTS: Final = re.compile(r'0 failed|"failed": 0|"bad": 0')
"""How many calls could not be scored, and how many rows not be read."""


@pytest.fixture
def captured(path: Path) -> Captured:
    """What is exported of a history of approved answers that the embedded judge alone has scored."""
    captured = watch(store=str(path), telemetry=ragtrace.TelemetryOptions(evidence=True))
    for number in range(30):
        with ragtrace.call("How long can I return worn shoes?") as call:
            call.retrieved([CHUNK])
            call.answered(APPROVED[number % 3])
    assert ragtrace.flush()
    return captured


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def report(path: Path, captured: Captured) -> Report:
    now = time.time()
    return build_report(str(path), Period(now - 3600.0, now + 60.0))


def test_a_report_gives_no_verdict_on_a_comparison_of_words(report: Report) -> None:
    """No form of it calls an answer bad, or what is wrong with it, though two thirds have low scores."""
    assert report.grouping is not None
    assert report.headline is not None
    assert report.headline.overall is not None
    assert (report.headline.overall.value or 1.0) < 0.6
    forms = {
        "terminal": COST_TABLE.sub("", render_terminal(report)),
        "markdown": COST_TABLE.sub("", render_markdown(report)),
        "html": COST_TABLE.sub("", Parsed(STYLE.sub("", render_html(report))).text),
        "json": to_json(report).replace('"failed"', ""),
    }
    assert {name: VERDICT.findall(text) for name, text in forms.items() if VERDICT.search(text)} == {}
    assert "The answers that agree least with their chunks" in forms["markdown"]


def test_spans_and_events_give_no_verdict_on_a_comparison_of_words(captured: Captured) -> None:
    """Neither an attribute of the root span nor an event of `consistency` says more than the score."""
    said = [
        f"{name} {value!r}"
        for span in captured.spans
        for name, value in (span.attributes or {}).items()
        if "consistency" in name or "unsupported" in name
    ]
    said += [text for event in captured.events if "consistency" in (text := str(event.log_record.attributes))]
    assert len(said) >= 60
    assert [text for text in said if VERDICT.search(text)] == []


def test_a_notice_gives_no_verdict_on_a_comparison_of_words() -> None:
    """In every form in which it is sent, with the worst calls and what they say."""
    sent: list[Notice] = []
    watch(alerts=[ragtrace.Alert("consistency", below=0.97, min_calls=1, notify=sent.append)])
    for number in range(60):
        with ragtrace.call(f"How long can I return worn shoes? {number}") as call:
            call.retrieved([CHUNK])
            call.answered(APPROVED[number % 2])
    ragtrace.shutdown()
    notice = sent[0]
    assert notice.worst
    assert notice.worst[0].not_in_chunks
    forms = {
        "text": notice.text,
        "JSON": json.dumps(notice.as_dict()),
        "Slack": json.dumps(slack_message(notice)),
        "Alertmanager": json.dumps(alert_body(notice, {})),
        "event": str(event_attributes(notice)),
    }
    assert {name: VERDICT.findall(text) for name, text in forms.items() if VERDICT.search(text)} == {}


def test_the_console_gives_no_verdict_on_a_comparison_of_words(captured: Captured) -> None:
    """Neither in the line of a call, nor in what it prints of `consistency` when everything is printed."""
    lines = [line for line in map(call_text, captured.spans) if line]
    blocks = [*map(span_text, captured.spans), *map(event_text, captured.events)]
    lines += [line for block in blocks for line in block.splitlines() if "consistency" in line]
    assert len(lines) >= 90
    assert [line for line in lines if VERDICT.search(line)] == []


def test_a_table_of_scores_gives_no_verdict_on_a_comparison_of_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ragtrace score` prints a mean and an interval, in words and as JSON."""
    rows = [{"query": "How long?", "contexts": [CHUNK], "answer": answer} for answer in APPROVED]
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for form in ([], ["--json"]):
        assert main(["score", str(path), "--metrics", "consistency", *form]) == 0
        said = capsys.readouterr().out
        assert "onsistency" in said
        assert VERDICT.findall(ACCOUNTS.sub("", said)) == []


def test_the_labelling_page_gives_no_verdict_on_a_comparison_of_words(path: Path, captured: Captured) -> None:
    """It says of a sentence which words are in the chunks, and not whether they support it."""
    ragtrace.shutdown()
    with closing(HistoryReader(str(path))) as reader:
        number = int(reader.columns(0.0, time.time() + 60.0, None).number[0])
    LabelStore(str(path)).close()  # which creates the tables of labels
    review = Review(b"0" * 24, "consistency", "ada")
    view = read_call(str(path), ReviewQueue(str(path)), number, review, (), is_blind=False)
    said = [each.judged for each in view.statements] + [explanation for _, explanation in view.verdicts]
    assert "has words that are in no chunk" in said
    assert [text for text in said if VERDICT.search(text) or "supported" in text] == []


def test_a_panel_of_consistency_gives_no_verdict() -> None:
    """Titles and descriptions of the dashboard's panels about `consistency` alone."""
    about = [
        f"{panel.get('title', '')} {panel.get('description', '')}"
        for panel in dashboard()["panels"]
        if panel.get("title", "").startswith("Consistency")
    ]
    assert about
    assert [text for text in about if VERDICT.search(text)] == []


def test_the_panel_of_estimates_says_whose_rate_it_shows() -> None:
    """An interval holds the judge's rate, errors of the judge included, until human labels correct it."""
    (about,) = [panel["description"] for panel in dashboard()["panels"] if panel.get("title", "").startswith("Now:")]
    for said in ("long-run rate", "human labels", "the judge's own view", "if calls are independent"):
        assert said in about


@pytest.mark.parametrize(
    ("evaluator", "others", "name"),
    [
        ("decision@small-1/openai/questions-2", (), "decision (small-1)"),
        ("openai@meta/llama-3/fast/prompts-9", ("embedded@3",), "openai (meta/llama-3)"),
        ("embedded@3", (), "embedded@3"),
        ("judge@2", ("judge@1",), "judge@2"),
        ("hhem@1:hallucination_evaluation_model", (), "hhem@1:hallucination_evaluation_model"),
        # Two that would be named alike keep their ids: their scores are not comparable.
        ("decision@a/openai/questions-2", ("decision@a/openai/questions-1",), "decision@a/openai/questions-2"),
        ("decision@a/openai/questions-2", ("decision@a/systemone/questions-2",), "decision@a/openai/questions-2"),
        ("decision@a/openai/questions-2", ("decision@b/openai/questions-2",), "decision (a)"),
        ("", (), "(no name)"),
    ],
)
def test_an_evaluator_is_named_by_its_model(evaluator: str, others: tuple[str, ...], name: str) -> None:
    """Without what only tells versions apart, unless that is what tells two evaluators apart."""
    assert wording.short_name(evaluator, {evaluator, *others}) == name
