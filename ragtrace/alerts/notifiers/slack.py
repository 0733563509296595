"""Notifier for a Slack channel, and for services that accept Slack's incoming webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ragtrace.alerts.notifiers.http import HttpNotifier, encode_json, post

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_SECTION_CHARS: Final = 3_000
"""Largest number of characters that Slack accepts in one block of text."""
_FIRING: Final = {
    "spiking": ":rotating_light:", "no_data": ":hourglass:", "judge_failing": ":warning:", "judge_drift": ":warning:",
    "new_documents": ":warning:"
}  # fmt: skip
_RESOLVED: Final = ":white_check_mark:"


@dataclass(frozen=True, slots=True)
class Slack(HttpNotifier):
    """Notifier that POSTs to an incoming webhook of Slack, Mattermost, Rocket.Chat or Discord (its `/slack` address).

    Args:
        url: address of the webhook. Everyone who knows it can post, so it is kept out of the log.

    Raises:
        SettingsError: the URL is no http or https URL with a host.
    """

    label: ClassVar[str] = "Slack webhook to {}"

    def send(self, notice: Notice, timeout: float) -> None:
        """POST *notice* as a message to the Slack webhook."""
        post(self.url, encode_json(slack_message(notice)), {}, timeout)


def slack_message(notice: Notice) -> dict[str, object]:
    """Return the notification *notice* as the JSON payload of a Slack incoming webhook.

    Slack shows its `blocks`, other services its `text`.
    """
    mark = _FIRING[notice.problem] if notice.status == "firing" else _RESOLVED
    details = "\n".join(notice.details())
    text = f"{mark} *{_escaped(notice.title)}*\n{_escaped(details)}"
    if len(text) > _SECTION_CHARS:
        text = text[: _SECTION_CHARS - 1] + "…"
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}


def _escaped(text: str) -> str:
    """Escape *text* for Slack, so that its words become neither mentions such as <!channel> nor links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
