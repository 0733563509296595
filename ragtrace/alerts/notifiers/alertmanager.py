"""Notifier for a Prometheus Alertmanager, whose routes, silences and receivers then apply to these alerts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, ClassVar, Final

from ragtrace.alerts.notifiers.http import HttpNotifier, encode_json, post
from ragtrace.core.errors import SettingsError

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_PATH: Final = "/api/v2/alerts"
_FIRING_SECONDS: Final = 7 * 86_400.0
_SEVERITIES: Final = {
    "spiking": "critical",
    "no_data": "warning",
    "judge_failing": "warning",
    "judge_drift": "warning",
    "new_documents": "warning",
}


@dataclass(frozen=True, slots=True)
class Alertmanager(HttpNotifier):
    """Notifier that POSTs every notification as an alert to the API of a Prometheus Alertmanager.

    The labels of the alert are alertname, problem, metric, severity, service, workflow, model and tag (`tenant=acme`);
    the texts are its annotations. A firing problem is given an end a week off: a process that dies must not resolve it
    by its silence.

    Args:
        url: address of the server: "http://alertmanager:9093".
        labels: more labels, for its routes.
        headers: more headers of the request, for instance Authorization.

    Raises:
        SettingsError: the URL is no http or https URL with a host, or a label is not a text.
    """

    label: ClassVar[str] = "Alertmanager at {}"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        HttpNotifier.__post_init__(self)
        for key, value in self.labels.items():
            if not (isinstance(value, str) and key.isidentifier() and key.isascii()):
                raise SettingsError(f"labels must be texts by name, got {key!r}: {value!r}; write {{'team': 'search'}}")

    def send(self, notice: Notice, timeout: float) -> None:
        """POST *notice* as an alert to the Alertmanager."""
        post(self.url.rstrip("/") + _PATH, encode_json([alert_body(notice, self.labels)]), self.headers, timeout)


def alert_body(notice: Notice, labels: Mapping[str, str]) -> dict[str, object]:
    """Return the notification *notice* as an alert in the format of Alertmanager's API.

    The labels are the identity of the alert, so they are the same when it fires and when it is resolved.
    """
    ours = {
        "alertname": notice.alert,
        "problem": notice.problem,
        "metric": notice.metric,
        "severity": _SEVERITIES[notice.problem],
        "service": notice.service,
        "workflow": notice.workflow or "",
        "model": notice.model or "",
        "tag": notice.tag or "",
    }
    ends = notice.at if notice.status == "resolved" else notice.at + _FIRING_SECONDS
    traces = ",".join(example.trace_id for example in notice.worst if example.trace_id)
    links = [example.url for example in notice.worst if example.url]
    annotations = {"summary": notice.title, "description": "\n".join(notice.details()), "traces": traces}
    generator = {"generatorURL": links[0]} if links else {}
    return {
        "labels": {**{key: value for key, value in ours.items() if value}, **labels},
        "annotations": {key: value for key, value in annotations.items() if value},
        **generator,
        "startsAt": _rfc3339(notice.since),
        "endsAt": _rfc3339(ends),
    }


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
