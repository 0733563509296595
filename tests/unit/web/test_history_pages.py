"""`ragtrace open`: the pages that show a history, and that their numbers are those of the report."""

from __future__ import annotations

import json
import random
import re
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.step import GuardVerdict
from ragtrace.core.types import Score
from ragtrace.history.reading import HistoryReader
from ragtrace.history.schema import history_file
from ragtrace.history.writing import Queued, QueuedCall, QueuedVerdict
from ragtrace.labels.label_store import Label, LabelStore, Pick
from ragtrace.report.analysis import build_report
from ragtrace.report.calibration import calibrate
from ragtrace.report.calibration_page import render_calibration
from ragtrace.report.dataset import build_dataset
from ragtrace.report.html_page import render_html
from ragtrace.report.model import Period
from tests.support import hostile
from tests.support.browser import Parsed
from tests.support.decisions import stored_decisions
from tests.support.history import SOURCE, Simulated, fill, made
from tests.unit.web.test_labelling import BASE, Client, client

TAGS = frozenset(
    "html head meta title link script body main header footer nav section article div span p a h1 h2 h3 strong small b"
    " i u s em ul ol li dl dt dd svg path table thead tbody tr th td mark details summary form label select option"
    " input button kbd code pre".split()
)
"""What the views are made of."""
ATTRIBUTES = frozenset(
    "lang charset name content rel href src defer class id style dir role aria-label aria-labelledby aria-current"
    " aria-keyshortcuts data-key data-row data-live data-live-state data-label viewbox preserveaspectratio d"
    " vector-effect open method action value selected type maxlength download target tabindex checked data-ticked"
    " data-elsewhere data-count rowspan title".split()
)
WORKFLOWS = ("support", "sales", "returns")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 600 calls within two days, of three workflows, two models and two releases."""
    path, rng, now = tmp_path_factory.mktemp("history") / "history.db", random.Random(5), time.time()
    history_file(str(path)).create()
    for release in ("1.4.0", "1.5.0"):
        calls: list[QueuedCall] = []
        for number in range(300):
            workflow = WORKFLOWS[number % 3]
            bad = 0.9 if release == "1.5.0" and workflow == "returns" else 0.1
            kind = Simulated(bad=bad, probability=0.8, workflow=workflow, model=("small-1", "large-2")[number % 2])
            hours = (46 if release == "1.4.0" else 23) - number / 15
            one = made(now - 3600 * hours, kind, rng)
            query = f"Question {number} about {workflow}?"
            calls.append(replace(one, call=replace(one.call, query=query, conversation_id=f"c-{number // 2}")))
        fill(path, calls, source=replace(SOURCE, release=release))
    fill(path, [spiking(now - 3600.0)])
    return path


def spiking(since: float) -> AlertIncident:
    """An alert that began at *since*, and was seen five minutes later."""
    return AlertIncident(
        "i1", "k1", "too many bad", "hallucination", "spiking", "above", 0.05, False, None, None, "1.5.0", "judge@2",
        since, since + 300.0, None, 40, 0.31, 0.2, 0.45, 0.02, False,
    )  # fmt: skip


def text_of(page: str) -> str:
    """The text of a page or a part of one, without elements and with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def part(page: str, begin: str, end: str) -> str:
    """The text between two marks of a page."""
    return text_of(page[page.index(begin) : page.index(end, page.index(begin))])


def listed(page: str) -> list[int]:
    """Row numbers of the calls in a list, in its order."""
    return [int(number) for number in re.findall(r"data-row href=\"/calls/(\d+)", page)]


def all_listed(history: Path, path: str) -> list[int]:
    """Row numbers of the calls on all pages of a list."""
    browser, found, following = client(history), list[int](), path
    while following:
        page = browser.get(following).text
        found += listed(page)
        link = re.search(r'rel="next"[^>]* href="([^"]+)"', page)
        following = unescape(link[1]) if link else ""
    return found


