"""Notifier for a webhook that receives notifications as JSON, with a signature if there is a secret."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from ragtrace.alerts.notifiers.http import HttpNotifier, encode_json, post
from ragtrace.core.errors import SettingsError

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_PREFIX: Final = "whsec_"


@dataclass(frozen=True, slots=True)
class Webhook(HttpNotifier):
    """Notifier that POSTs every notification to a webhook as a JSON object (`Notice.as_dict`).

    It tries again while the receiver is unavailable. With a secret, the headers `webhook-id` (the same when a
    notification is delivered again), `webhook-timestamp` (seconds since the epoch) and `webhook-signature` are those of
    the Standard Webhooks specification: `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`. Its libraries
    check them.

    Args:
        url: address of the receiver.
        secret: `whsec_` and the key in base64, or any other text, of which the UTF-8 bytes are the key.
        headers: more headers of the request, for instance Authorization.

    Raises:
        SettingsError: the URL is no http or https URL with a host, or the secret is empty or damaged.

    Source: Standard Webhooks 1.0.0, "Signature scheme".
    """

    label: ClassVar[str] = "webhook to {}"
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        HttpNotifier.__post_init__(self)
        if self.secret is not None:
            _decode_secret(self.secret)

    def send(self, notice: Notice, timeout: float) -> None:
        """POST *notice* as JSON to the webhook."""
        body = encode_json(notice.as_dict())
        headers = {"webhook-id": notice.id, **self.headers}
        if self.secret is not None:
            stamp = str(int(time.time()))
            headers["webhook-timestamp"] = stamp
            headers["webhook-signature"] = webhook_signature(self.secret, notice.id, stamp, body)
        post(self.url, body, headers, timeout)


def webhook_signature(secret: str, id_: str, timestamp: str, body: bytes) -> str:
    """Return the `webhook-signature` header, an HMAC that proves that the sender knows *secret*."""
    signed = f"{id_}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_decode_secret(secret), signed, hashlib.sha256).digest()).decode()


def _decode_secret(secret: object) -> bytes:
    if not isinstance(secret, str) or not secret:
        raise SettingsError(f"secret must be a text, got {type(secret).__name__}; leave it out for no signature")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret[len(_PREFIX) :], validate=True)
    except binascii.Error:
        raise SettingsError(
            "secret= begins with whsec_, but the rest is not valid base64; copy the whole secret again"
        ) from None
