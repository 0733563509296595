"""Probes of the backends that get scores by their own API, and of the notifiers of alerts. Nothing is sent to them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ragtrace.core.score_sink import ProbedSink
from ragtrace.diagnosis.probes import Answer, Probes
from ragtrace.telemetry.export.score_poster import ScorePoster

if TYPE_CHECKING:
    from ragtrace.alerts import Alert

_REACHABLE: Final = "is it up, and reachable from this machine?"
_CAUSES: Final = (
    (re.compile("refused", re.IGNORECASE), "connection refused"),
    (re.compile("timed? ?out", re.IGNORECASE), "no answer in time"),
    (re.compile("resol|not known|getaddrinfo", re.IGNORECASE), "the name is not known"),
)


def probe_sinks(posters: Iterable[ScorePoster], probes: Probes) -> None:
    """Probe every backend that gets scores by its own API; note those that cannot be probed."""
    for sink in (poster.sink for poster in posters):
        if isinstance(sink, ProbedSink):
            probes.start(f"scores for {sink.name}", sink.where, partial(_ask_sink, sink, probes.timeout))
        else:
            probes.notes.append(f"the sink {sink.name!r} cannot be asked; whether it takes scores is in the accounts")


def _ask_sink(sink: ProbedSink, timeout: float) -> Answer:
    refusal = sink.probe(timeout)
    if refusal is None:
        return Answer(True, "its API answers; nothing was posted")
    seen = f"{refusal.reason}: {refusal.detail}" if refusal.detail else refusal.reason
    if refusal.reason == "unauthorized":
        return Answer(False, seen, "check the keys that this exporter reads from the environment")
    if refusal.reason != "unavailable":
        return Answer(False, seen, "is that the address of the backend's API, and not only of its OTLP?")
    # requests describes a failed connection at great length.
    plain = next((cause for pattern, cause in _CAUSES if pattern.search(refusal.detail)), seen)
    return Answer(False, plain, f"{_REACHABLE} Scores wait for ten minutes, then they are lost to it")


def probe_notifiers(alerts: Iterable[Alert], probes: Probes) -> None:
    """Connect to every notifier that has a URL, and send nothing: a diagnosis raises no alarm."""
    notifiers = {id(each): each for alert in alerts for each in alert.notifiers}
    for notifier in notifiers.values():
        parts = urlsplit(str(getattr(notifier, "url", "")))
        if not parts.hostname:
            probes.notes.append(f"the notifier {notifier.name!r} cannot be tried without an alarm, so it is not")
        elif parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
            probes.notes.append(f"the notifier {notifier.name!r} is reached through a proxy, so it is not tried")
        else:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            probes.start("notifier", notifier.name, partial(_connect, (parts.hostname, port), probes.timeout))


def _connect(address: tuple[str, int], timeout: float) -> Answer:
    try:
        with socket.create_connection(address, timeout):
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