def test_the_page_shows_the_numbers_of_the_report(history: Path) -> None:
    """Headline, key figures, what was not scored, costs, groups and comparison are the same texts, for any filter."""
    for query, chosen in (
        ("", {}),
        ("&workflow=%3Dreturns", {"workflow": "returns"}),
        ("&model=%3Dlarge-2", {"model": "large-2"}),
        ("&release=%3D1.5.0", {"release": "1.5.0"}),
        ("&metric=faithfulness", {"metric": "faithfulness"}),
    ):
        now = time.time()
        report = build_report(str(history), Period(now - 86_400, now + 1), compare="previous", **chosen)  # type: ignore[arg-type]
        assert report.calls
        document = render_html(report)
        pages = {path: client(history).get(f"{path}?since=24h{query}").text for path in ("/", "/changes")}
        assert part(pages["/"], '<dl class="figures"', "</dl>") == part(document, '<dl class="figures"', "</dl>")
        title = '<strong class="title">'
        assert part(pages["/"], title, "</p>") == part(document, title, "</p>")
        assert part(pages["/"], "<svg", 'class="times"') == part(document, "<svg", 'class="times"')
        headings = re.findall(r"<h2>([^<]+)</h2>", document)
        of_now = {"Alerts", "Not scored", "What judging cost"}
        assert {*of_now, "How the scores are spread", "The worst answers"} <= {*headings}
        for heading in headings:
            path = "/" if heading in of_now else "/changes"
            begin = f"<h2>{heading}</h2>"
            assert (begin in pages[path]) == (begin in document)
            if begin in document:
                assert part(pages[path], begin, "</section>") == part(document, begin, "</section>")


def test_the_group_that_a_change_comes_from_leads_to_its_worst_calls(history: Path) -> None:
    """On the first page, beside the worst calls of all; a page of that group alone does not say that no group is it."""
    page = client(history).get("/?since=all").text
    assert "comes from workflow returns" in text_of(page)
    (url,) = re.findall(r'href="([^"]+)">Show the worst calls of this group<', page)
    found = client(history).get(unescape(url)).text
    assert listed(found)
    assert {*re.findall(r"Question \d+ about (\w+)\?", found)} == {"returns"}
    assert "No single workflow" not in client(history).get("/?since=all&workflow=%3Dreturns").text


def test_each_group_leads_to_its_calls(history: Path) -> None:
    """The link of a workflow, a model or a group of bad calls shows the calls of this group alone."""
    browser = client(history)
    page = browser.get("/changes").text
    links = {unescape(link) for link in re.findall(r'<a href="(/calls[?][^"]*)"', page)}
    groups = {(kind, name) for link in links for kind, name in parse_qsl(link.partition("?")[2])}
    assert {("workflow", f"={name}") for name in WORKFLOWS} <= groups
    assert {("model", "=small-1"), ("model", "=large-2")} <= groups
    for link in links:
        chosen = dict(parse_qsl(link.partition("?")[2]))
        shown = browser.get(link).text
        assert listed(shown), link
        if workflow := chosen.get("workflow", "").removeprefix("=") or chosen.get("text"):
            assert not [other for other in {*WORKFLOWS} - {workflow} if f"about {other}?" in text_of(shown)], link


def test_a_list_has_each_call_once_in_its_order(history: Path) -> None:
    """Newest first, and worst first: through all pages, and by previous and next from call to call."""
    newest = all_listed(history, "/calls?since=all&sort=newest")
    assert newest == [*range(600, 0, -1)]
    worst = all_listed(history, "/calls?since=all&sort=worst&metric=hallucination")
    assert sorted(worst) == sorted(newest)
    for query, order in (("since=all&sort=newest", newest), ("since=all&sort=worst&metric=hallucination", worst)):
        for place in (0, 1, 25, 300, 599):
            page = client(history).get(f"/calls/{order[place]}?{query}").text
            before, after = (re.search(rf'rel="{name}"[^>]* href="/calls/(\d+)', page) for name in ("prev", "next"))
            assert (int(before[1]) if before else None) == (order[place - 1] if place else None)
            assert (int(after[1]) if after else None) == (order[place + 1] if place < 599 else None)


def test_a_list_is_filtered(history: Path) -> None:
    """By time, workflow, model, release, text and whether there is a score."""
    assert len(all_listed(history, "/calls?since=24h")) == 300
    assert len(all_listed(history, "/calls?since=all&workflow=%3Dsales")) == 200
    assert len(all_listed(history, "/calls?since=all&model=%3Dlarge-2&release=%3D1.4.0")) == 150
    assert len(all_listed(history, "/calls?since=all&text=QUESTION+12+about")) == 2
    assert all_listed(history, "/calls?since=all&text=umbrella") == []
    scored = all_listed(history, "/calls?since=all&status=scored&metric=hallucination")
    assert len(scored) == 600
    assert all_listed(history, "/calls?since=all&status=scored&metric=citation_recall") == []
    assert len(all_listed(history, "/calls?since=all&status=unscored&metric=citation_recall")) == 600
    assert all_listed(history, "/calls?since=all&status=failed") == []


