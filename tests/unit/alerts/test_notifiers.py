"""Whom an alert tells, and how: against a real local server, one that refuses included."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ragtrace.alerts import Alertmanager, Notice, Notifier, Slack, UndeliveredError, Webhook
from ragtrace.alerts.alert import Alert
from ragtrace.alerts.alerting import NotifierReceiver
from ragtrace.alerts.notifiers.notifier import FunctionNotifier
from ragtrace.core.errors import SettingsError
from ragtrace.system.faults import faults
from ragtrace.telemetry.export.outbox import Outbox
from tests.support.alerted import Notified, notice
from tests.support.backends import Answer, Backend
from tests.support.hooks import Hook
from tests.support.logged import logged
from tests.support.watched import WAIT_S, eventually

SECRET = "whsec_" + base64.b64encode(b"a key of our own").decode()


@pytest.fixture
def outbox() -> Iterator[Callable[..., Outbox[Notice]]]:
    """Makes outboxes that are closed after the test; faults are counted from 0."""
    faults.clear()
    made: list[Outbox[Notice]] = []

    def make(notifier: Notifier, **settings: float) -> Outbox[Notice]:
        made.append(Outbox(NotifierReceiver(notifier), capacity=100, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close(0.1)


Make = Callable[..., Outbox[Notice]]


@pytest.mark.parametrize(
    ("headers", "sent"), [({}, "Basic YW5uOnF1QGl0ZQ=="), ({"authorization": "Bearer t"}, "Bearer t")]
)
def test_user_and_password_of_a_url_are_basic_authorization(
    headers: dict[str, str], sent: str, outbox: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless a header says otherwise; the log shows neither."""
    with Hook() as hook, caplog.at_level(logging.DEBUG):
        address = hook.url.replace("http://", "http://ann:qu%40ite@")
        for notifier in (Webhook(address, headers=headers), Alertmanager(address, headers=headers)):
            box = outbox(notifier)
            box.offer(notice())
            assert box.flush(WAIT_S)
        assert [post.headers["authorization"] for post in hook.posts] == [sent] * 2
        assert hook.posts[0].headers["host"] == hook.url.removeprefix("http://")
    assert "ite" not in caplog.text + repr(notifier) + notifier.name


