"""`ragtrace review`: the labelling pages, what its forms write, and whom it refuses."""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx
import pytest

from ragtrace.cli import main
from ragtrace.core.text import encodable
from ragtrace.core.types import Document, Score
from ragtrace.history.schema import history_file
from ragtrace.history.writing import QueuedCall
from ragtrace.labels.label_store import Label, LabelStore, Pick
from ragtrace.labels.review_queue import QueueFilter, ReviewQueue
from ragtrace.system.terminal import FAILURE, USAGE
from ragtrace.web.kept_reports import KeptReports
from ragtrace.web.rendering import SiteSettings
from ragtrace.web.security import Session
from ragtrace.web.site import create_application
from tests.support import hostile
from tests.support.browser import Parsed
from tests.support.decisions import stored_decisions
from tests.support.history import BAD, Simulated, call_of, fill, made

METRIC: Final = "hallucination"
PORT: Final = 8378
BASE: Final = f"http://127.0.0.1:{PORT}"
TOKEN: Final = "a token of the test"
FORM_TOKEN: Final = Session(TOKEN, PORT).form_token


def settings(history: Path, **more: object) -> SiteSettings:
    return replace(SiteSettings(str(history), TOKEN, PORT, METRIC, "ada"), **more)  # type: ignore[arg-type]


class Client:
    """Client of the labelling page that keeps cookies and sends an Origin, as a browser does."""

    def __init__(self, history: Path, **more: object) -> None:
        application = httpx.ASGITransport(app=create_application(settings(history, **more), KeptReports(str(history))))
        self._client = httpx.AsyncClient(
            transport=application, base_url=BASE, headers={"origin": BASE}, follow_redirects=True
        )

    def get(self, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._client.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self._client.post(path, **options))


def client(history: Path, **more: object) -> Client:
    """A browser that has opened the printed address."""
    browser = Client(history, **more)
    assert browser.get(f"/?token={TOKEN}").status_code == 200
    return browser


def identities(history: Path) -> list[bytes]:
    """Identities of the stored calls, oldest first."""
    with closing(LabelStore(str(history))) as store:
        return [identity for _, identity in sorted(store.identities().items())]


def post(browser: Client, path: str, **fields: str) -> str:
    """Send a form of the page, and return the page that the browser is led to."""
    response = browser.post(path, data={"form_token": FORM_TOKEN, **fields})
    assert response.status_code == 200, response.text
    return response.text


def labels(history: Path) -> list[Label]:
    with closing(LabelStore(str(history))) as store:
        return store.labels()