def test_a_call_shows_its_texts_scores_and_conversation(history: Path) -> None:
    """With marked words, the chunk that they were compared with, reasons of missing scores, costs and other turns."""
    browser = client(history, trace_url="https://backend.example/{trace_id}")
    number = all_listed(history, "/calls?since=all&sort=worst&metric=hallucination")[0]
    page = browser.get(f"/calls/{number}?since=all").text
    shown = text_of(page)
    assert "<mark>90 days</mark>" in page
    found = "contradicted", "compared with marked words", "policy-12", "no score (no citations)", "judge@2", "$0.0002"
    assert not [text for text in found if text not in shown]
    assert re.search(r"https://backend.example/[0-9a-f]{32}", page)
    assert len(re.findall(r"about \w+\?", part(page, 'id="turns"', "</section>"))) >= 1
    assert browser.get("/calls/100000").status_code == 404


def test_pass_and_fail_are_told_apart_without_colour(history: Path) -> None:
    """Each row of a list begins with the verdict as a word; a label of another kind is only a word."""
    browser, seen = client(history), set[str]()
    for query in ("since=all&sort=worst&metric=hallucination", "since=all&metric=hallucination"):
        page = browser.get(f"/calls?{query}").text
        for row in re.findall(r"<li>(.*?)</li>", page, re.DOTALL):
            found = re.findall(r'<b class="tag( pass| fail|)">([^<]+)</b> hallucination by', row)
            assert all(kind.strip() == word for kind, word in found)
            seen |= {word for _, word in found}
    assert seen == {"pass", "fail"}


def test_a_label_of_another_kind_has_no_class(tmp_path: Path) -> None:
    """A name that a metric of the user's own gives is shown, and does nothing to the page."""
    path, call = tmp_path / "history.db", made(time.time() - 60.0, Simulated(probability=1.0), random.Random(1))
    (screen, judge) = call.evaluations
    tone = Score(0.4, "tone", "1", label="hidden")
    fill(path, [replace(call, evaluations=(screen, replace(judge, results={"tone": tone})))])
    for view in ("/calls?since=all&metric=tone", "/calls/1?since=all"):
        assert '<b class="tag">hidden</b>' in client(path).get(view).text


def test_a_list_becomes_test_cases(history: Path) -> None:
    """The file has the listed calls, as `ragtrace dataset` makes them of the same calls."""
    response = client(history).get("/dataset?since=all&workflow=%3Dsales&sort=worst&metric=hallucination&all=yes")
    assert "attachment" in response.headers["content-disposition"]
    cases = [json.loads(line) for line in response.text.splitlines()]
    numbers = all_listed(history, "/calls?since=all&workflow=%3Dsales")
    expected = build_dataset(str(history), None, Period(0, time.time()), numbers=numbers)
    assert {case["query"] for case in cases} == {case["query"] for case in expected.cases}
    assert len(cases) == len(expected.cases) > 0
    none = client(history).get("/dataset?since=all&text=umbrella&all=yes")
    assert none.status_code == 404
    assert "None of these calls has a question" in text_of(none.text)


def test_ticked_calls_become_test_cases_in_the_order_of_the_list(history: Path) -> None:
    """Of this page and of those before; the page says how many they are, leads to the file and says what comes next."""
    browser, address = client(history), "/calls?since=all&sort=worst&metric=hallucination"
    order = all_listed(history, address)
    page = browser.get(f"{address}&ticked={order[30]},{order[2]}").text
    assert re.findall(r'name="tick" value="(\d+)"[^>]* checked', page) == [str(order[2])]
    assert f'name="ticked" value="{order[30]}" data-elsewhere' in page
    following = re.search(r'rel="next"[^>]* href="([^"]+)"', page)
    assert following
    assert f'value="{order[30]}" aria-labelledby="call-{order[30]}" checked' in browser.get(unescape(following[1])).text
    asked = f"since=all&sort=worst&metric=hallucination&ticked={order[30]}&tick={order[7]}&tick={order[2]}"
    made = browser.get(f"/cases?{asked}").text
    assert "3 calls make 3 test cases" in text_of(made)
    assert "--ragtrace-cases cases.jsonl" in text_of(made)
    link = re.search(r'href="(/dataset[^"]+)" download="cases.jsonl"', made)
    assert link
    cases = [json.loads(line) for line in browser.get(unescape(link[1])).text.splitlines()]
    wanted = build_dataset(str(history), None, Period(0, 9e9), numbers=[order[2], order[7], order[30]]).cases
    assert [case["id"] for case in cases] == [case["id"] for case in wanted]
    newest = [json.loads(line) for line in browser.get("/dataset?since=all&ticked=3,500,20").text.splitlines()]
    assert [case["at"] for case in newest] == sorted((case["at"] for case in newest), reverse=True)
    everything = text_of(browser.get("/cases?since=all&workflow=%3Dsales&all=yes").text)
    assert "200 calls make 100 test cases. 100 are left out" in everything


