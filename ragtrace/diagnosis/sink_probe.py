"""Whom this process tells of scores and of alerts, and whether they are there. Nobody is told anything here."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from time import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ragtrace.core.ledger import Posted
from ragtrace.core.score_sink import ProbedSink, Refusal
from ragtrace.diagnosis.otlp_probe import Answer
from ragtrace.diagnosis.question import Question, ask_beside
from ragtrace.diagnosis.report import AlertNow, BaselineNow
from ragtrace.estimates import Learner
from ragtrace.telemetry.export.score_poster import ScorePoster

if TYPE_CHECKING:
    from ragtrace.alerts import Alert, Alerting, Notifier

_REACHABLE: Final = "is it up, and reachable from this machine?"
_CAUSES: Final = (
    (re.compile("refused", re.IGNORECASE), "connection refused"),
    (re.compile("timed? ?out", re.IGNORECASE), "no answer in time"),
    (re.compile("resol|not known|getaddrinfo", re.IGNORECASE), "the name is not known"),
)


def baselines_of(learner: Learner) -> tuple[BaselineNow, ...]:
    """Return how far the baselines of this process have come."""
    now = time()
    return tuple(
        BaselineNow(
            *key,
            calls,
            found is not None,
            f"{calls:,} of {learner.calls:,} calls so far" if found is None else found.describe(now),
        )
        for key, found, calls in learner.progress()
    )


# --- scores ----------------------------------------------------------------------------------------------------------


def of_sinks(posters: Iterable[ScorePoster], timeout: float) -> tuple[list[Question], list[str]]:
    """Ask every backend that gets scores by its own API; of those that cannot be asked, a note."""
    questions: list[Question] = []
    notes: list[str] = []
    for poster in posters:
        if isinstance(poster.sink, ProbedSink):
            questions.append(_of_sink(poster.sink.name, poster.sink, timeout))
        else:
            notes.append(f"the sink {poster.sink.name!r} cannot be asked; whether it takes scores is in the accounts")
    return questions, notes


def _of_sink(name: str, sink: ProbedSink, timeout: float) -> Question:
    return ask_beside(f"scores for {name}", sink.where, timeout, lambda: _answer(sink.probe(timeout)))


def _answer(refusal: Refusal | None) -> Answer:
    if refusal is None:
        return Answer(True, "its API answers; nothing was posted")
    seen = f"{refusal.reason}: {refusal.detail}" if refusal.detail else refusal.reason
    if refusal.reason == "unauthorized":
        return Answer(False, seen, "check the keys that this exporter reads from the environment")
    if refusal.reason != "unavailable":
        return Answer(False, seen, "is that the address of the backend's API, and not only of its OTLP?")
    # Of a failed connection requests tells a long story.
    plain = next((said for pattern, said in _CAUSES if pattern.search(refusal.detail)), seen)
    return Answer(False, plain, f"{_REACHABLE} Scores wait for ten minutes, then they are lost to it")


# --- alerts ----------------------------------------------------------------------------------------------------------


def alerts_of(alerting: Alerting | None) -> tuple[AlertNow, ...]:
    """Every alert, the states it is in, and whom it tells."""
    if alerting is None:
        return ()
    states: dict[str, list[str]] = {}
    for row in alerting.states():
        if row.on:
            group = row.workflow or row.model
            states.setdefault(row.alert, []).append(f"{group}: {row.state}" if group else row.state)
    return tuple(_alert_now(alert, states.get(alert.title, ["no_data"])) for alert in alerting.alerts)


def _alert_now(alert: Alert, states: Iterable[str]) -> AlertNow:
    told = ("the log", *(each.name for each in alert.notifiers))
    return AlertNow(alert.title, alert.rule, tuple(states), told)


def of_notifiers(alerting: Alerting | None, timeout: float) -> tuple[list[Question], list[str]]:
    """Connect to every notifier that has a URL, and send nothing: a doctor raises no alarm."""
    notifiers = {id(each): each for alert in (alerting.alerts if alerting else ()) for each in alert.notifiers}
    questions: list[Question] = []
    notes: list[str] = []
    for notifier in notifiers.values():
        url = getattr(notifier, "url", None)
        if not isinstance(url, str) or not urlsplit(url).hostname:
            notes.append(f"the notifier {notifier.name!r} cannot be tried without an alarm, so it is not")
        elif _by_proxy(url):
            notes.append(f"the notifier {notifier.name!r} is reached through a proxy, so it is not tried")
        else:
            questions.append(_of_notifier(notifier, url, timeout))
    return questions, notes


def _by_proxy(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


def _of_notifier(notifier: Notifier, url: str, timeout: float) -> Question:
    parts = urlsplit(url)
    place = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)

    def connect() -> Answer:
        try:
            with socket.create_connection(place, timeout):
                return Answer(True, "takes connections; nothing was sent")
        except socket.gaierror:
            seen = "the name is not known"
        except TimeoutError:
            seen = "no answer in time"
        except ConnectionRefusedError:
            seen = "connection refused"
        except OSError as error:
            seen = error.strerror or str(error)
        return Answer(False, seen, f"{_REACHABLE} Alerts would be in the log alone")

    return ask_beside("notifier", notifier.name, timeout, connect)


# --- what became of both ---------------------------------------------------------------------------------------------


def losses(what: str, books: Mapping[str, Posted]) -> list[str]:
    """A sentence for each of *books* that something is lost to."""
    told: list[str] = []
    for name, posted in books.items():
        lost = {**posted.failed}
        for reason, count in posted.dropped.items():
            lost[reason] = lost.get(reason, 0) + count
        if lost:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(lost.items()))
            told.append(f"{what} {name}: {sum(lost.values())} did not get there: {reasons}; see the log")
    return told
