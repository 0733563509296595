"""Alerts: the arguments of a user, the states, and the notices that are sent."""

from __future__ import annotations

import dataclasses
import logging
import socket
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ragtrace.alerts import Alert, Notice, Slack, Webhook, check_alerts
from ragtrace.alerts.alerting import MOST_GROUPS
from ragtrace.alerts.notifiers.alertmanager import alert_body
from ragtrace.core.alert_incident import AlertIncident
from ragtrace.core.errors import SettingsError, UnknownMetricError
from ragtrace.core.types import Document, SamplingDecision, Score
from ragtrace.estimates import Adjustment, BaselineKey, CallTraits, Distribution
from tests.support.alerted import METRIC, PLAN, Board, call_of, close_all, notice
from tests.support.watched import ask, watch


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Every alerting of a test is closed after it."""
    yield
    close_all()


SPIKE = (1.0,) * 40
CALM = (0.0,) * 100


# --- what a user says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"above": 0.1, "below": 0.1}, "an alert has one bound"),
        ({"above": 5}, "above must be more than 0 and less than 1, got 5; for 5% write 0.05"),
        ({"below": 1.0}, "below must be more than 0 and less than 1, got 1.0"),
        ({"above": float("nan")}, "above must be more than 0 and less than 1, got nan"),
        ({"above": True}, "above must be more than 0 and less than 1, got True"),
        ({"above": 0.1, "mean_calls_between_false_alarms": 1}, "must be a number of at least 10, got 1"),
        (
            {"above": "median"},
            "above must be more than 0 and less than 1, got 'median'; write for instance 0.05, or 'baseline'",
        ),
        ({"below": "baseline", "by": "tenant"}, "by='tenant' and a baseline exclude each other"),
        ({"above": 0.1, "by": "a b"}, "the name of a tag"),
        ({"above": 0.1, "by": "tenant", "per": "model"}, "make two alerts"),
        ({"below": "baseline", "per": "model"}, "per='model' and a baseline exclude each other"),
        ({"above": 0.1, "batch": 0}, "batch must be a whole number of at least 1 and at most 1000, got 0"),
        ({"above": 0.1, "min_calls": 2.5}, "min_calls must be a whole number of at least 1, got 2.5"),
        ({"above": 0.1, "window": 0}, "window must be a number of at least 1, got 0"),
        ({"above": 0.1, "missing_after": 0.5}, "missing_after must be a number of at least 1, got 0.5"),
        ({"above": 0.1, "recovery_calls": 3}, "recovery_calls must be a whole number of at least 5 and at most 2000"),
        ({"above": 0.1, "repeat_every": 0}, "repeat_every must be a number of at least 1, got 0"),
        ({"above": 0.1, "per": "user"}, "per must be 'workflow' or 'model', got 'user'"),
        ({"above": 0.1, "name": " "}, "name must be a text, got ' '"),
        ({"above": 0.1, "notify": "me@example.com"}, "notify takes functions and notifiers, got 'me@example.com'"),
        ({"above": 0.1, "notify": [print, 3]}, "notify takes functions and notifiers, got 3"),
        ({"above": 0.1, "notify": Slack}, "notify takes functions and notifiers"),
    ],
)
def test_a_wrong_value_says_what_to_write(settings: dict[str, Any], says: str) -> None:
    """The message says what was wrong, what was given and what to write instead."""
    with pytest.raises(SettingsError) as caught:
        Alert(METRIC, **settings)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("alert", "same", "rule"),
    [
        (Alert("hallucinated"), Alert("hallucinated", above="baseline"), "hallucinated above baseline"),
        (Alert("consistency"), Alert("consistency", below="baseline"), "consistency below baseline"),
    ],
)
def test_an_alert_without_a_bound_compares_with_the_baseline(alert: Alert, same: Alert, rule: str) -> None:
    """On the side on which scores of the metric are worse; it is equal to an alert that says so."""
    assert (alert.rule, alert.against_baseline, alert.calls_in_batch) == (rule, True, 5)
    assert alert == same
    assert dataclasses.replace(alert, name="usual").rule == rule


def test_an_alert_on_an_unknown_metric_needs_a_bound() -> None:
    """Nothing says on which side its scores are worse."""
    with pytest.raises(
        SettingsError, match="an alert has one bound, got above=None and below=None; write for instance"
    ):
        Alert("of my own")


def test_an_unknown_metric_is_named() -> None:
    """The message names the metrics that exist."""
    with pytest.raises(UnknownMetricError, match=r"'halucination' in \[0, 1\]; known: consistency, faithfulness, hall"):
        check_alerts([Alert("halucination", above=0.1)], PLAN)


def test_two_alerts_of_one_name_are_one_too_many() -> None:
    """Their notices could not be distinguished; a name makes a difference."""
    with pytest.raises(
        SettingsError, match=r"two alerts are called 'hallucination above 0.1'; give one of them a name="
    ):
        check_alerts([Alert(METRIC, above=0.1), Alert(METRIC, above=0.1)], PLAN)
    check_alerts([Alert(METRIC, above=0.1), Alert(METRIC, above=0.1, name="other")], PLAN)


def test_a_secret_is_not_shown() -> None:
    """The path of a webhook and its secret stay out of `repr`, which ends up in logs."""
    alert = Alert(METRIC, above=0.1, notify=[Webhook("https://h/path", "key"), Slack("https://s/services/T/B/x")])
    assert not any(word in repr(alert) for word in ("path", "key", "services"))


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"above": 0.05}, 100),
        ({"above": 0.01}, 300),
        ({"below": 0.99}, 300),
        ({"above": 0.01, "recovery_calls": 50}, 50),
    ],
)
def test_a_rare_fault_needs_more_calls_to_be_over(settings: dict[str, Any], calls: int) -> None:
    """With a bound of one per cent, a hundred calls would hold hardly one bad call."""
    alert = Alert(METRIC, **settings)
    assert alert.calls_to_recover(settings.get("above") or 1 - settings["below"]) == calls


# --- states ----------------------------------------------------------------------------------------------------------


def test_before_the_first_call_there_is_no_data_and_nothing_to_tell() -> None:
    """A process that has just started is in no_data, and sends no notice."""
    board = Board()
    board.alerting.tick()
    assert (board.state, board.notified()) == ("no_data", [])


def test_a_spike_is_notified_once_and_so_is_its_end() -> None:
    """ok, spiking, recovering, ok; the calls in between change nothing."""
    board = Board()
    board.score(*CALM)
    states = [board.state]
    board.score(*SPIKE, *SPIKE)
    states.append(board.state)
    board.score(*CALM[:50])
    states.append(board.state)
    board.score(*CALM)
    states.append(board.state)
    assert states == ["ok", "spiking", "recovering", "ok"]
    assert board.notified() == [("spiking", "firing"), ("spiking", "resolved")]


def test_a_relapse_is_the_same_spike() -> None:
    """Recovering, then bad again: there is no second notice."""
    board = Board()
    board.score(*CALM, *SPIKE, *CALM[:50])
    assert board.state == "recovering"
    board.score(*SPIKE)
    assert board.state == "spiking"
    assert board.notified() == [("spiking", "firing")]


def test_a_new_spike_is_notified_again() -> None:
    """The notice has another id, but the key of the first: receivers join them."""
    board = Board()
    board.score(*CALM, *SPIKE, *CALM, *CALM, *SPIKE)
    assert board.notified() == [("spiking", "firing"), ("spiking", "resolved"), ("spiking", "firing")]
    assert len({each.id for each in board.notices}) == 3
    assert len({each.key for each in board.notices}) == 1


def test_below_is_the_other_way_round() -> None:
    """A metric of which more is better alarms when it falls, and only then."""
    board = Board(below=0.8)
    board.score(*[1.0] * 300)
    assert board.state == "ok"
    board.score(*[0.3] * 100)
    assert board.state == "spiking"


def test_too_few_calls_raise_no_alarm() -> None:
    """There is no alarm before min_calls, however bad the scores are."""
    board = Board(above=0.05, min_calls=70)
    board.score(*[1.0] * 69)
    assert board.state == "ok"
    board.score(1.0)
    assert board.state == "spiking"


def test_no_calls_are_no_data(caplog: pytest.LogCaptureFixture) -> None:
    """After the window state and log say so, once, and once when there are scores again; no notifier is told."""
    caplog.set_level(logging.INFO, "ragtrace.alerts")
    kept: list[AlertIncident] = []
    board = Board(above=0.05, window=60.0, stores=[kept.append])
    board.score(*CALM)
    board.clock.advance(59.0)
    board.alerting.tick()
    assert board.state == "ok"
    board.clock.advance(4.0)  # a twentieth of the window is the time between two checks
    board.alerting.tick()
    board.alerting.tick()
    assert (board.state, board.on(), board.notified()) == ("no_data", {"no_data"}, [])
    board.clock.advance(86_400.0)
    board.alerting.tick()
    board.score(0.0)
    assert (board.state, board.notified(), kept) == ("ok", [], [])
    logged = [(record.levelname, record.getMessage().splitlines()[0]) for record in caplog.records]
    assert logged == [
        ("INFO", "alert 'hallucination above 0.05': hallucination has no scores any more in bot"),
        ("INFO", "alert 'hallucination above 0.05': hallucination has scores again in bot"),
    ]


def test_missing_scores_are_told_of_once_where_the_user_asks_for_it() -> None:
    """With `missing_after`, notifiers and history are told of the stop and of its end; nothing is repeated."""
    kept: list[AlertIncident] = []
    board = Board(above=0.05, missing_after=7200.0, stores=[kept.append])
    board.score(*CALM)
    for _ in range(10):
        board.clock.advance(7190.0)
        board.alerting.tick()
    assert board.notified() == [("no_data", "firing")]
    assert "no score for 4.0 hours, which is unusual here: at most 2.0 were expected" in board.notices[0].text
    board.score(0.0)
    assert board.notified() == [("no_data", "firing"), ("no_data", "resolved")]
    assert [(each.id == kept[0].id, each.ended is None) for each in kept] == [(True, True), (True, False)]


def test_a_stop_after_a_usual_week_is_told_of_once_for_all_workflows_and_alerts() -> None:
    """Gaps of at most twelve hours are usual: after a day the notifiers are told, by one notice of the alerts."""
    notices: list[Notice] = []
    of_each = Alert(METRIC, above=0.5, per="workflow", notify=notices.append)
    board = Board(of_each, Alert("consistency", above=0.5, notify=notices.append))

    def pass_hours(hours: float) -> None:
        for _ in range(round(4 * hours)):
            board.clock.advance(900.0)
            board.alerting.tick()

    for day in range(9):
        for _ in range(24):
            pass_hours(0.5)
            board.look({METRIC: Score(0.0), "consistency": Score(0.1)}, workflow=f"w{day % 2}")
        pass_hours(11.9)
    board.look({METRIC: Score(0.0), "consistency": Score(0.1)})
    assert (board.notified(), notices) == ([], [])
    pass_hours(24.0)
    assert board.alerting.flush(10)
    assert [(each.problem, each.status, each.workflow) for each in notices] == [("no_data", "firing", None)]
    pass_hours(48.0)
    board.look({METRIC: Score(0.0), "consistency": Score(0.1)})
    assert board.alerting.flush(10)
    assert [each.status for each in notices] == ["firing", "resolved"]


def test_a_failing_judge_is_not_called_working_for_want_of_calls() -> None:
    """Its problem ends with a score alone, and where it was told, missing scores are not told, too."""
    board = Board(above=0.05, window=60.0, missing_after=60.0)
    board.score(*CALM)
    board.fail(5)
    board.clock.advance(120.0)
    board.alerting.tick()
    assert (board.state, board.notified()) == ("no_data", [("judge_failing", "firing")])
    board.score(0.0)
    assert board.notified() == [("judge_failing", "firing"), ("judge_failing", "resolved")]


def test_no_data_does_not_end_a_spike() -> None:
    """It has a notice of its own; the gauge goes on to show the spike, which is unchanged afterwards."""
    board = Board(above=0.05, window=60.0, missing_after=60.0)
    board.score(*CALM, *SPIKE)
    board.clock.advance(61.0)
    board.alerting.tick()
    assert (board.state, board.on()) == ("no_data", {"no_data", "spiking"})
    board.score(1.0)
    assert board.state == "spiking"
    assert board.notified() == [("spiking", "firing"), ("no_data", "firing"), ("no_data", "resolved")]


def test_a_judge_that_fails_is_not_ok() -> None:
    """A failing judge is no lack of data; when the evaluator works again, there is a notice."""
    board = Board()
    board.score(*CALM)
    board.fail(4)
    assert board.state == "ok"
    board.fail()
    assert (board.state, board.on()) == ("judge_failing", {"judge_failing"})
    board.score(0.0)
    assert board.state == "ok"
    assert board.notified() == [("judge_failing", "firing"), ("judge_failing", "resolved")]


def test_a_judge_that_fails_more_often_than_not_is_failing() -> None:
    """The state is judge_failing, though the judge never fails five times in a row."""
    board = Board()
    for _ in range(10):
        board.fail(2)
        board.score(0.0)
    assert board.state == "judge_failing"


def test_a_failing_judge_does_not_end_a_spike() -> None:
    """The spike goes on, also when the judge fails until there are no calls any more."""
    board = Board(above=0.05, window=60.0)
    board.score(*CALM, *SPIKE)
    board.fail(30)
    assert board.on() == {"judge_failing", "spiking"}
    board.clock.advance(120.0)
    board.alerting.tick()
    assert board.on() == {"no_data", "spiking"}
    assert ("spiking", "resolved") not in board.notified()


def test_calls_to_which_the_metric_does_not_apply_are_no_failures() -> None:
    """Abstentions leave the state alone; without any score for the window, there is no data."""
    board = Board(above=0.05, window=60.0)
    board.score(*CALM)
    board.fail(30, reason="abstained")
    assert board.state == "ok"
    board.fail(31, reason="abstained")
    assert board.state == "no_data"


def test_an_ongoing_problem_is_notified_again_after_a_while() -> None:
    """The notice holds the number of earlier notices, and an estimate over all calls since the problem began."""
    board = Board(above=0.05, repeat_every=600.0, window=7200.0)
    board.score(*CALM, *SPIKE)
    board.clock.advance(601.0)
    board.alerting.tick()
    board.alerting.tick()
    assert board.notified() == [("spiking", "firing")] * 2
    first, again = board.notices
    assert (first.repeat, again.repeat, again.since) == (0, 1, first.since)
    assert "(still)" in again.title


def test_workflows_are_watched_on_their_own() -> None:
    """The spike of one is not that of another, and the notice names it."""
    board = Board(above=0.05, per="workflow")
    for _ in range(50):
        board.score(0.0, workflow="search")
        board.score(1.0, workflow="chat")
    assert board.notified() == [("spiking", "firing")]
    assert (board.notices[0].workflow, board.notices[0].where) == ("chat", "bot, workflow chat")
    assert board.state_of("search") == "ok"


def test_the_values_of_a_tag_are_watched_on_their_own() -> None:
    """The notice names the value, and so do the incident, the metric and the doctor; calls without the tag are one."""
    kept: list[AlertIncident] = []
    board = Board(above=0.05, by="tenant", stores=[kept.append])
    for _ in range(50):
        board.score(0.0, tags={"tenant": "acme", "channel": "web"})
        board.score(1.0, tags={"tenant": "globex"})
        board.score(0.0, workflow="other")
    assert board.notified() == [("spiking", "firing")]
    notice = board.notices[0]
    assert (notice.tag, notice.where) == ("tenant=globex", "bot, tenant globex")
    assert "in the mean, of all values of tenant together" in notice.text
    assert [each.alert for each in kept] == ["hallucination above 0.05, tenant globex"]
    on = {row.tag: row.state for row in board.alerting.states() if row.on}
    assert on == {"tenant=acme": "ok", "tenant=globex": "spiking", "tenant=": "ok"}
    assert alert_body(notice, {})["labels"]["tag"] == "tenant=globex"  # type: ignore[index]
    [metric] = board.alerting.observations()
    spiking = [
        attributes for value, attributes in metric.read() if value and attributes["ragtrace.alert.state"] == "spiking"
    ]
    assert [attributes["ragtrace.tag.tenant"] for attributes in spiking] == ["globex"]


def test_calls_that_lack_the_tag_are_named_so() -> None:
    """As when a middleware is missing on one route."""
    board = Board(above=0.05, by="tenant")
    board.score(*[1.0] * 60)
    assert board.notified() == [("spiking", "firing")]
    assert (board.notices[0].tag, board.notices[0].where) == ("tenant=", "bot, calls without tenant")


def test_values_of_a_tag_are_bounded() -> None:
    """As the names of workflows are."""
    board = Board(above=0.05, by="tenant")
    for number in range(MOST_GROUPS + 20):
        board.score(0.0, tags={"tenant": number})
    tags = {row.tag for row in board.alerting.states()}
    assert len(tags) == MOST_GROUPS + 1
    assert "tenant=other" in tags


def test_groups_are_bounded() -> None:
    """Names unique to a call fill no memory: further ones are one group."""
    board = Board(above=0.05, per="model")
    for number in range(MOST_GROUPS + 20):
        board.score(0.0, model=f"model-{number}")
    models = {row.model for row in board.alerting.states()}
    assert len(models) == MOST_GROUPS + 1
    assert "other" in models


def test_sampled_calls_bet_by_the_smallest_probability() -> None:
    """Calls from a spool, of which nothing is known, are left out; a call that was sure to be seen counts less."""
    board = Board(Alert("faithfulness", below=0.9, min_calls=1, mean_calls_between_false_alarms=1_000))
    board.judge(0.0, 1.0, None)
    assert board.state == "no_data"
    for _ in range(20):
        board.judge(0.0, 1.0, SamplingDecision(True, 1.0, "always_rule", 0.001))
    assert board.state == "ok"
    for _ in range(40):
        board.judge(0.0, 0.05, SamplingDecision(True, 0.05, "sampled", 0.05))
    assert board.state == "spiking"


def test_an_observer_takes_what_it_is_given() -> None:
    """Calls without evaluations, metrics and spans change nothing, and raise nothing."""
    board = Board()
    board.alerting(call_of(), [], None)
    board.look({"consistency": Score(0.5)})
    board.alerting(dataclasses.replace(call_of(), span=None), [], object())
    assert board.state == "no_data"


# --- notices ---------------------------------------------------------------------------------------------------------


def test_a_notice_names_what_one_has_to_know() -> None:
    """Metric, estimate with its interval, since when, workflow, and the worst calls with their unsupported words."""
    board = Board(above=0.05, per="workflow")
    chance = Random(4)
    board.score(*CALM, 1.0, 0.5, *(float(chance.random() < 0.5) for _ in range(60)))
    assert board.notified() == [("spiking", "firing")]
    [sent] = board.notices
    assert (sent.metric, sent.bound, sent.workflow, sent.service) == (METRIC, 0.05, "guide", "bot")
    assert sent.estimate is not None
    assert sent.estimate.low is not None
    assert sent.estimate.value is not None
    assert sent.estimate.high is not None
    assert 0.05 < sent.estimate.low < sent.estimate.value < sent.estimate.high <= 1
    assert abs(sent.since - (1e9 + 1_101)) < 30
    assert sent.since < sent.at
    assert [example.score for example in sent.worst] == sorted((e.score for e in sent.worst), reverse=True)
    assert sent.worst[0].unsupported == ("Paris is on Mars.",)
    assert sent.worst[0].question.startswith("where? ")
    assert (len(sent.worst), sent.trace_id, sent.before) == (3, sent.worst[0].trace_id, 0.0)
    for part in (
        "share of the screen's verdicts: 0.000 before, now 0.5",
        "95 % interval",
        "workflow guide",
        f"https://ui.example/t/{sent.trace_id}",
        "without support: “Paris is on Mars.”",
        f"asked: “{sent.worst[0].question}”",
        "next: open the calls below",
        "10,000 scored calls",
    ):
        assert part in sent.text


def test_a_notice_names_release_and_host() -> None:
    """A person who is paged sees at once whether a release came before it."""
    board = Board(release="1.4.0")
    board.score(*SPIKE)
    assert board.notified() == [("spiking", "firing")]
    assert f", release 1.4.0, host {socket.gethostname()}" in board.notices[0].text


def test_texts_of_calls_are_bounded_and_printable() -> None:
    """A question of a megabyte, with control characters, becomes one short line."""
    board = Board()
    board.score(1.0, query="\x1b[2J\n" + "w" * 1_000_000)
    board.score(*SPIKE)
    assert board.notified() == [("spiking", "firing")]
    example = next(each for each in board.notices[0].worst if "w" in each.question[:10])
    assert len(example.question) < 250
    assert example.question.isprintable()


# --- against a baseline ----------------------------------------------------------------------------------------------


def usual(mean: float = 0.8, calls: int = 500) -> Distribution:
    """Scores around *mean*."""
    return Distribution.of([mean - 0.15, mean + 0.15] * (calls // 2), versions=["1.3.0"], until=9e8)


def board_with(
    baselines: dict[str, Distribution], adjustments: dict[str, Adjustment] | None = None, **settings: Any
) -> Board:
    """An alert on consistency against these baselines and with these adjustments, by workflow."""
    notices: list[Notice] = []
    wanted = BaselineKey("guide", "consistency", "screen@1")
    board = Board(
        Alert("consistency", below="baseline", notify=notices.append, **settings),
        baseline=lambda key: baselines.get(key.workflow) if key[1:] == wanted[1:] else None,
        adjustment=lambda key: (adjustments or {}).get(key.workflow) if key[1:] == wanted[1:] else None,
    )
    board.notices = notices
    return board


def test_without_a_baseline_there_is_no_alarm_and_the_state_says_so() -> None:
    """However bad the scores are: the usual scores of this workflow are unknown."""
    board = board_with({})
    board.consistency(*[0.0] * 300)
    assert board.state_of("guide") == "no_baseline"
    assert (board.on(), board.notified()) == ({"no_baseline"}, [])


def test_a_fall_below_the_baseline_is_notified() -> None:
    """The notice holds both levels and the release of the baseline; the end is notified, too."""
    board = board_with({"guide": usual()})
    board.consistency(*[0.95, 0.65] * 200)
    assert (board.on(), board.notified()) == ({"ok"}, [])
    board.consistency(*[0.75, 0.45] * 100)
    assert board.notified() == [("spiking", "firing")]
    [sent] = board.notices
    assert sent.title == "consistency is below its baseline in bot, workflow guide"
    assert sent.bound == pytest.approx(0.797, abs=0.002)
    for part in (
        "mean score by the screen: 0.800 before, now 0.6",
        "baseline: 500 calls of release 1.3.0, until 1998-07-09T16:00:00+00:00; alarm below 0.798",
    ):
        assert part in sent.text
    board.consistency(*[0.95, 0.65] * 200)
    assert board.notified()[-1] == ("spiking", "resolved")


def test_each_workflow_has_its_own_baseline() -> None:
    """Scores that are usual in one workflow are a fall in the other."""
    board = board_with({"guide": usual(), "chat": usual(0.5)})
    for workflow in ("guide", "chat"):
        board.consistency(*[0.65, 0.35] * 100, workflow=workflow)
    assert board.notified() == [("spiking", "firing")]
    assert [notice.workflow for notice in board.notices] == ["guide"]
    assert board.state_of("chat") == "ok"


def test_a_baseline_that_is_learned_later_is_used_from_then_on() -> None:
    """Calls scored before the baseline was known are no evidence."""
    known: dict[str, Distribution] = {}
    board = board_with(known)
    board.consistency(*[0.2] * 100)
    known["guide"] = usual()
    board.consistency(*[0.95, 0.65] * 50)
    assert (board.on(), board.notified()) == ({"ok"}, [])
    board.consistency(*[0.2] * 100)
    assert board.notified() == [("spiking", "firing")]


def test_a_baseline_without_any_bad_call_does_not_forbid_one() -> None:
    """All scores were 1; a few lower ones among many are no alarm."""
    board = board_with({"guide": Distribution.of([1.0] * 500)})
    board.consistency(*([1.0] * 499 + [0.5]) * 2)
    assert (board.on(), board.notified()) == ({"ok"}, [])


PLACES, PLANETS = (Document("Paris is a big city.", id="places"),), (Document("Mars is a planet.", id="planets"),)


def effects(difference: float = 0.2, turn: int = 100) -> Adjustment:
    """Usual effects of two documents, whose answers take turns, on scores around 0.8."""
    topics = [call // turn % 2 for call in range(2_000)]
    noise = [0.05, -0.05, 0.02, -0.02]
    scores = [0.8 + difference / 2 - difference * each + noise[call % 4] for call, each in enumerate(topics)]
    traits = [
        CallTraits.of_texts(None, [(each.id, each.text) for each in documents]) for documents in (PLACES, PLANETS)
    ]
    return Adjustment.learn(
        scores, [traits[each] for each in topics], weights=[1.0] * 2_000, questions=range(2_000), until=9e8
    )


def test_a_provisional_baseline_is_called_so() -> None:
    """The notice says what its promise is about, and what 500 calls do not tell."""
    board = board_with({"guide": usual()})
    board.consistency(*[0.75, 0.45] * 100)
    assert board.notified() == [("spiking", "firing")]
    [sent] = board.notices
    assert sent.provisional
    assert sent.as_dict()["provisional"] is True
    assert "provisional baseline: 500 calls" in sent.text
    assert "the mix of topics stays the same. The baseline is provisional: 500 calls do not tell" in sent.text


def test_a_fall_on_one_topic_is_told_against_what_is_usual_for_it() -> None:
    """Scores that are usual for the other topic are a fall for this one; the notice says how it compares."""
    found = effects()
    board = board_with({"guide": usual()}, {"guide": found})
    board.consistency(*[0.75, 0.65] * 200, contexts=PLANETS)
    assert (board.on(), board.notified()) == ({"ok"}, [])
    board.consistency(*[0.75, 0.65] * 200, contexts=PLACES)
    assert board.notified() == [("spiking", "firing")]
    [sent] = board.notices
    assert not sent.provisional
    assert f"baseline: {found.distribution.n:,} calls" in sent.text
    assert "what answers on such documents and lengths of contexts usually get" in sent.text
    assert "while the mix of topics varies as it did in the 2,000 calls of the baseline" in sent.text
    assert "with this baseline, a fall of the mean by 0.05 is noticed after about" in sent.text


def test_an_alert_goes_from_the_provisional_baseline_to_the_whole_one() -> None:
    """Evidence from before does not count: it was compared with another bound."""
    known: dict[str, Adjustment] = {}
    board = board_with({"guide": usual()}, known)
    board.consistency(*[0.75, 0.45] * 20)
    known["guide"] = effects()
    board.consistency(*[0.95, 0.85] * 100, contexts=PLACES)
    assert (board.on(), board.notified()) == ({"ok"}, [])
    board.consistency(*[0.55, 0.45] * 200, contexts=PLACES)
    assert board.notified() == [("spiking", "firing")]
    assert [(each.problem, each.provisional) for each in board.notices] == [("spiking", False)]


REBUILT = (Document("PARIS: a big city, of which more", id="a-uuid"),), (Document("Mars. A planet", id="another"),)


def test_new_documents_are_told_of_and_raise_no_alarm_of_worse_answers(caplog: pytest.LogCaptureFixture) -> None:
    """The state is no_baseline and the notice says since when, until the known documents are back."""
    caplog.set_level(logging.INFO, "ragtrace.alerts")
    board = board_with({"guide": usual()}, {"guide": effects()})
    kept = len(caplog.records)
    board.consistency(*[0.95, 0.85] * 50, contexts=PLACES)
    began = board.clock.now + 1.0
    for _ in range(5):
        for contexts, scores in zip(REBUILT, ([0.95, 0.85] * 50, [0.55, 0.45] * 50), strict=True):
            board.consistency(*scores, contexts=contexts)
    assert board.state_of("guide") == "no_baseline"
    assert board.notified() == [("new_documents", "firing")]
    [sent] = board.notices
    assert (sent.since, sent.estimate) == (1e9 + began, None)
    assert "is not compared with its baseline: the documents are new" in sent.title
    assert "as after the index was rebuilt" in sent.text
    assert "ragtrace baseline HISTORY.db --since 2001-09-09T" in sent.text
    assert len(caplog.records) == kept + 1
    board.consistency(*[0.95, 0.85] * 50, contexts=PLACES)
    assert board.state_of("guide") == "ok"
    told = [("new_documents", "firing"), ("new_documents", "resolved")]
    for contexts in (REBUILT[0], PLACES):  # as of a topic that comes and goes, which the log alone says
        board.consistency(*[0.95, 0.85] * 50, contexts=contexts)
    assert board.notified() == told
    assert [record.getMessage().count("(still)") for record in caplog.records[kept:]] == [0, 0, 0, 0]
    board.consistency(*[0.55, 0.45] * 200, contexts=PLACES)
    assert board.notified() == [*told, ("spiking", "firing")]


def test_a_spike_is_not_repeated_while_the_documents_are_new() -> None:
    """Nothing is known of it meanwhile; it goes on with the known documents."""
    board = board_with({"guide": usual()}, {"guide": effects()}, repeat_every=600.0)
    board.consistency(*[0.55, 0.45] * 100, contexts=PLACES)
    board.consistency(*[0.55, 0.45] * 100, contexts=REBUILT[0])
    board.clock.advance(700.0)
    board.alerting.tick()
    assert board.notified() == [("spiking", "firing"), ("new_documents", "firing")]
    assert board.state_of("guide") == "spiking"
    board.consistency(*[0.95, 0.85] * 200, contexts=PLACES)
    assert board.notified()[-1] == ("spiking", "resolved")
    assert board.state_of("guide") == "ok"


def test_new_ids_of_known_texts_change_nothing() -> None:
    """The usual scores of a document are known by its text, too, and a fall on it is noticed."""
    board = board_with({"guide": usual()}, {"guide": effects()})
    places, planets = ((Document(each.text, id=f"new {each.id}"),) for (each,) in (PLACES, PLANETS))
    board.consistency(*[0.75, 0.65] * 200, contexts=planets)
    assert (board.on(), board.notified()) == ({"ok"}, [])
    board.consistency(*[0.75, 0.65] * 200, contexts=places)
    assert board.notified() == [("spiking", "firing")]


# --- one page an event -----------------------------------------------------------------------------------------------


def both(**settings: Any) -> tuple[Board, list[Notice]]:
    """Two alerts that tell one receiver, on two metrics that fall and rise together."""
    notices: list[Notice] = []
    tell = notices.append
    board = Board(
        Alert(METRIC, above=0.05, notify=tell), Alert("consistency", below=0.8, notify=tell, name="fall", **settings)
    )
    return board, notices


def test_alerts_of_one_event_are_one_page(caplog: pytest.LogCaptureFixture) -> None:
    """The second goes to the log alone, and names the alert that was sent."""
    board, notices = both()
    with caplog.at_level(logging.INFO, "ragtrace.alerts"):
        for value in (0.0,) * 50 + (1.0,) * 100:
            board.look({METRIC: Score(value, METRIC), "consistency": Score(1 - value)})
        assert board.alerting.flush(10)
    assert [notice.alert for notice in notices] == ["fall"]
    assert {row.alert for row in board.alerting.states() if row.state == "spiking" and row.on} == {
        "hallucination above 0.05",
        "fall",
    }
    assert "part of the event that the alert 'fall' has reported" in caplog.text


def test_a_spike_that_outlasts_the_alert_that_was_sent_for_its_event_is_notified() -> None:
    """The end of the first spike must not hide the second."""
    board, notices = both()
    for value in (1.0,) * 100:
        board.look({METRIC: Score(value, METRIC), "consistency": Score(0.0)})
    for _ in range(200):
        board.look({METRIC: Score(0.0, METRIC), "consistency": Score(0.0)})
    assert board.alerting.flush(10)
    assert [(notice.alert, notice.status) for notice in notices] == [
        ("hallucination above 0.05", "firing"),
        ("hallucination above 0.05", "resolved"),
        ("fall", "firing"),
    ]


def test_another_receiver_is_notified_of_the_same_event() -> None:
    """Grouping holds for receivers that already have a notice of the event."""
    others: list[Notice] = []
    board, notices = both()
    board = Board(
        Alert(METRIC, above=0.05, notify=notices.append), Alert("consistency", below=0.8, notify=others.append)
    )
    for value in (1.0,) * 100:
        board.look({METRIC: Score(value, METRIC), "consistency": Score(1 - value)})
    assert board.alerting.flush(10)
    assert (len(notices), len(others)) == (1, 1)


def test_a_question_that_is_asked_again_and_again_counts_once_a_batch() -> None:
    """A user who repeats a question that has a bad answer is one bad answer, and no spike."""
    board = Board(above=0.2)
    for number in range(60):
        board.score(*[1.0] * 3, query=f"Where   is it? {number}")
        board.score(*[0.0] * 7)
    assert board.notified() == []


def test_the_end_of_a_spike_has_the_mean_that_ended_it() -> None:
    """The estimate is over the calls that decide about the end; there are no examples."""
    board = Board()
    board.score(*CALM, *SPIKE, *CALM, *CALM)
    assert board.notified()[-1] == ("spiking", "resolved")
    end = board.notices[-1]
    assert end.estimate is not None
    assert end.estimate.value is not None
    assert (end.calls, end.worst, end.estimate.value <= 0.05) == (100, (), True)
    assert end.title == "hallucination is back within 0.05 in bot"


def test_words_stay_where_content_is_not_captured() -> None:
    """A notice then has no texts of the call, but names its trace."""
    board = Board(capture_content="NO_CONTENT")
    board.score(*SPIKE)
    assert board.notified() == [("spiking", "firing")]
    assert {example.unsupported for example in board.notices[0].worst} == {()}
    assert board.notices[0].worst[0].trace_id


def test_a_notice_is_plain_data() -> None:
    """All fields by name, times in seconds and as ISO 8601, and the text."""
    sent = notice().as_dict()
    assert (sent["version"], sent["at_iso"], sent["since"]) == (2, "2001-09-09T01:48:20+00:00", 1_000_000_000.0)
    assert sent["worst"] == (
        {
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
            "score": 1.0,
            "at": 1_000_000_050.0,
            "unsupported": ("Paris is on <!channel> & Mars.",),
            "question": "where?",
            "not_in_chunks": (),
            "url": "",
        },
    )


def test_the_worker_tells_that_there_are_no_data_without_a_call() -> None:
    """It ticks by itself: no later call is needed to notice that scores stay away."""
    told = threading.Event()
    notices: list[Notice] = []

    def notify(notice: Notice) -> None:
        notices.append(notice)
        told.set()

    alert = Alert("consistency", below=0.1, window=1.0, missing_after=1.0, notify=notify)
    watch(alerts=[alert])
    ask("where?")
    assert told.wait(10)
    assert [(notice.problem, notice.status) for notice in notices] == [("no_data", "firing")]