def test_a_call_is_ticked_on_its_own_page(history: Path) -> None:
    """The tick goes on to the next call and to the test cases, and can be taken back."""
    browser, address = client(history), "since=all&sort=worst&metric=hallucination"
    order = all_listed(history, f"/calls?{address}")

    def link(page: str, key: str) -> str:
        found = re.search(rf'<a [^>]*data-key="{key}"[^>]*>', page)
        assert found, key
        return unescape(found[0].partition('href="')[2].partition('"')[0])

    first = browser.get(f"/calls/{order[0]}?{address}").text
    assert "Make test cases" not in first
    second = browser.get(link(browser.get(link(first, "x")).text, "j")).text
    both = browser.get(link(second, "x")).text
    assert "Make test cases of the ticked calls (2)" in text_of(both)
    assert "2 calls make" in text_of(browser.get(link(both, "t")).text)
    listed_again = browser.get(link(both, "q")).text
    assert re.findall(r'name="tick" value="(\d+)"[^>]* checked', listed_again) == [str(each) for each in order[:2]]
    assert "ticked calls (1)" in text_of(browser.get(link(both, "x")).text)


@pytest.mark.parametrize("view", ["/cases", "/dataset"])
def test_a_list_without_ticks_says_that_calls_are_to_be_ticked(history: Path, view: str) -> None:
    """Above the list that was shown, with its filters: nothing is lost."""
    answer = client(history).get(f"{view}?since=all&workflow=%3Dsales&ticked=x,-1,9999999999999999999999")
    assert "No call is ticked" in part(answer.text, 'role="alert"', "</p>")
    assert len(listed(answer.text)) == 25
    assert "about support" not in answer.text


def test_a_list_has_the_calls_that_the_judge_finds_bad(history: Path) -> None:
    """A row has the judge's score before the screen's, and the release of the application."""
    with closing(HistoryReader(str(history))) as reader:
        bad = reader.database.execute(
            "SELECT number FROM results JOIN series s ON s.id = series JOIN evaluators e ON e.id = s.evaluator"
            " WHERE s.metric = 'hallucination' AND e.name = 'judge' AND score >= 0.5 ORDER BY number DESC"
        ).fetchall()
    address = "/calls?since=all&status=bad&metric=hallucination"
    assert all_listed(history, address) == [number for (number,) in bad]
    assert sorted(all_listed(history, address.replace("hallucination", "faithfulness")), reverse=True) == [
        number for (number,) in bad
    ]
    row = part(client(history).get(address).text, "<li>", "</li>")
    assert "release 1.5.0" in row
    assert row.index("by judge@2") < row.index("by screen@1")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("since=all", "600 calls"),
        ("since=all&workflow=%3Dsales", "200 calls"),
        ("since=all&sort=worst&metric=hallucination", "600 calls"),
        ("since=all&status=unscored&metric=citation_recall", "600 calls"),
        ("since=all&text=QUESTION+12+about", "2 calls"),
        ("since=all&text=question", "more than 25 calls"),
    ],
)
def test_a_list_says_how_many_calls_it_has(history: Path, query: str, said: str) -> None:
    """Or more than how many, where counting them would take long."""
    assert f"{said}, " in part(client(history).get(f"/calls?{query}").text, 'id="failed"', "<form")


def test_labels_have_a_page_about_their_calibration(history: Path, tmp_path: Path) -> None:
    """The same figures as `ragtrace calibrate fit --html`; without picked calls it says what to do."""
    path = tmp_path / "history.db"
    path.write_bytes(history.read_bytes())
    LabelStore(str(path)).close()
    none = client(path).get("/label/calibration?metric=hallucination")
    assert "ragtrace calibrate pick" in text_of(none.text)
    with closing(LabelStore(str(path))) as store:
        chosen = sorted(store.identities().values())[:60]
        store.replace_picks("hallucination", [Pick(each, "hallucination", "judge@2", 0.1) for each in chosen], 1.0)
        store.add(Label(each, "hallucination", "ada", "bad" if each[0] % 4 == 0 else "good") for each in chosen)
    page = client(path).get("/label/calibration?metric=hallucination").text
    document = render_calibration(calibrate(str(path), "hallucination"))
    for begin, end in (('<dl class="figures"', "</dl>"), ("<h2>Labels by the judge", "</section>")):
        assert part(page, begin, end) == part(document, begin, end)


