"""Spans over OTLP/HTTP at a fraction of the processor time: `wire` writes them, requests sends them.

Otherwise it does what OpenTelemetry's exporter does: the same headers, certificates and compression; statuses that may
pass are tried again within the time limit, after the time that the server names or a growing one.
"""

from __future__ import annotations

import gzip
import logging
import random
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.system import preload
from ragtrace.system.faults import hide_credentials, printable, say
from ragtrace.system.retry_after import seconds_until_retry
from ragtrace_exporters.wire import SDK_ENCODER, encode

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from requests import Response

_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP/HTTP asks clients to try again."""
_MOST_TRIES: Final = 6
_JITTER: Final = 0.2
_DEFAULT_TIMEOUT_S: Final = 10.0
_QUIET_SECONDS: Final = 60.0
"""Between two log lines about the same outage."""
_COMPRESS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def new_session() -> Any:
    """Return a requests session that follows no redirect: spans and keys are for the configured server alone."""
    import requests

    class DirectSession(requests.Session):
        """Session that raises `requests.TooManyRedirects` for an answer that redirects."""

        def get_redirect_target(self, resp: Response) -> str | None:
            """Return None for an answer that does not redirect, and raise for one that does."""
            if (target := super().get_redirect_target(resp)) is None:
                return None
            resp.close()
            why = f"the server redirects to {printable(target, 200)}, which is not followed"
            advice = "configure the final URL as the endpoint"
            raise requests.TooManyRedirects(f"status {resp.status_code}: {why}; {advice}", response=resp)

    return DirectSession()


class FailureLog:
    """Log of an outage: the first failure, then one line a minute with the number of failures, then the recovery.

    For one thread at a time.
    """

    def __init__(self, what: str, clock: Callable[[], float] = monotonic) -> None:
        self._what, self._clock = what, clock
        self._failures = self._unsaid = 0
        self._said_at = 0.0

    def failed(self, why: str) -> None:
        """Count a failure and log it if no failure was logged within the last minute."""
        self._failures += 1
        self._unsaid += 1
        if self._failures > 1 and self._clock() - self._said_at < _QUIET_SECONDS:
            return
        if self._unsaid > 1:
            why = f"{why} ({self._unsaid} failures since the last message)"
        say(logging.WARNING, "%s failed: %s", self._what, why)
        self._said_at, self._unsaid = self._clock(), 0

    def succeeded(self) -> None:
        """Log the end of an outage that was logged."""
        if self._failures:
            say(logging.WARNING, "%s works again after %d failures", self._what, self._failures)
            self._failures = self._unsaid = 0


class HttpSpanExporter(SpanExporter):
    """Span exporter over OTLP/HTTP.

    Args:
        endpoint: whole URL, headers and certificates.
        timeout: seconds for a batch, tries and pauses included; None: 10.
        compression: "gzip", "deflate" or "none".

    Raises:
        SettingsError: HTTP does not allow the endpoint or one of the headers.
    """

    def __init__(self, endpoint: Endpoint, timeout: float | None, compression: str) -> None:
        import requests

        preload.load(SDK_ENCODER)
        self._timeout = timeout or _DEFAULT_TIMEOUT_S
        self._compress = _COMPRESS.get(compression)
        self._closing = threading.Event()
        self._session: Any = new_session()
        self._shown_endpoint = hide_credentials(endpoint.url)
        self._failures = FailureLog("exporting spans")
        own = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"OTel-OTLP-Exporter-Python/{version('opentelemetry-sdk')} "
            f"ragtrace/{version('ragtrace-otel')}",
            **({} if self._compress is None else {"Content-Encoding": compression}),
        }
        pair = (endpoint.client_certificate, endpoint.client_key)
        certificate: Any = pair if all(pair) else endpoint.client_certificate
        # Once: for every request it would read proxies, certificates and passwords out of the environment again.
        request = requests.Request("POST", endpoint.url, {**own, **endpoint.headers})
        try:
            self._request = self._session.prepare_request(request)
        except (requests.RequestException, ValueError) as error:
            # What we saw stays out of the message: a header, or the user in a URL, usually holds a key.
            raise SettingsError(
                f"spans cannot be sent: HTTP does not allow their endpoint or one of their headers "
                f"({type(error).__name__}); correct OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS or the "
                "backend's own variables"
            ) from None
        trusted = endpoint.certificate or True
        self._way = self._session.merge_environment_settings(endpoint.url, {}, None, trusted, certificate)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send *spans*; return when they are accepted or given up."""
        try:
            body = encode(spans)
            body = body if self._compress is None else self._compress(body)
        except Exception as error:
            self._failures.failed(f"a batch of {len(spans)} spans could not be encoded: {error}")
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS if self._send(body) else SpanExportResult.FAILURE

    def _send(self, body: bytes) -> bool:
        deadline = monotonic() + self._timeout
        for tries in range(1, _MOST_TRIES + 1):
            answer, why = self._post(body, deadline)
            if answer is not None and answer.status_code < 300:
                self._failures.succeeded()
                return True
            passing = answer is None or answer.status_code in _PASSING
            pause = _pause(answer, tries)
            if not passing or tries == _MOST_TRIES or monotonic() + pause > deadline or self._closing.is_set():
                self._failures.failed(f"a batch for {self._shown_endpoint} was given up: {why}")
                return False
            self._failures.failed(f"{why}; the next try is in {pause:.1f} s")
            self._closing.wait(pause)
        return False

    def _post(self, body: bytes, deadline: float) -> tuple[Response | None, str]:
        """Return the answer of the server (None if there was none), and the outcome in words."""
        from requests import RequestException

        why = ""
        for _ in range(2):  # a kept connection may have gone stale: then the second finds a new one
            try:
                left = max(0.001, deadline - monotonic())
                request = self._request.copy()
                if self._session.cookies:  # a load balancer knows by one which server to ask again
                    request.prepare_cookies(self._session.cookies)
                request.prepare_body(body, None)
                answer: Response = self._session.send(request, timeout=left, **self._way)
            except RequestException as error:
                if error.response is not None:  # it redirects: asking again changes nothing
                    return error.response, str(error)
                why = f"{type(error).__name__}: {error}"
                continue
            return answer, f"status {answer.status_code} {answer.reason}"
        return None, why

    def shutdown(self) -> None:
        """Stop trying again, and close the connections."""
        self._closing.set()
        self._session.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: every batch is sent in `export`."""
        return True


def _pause(answer: Response | None, tries: int) -> float:
    """Return the seconds until the next try: the server's Retry-After, else twice as long each time."""
    wanted = None if answer is None else seconds_until_retry(answer.headers.get("Retry-After"))
    return float(2 ** (tries - 1) * random.uniform(1 - _JITTER, 1 + _JITTER)) if wanted is None else wanted
