"""One POST of JSON, with what came of it in the terms of an alert."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ragtrace.alerts.notifiers.notifier import UndeliveredError
from ragtrace.core.errors import SettingsError
from ragtrace.system import preload

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DETAIL_BYTES: Final = 200


def checked_url(url: object, what: str) -> str:
    """*url* if it can be posted to.

    Raises:
        SettingsError: if it is no http or https URL with a host; the message shows no path, which may be a secret.
    """
    preload.load("urllib.request", "encodings.idna")  # which the first post would
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in url:
                return url
        except ValueError:  # a port that is no number
            pass
    shown = repr(url.split("//")[-1].split("/")[0]) if isinstance(url, str) else type(url).__name__
    raise SettingsError(
        f"{what} needs an http or https URL, got {shown}; write for instance 'https://example.com/hook'"
    )


def host_of(url: str) -> str:
    """Host and port of *url*, for the log: its path and user may be secrets."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def encoded(body: object) -> bytes:
    """*body* as JSON; what is no Unicode text is escaped."""
    return json.dumps(body, ensure_ascii=True, allow_nan=False).encode()


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """POST *body* to *url*.

    Raises:
        UndeliveredError: no status from 200 to 299 came back within *timeout* seconds.
    """
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    request = Request(
        url, data=body, headers={"Content-Type": "application/json", "User-Agent": "ragtrace", **headers}, method="POST"
    )
    try:
        with _opener().open(request, timeout=timeout) as response:
            response.read(_DETAIL_BYTES)
    except HTTPError as error:
        with error:
            raise _refusal(error) from None  # its text holds the URL
    except TimeoutError:
        raise UndeliveredError("timeout", f"no answer within {timeout:g} s", again=True) from None
    except (URLError, OSError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        raise UndeliveredError("unavailable", type(cause).__name__, again=True) from None


def _opener() -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """A redirected POST would become a GET without the notice, and the signature would go to somebody else."""

        def redirect_request(
            self, req: object, fp: object, code: object, msg: object, headers: object, newurl: object
        ) -> None:
            return None

    return build_opener(NoRedirects())


def _refusal(error: HTTPError) -> UndeliveredError:
    try:
        said = error.read(_DETAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        said = ""
    again = error.code in _PASSING
    reason = "unavailable" if again else "refused"
    return UndeliveredError(reason, f"status {error.code} {said}".strip(), again=again, after_s=_retry_after(error))


def _retry_after(error: HTTPError) -> float | None:
    """Seconds, where it gives seconds; a date is left to our own pauses."""
    try:
        return max(0.0, float(error.headers.get("Retry-After", "")))
    except ValueError:
        return None