def test_an_empty_history_says_what_to_do(tmp_path: Path) -> None:
    """Each view has a next step, where there is no call at all and where there is none in the chosen time."""
    path = tmp_path / "history.db"
    history_file(str(path)).create()
    LabelStore(str(path)).close()
    browser = client(path)
    for view, text in (
        ("/", "has no calls yet"),
        ("/changes", "has no calls yet"),
        ("/calls", "Choose a longer time"),
        ("/health", "configure(store=...)"),
        ("/label", "No call fits the filter"),
        ("/label/calibration", "There is nothing to compare yet"),
    ):
        assert text in text_of(browser.get(view).text), view
    fill(path, [made(time.time() - 7_200, Simulated(), random.Random(1))])
    assert "Choose a longer time" in text_of(browser.get("/?since=1h").text)
    fill(path, [replace(spiking(time.time() - 600.0), problem="no_data", value=None)])
    assert "has no scores any more" in text_of(client(path).get("/?since=1h").text)
    assert "Choose a longer time" in text_of(browser.get("/calls?since=1h").text)


def test_scores_of_a_decision_model_are_never_shown_as_a_rate(tmp_path: Path) -> None:
    """Until there are labels, list, call and first page say that they are none."""
    path = tmp_path / "history.db"
    stored_decisions(path, [time.time() - 60.0 * number for number in range(1, 40)])
    browser = client(path)
    call = re.search(r"data-row href=\"(/calls/\d+)", browser.get("/calls?since=all").text)
    assert call
    for view in ("/?since=all", "/calls?since=all", call[1]):
        assert "not a rate" in text_of(browser.get(view).text), view


def test_a_list_says_once_what_raw_scores_are_and_names_their_judge_shortly(tmp_path: Path) -> None:
    """The id of the judge is below the pointer, and in full on the page of a call and where the costs are."""
    path = tmp_path / "history.db"
    stored_decisions(path, [time.time() - 60.0 * number for number in range(1, 30)])
    browser, judge = client(path), "decision@local/openai/questions-1"
    page = browser.get("/calls?since=all").text
    assert text_of(page).count("not a rate") == 1
    assert page.count(f'title="{judge}">decision (local)</span>: 0.8') == 25
    assert judge not in text_of(page)
    changes = browser.get("/changes?since=all").text
    assert text_of(changes[changes.index("<h2>All metrics") : changes.index("<h2>How the")]).count("not a rate") == 1
    assert "Hallucinated score by decision (local) median 0.8" in text_of(changes)
    for view in ("/calls/3?since=all", "/?since=all", "/health"):
        assert judge in text_of(browser.get(view).text), view


def test_a_raw_score_is_shown_with_its_standing_among_others(tmp_path: Path) -> None:
    """A raw probability means something only beside those of other calls; a few of them are no comparison."""
    path, now = tmp_path / "history.db", time.time()
    for probability, calls in ((0.3, 5), (0.2, 19), (0.1, 3)):
        stored_decisions(path, [now - number for number in range(calls, 0, -1)], probability=probability)
        text = text_of(client(path).get("/calls/5?since=all").text)
        if calls == 5:
            assert "scores around it" not in text
    assert "higher than 22 of the 26 scores around it, the same as 4" in text


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            GuardVerdict("faithfulness", "shadow", "fail", "none", "", 0.2, 0.1),
            "Faithfulness, shadow: beyond the bound with 0.2, the answer left as it was; the guard would have held it"
            " back for 100 ms",
        ),
        (
            GuardVerdict("faithfulness", "replace", "timeout", "released", "timeout", None, 0.4),
            "Faithfulness, replace: not checked (out of time), the answer left as it was; the guard held it back for"
            " 400 ms",
        ),
        (
            GuardVerdict("faithfulness", "raise", "fail", "raised", "", 0.2, None),
            "an exception was raised in its place",
        ),
    ],
)
def test_a_call_shows_what_its_guard_did(tmp_path: Path, found: GuardVerdict, sentence: str) -> None:
    """A check that was not made is neither passed nor failed; the first page has the counts."""
    path, call = tmp_path / "history.db", made(time.time() - 60.0, Simulated(), random.Random(1))
    assert call.call.span is not None
    fill(path, [call, QueuedVerdict(call.call.span, found), made(time.time(), Simulated(), random.Random(2))])
    browser = client(path)
    assert sentence in text_of(browser.get("/calls/1?since=all").text)
    assert "Guard" not in text_of(browser.get("/calls/2?since=all").text)
    assert "What guards did" in text_of(browser.get("/?since=all").text)


