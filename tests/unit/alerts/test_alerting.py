"""Alerts in a configured ragtrace: from real calls to the receivers of notices."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import ragtrace
from ragtrace.alerts import Notice, Webhook
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement
from ragtrace.runtime.current_runtime import current
from ragtrace.testing import Captured, FakeJudge
from tests.support.hooks import Hook
from tests.support.watched import ANSWER, GOOD, HALF, WAIT_S, ask, watch

BAD = [HALF] * 60
FINE = [GOOD] * 100
STOPPED = JudgeError("unavailable", retryable=False)


class Receiver:
    """A function to notify: keeps what it got."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.changed = threading.Condition()

    def __call__(self, notice: Notice) -> None:
        with self.changed:
            self.notices.append(notice)
            self.changed.notify_all()

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(notice.problem, notice.status) for notice in self.notices]

    def wait_for(self, problem: str) -> bool:
        """Wait until a notice about *problem* has arrived; return whether one did."""
        with self.changed:
            return self.changed.wait_for(lambda: (problem, "firing") in self.events, WAIT_S)


def run(script: Sequence[Judgement | BaseException], receiver: Any, **settings: Any) -> Captured:
    """As many calls as the screen's *script* has items, all of them scored, one after the other."""
    alert = ragtrace.Alert("hallucination", above=0.05, notify=receiver, **settings)
    screen = FakeJudge(*script, name="screen", limits=ragtrace.JudgeLimits(concurrency=1))
    captured = watch(service="bot", screen=screen, alerts=[alert], metrics=["hallucination"])
    ask_all(len(script))
    return captured


