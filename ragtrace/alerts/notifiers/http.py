"""Base class and functions of notifiers that POST JSON to a URL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

from ragtrace.alerts.notifiers.notifier import UndeliveredError
from ragtrace.core.errors import SettingsError
from ragtrace.system import preload
from ragtrace.system.replies import says_no
from ragtrace.system.retry_after import seconds_until_retry
from ragtrace.system.urls import displayed_url, without_user

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector

_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DETAIL_BYTES: Final = 200
_MOST_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class HttpNotifier:
    """Base class of the notifiers that POST notifications to a URL.

    Logs show the host of the URL alone, as its path and user may be secrets.

    Raises:
        SettingsError: the URL is no http or https URL with a host.
    """

    url: str = field(repr=False)
    label: ClassVar[str]
    """Name of the notifier in logs, with `{}` in place of the host."""

    def __post_init__(self) -> None:
        preload.import_modules("urllib.request", "encodings.idna")  # modules that the first POST would import
        if not _is_http_url(self.url):
            shown = repr(displayed_url(self.url)) if isinstance(self.url, str) else type(self.url).__name__
            raise SettingsError(
                f"{type(self).__name__} needs an http or https URL, got {shown}; write for instance "
                "'https://example.com/hook'"
            )

    @property
    def name(self) -> str:
        """Name of the notifier for the log: the kind of receiver with its host and port."""
        parts = urlsplit(self.url)
        return self.label.format(f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname)


def _is_http_url(url: object) -> bool:
    try:
        parts = urlsplit(url) if isinstance(url, str) and " " not in url else None
        return bool(parts and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:  # a port that is no number
        return False


def encode_json(body: object) -> bytes:
    """Encode the request *body* as JSON in ASCII, in which lone surrogates are escaped."""
    return json.dumps(body, allow_nan=False).encode()


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """POST the JSON *body* to *url*, whose user and password are sent as Basic authorization.

    Raises:
        UndeliveredError: no status from 200 to 299 came back within *timeout* seconds, or the body says no.
    """
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    address, authorization = without_user(url)
    usual = {"Content-Type": "application/json", "User-Agent": "ragtrace", **authorization}
    request = Request(address, data=body, headers=usual | dict(headers), method="POST")
    try:
        with _opener().open(request, timeout=timeout) as response:
            said = response.read(_MOST_BYTES).decode("utf-8", "replace")
    except HTTPError as error:
        with error:
            raise _error_for_status(error) from None  # the text of the error holds the URL
    except TimeoutError:
        raise UndeliveredError("timeout", f"no answer within {timeout:g} s", again=True) from None
    except (URLError, OSError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        raise UndeliveredError("unavailable", type(cause).__name__, again=True) from None
    if says_no(said):
        raise UndeliveredError("refused", f"status {response.status} {said[:_DETAIL_BYTES]}", again=False)


def _opener() -> OpenerDirector:
    from urllib.request import HTTPRedirectHandler, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """Handler for `urllib` that follows no HTTP redirects.

        A redirected POST would become a GET, and its signature would reach another host.
        """

        def redirect_request(
            self, req: object, fp: object, code: object, msg: object, headers: object, newurl: object
        ) -> None:
            return None

    return build_opener(NoRedirects())


def _error_for_status(error: HTTPError) -> UndeliveredError:
    try:
        body = error.read(_DETAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        body = ""
    again = error.code in _TEMPORARY
    reason = "unavailable" if again else "refused"
    return UndeliveredError(
        reason,
        f"status {error.code} {body}".strip(),
        again=again,
        after_s=seconds_until_retry(error.headers.get("Retry-After")),
    )