def test_a_list_is_filtered_by_what_guards_found(tmp_path: Path) -> None:
    """Newest and worst first, by previous and next, as test cases, and from the table of guards on the first page."""
    path, now, rng = tmp_path / "history.db", time.time(), random.Random(4)
    verdicts = [("pass", "none"), ("fail", "replaced"), ("timeout", "released"), ("circuit_open", "released"), ("", "")]
    stored: list[Queued] = []
    of: defaultdict[str, list[int]] = defaultdict(list)
    for number in range(1, 1_301):
        call = made(now - 3600.0 + number, Simulated(), rng)
        call = replace(call, call=replace(call.call, query=f"Question {number}?"))
        assert call.call.span is not None
        stored.append(call)
        verdict, action = verdicts[number % len(verdicts)]
        if verdict:
            found = GuardVerdict("faithfulness", "replace", verdict, action, "", 0.2, 0.1)
            stored.append(QueuedVerdict(call.call.span, found))
        of[verdict].insert(0, number)
    fill(path, stored)
    browser = client(path)
    unchecked = sorted(of["timeout"] + of["circuit_open"], reverse=True)
    for guard, numbers in (("fail", of["fail"]), ("pass", of["pass"]), ("unchecked", unchecked)):
        assert all_listed(path, f"/calls?guard={guard}") == numbers
        assert sorted(all_listed(path, f"/calls?guard={guard}&sort=worst"), reverse=True) == numbers
        page = browser.get(f"/calls/{numbers[7]}?guard={guard}").text
        assert re.findall(r'rel="(prev|next)"[^>]* href="/calls/(\d+)', page) == [
            ("prev", str(numbers[6])),
            ("next", str(numbers[8])),
        ]
    assert all_listed(path, "/calls?guard=any") == [*range(1_300, 0, -1)]
    assert all_listed(path, "/calls?guard=fail&text=question+6%3F") == [6]
    assert "Guard: Faithfulness, replace: beyond the bound" in text_of(browser.get("/calls?guard=fail").text)
    cases = browser.get("/dataset?guard=fail&all=yes").text.splitlines()
    assert [json.loads(case)["query"] for case in cases] == [f"Question {number}?" for number in of["fail"]]
    (link,) = {unescape(link) for link in re.findall(r'<a href="(/calls[?][^"]*guard=[^"]*)"', browser.get("/").text)}
    assert all_listed(path, link) == of["fail"]


def test_hostile_texts_are_shown_as_text(tmp_path: Path) -> None:
    """No text of a call and no name adds an element or an attribute to any view."""
    path = tmp_path / "hostile.db"
    history_file(str(path)).create()
    hostile.history(path, time.time())
    browser = client(path, trace_url="https://x.example/{trace_id}")
    calls = [f"/calls/{number}?since=all" for number in all_listed(path, "/calls?since=all")]
    assert len(calls) >= len(hostile.PAYLOADS)
    for view in ("/?since=all", "/changes?since=all", "/calls?since=all&sort=worst", "/health", *calls):
        page = Parsed(browser.get(view).text)
        assert not set(page.tags) - TAGS, view
        assert not {name for _, name in page.attributes} - ATTRIBUTES, view
        assert page.tags["script"] <= 1


@pytest.mark.parametrize("query", ["since=soon", "since=-1h", "after=n-1", "after=wx_1", "after=wnan_1", "after=w1_x"])
def test_a_wrong_address_says_what_is_wrong_or_begins_anew(history: Path, query: str) -> None:
    """No parameter of a URL makes a page fail."""
    response = client(history).get(f"/calls?{query}")
    if query.startswith("since"):
        assert response.status_code == 400
        assert "Time must be a time" in text_of(response.text)
    else:
        assert listed(response.text)


def test_filters_stay_from_view_to_view(history: Path) -> None:
    """Also through views that they do not apply to, and where no call fits them."""
    LabelStore(str(history)).close()  # which creates the tables of labels
    browser = client(history)
    chosen = "since=7d&workflow=%3Dsales&model=%3Dsmall-1&release=%3D1.5.0&metric=faithfulness"
    call = browser.get(f"/calls?{chosen}").text
    number = listed(call)[0]
    label = re.search(r'href="(/label/calls/[^"]+)"', browser.get(f"/calls/{number}?{chosen}").text)
    assert label
    views = [f"{path}?{chosen}" for path in ("/", "/calls", f"/calls/{number}", "/changes", "/health", "/label")]
    for view in (*views, "/label/disagreements?" + chosen, unescape(label[1])):
        page = browser.get(view).text
        for path in ("/", "/calls", "/changes", "/label", "/health"):
            link = re.search(rf'href="{path}[?]([^"]+)"( aria-current="page")?>(Now|Calls|What|Label|Health)', page)
            assert link, (view, path)
            assert dict(parse_qsl(unescape(link[1]))) == dict(parse_qsl(chosen)), (view, path)
    empty = browser.get("/changes?since=1h&workflow=%3Dnone").text
    assert "No calls in this time" in empty
    assert "Compared with" in empty


