"""Protection of the site against other web sites in the user's browser, and against other users.

Every page of the web can send requests to a port of the user's machine, and with a host name of its own that
resolves to 127.0.0.1 (DNS rebinding) it can read the answers. So the Host header must be this machine's, a session
needs the token of the printed address, and a form needs the Origin of the page and a token that only the page knows.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MOST_BYTES: Final = 100_000
_MOST_FIELDS: Final = 50
_HEADERS: Final = {
    # Style attributes place the points and bars of the charts.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # With "no-referrer", browsers would send no usable Origin header with a form.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusedError(Exception):
    """Raised when an HTTP request to the site is refused, with the response's `status` and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HostGuard:
    """ASGI middleware that accepts only requests to a host name of this machine, and adds security headers.

    Args:
        application: the application behind it.
        port: port on which the application is served.
    """

    def __init__(self, application: ASGIApp, port: int) -> None:
        self._application = application
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request."""
        hosts = [value.decode("latin-1").lower() for name, value in scope.get("headers", ()) if name == b"host"]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if len(hosts) != 1 or hosts[0] not in self._hosts:
            refusal = PlainTextResponse("This host is not served here. Open the address that was printed.\n", 421)
            await refusal(scope, receive, send_with_headers)
            return
        await self._application(scope, receive, send_with_headers)


class Session:
    """Session of the site, with the secret tokens for its cookie and its forms.

    Args:
        token: secret of the printed address.
        port: port on which the page is served.
    """

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._origins = {f"http://127.0.0.1:{port}", f"http://localhost:{port}"}
        self.cookie: str = f"ragtrace_site_{port}"
        """Name of the session cookie, with the port, as all ports of a machine share their cookies."""
        self.cookie_value: str = self._derived("session")
        self.form_token: str = self._derived("form")
        """Token that every form must carry, against cross-site request forgery."""

    def _derived(self, purpose: str) -> str:
        return hmac.new(self._token.encode(), purpose.encode(), sha256).hexdigest()

    def is_token(self, text: str) -> bool:
        """Return whether *text* is the secret token in the URL that was printed."""
        return secrets.compare_digest(text.encode("utf-8", "replace"), self._token.encode())

    def check(self, request: Request) -> None:
        """Check that *request* has the session cookie, and that writing requests come from the site.

        Raises:
            RefusedError: it does not.
        """
        given = request.cookies.get(self.cookie, "").encode("utf-8", "replace")
        if not secrets.compare_digest(given, self.cookie_value.encode()):
            raise RefusedError(403, "Open the address that ragtrace has printed: it has a token in it.")
        if request.method not in ("GET", "HEAD") and request.headers.get("origin", "") not in self._origins:
            raise RefusedError(403, "The form was not sent by this page.")

    async def read_form(self, request: Request) -> dict[str, str]:
        """Read the form fields in the body of the HTTP *request*, after checking the form's token.

        Raises:
            RefusedError: it is too large, or has no valid token.
        """
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise RefusedError(413, f"The form is larger than {_MOST_BYTES:,} bytes. Nothing was saved.")
        try:
            pairs = parse_qsl(
                body.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            raise RefusedError(400, "The form has too many fields. Nothing was saved.") from None
        fields = dict(pairs)
        if not secrets.compare_digest(fields.get("form_token", "").encode(), self.form_token.encode()):
            raise RefusedError(403, "The form belongs to an earlier run of ragtrace: open the printed address.")
        return fields
