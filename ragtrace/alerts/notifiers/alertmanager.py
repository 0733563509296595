"""Alertmanager, whose routes, silences and receivers then hold for these alerts, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from ragtrace.alerts.notifiers.http import checked_url, encoded, host_of, post
from ragtrace.core.errors import SettingsError

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_PATH: Final = "/api/v2/alerts"
_LASTS_SECONDS: Final = 7 * 86_400.0
_SEVERITIES: Final = {"spiking": "critical", "no_data": "warning", "judge_failing": "warning"}


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """POSTs every notice to the API of an Alertmanager, with the labels alertname, problem, metric, severity, service,
    workflow and model, and the texts as annotations.

    A problem is given an end far off (a week), as a spike is not over because nobody repeats it: a process that dies
    resolves nothing.

    Args:
        url: of the server: "http://alertmanager:9093".
        labels: more labels, for its routes.
        headers: to be sent along, for instance Authorization.

    Raises:
        SettingsError: it is no URL, or a label is not a text.
    """

    url: str = field(repr=False)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        checked_url(self.url, "Alertmanager")
        for key, value in self.labels.items():
            if not (isinstance(value, str) and key.isidentifier() and key.isascii()):
                raise SettingsError(f"labels must be texts by name, got {key!r}: {value!r}; write {{'team': 'search'}}")

    @property
    def name(self) -> str:
        """With the host."""
        return f"Alertmanager at {host_of(self.url)}"

    def send(self, notice: Notice, timeout: float) -> None:
        """POST *notice*."""
        post(self.url.rstrip("/") + _PATH, encoded([alert(notice, self.labels)]), self.headers, timeout)


def alert(notice: Notice, labels: Mapping[str, str]) -> dict[str, object]:
    """One alert of the API. Its labels are the same at its beginning and its end: they are its identity."""
    ours = {
        "alertname": notice.alert,
        "problem": notice.problem,
        "metric": notice.metric,
        "severity": _SEVERITIES[notice.problem],
        "service": notice.service,
        "workflow": notice.workflow or "",
        "model": notice.model or "",
    }
    ends = notice.at if notice.status == "resolved" else notice.at + _LASTS_SECONDS
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