@pytest.mark.parametrize(
    ("address", "title", "links"),
    [
        ("/call", "Not found There is no page at /call.", ["/changes?since=7d", "/"]),
        ("/calls/987654", "Not found The history has no such call", ["/changes?since=7d", "/"]),
        ("/calls?since=soon", "This cannot be shown Time must be a time", ["/changes?since=7d", "/calls", "/"]),
    ],
)
def test_what_cannot_be_shown_says_why_and_leads_back(
    history: Path, address: str, title: str, links: list[str]
) -> None:
    """To the page that led there, to the same page without what is wrong, and to the first; never to another site."""
    browser = client(history)
    answer = browser.get(address, headers={"referer": f"{BASE}/changes?since=7d"})
    assert title in part(answer.text, "<h1>", "</p>")
    shown = answer.text[answer.text.index("<h1>") :]
    assert re.findall(r'href="([^"]+)"', shown) == links
    for referer in ("https://x.example/changes", f"{BASE}//x.example/"):
        other = browser.get(address, headers={"referer": referer}).text
        assert re.findall(r'href="([^"]+)"', other[other.index("<h1>") :]) == links[1:]


def test_new_calls_are_on_the_page_after_a_moment(tmp_path: Path) -> None:
    """A report is kept for ten times as long as it took, a second at least, and then made anew."""
    path, rng = tmp_path / "history.db", random.Random(3)
    history_file(str(path)).create()
    fill(path, [made(time.time() - 60, Simulated(), rng) for _ in range(40)])
    browser = client(path)
    assert "40 calls" in text_of(browser.get("/").text)
    fill(path, [made(time.time() - 30, Simulated(), rng) for _ in range(2)])
    deadline = time.monotonic() + 30
    while "42 calls" not in text_of(browser.get("/").text):
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "time", ["9999999d", "9" * 400 + "s", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "soon"]
)
@pytest.mark.parametrize("path", ["/", "/calls", "/changes", "/health"])
def test_a_time_that_cannot_be_is_refused_with_the_word_of_the_page(history: Path, path: str, time: str) -> None:
    """The message calls the filter as the page does, and is short however long the value is."""
    page = client(history).get(path, params={"since": time})
    assert page.status_code == 400
    message = part(page.text, '<p id="message">', "</p>")
    assert message.startswith("Time must be a time, got")
    assert len(message) < 200


@pytest.mark.parametrize("since", ["0001-01-01", "1000-01-01", "700000d", "9999-12-30"])
def test_any_time_of_the_calendar_is_shown(history: Path, since: str) -> None:
    """Also where the time before it, with which it is compared, is in no calendar."""
    for path in ("/", "/calls", "/changes"):
        assert client(history).get(path, params={"since": since}).status_code == 200


@pytest.mark.parametrize("number", [str(2**63), str(2**63 - 1), "9" * 19, "9" * 5_000, "-1", "1.5", "\u0661", "x"])
def test_a_row_number_that_no_history_has_is_a_page_that_is_not_there(history: Path, number: str) -> None:
    """However many digits it has; without a session, the session is asked for first."""
    assert client(history).get(f"/calls/{number}").status_code == 404
    stranger = Client(history)
    assert stranger.get(f"/calls/{number}").status_code == 403
    for query in (f"after=n{number}", f"after=w0.5_{number}&sort=worst", f"ticked={number}", f"tick={number}"):
        assert client(history).get(f"/calls?{query}").status_code == 200


@pytest.mark.parametrize("kind", ["workflow", "model", "release", "metric"])
@pytest.mark.parametrize("path", ["/", "/calls", "/changes"])
def test_a_filter_by_a_name_that_the_history_does_not_have_is_shown(history: Path, path: str, kind: str) -> None:
    """On every page with filters, the select says what empties the page."""
    value = "gone" if kind == "metric" else "=gone"
    page = client(history).get(path, params={kind: value}).text
    select = page[page.index(f'<select name="{kind}">') :]
    assert f'<option value="{value}" selected>gone (not in this history)' in select[: select.index("</select>")]


def test_the_queue_shows_a_workflow_that_the_history_does_not_have(history: Path) -> None:
    """As the other lists do."""
    LabelStore(str(history)).close()
    page = client(history).get("/label?workflow=%3Dgone").text
    assert '<option value="=gone" selected>gone (not in this history)' in page


