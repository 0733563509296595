"""The one way in which URLs, and texts that may hold URLs and keys, are shown to people and in telemetry, and sent."""

from __future__ import annotations

import re
from base64 import b64encode
from contextlib import suppress
from typing import Final
from urllib.parse import quote, unquote, urlsplit

_KNOWN_PATH: Final = re.compile(
    r"(?:/(?:api|public|openai|otlp|otel|opik|collector|private|traces|metrics|logs|v\d{1,2}(?:beta)?|\d{1,3}))*/{0,2}"
)
"""Pattern of a path that is no secret: of an API, or the number of a database. Others may hold a token or a tenant."""
_TARGET: Final = re.compile(r"(?:.*@)?((?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})", re.DOTALL)
"""Pattern of an address without a scheme, as gRPC takes it, with or without user and password before the host."""
_USER: Final = re.compile(r"(?:(?<=://)|^(?![^@]*://))([^/?#]*)@")
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/?#\s'\"]+@")
_KEY: Final = re.compile(r"\b(?:sk|pk)-[\w*-]{6,}|\bBearer\s+\S+")


def displayed_url(url: str) -> str:
    """Return *url* without what may be secret: user, password, query, and any path that is not one of an API.

    Of something that is neither a URL with a host nor a host with a port, only the scheme is shown, if it has one.
    """
    if (target := _TARGET.fullmatch(url)) is not None and "//" not in url:
        return target[1]
    with suppress(ValueError):
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if host and parts.scheme:
            address = f"[{host}]" if ":" in host else host
            path = parts.path if _KNOWN_PATH.fullmatch(parts.path) else "/..."
            return f"{parts.scheme}://{address}{f':{port}' if port else ''}{path}{'?...' if parts.query else ''}"
    scheme, found, _ = url.partition("://")
    return f"{scheme}://..." if found and scheme.isascii() and scheme.isalnum() else "..."


def hide_secrets(text: str) -> str:
    """Return *text* with the user and password of every URL in it, and keys of model servers, replaced by `***`."""
    return _KEY.sub("***", _CREDENTIALS.sub("***@", text))


def hide_path(text: str, url: str) -> str:
    """Return *text*, the error of an HTTP library about *url*, with the path of *url* replaced if it may be secret."""
    path = urlsplit(url).path
    if _KNOWN_PATH.fullmatch(path):
        return text
    # Libraries escape other characters than the user may have.
    spelled = (f"(?:{re.escape(char)}|(?i:{re.escape(quote(char, safe=''))}))" for char in unquote(path))
    return re.sub("".join(spelled), "/...", text)


def without_user(url: str) -> tuple[str, dict[str, str]]:
    """Return *url*, or *host:port*, without user and password, and the header that tells a server both; no header
    without them.

    HTTP libraries log addresses, and name them in their errors; some connect to no address with a user in it.
    """
    if (found := _USER.search(url)) is None:
        return url, {}
    user, _, password = (unquote(part) for part in found[1].partition(":"))
    address = url[: found.start()] + url[found.end() :]
    if not user and not password:
        return address, {}
    return address, {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode(errors='replace')).decode()}"}