@pytest.mark.parametrize("body", [{"ok": False, "error": "channel_not_found"}, {"success": False}, {"errors": ["no"]}])
@pytest.mark.parametrize("kind", [Webhook, Slack, Alertmanager])
def test_an_answer_of_200_whose_body_says_no_is_a_refusal(
    kind: type[Webhook], body: dict[str, object], outbox: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """As of Slack's own API; nobody was told, and the log has the reason."""
    with Backend(lambda _: Answer(200, body)) as server:
        box = outbox(kind(server.url))
        box.offer(notice())
        assert not box.flush(WAIT_S)
    assert (box.counts().posted, dict(box.counts().failed)) == (0, {"refused": 1})
    assert "status 200" in caplog.text
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", ["ok", "", "[]", '{"status": "success", "error": null, "ok": true}'])
def test_other_bodies_say_nothing(body: str, outbox: Make) -> None:
    """Most receivers answer something of their own."""
    with Backend(lambda _: Answer(200, body.encode())) as server:
        box = outbox(Webhook(server.url))
        box.offer(notice())
        assert box.flush(WAIT_S)


@pytest.mark.parametrize("kind", [Webhook, Slack, Alertmanager])
def test_an_address_that_cannot_be_reached_is_shown_without_its_password(
    kind: type[Webhook], outbox: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the HTTP library says about it."""
    with caplog.at_level(logging.DEBUG):
        for host in ("127.0.0.1:9", "no.such.host.invalid", "a" * 70):
            box = outbox(kind(f"http://ann:hushed@{host}/x"), patience=0.0)
            box.offer(notice())
            box.flush(WAIT_S)
    assert caplog.records
    assert "hushed" not in "".join(logging.Formatter().format(record) for record in caplog.records)


# --- the webhook -----------------------------------------------------------------------------------------------------


def test_a_webhook_gets_the_notice_signed(outbox: Make) -> None:
    """The body is the notice; the signature is that of Standard Webhooks over exactly these bytes."""
    with Hook() as hook:
        box = outbox(Webhook(hook.url + "/hook?x=1", SECRET, {"Authorization": "Bearer t"}))
        box.offer(notice())
        assert box.flush(WAIT_S)
    [post] = hook.posts
    assert (post.path, post.json["problem"], post.json["id"]) == ("/hook?x=1", "spiking", "n1")
    assert (post.headers["content-type"], post.headers["authorization"]) == ("application/json", "Bearer t")
    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    digest = base64.b64encode(hmac.new(b"a key of our own", signed, hashlib.sha256).digest()).decode()
    assert (post.headers["webhook-id"], post.headers["webhook-signature"]) == ("n1", f"v1,{digest}")


def test_a_webhook_that_fails_is_tried_again(outbox: Make) -> None:
    """Notices keep their id and their order until the webhook takes them."""
    with Hook((503, {}), (500, {}), (429, {"Retry-After": "0"})) as hook:
        box = outbox(Webhook(hook.url, SECRET))
        box.offer(notice(id="first"))
        box.offer(notice(id="second"))
        assert box.flush(WAIT_S)
    assert [post.headers["webhook-id"] for post in hook.posts] == ["first"] * 4 + ["second"]
    assert (box.counts().offered, box.counts().posted, box.counts().pending) == (2, 2, 0)


@pytest.mark.parametrize(("status", "headers"), [(400, {}), (401, {}), (404, {}), (302, {"Location": "/elsewhere"})])
def test_a_refusal_for_good_is_counted_and_logged_once(
    outbox: Make, caplog: pytest.LogCaptureFixture, status: int, headers: dict[str, str]
) -> None:
    """It is not repeated, no redirect takes a signed notice to another host, and the path stays secret."""
    with Hook((status, headers), (status, headers)) as hook, caplog.at_level(logging.WARNING, "ragtrace"):
        box = outbox(Webhook(hook.url + "/secret"))
        box.offer(notice())
        box.offer(notice())
        assert not box.flush(WAIT_S)
    assert (len(hook.posts), box.counts().failed) == (2, {"refused": 2})
    [message] = logged(caplog)
    assert f"(refused: status {status})" in message
    assert "/secret" not in message


def test_a_server_that_is_away_is_waited_for_until_patience_ends(outbox: Make) -> None:
    """After that time the notice is counted as lost."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        box = outbox(Webhook(f"http://127.0.0.1:{free.getsockname()[1]}"), patience=0.0)
        box.offer(notice())
        assert not box.flush(WAIT_S)
    assert box.counts().failed == {"unavailable": 1}


def test_a_server_that_never_answers_is_given_up(outbox: Make) -> None:
    """A delivery ends at its time limit."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        box = outbox(Webhook(f"http://127.0.0.1:{deaf.getsockname()[1]}"), patience=0.0, send_seconds=0.1)
        box.offer(notice())
        assert not box.flush(WAIT_S)
    assert box.counts().failed == {"timeout": 1}


@pytest.mark.parametrize("url", ["example.com/hook", "ftp://example.com", "http://", "http://a:b", 3, "http://a b"])
@pytest.mark.parametrize("kind", [Webhook, Slack, Alertmanager])
def test_what_is_no_url_is_said_at_once(kind: type[Webhook], url: str) -> None:
    """The error is raised when the notifier is made, not at the first alert."""
    with pytest.raises(SettingsError, match="needs an http or https URL"):
        kind(url)


def test_a_secret_that_is_cut_off_is_said_at_once() -> None:
    """The error does not show the secret."""
    with pytest.raises(SettingsError, match="not valid base64; copy the whole secret") as caught:
        Webhook("https://example.com", "whsec_abc")
    assert "abc" not in str(caught.value)


# --- Slack and Alertmanager ------------------------------------------------------------------------------------------


def test_slack_gets_text_and_a_block(outbox: Make) -> None:
    """The words of an answer cannot notify a channel: Slack's control characters are escaped."""
    with Hook() as hook:
        box = outbox(Slack(hook.url + "/services/T/B/x"))
        box.offer(notice())
        assert box.flush(WAIT_S)
    body = hook.posts[0].json
    assert body["text"].startswith(":rotating_light: *hallucination is above 0.05 in bot, workflow guide*\n")
    assert "on &lt;!channel&gt; &amp; Mars" in body["text"]
    assert body["blocks"] == [{"type": "section", "text": {"type": "mrkdwn", "text": body["text"]}}]


def test_slack_gets_no_more_than_it_takes(outbox: Make) -> None:
    """A block has at most 3,000 characters, and a longer text is cut."""
    with Hook() as hook:
        box = outbox(Slack(hook.url))
        box.offer(notice(workflow="w" * 5_000))
        assert box.flush(WAIT_S)
    assert len(hook.posts[0].json["text"]) == 3_000


def test_alertmanager_gets_beginning_and_end_of_one_alert(outbox: Make) -> None:
    """The same labels at both; an end far off while it goes on, as a process that dies resolves nothing."""
    with Hook() as hook:
        box = outbox(Alertmanager(hook.url + "/", {"team": "search"}))
        box.offer(notice())
        box.offer(notice(status="resolved", worst=()))
        assert box.flush(WAIT_S)
    assert {post.path for post in hook.posts} == {"/api/v2/alerts"}
    [begun], [ended] = (post.json for post in hook.posts)
    assert begun["labels"] == ended["labels"]
    assert begun["labels"] == {
        "alertname": "bad answers", "problem": "spiking", "metric": "hallucination", "severity": "critical",
        "service": "bot", "workflow": "guide", "team": "search",
    }  # fmt: skip
    assert begun["annotations"]["traces"] == "0af7651916cd43dd8448eb211c80319c"
    assert (begun["startsAt"], begun["endsAt"]) == ("2001-09-09T01:46:40.000+00:00", "2001-09-16T01:48:20.000+00:00")
    assert ended["endsAt"] == "2001-09-09T01:48:20.000+00:00"


def test_labels_of_alertmanager_are_checked() -> None:
    """Alertmanager would refuse the whole alert for one wrong label."""
    with pytest.raises(SettingsError, match="labels must be texts by name, got 'my-team'"):
        Alertmanager("http://localhost:9093", {"my-team": "x"})


# --- functions -------------------------------------------------------------------------------------------------------


def test_a_function_is_called_with_the_notice(outbox: Make) -> None:
    """The function is called on a thread of its own."""
    got: list[tuple[str, str]] = []
    box = outbox(FunctionNotifier(lambda sent: got.append((sent.id, threading.current_thread().name))))
    box.offer(notice())
    assert box.flush(WAIT_S)
    assert got == [("n1", "ragtrace-notify")]


def test_an_async_function_is_awaited(outbox: Make) -> None:
    """The function runs on an event loop of its own."""
    got: list[str] = []

    async def page(sent: Notice) -> None:
        await asyncio.sleep(0)
        got.append(sent.id)

    box = outbox(FunctionNotifier(page))
    box.offer(notice())
    assert box.flush(WAIT_S)
    assert got == ["n1"]


def raises(sent: Notice) -> None:
    raise LookupError("no such channel")


async def raises_later(sent: Notice) -> None:
    raise LookupError("no such channel")


def leaves(sent: Notice) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("function", [raises, raises_later, leaves])
def test_a_function_that_fails_is_counted_and_called_again_next_time(
    outbox: Make, function: Callable[[Notice], object]
) -> None:
    """It is not called again with the same notice, as its effects so far are unknown."""
    box = outbox(FunctionNotifier(function))
    box.offer(notice())
    box.offer(notice())
    assert not box.flush(WAIT_S)
    assert (box.counts().failed, box.counts().pending) == ({"raised": 2}, 0)


def test_a_notifier_that_ends_the_program_does_not_end_its_thread(outbox: Make) -> None:
    """What it was to deliver is counted as lost, and it gets the next notice."""

    def leave(number: int) -> None:
        if number == 1:
            raise SystemExit(3)

    notified = Notified(leave)
    box = outbox(notified)
    box.offer(notice())
    assert not box.flush(WAIT_S)
    box.offer(notice())
    assert box.flush(WAIT_S)
    assert (box.counts().posted, box.counts().failed) == (1, {"raised": 1})


def test_a_function_that_hangs_is_left_alone(outbox: Make) -> None:
    """A hanging thread cannot be stopped; while three hang, the function is not called."""
    gate, called = threading.Event(), 0

    def hang(sent: Notice) -> None:
        nonlocal called
        called += 1
        gate.wait(WAIT_S)

    box = outbox(FunctionNotifier(hang), send_seconds=0.02)
    for _ in range(5):
        box.offer(notice())
    assert not box.flush(WAIT_S)
    assert box.counts().failed == {"timeout": 3, "hangs": 2}
    assert eventually(lambda: called == 3)  # its threads may begin later than they are given up
    gate.set()


def test_an_async_function_that_hangs_is_cancelled(outbox: Make) -> None:
    """A coroutine, unlike a plain function, can be cancelled at the time limit."""
    ended = threading.Event()

    async def hang(sent: Notice) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    box = outbox(FunctionNotifier(hang), send_seconds=1.0)  # time for it to begin
    box.offer(notice())
    assert not box.flush(WAIT_S)
    assert ended.wait(WAIT_S)


# --- the way there ---------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_counted(outbox: Make) -> None:
    """A hundred notices wait; more are dropped and counted, and the counts add up."""
    gate = threading.Event()
    notified = Notified(lambda number: bool(gate.wait(WAIT_S)))
    box = outbox(notified)
    for _ in range(130):
        box.offer(notice())
    assert box.counts().dropped == {"queue_full": 30}
    gate.set()
    box.flush(WAIT_S)
    assert (box.counts().offered, box.counts().posted) == (130, 100)


def test_closing_says_what_was_lost(outbox: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Notices not delivered in time are counted as lost, and so are those offered after the close."""

    def away(number: int) -> None:
        raise UndeliveredError("unavailable", again=True)

    box = outbox(Notified(away))
    box.offer(notice())
    assert not box.close(0.05)
    box.offer(notice())
    assert box.counts().dropped == {"shutdown": 2}
    assert "alerts that were not delivered by scripted before the shutdown: 1" in caplog.text


def test_a_notifier_of_ones_own_is_taken_as_it_is(outbox: Make) -> None:
    """Any object with a name and `send` is a notifier."""
    notified = Notified()
    assert Alert("hallucination", above=0.1, notify=notified).notifiers == (notified,)
    box = outbox(notified)
    box.offer(notice())
    assert box.flush(WAIT_S)
    assert [sent.id for sent in notified.got] == ["n1"]