# --- tags ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 60 calls of three tenants, and of some without tags."""
    path, rng, now = tmp_path_factory.mktemp("tagged") / "history.db", random.Random(8), time.time()
    calls: list[QueuedCall] = []
    for number in range(80):
        one = made(now - 60.0 * (80 - number), Simulated(bad=0.5, probability=1.0), rng)
        tenant = ("acme", "globex", "<b>&'=")[number % 3]
        calls.append(
            replace(one, call=replace(one.call, tags={"tenant": tenant, "paying": True} if number < 60 else {}))
        )
    fill(path, calls)
    return path


def test_a_call_shows_its_tags_and_leads_to_the_calls_of_each(tagged: Path) -> None:
    """Whatever is in a value, and with the other filters kept."""
    page = client(tagged).get("/calls/3?since=7d").text
    assert part(page, '<h2 id="tags">', "</table>") == "Tags Tag Value paying true tenant <b>&'="
    (link,) = [each for each in re.findall(r'href="([^"]+)"', page[page.index('id="tags"') :]) if "tenant" in each]
    query = dict(parse_qsl(unescape(link).partition("?")[2]))
    assert query == {"since": "7d", "tag": "tenant=<b>&'="}
    assert all_listed(tagged, unescape(link)) == [number for number in range(60, 0, -1) if number % 3 == 0]
    assert '<h2 id="tags">' not in client(tagged).get("/calls/70").text


@pytest.mark.parametrize("sort", ["newest", "worst"])
def test_the_list_has_the_calls_of_a_tag(tagged: Path, sort: str) -> None:
    """In both orders, on all pages, with the neighbours of each call and their number."""
    path = f"/calls?tag=tenant%3Dacme&sort={sort}"
    found = all_listed(tagged, path)
    assert sorted(found) == [number for number in range(1, 61) if number % 3 == 1]
    assert "20 calls, " in text_of(client(tagged).get(path).text)
    page = client(tagged).get(f"/calls/{found[1]}?tag=tenant%3Dacme&sort={sort}").text
    neighbours = [int(re.search(rf'rel="{side}"[^>]*href="/calls/(\d+)', page)[1]) for side in ("prev", "next")]  # type: ignore[index]
    assert neighbours == [found[0], found[2]]
    assert all_listed(tagged, "/calls?tag=paying%3Dtrue") == [*range(60, 0, -1)]
    assert all_listed(tagged, "/calls?tag=tenant%3Dnobody") == []


def test_the_other_pages_are_about_the_calls_of_the_tag_too(tagged: Path) -> None:
    """The filter goes from page to page like the others, and can be changed on each."""
    browser = client(tagged)
    assert "40 calls" not in text_of(browser.get("/").text)
    page = browser.get("/?tag=tenant%3Dacme").text
    assert "20 calls" in text_of(page)
    assert 'name="tag" value="tenant=acme"' in page
    assert "/calls?tag=tenant%3Dacme" in page
    cases = browser.get("/dataset?all=yes&tag=tenant%3Dacme").text.splitlines()
    assert {json.loads(case)["tags"]["tenant"] for case in cases} == {"acme"}


def test_the_group_of_a_tag_leads_to_its_calls(tmp_path: Path) -> None:
    """From the estimates of each value, and from the table of what bad calls share, the worst first."""
    path, rng, now = tmp_path / "history.db", random.Random(4), time.time()
    calls: list[QueuedCall] = []
    for number in range(300):
        tenant = ("acme", "globex", "a & b")[number % 3]
        one = made(now - 60.0 * (300 - number), Simulated(0.7 if tenant == "a & b" else 0.05, probability=1.0), rng)
        query = f"Question {number}?"
        calls.append(replace(one, call=replace(one.call, query=query, tags={"tenant": tenant})))
    fill(path, calls)
    page = client(path).get("/changes?metric=hallucination").text
    links = [each for each in re.findall(r'href="(/calls\?[^"]+)"', page) if "tag=" in each]
    of_worst = {each for each in links if "%26" in each}
    assert (len(links), len(of_worst)) == (4, 1)
    [link] = of_worst
    query = dict(parse_qsl(unescape(link).partition("?")[2]))
    assert query == {"metric": "hallucination", "tag": "tenant=a & b", "sort": "worst"}
    assert set(all_listed(path, unescape(link))) == {number for number in range(1, 301) if number % 3 == 0}


def test_a_wrong_tag_is_refused_in_words_and_a_history_without_tags_offers_none(tagged: Path, history: Path) -> None:
    """As a wrong time is."""
    refused = client(tagged).get("/calls?tag=acme")
    assert (refused.status_code, "such as tenant=acme" in unescape(refused.text)) == (400, True)
    assert 'name="tag"' in client(tagged).get("/calls").text
    assert 'name="tag"' not in client(history).get("/calls").text
    assert all_listed(history, "/calls?tag=tenant%3Dacme") == []