def pages(history: Path, chosen: QueueFilter, limit: int = 7) -> list[bytes]:
    """Identities of the calls of all pages of a queue."""
    found: list[bytes] = []
    with closing(ReviewQueue(str(history))) as queue:
        after: str | None = ""
        while after is not None:
            page = queue.page(chosen, after, limit)
            found += [call.identity for call in page.calls]
            after = page.after
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 40 calls of two workflows, a quarter with marks of the judge; the last 12 are one conversation."""
    path, rng, now = tmp_path_factory.mktemp("history") / "history.db", random.Random(3), time.time()
    calls: list[QueuedCall] = []
    for number in range(40):
        kind = Simulated(bad=float(number % 4 == 0), probability=1.0, workflow=("support", "sales")[number % 2])
        one = made(now - 100 + number, kind, rng)
        query = f"{one.call.query} Äpfel {number}."
        conversation = "c-1" if number >= 28 else None
        calls.append(replace(one, call=replace(one.call, query=query, conversation_id=conversation)))
    calls.append(replace(calls[0], call=replace(calls[0].call, span=None)))
    history_file(str(path)).create()
    fill(path, calls)
    return path


@pytest.fixture
def history(written: Path, tmp_path: Path) -> Path:
    """A copy of the history, with six picked calls."""
    path = tmp_path / "history.db"
    path.write_bytes(written.read_bytes())
    with closing(LabelStore(str(path))) as store:
        chosen = sorted(store.identities().items())[:12:2]
        store.replace_picks(METRIC, [Pick(identity, METRIC, "judge@2", 0.1) for _, identity in chosen], 1.0)
    return path


def test_the_queue_begins_with_the_picked_calls_and_goes_on_with_the_newest(history: Path) -> None:
    """Each call comes once, whatever the size of a page; a call without an identity does not come."""
    everything, chosen = identities(history), QueueFilter(METRIC, "ada")
    picked = everything[:12:2]
    found = pages(history, chosen)
    assert sorted(found[:6]) == sorted(picked)
    assert found[:6] == sorted(picked, key=lambda identity: identity[16:])
    assert found[6:] == [each for each in reversed(everything) if each not in picked]
    assert pages(history, replace(chosen, source="picked")) == found[:6]
    assert pages(history, chosen, limit=1000) == found


def test_calls_are_picked_at_random_where_none_are(history: Path) -> None:
    """With the probabilities of `ragtrace calibrate pick`, once, and the first of them is shown."""
    with closing(LabelStore(str(history))) as store:
        store.replace_picks(METRIC, [], 1.0)
    browser = client(history)
    offer = Parsed(browser.get("/label?workflow=%3Dsales").text).text
    assert "20 labels are needed at least" in offer
    assert "Whatever the filters say, calls of all workflows are picked" in offer
    page = post(browser, f"/label/pick?metric={METRIC}")
    assert 'id="call"' in page
    with closing(LabelStore(str(history))) as store:
        picked = store.picks(METRIC)
    assert {each.identity for each in picked} == set(identities(history))
    assert {(each.evaluator, each.probability) for each in picked} == {("judge@2", 1.0)}
    with closing(LabelStore(str(history))) as store:
        store.replace_picks(METRIC, picked[:5], 1.0)
    post(browser, f"/label/pick?metric={METRIC}")
    with closing(LabelStore(str(history))) as store:
        assert store.picks(METRIC) == picked[:5]
    assert "Pick calls at random" not in browser.get("/label").text
    refused = browser.post("/label/pick?metric=other", data={"form_token": FORM_TOKEN})
    assert refused.status_code == 400
    assert "no judged calls" in refused.text


def test_the_page_says_whether_the_judge_agrees(history: Path) -> None:
    """After the label; disagreements are listed by their questions and lead to the calls, those of others do not."""
    browser, everything = client(history), identities(history)
    bad, good = everything[4].hex(), everything[6].hex()
    for identity, label, sentence in (
        (bad, "bad", "The judge agrees"),
        (bad, "good", "The judge disagrees: it finds the call bad"),
        (bad, "unsure", ""),
        (bad, "good", "The judge disagrees: it finds the call bad"),
        (good, "good", "The judge agrees"),
    ):
        address = f"/label/calls/{identity}"
        assert "The judge" not in browser.get(address).text or label != "bad"
        said = Parsed(post(browser, address, label=label)).text
        assert (sentence in said) if sentence else ("The judge" not in said)
    page = browser.get("/label/disagreements").text
    listed = re.findall(r'data-row href="/label/calls/([0-9a-f]+)', page)
    assert listed == [bad]
    assert "Äpfel 4." in page
    assert bad not in client(history, reviewer="bea").get("/label/disagreements").text


def test_the_evaluator_whose_calls_were_picked_is_the_judge(history: Path) -> None:
    """Such as one that compares words, where an application has no model as its judge."""
    everything = identities(history)
    with closing(LabelStore(str(history))) as store:
        store.replace_picks(METRIC, [Pick(each, METRIC, "screen@1", 0.1) for each in everything[:8]], 1.0)
    with closing(ReviewQueue(str(history))) as queue:
        number = queue.number(everything[4])
        assert number is not None
        verdicts = queue.verdicts(number, METRIC)
    assert [(each.evaluator, each.is_judge) for each in verdicts] == [("judge@2", False), ("screen@1", True)]
    other = {"good": "bad", "bad": "good"}[verdicts[1].label]
    page = Parsed(post(client(history), f"/label/calls/{everything[4].hex()}", label=other)).text
    assert f"The judge disagrees: it finds the call {verdicts[1].label}" in page


def test_a_comparison_of_words_neither_agrees_nor_disagrees(tmp_path: Path) -> None:
    """Scores of `consistency` are no verdicts, so the page holds no label against them."""
    path, call = tmp_path / "history.db", made(time.time() - 10.0, Simulated(), random.Random(1))
    screen = replace(call.evaluations[0], results={"consistency": Score(0.1, "consistency", "1")})
    fill(path, [replace(call, evaluations=(screen,))])
    (identity,) = identities(path)
    browser = client(path, metric="consistency")
    page = Parsed(post(browser, f"/label/calls/{identity.hex()}", label="good")).text
    assert "consistency 0.1" in page
    assert "The judge" not in page
    assert identity.hex() not in browser.get("/label/disagreements").text
    assert "No call fits" in browser.get("/calls?since=all&status=bad&metric=consistency").text


def test_calibration_leads_to_the_calls_on_which_judge_and_labels_differ(history: Path) -> None:
    """By their questions; where nothing can be compared, the page says why and what to do."""
    browser, everything = client(history), identities(history)
    post(browser, f"/label/calls/{everything[4].hex()}", label="good")
    page = browser.get("/label/calibration").text
    assert "Äpfel 4." in page
    assert f'href="/label/calls/{everything[4].hex()}' in page
    assert everything[4].hex() not in client(history, reviewer="cy").get("/label/calibration").text
    assert everything[4].hex() in client(history, reviewer="cy", is_blind=False).get("/label/calibration").text
    none = browser.get("/label/calibration?metric=faithfulness").text
    assert "There is nothing to compare yet: no calls are picked" in Parsed(none).text
    assert "Pick calls at random" in none


def test_calibration_without_labels_is_the_next_step(tmp_path: Path) -> None:
    """How many calls to label, and the button; no figure, no row and no axis of what is not known."""
    path = tmp_path / "history.db"
    stored_decisions(path, [time.time() - 60.0 * number for number in range(1, 81)])
    LabelStore(str(path)).close()
    browser = client(path, metric="hallucinated")
    none = browser.get("/label/calibration").text
    assert "Label 50 calls" in Parsed(none).text
    assert re.search(r'<form method="post" action="/label/pick[^"]*">.*?<button', none, re.DOTALL)
    post(browser, "/label/pick?metric=hallucinated")
    picked = browser.get("/label/calibration").text
    assert '<strong class="title">Label 50 calls</strong>' in picked
    assert "uncalibrated" not in picked
    assert "whisker" not in picked
    (url,) = re.findall(r'<a class="button primary" href="([^"]+)">Label the picked calls<', picked)
    assert 'id="call"' in browser.get(unescape(url)).text
    with closing(LabelStore(str(path))) as store:
        chosen = [each.identity for each in store.picks("hallucinated")]
    for identity in chosen[:2]:
        post(browser, f"/label/calls/{identity.hex()}?metric=hallucinated", label="bad")
    few = browser.get("/label/calibration").text
    assert '<strong class="title">Label 48 more calls</strong>' in few
    assert "<h2>Labels by the judge" in few
    assert '<b class="v">-</b>' not in few


def test_the_queue_is_filtered(history: Path) -> None:
    """By workflow, by text in upper or lower case, by score, and by the labels of the reviewer and of others."""
    everything, chosen = identities(history), QueueFilter(METRIC, "ada")
    assert len(pages(history, replace(chosen, workflow="sales"))) == 20
    assert len(pages(history, replace(chosen, text="ÄPFEL 1"))) == 11
    assert len(pages(history, replace(chosen, text="90 DAYS"))) == 10
    assert pages(history, replace(chosen, text='"query"')) == []
    assert len(pages(history, replace(chosen, source="judged"))) == 40
    assert pages(history, replace(chosen, source="judged", metric="other")) == []
    with closing(LabelStore(str(history))) as store:
        said = [("ada", "good"), ("bob", "bad")], [("ada", "unsure"), ("bob", "bad")], [("bob", "good"), ("cy", "bad")]
        store.add(
            Label(identity, METRIC, reviewer, label)  # type: ignore[arg-type]
            for identity, given in zip(everything, said, strict=False)
            for reviewer, label in given
        )
    by_status = {
        status: pages(history, replace(chosen, status=status))  # type: ignore[arg-type]
        for status in ("labelled", "unsure", "disputed", "unlabelled")
    }
    assert set(by_status["labelled"]) == set(everything[:2])
    assert by_status["unsure"] == [everything[1]]
    assert by_status["disputed"] == [everything[0]]
    assert len(by_status["unlabelled"]) == 38
    with closing(ReviewQueue(str(history))) as queue:
        assert {call.identity for call in queue.disputed(METRIC)} == {everything[0], everything[2]}
        assert queue.disputed(METRIC, max(everything[0], everything[2])) == []


def test_the_labelling_page_says_how_many_labels_are_missing(history: Path) -> None:
    """Those that any reviewer gave count, without unsure ones, until they correct the rate."""
    chosen = identities(history)[:24]
    with closing(LabelStore(str(history))) as store:
        store.replace_picks(METRIC, [Pick(each, METRIC, "judge@2", 0.5) for each in chosen], 1.0)
        store.add(Label(each, METRIC, "bob", "good") for each in chosen[:18])
        store.add([Label(chosen[18], METRIC, "ada", "unsure"), Label(chosen[19], METRIC, "ada", "bad")])
        store.add([Label(identities(history)[30], METRIC, "ada", "good")])
    page = Parsed(client(history).get("/label").text).text
    assert "picked calls labelled, 1 other. From 20 on, they correct the rate: 1 to go." in " ".join(page.split())
    with closing(LabelStore(str(history))) as store:
        store.add([Label(chosen[20], METRIC, "ada", "good")])
    assert "they correct the rate" not in client(history).get("/label").text


def test_a_label_is_saved_with_its_statements_and_its_comment(history: Path) -> None:
    """Labels of statements alone are a draft, which counts as no label."""
    browser, identity = client(history), identities(history)[0]
    path = f"/label/calls/{identity.hex()}"
    middle = BAD.index(".") + 1
    page = post(browser, path, statement=f"0-{middle}:not")
    assert "has no label yet" in page
    assert labels(history) == []
    assert FORM_TOKEN in page
    post(browser, path, statement=f"{middle + 1}-{len(BAD)}:supported", comment="  two\r\nlines ")
    page = post(browser, path, label="bad")
    assert "Saved. The call is bad." in page
    (label,) = labels(history)
    assert (label.identity, label.metric, label.reviewer, label.label) == (identity, METRIC, "ada", "bad")
    assert label.comment == "two\nlines"
    assert label.statements == (
        {"start": 0, "end": middle, "label": "not"},
        {"start": middle + 1, "end": len(BAD), "label": "supported"},
    )
    post(browser, path, statement=f"0-{middle}:not")
    assert len(labels(history)[0].statements) == 1
    post(browser, path, statement=f"0-{middle}:not")
    post(browser, path, statement=f"0-{middle}:not", keep="yes")
    assert len(labels(history)[0].statements) == 2


def test_every_change_can_be_undone(history: Path) -> None:
    """The latest first, across a restart of the server; the changes of another reviewer stay."""
    first, second = (f"/label/calls/{each.hex()}" for each in identities(history)[:2])
    browser = client(history)
    post(browser, first, label="good")
    post(browser, first, label="bad", comment="why")
    post(browser, second, label="unsure")
    post(client(history, reviewer="bob"), first, label="good")
    browser = client(history)
    assert "Undone." in post(browser, "/label/undo")
    assert [(each.reviewer, each.label) for each in labels(history)] == [("ada", "bad"), ("bob", "good")]
    post(browser, "/label/undo")
    assert [(each.label, each.comment) for each in labels(history)] == [("good", None), ("good", None)]
    post(browser, "/label/undo")
    assert [each.reviewer for each in labels(history)] == ["bob"]
    assert "nothing to undo" in post(browser, "/label/undo")


def test_a_label_that_was_imported_since_is_not_undone(history: Path) -> None:
    """The page says so, and the next undo goes on with the change before."""
    browser, (first, second) = client(history), identities(history)[:2]
    post(browser, f"/label/calls/{first.hex()}", label="good")
    post(browser, f"/label/calls/{second.hex()}", label="good")
    with closing(LabelStore(str(history))) as store:
        store.add([Label(second, METRIC, "ada", "bad", at=5.0)])
    assert "Not undone" in post(browser, "/label/undo")
    assert {each.identity: each.label for each in labels(history)} == {first: "good", second: "bad"}
    post(browser, "/label/undo")
    assert [each.identity for each in labels(history)] == [second]


def test_what_the_judge_said_is_hidden_until_the_label_is_given(history: Path) -> None:
    """And so are the labels of others, unless the marks shall be shown."""
    identity = identities(history)[0]
    path = f"/label/calls/{identity.hex()}"
    post(client(history, reviewer="bob"), path, label="good", comment="fine with me")
    browser = client(history)
    hidden = browser.get(path).text
    assert "90 days" in hidden
    assert "the answer is bad if at least one of its statements is supported by none of the retrieved chunks" in hidden
    for secret in ("<mark>", "judge@2", "contradicted", "bob", "fine with me", "compared with marked words"):
        assert secret not in hidden
    assert "judge@2" not in browser.get("/label").text
    assert "hidden until you have labelled them" not in browser.get("/label/disagreements").text
    shown = post(browser, path, label="bad")
    for said in ("<mark>90 days</mark>", "judge@2: contradicted", "screen@1", "bob", "fine with me"):
        assert said in shown
    assert "compared with marked words" in shown
    assert identity.hex() in browser.get("/label/disagreements").text
    assert identity.hex() not in client(history, reviewer="cy").get("/label/disagreements").text
    assert "<mark>" in client(history, reviewer="cy", is_blind=False).get(path).text


def test_a_statement_is_shown_with_the_closest_passages(tmp_path: Path) -> None:
    """Before it has a label, as they say where to look. A short chunk is open, a long one is behind its number."""
    path = tmp_path / "history.db"
    long = " ".join(f"Paragraph {number} is about the opening hours of shop {number}." for number in range(40))
    worn = f"{long} Worn shoes may be returned within 14 days."
    chunks = (Document(worn, "a"), Document("Refunds take a week.", "b"))
    answer = "1. Worn shoes can be returned within 14 days.\n2. Whales sing."
    call = replace(call_of(random.Random(1), answer), contexts=chunks)
    fill(path, [QueuedCall(call, (), "sampled", time.time())])
    page = client(path).get(f"/label/calls/{identities(path)[0].hex()}").text
    said = " ".join(Parsed(page).text.split())
    assert "1. Worn shoes can be returned within 14 days." in said
    assert "Closest words: chunk 1 Worn shoes may be returned within 14 days." in said
    assert said.count("Closest words: chunk") == 1
    assert said.index("Whales sing.") < said.index("Closest words: none in the chunks")
    assert page.count("data-statement tabindex") == 2
    assert re.findall(r'<details class="passage"( open)?>', page) == ["", " open"]


def test_next_leads_through_the_calls_without_a_label_to_the_end(history: Path) -> None:
    """A call that was passed over comes again when the reviewer begins anew."""
    browser, seen = client(history), list[str]()
    page = browser.get("/label/next")
    while page.url.path != "/label/next":
        seen.append(page.url.path)
        if len(seen) > 1:
            post(browser, page.url.path, label="good")
        link = re.search(r'data-key="n"[^>]* href="([^"]+)"', page.text)
        assert link is not None
        page = browser.get(link[1].replace("&amp;", "&"))
    assert len(set(seen)) == len(seen) == 6
    assert "The queue ends here" in page.text
    assert "5 of 6 picked calls labelled" in page.text
    assert browser.get("/label/next").url.path == seen[0]


def test_earlier_turns_of_the_conversation_are_shown(history: Path) -> None:
    """The latest three before the call, oldest first."""
    page = Parsed(client(history).get(f"/label/calls/{identities(history)[39].hex()}").text)
    assert re.findall(r"Äpfel (\d+)", page.text.split("Answer")[0])[-4:] == ["36", "37", "38", "39"]
    assert page.text.count("Earlier question") == 3


def test_a_history_without_texts_says_what_cannot_be_reviewed(tmp_path: Path) -> None:
    """The page names the setting; the call can still get a label."""
    path, rng = tmp_path / "history.db", random.Random(1)
    history_file(str(path)).create()
    fill(path, [made(time.time(), Simulated(), rng)], texts=False)
    browser, (identity,) = client(path), identities(path)
    assert "(texts not kept)" in browser.get("/label?source=all").text
    page = browser.get(f"/label/calls/{identity.hex()}").text
    assert "NO_CONTENT" in page
    assert "3 chunks, whose texts were not kept" in page
    post(browser, f"/label/calls/{identity.hex()}", label="unsure")
    assert [each.label for each in labels(path)] == ["unsure"]


def test_hostile_texts_are_shown_as_text(tmp_path: Path) -> None:
    """No text of a call, no name and no comment adds an element or an attribute to any page."""
    path = tmp_path / "hostile.db"
    history_file(str(path)).create()
    hostile.history(path, time.time())
    tame = tmp_path / "tame.db"
    history_file(str(tame)).create()
    fill(tame, [made(time.time(), Simulated(bad=1.0, probability=1.0), random.Random(1))])
    shown: dict[Path, list[Parsed]] = {tame: [], path: []}
    for file, pages_of_file in shown.items():
        names = {
            "reviewer": hostile.PAYLOADS[1] if file == path else "ada",
            "trace_url": "https://x.example/{trace_id}",
        }
        browser = client(file, is_blind=False, **names)
        payloads = [encodable(each) for each in hostile.PAYLOADS] if file == path else [""]
        for payload, identity in zip(payloads, identities(file)[::2], strict=True):
            saved = post(browser, f"/label/calls/{identity.hex()}", label="bad", comment=payload)
            queue = browser.get("/label", params={"source": "all", "status": "all", "text": payload}).text
            pages_of_file += [Parsed(saved), Parsed(queue)]
            text = " ".join(pages_of_file[-2].text.split())
            if payload in hostile.PAYLOADS[:17]:
                assert text.count(" ".join(payload.split())) >= 6, payload
    tags = {tag for page in shown[tame] for tag in page.tags} | {"mark"}
    attributes = {name for page in shown[tame] for name in page.attributes}
    for page in shown[path]:
        assert not set(page.tags) - tags
        assert sorted(page.attributes - attributes) == []
        assert page.tags["script"] == 1


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", ""])
def test_a_request_to_another_host_name_is_refused(history: Path, host: str) -> None:
    """A site whose name resolves to this machine reads nothing, not even the style sheet."""
    browser = client(history)
    for path in ("/", "/site.css", f"/?token={TOKEN}", "/none"):
        response = browser.get(path, headers={"host": host})
        assert response.status_code == 421
        assert "ragtrace" not in response.text


def test_without_the_token_nothing_is_shown(history: Path) -> None:
    """Nor with a wrong one; the cookie is strict and closed to scripts."""
    stranger = Client(history)
    identity = identities(history)[0].hex()
    views = "/", "/calls", "/calls/1", "/changes", "/health", "/dataset", "/?token=wrong", "/?token=%FF"
    labelling = "/label", "/label/next", f"/label/calls/{identity}", "/label/disagreements", "/label/reviewer"
    for path in (*views, *labelling):
        response = stranger.get(path, follow_redirects=False)
        assert response.status_code == 403
        assert "set-cookie" not in response.headers
    cookie = stranger.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", f"http://127.0.0.1:{PORT + 1}"])
def test_a_form_of_another_origin_is_refused(history: Path, origin: str) -> None:
    """Also one that has the right tokens."""
    browser, identity = client(history), identities(history)[0]
    data = {"form_token": FORM_TOKEN, "label": "bad"}
    assert browser.post(f"/label/calls/{identity.hex()}", data=data, headers={"origin": origin}).status_code == 403
    assert labels(history) == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"label": "bad"}, 403),
        ({"label": "bad", "form_token": "wrong"}, 403),
        ({"label": "awful", "form_token": ""}, 400),
        ({"statement": "0-3:not", "form_token": ""}, 400),
        ({"statement": "0-3", "form_token": ""}, 400),
        ({"comment": "x" * 4_001, "form_token": ""}, 400),
        ({"comment": "x" * 200_000, "form_token": ""}, 413),
        ({**{f"field {number}": "" for number in range(60)}, "form_token": ""}, 400),
    ],
)
def test_a_wrong_form_changes_nothing(history: Path, fields: dict[str, str], status: int) -> None:
    """The answer says that nothing was saved."""
    browser, identity = client(history), identities(history)[0]
    data = {name: value or (FORM_TOKEN if name == "form_token" else "") for name, value in fields.items()}
    response = browser.post(f"/label/calls/{identity.hex()}", data=data)
    assert response.status_code == status
    assert labels(history) == []
    if status != 403:
        assert "Nothing was saved" in response.text


def test_nothing_is_loaded_or_run_from_elsewhere(history: Path) -> None:
    """Every answer, an error too, has the policy; the pages refer to the server itself alone."""
    browser = client(history)
    for path in ("/label", "/none", "/labelling.js", f"/label/calls/{identities(history)[0].hex()}"):
        response = browser.get(path)
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert policy.count("unsafe") == policy.count("style-src-attr 'unsafe-inline'") == 1  # positions in charts
        assert response.headers["x-content-type-options"] == "nosniff"
        if path not in ("/labelling.js", "/none"):
            page = Parsed(response.text)
            assert ("body", "style") not in page.attributes
            assert not [value for value in page.values if "://" in value]


def test_reviewers_give_their_names(history: Path) -> None:
    """Until there is one, every page leads to the form for it; a name may have any letters."""
    browser = client(history, reviewer=None)
    identity = identities(history)[0]
    for path in ("/label", "/label/next", f"/label/calls/{identity.hex()}", "/label/disagreements"):
        assert browser.get(path).url.path == "/label/reviewer"
    for name in ("", "  ", "x" * 81):
        assert browser.post("/label/reviewer", data={"form_token": FORM_TOKEN, "name": name}).status_code == 400
    post(browser, "/label/reviewer", name=" Ämilie  \u5c0f; ")
    post(browser, f"/label/calls/{identity.hex()}", label="good")
    assert labels(history)[0].reviewer == "Ämilie \u5c0f;"


def test_the_filters_hold_when_the_name_was_asked_for(history: Path) -> None:
    """Those of labelling, and those of the other views, which apply again when one goes back."""
    browser, query = client(history, reviewer=None), "workflow=%3Dbilling&status=all&since=7d&model=%3Dlarge"
    form = browser.get(f"/label?{query}")
    assert form.url.path == "/label/reviewer"
    (action,) = re.findall(r'action="(/label/reviewer[^"]*)"', form.text)
    page = browser.post(unescape(action), data={"form_token": FORM_TOKEN, "name": "ada"})
    assert page.url.path == "/label"
    assert {*parse_qsl(page.url.query.decode())} == {*parse_qsl(query)}


def test_a_wrong_address_says_what_is_missing(history: Path) -> None:
    """No such call, a broken id, a broken position."""
    browser = client(history)
    for path in (f"/label/calls/{'ab' * 24}", "/label/calls/x", "/label/calls/abc"):
        response = browser.get(path)
        assert response.status_code == 404
        assert "no such call" in response.text
    for position in ("n", "n-1", "nx", "pzz", "p00", "n" + "9" * 30, "\u0663"):
        assert browser.get("/label", params={"after": position}).status_code == 200
    assert browser.get("/label/disagreements", params={"after": "xyz"}).status_code == 200


def test_a_history_that_is_gone_is_said(history: Path) -> None:
    """No label goes to a deleted file, and the server goes on."""
    browser, identity = client(history), identities(history)[0]
    moved = history.rename(history.with_suffix(".moved"))
    for page in ("/", "/calls", "/health", "/label", f"/label/calls/{identity.hex()}"):
        response = browser.get(page)
        assert response.status_code == 503
        assert "there is no history" in response.text
    moved.rename(history)
    assert browser.get("/").status_code == 200


def test_the_command_says_what_is_wrong(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No such history, a wrong address of traces, a port that is in use."""
    assert main(["review", str(tmp_path / "none.db")]) == FAILURE
    assert "there is no history" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()
    assert main(["review", str(history), "--trace-url", "javascript:{trace_id}"]) == USAGE
    assert "--trace-url must be an http or https URL" in capsys.readouterr().err


def test_a_decision_judge_s_statements_have_their_probabilities(tmp_path: Path) -> None:
    """With the closest chunk, after the reviewer's own label; the score is said to be no rate."""
    path = tmp_path / "history.db"
    stored_decisions(path, [time.time() - 10.0])
    (identity,) = identities(path)
    browser = client(path, metric="hallucinated", is_blind=False)
    page = " ".join(Parsed(browser.get(f"/label/calls/{identity.hex()}?metric=hallucinated").text).text.split())
    assert "probability of support 0.97, closest chunk 1" in page
    assert "probability of support 0.2" in page
    assert "hallucinated 0.8 · uncalibrated: not a rate" in page
    assert "%" not in page
    hidden = client(path, metric="hallucinated").get(f"/label/calls/{identity.hex()}?metric=hallucinated").text
    assert "probability of support" not in hidden
    assert "uncalibrated" not in hidden