def ask_all(count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        ask(f"where? {number}")
    assert ragtrace.flush(WAIT_S)


def gauge(captured: Captured) -> set[str]:
    """The states that the gauge shows."""
    return {
        str((point.attributes or {})["ragtrace.alert.state"])
        for point in captured.metrics()["ragtrace.alert.state"].data_points
        if point.value == 1
    }


def test_a_spike_and_its_end_are_notified_once_each() -> None:
    """With the screen alone; the gauge, the event and the log follow."""
    receiver = Receiver()
    captured = run([*FINE, *BAD, *FINE, *FINE], receiver)
    assert receiver.events == [("spiking", "firing"), ("spiking", "resolved")]
    events = [event.log_record for event in captured.events if event.log_record.event_name == "ragtrace.alert"]
    assert [(event.attributes or {})["ragtrace.alert.status"] for event in events] == ["firing", "resolved"]
    assert gauge(captured) == {"ok"}


def test_the_notice_names_real_traces_and_words() -> None:
    """The worst trace is a span that was exported, and the words stand in its answer."""
    receiver = Receiver()
    captured = run([*FINE, *BAD], receiver)
    [spike] = receiver.notices
    roots = {f"{span.context.trace_id:032x}" for span in captured.roots() if span.context}
    assert {example.trace_id for example in spike.worst} <= roots
    assert len(spike.worst) == 3
    assert all(part in ANSWER for example in spike.worst for part in example.unsupported)
    assert (spike.service, spike.evaluator, spike.estimate and spike.estimate.evaluator) == ("bot", "screen", "screen")


PARAPHRASE = "You get your money back within a month."


@pytest.mark.parametrize("extractive", [False, True])
def test_a_notice_says_only_of_a_labelled_statement_that_it_has_no_support(extractive: bool) -> None:
    """Of a paraphrase, whose words were compared, it says that they are not in the chunks."""
    receiver = Receiver()
    watch(
        screen=ragtrace.EmbeddedJudge(extractive=extractive),
        alerts=[ragtrace.Alert("consistency", below=0.9, notify=receiver)],
    )

    @ragtrace.generate(contexts="docs")
    def answer(question: str, docs: list[str]) -> str:
        return PARAPHRASE

    for number in range(120):
        answer(f"How long do refunds take, {number}?", ["Refunds take thirty days from delivery."])
    assert ragtrace.flush()
    example = receiver.notices[0].worst[0]
    expected = ((PARAPHRASE,), ()) if extractive else ((), (PARAPHRASE,))
    assert (example.unsupported, example.not_in_chunks) == expected
    assert (f"without support: “{PARAPHRASE}”" in receiver.notices[0].text) is extractive
    assert (f"with words not in the chunks: “{PARAPHRASE}”" in receiver.notices[0].text) is not extractive


def test_words_are_not_sent_where_content_is_not_captured() -> None:
    """Texts that stay off the spans stay out of notices."""
    receiver = Receiver()
    alert = ragtrace.Alert("hallucination", above=0.05, notify=receiver)
    watch(screen=FakeJudge(HALF, name="screen"), alerts=[alert], capture_content="NO_CONTENT")
    ask_all(60)
    assert [example.unsupported for example in receiver.notices[0].worst] == [()] * 3


def test_a_notice_shows_what_redaction_leaves_and_links_to_the_trace() -> None:
    """Its texts are those of the spans; the link is made of `trace_url`."""
    receiver = Receiver()
    watch(
        screen=FakeJudge(HALF, name="screen"),
        alerts=[ragtrace.Alert("hallucination", above=0.05, notify=receiver)],
        redact=ragtrace.Redact(patterns=["where"]),
        telemetry=ragtrace.TelemetryOptions(trace_url="https://ui.example/{trace_id}"),
    )
    ask_all(60)
    [example, *_] = receiver.notices[0].worst
    assert example.question.startswith("[")
    assert "where?" not in receiver.notices[0].text
    assert example.url == f"https://ui.example/{example.trace_id}"


def test_the_baseline_that_is_being_learned_is_the_one_compared_with() -> None:
    """No alarm while it is learned, whatever the scores; then a fall below the learned mean is notified."""
    receiver = Receiver()
    good, fair, poor = (Judgement(claims=HALF.claims, answer_label="answered", consistency=c) for c in (0.9, 0.7, 0.3))
    captured = watch(
        service="bot",
        screen=FakeJudge(*[good, fair] * 20, *[poor] * 60, name="screen"),
        alerts=[ragtrace.Alert("consistency", below="baseline", notify=receiver)],
        baseline=ragtrace.BaselineLearning(calls=40),
    )
    ask_all(30)
    assert (gauge(captured), receiver.events) == ({"no_baseline"}, [])
    ask_all(70, 30)
    assert receiver.events == [("spiking", "firing")]
    assert "0.800 before, now 0.3" in receiver.notices[0].text


def test_doctor_says_that_there_is_no_baseline_yet() -> None:
    """The diagnosis also shows the rule of the alert in words."""
    watch(screen=FakeJudge(GOOD, name="screen"), alerts=[ragtrace.Alert("consistency", below="baseline")])
    ask_all(3)
    [alert] = ragtrace.doctor().alerts
    assert (alert.rule, alert.states) == ("consistency below baseline", ("guide: no_baseline",))


def test_answers_without_any_context_can_be_watched() -> None:
    """Answers given without any context are the plainest sign of a broken retriever."""
    receiver = Receiver()
    watch(alerts=[ragtrace.Alert("answered_without_context", above=0.05, notify=receiver)])
    for number in range(60):
        with ragtrace.call(f"where? {number}") as call:
            call.retrieved([])
            call.answered("It is on Mars, next to the big crater.")
    assert ragtrace.flush(WAIT_S)
    assert receiver.events == [("spiking", "firing")]
    assert "share of the screen's verdicts: now 1.000" in receiver.notices[0].text


def test_a_judge_that_stops_is_judge_failing_and_not_ok() -> None:
    """It is notified and in the gauge, and a spike that was on stays on."""
    receiver = Receiver()
    captured = run([*FINE, *BAD, *[STOPPED] * 30], receiver)
    assert receiver.events == [("spiking", "firing"), ("judge_failing", "firing")]
    assert gauge(captured) == {"judge_failing", "spiking"}


def test_no_calls_are_no_data_and_end_no_spike() -> None:
    """The clock alone causes the notice, without a further call."""
    receiver = Receiver()
    captured = run([*FINE, *BAD], receiver, window=1.0, missing_after=1.0)
    assert receiver.wait_for("no_data")
    assert receiver.events == [("spiking", "firing"), ("no_data", "firing")]
    assert gauge(captured) == {"no_data", "spiking"}


def test_the_judges_scores_are_watched_where_it_looks_at_a_sample() -> None:
    """By the calls that it has scored; what the screen says of the same metric is not asked."""
    receiver = Receiver()
    alert = ragtrace.Alert("faithfulness", below=0.9, notify=receiver)
    watch(
        screen=FakeJudge(GOOD, name="screen"),
        judge=FakeJudge(HALF, name="judge"),
        sampling=ragtrace.Sampling(rate=0.5),
        alerts=[alert],
    )
    ask_all(150)
    [spike] = receiver.notices
    assert (spike.evaluator, spike.metric) == ("judge", "faithfulness")
    assert spike.estimate is not None
    assert spike.estimate.value == pytest.approx(0.5)


def test_a_webhook_gets_the_notice_after_failures() -> None:
    """Through a real server, which answers 503 twice."""
    with Hook((503, {}), (503, {})) as hook:
        run([*FINE, *BAD], Webhook(hook.url, "a secret"))
        ragtrace.shutdown()
    assert len({post.headers["webhook-id"] for post in hook.posts}) == 1
    assert [json.loads(post.body)["status"] for post in hook.posts] == ["firing"] * 3
    assert all(post.headers["webhook-signature"].startswith("v1,") for post in hook.posts)


def test_what_waits_at_the_shutdown_is_delivered() -> None:
    """A shutdown delivers waiting notices without a flush before it."""
    receiver = Receiver()
    alert = ragtrace.Alert("hallucination", above=0.05, notify=receiver)
    watch(screen=FakeJudge(HALF, name="screen"), alerts=[alert])
    for number in range(60):
        ask(f"where? {number}")
    assert ragtrace.shutdown(WAIT_S)
    assert receiver.events == [("spiking", "firing")]


def test_a_notifier_that_fails_costs_the_application_nothing() -> None:
    """The failure is counted; scores, spans and other notifiers go on."""

    def broken(notice: Notice) -> None:
        raise LookupError("no such channel")

    receiver = Receiver()
    alert = ragtrace.Alert("hallucination", above=0.05, notify=[broken, receiver])
    captured = watch(screen=FakeJudge(HALF, name="screen"), alerts=[alert])
    for number in range(60):
        assert ask(f"where? {number}") == ANSWER
    assert not ragtrace.flush(WAIT_S)  # it says that something was lost
    assert receiver.events == [("spiking", "firing")]
    assert len(captured.roots()) == 60
    assert any("broken" in place for place in ragtrace.stats().faults)


@pytest.mark.parametrize(
    ("alerts", "says"),
    [
        (ragtrace.Alert("hallucination", above=0.1), "alerts must be a list, got Alert"),
        (["hallucination"], "alerts= must be a ragtrace.Alert, got str: 'hallucination'; write for instance"),
        ([ragtrace.Alert("consistency", below=0.1)] * 2, "two alerts are called"),
        ([ragtrace.Alert("context_recall", above=0.1)], "neither screen nor judge gives a metric 'context_recall'"),
    ],
)
def test_a_wrong_alert_stops_configure(alerts: Any, says: str) -> None:
    """`configure` raises before anything is started."""
    with pytest.raises(ragtrace.SettingsError) as caught:
        watch(alerts=alerts)
    assert says in str(caught.value)
    assert current() is None


def test_without_alerts_there_is_no_thread_and_no_gauge() -> None:
    """An application without alerts has no thread and no metric for them."""
    before = set(threading.enumerate())  # those of earlier tests may still be ending
    captured = watch()
    ask_all(3)
    begun = set(threading.enumerate()) - before
    assert not [thread.name for thread in begun if thread.name.startswith("ragtrace-alert")]
    assert "ragtrace.alert.state" not in captured.metrics()
