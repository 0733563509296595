"""Upstream OTLP endpoints to which the gateway forwards export requests, by HTTP or by gRPC."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from ragtrace.core.errors import SettingsError
from ragtrace.gateway.otlp_requests import ExportRequest, ExportResult, Payload, json_to_protobuf, read_response
from ragtrace.system.faults import faults
from ragtrace.system.retry_after import seconds_until_retry

if TYPE_CHECKING:
    from ragtrace.core.endpoints import Endpoint

_SERVICE: Final = trace_service_pb2.DESCRIPTOR.services_by_name["TraceService"].full_name
METHOD: Final = f"/{_SERVICE}/Export"
"""Path of the gRPC method that accepts spans."""
SERVICE: Final = _SERVICE
MEDIA_TYPES: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}
RETRY_AFTER_SECONDS: Final = 2.0
"""Number of seconds after which a client may try again, where the upstream names none."""
_MOST_CONNECTIONS: Final = 64
_MOST_BYTES_AT_ONCE: Final = 1 << 20
_REFUSALS: Final = {400: "invalid", 413: "too_large", 415: "unsupported"}
_GRPC_REFUSALS: Final = {grpc.StatusCode.INVALID_ARGUMENT: "invalid", grpc.StatusCode.RESOURCE_EXHAUSTED: "too_large"}
_RETRY_INFO: Final = "google.rpc.retryinfo-bin"
_STATUS_DETAILS: Final = "grpc-status-details-bin"


class Upstream(Protocol):
    """Interface of an OTLP endpoint to which the gateway forwards spans."""

    async def send(self, request: ExportRequest, payload: Payload) -> ExportResult:
        """Forward the export *request* with the contents *payload*, and return the upstream's response.

        Never raises.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections to the upstream."""
        ...


def make_upstream(endpoint: Endpoint, timeout: float, *, compresses: bool) -> Upstream:
    """Create the upstream client for *endpoint*.

    Args:
        endpoint: address, protocol, headers and certificates.
        timeout: seconds for one request.
        compresses: whether requests by gRPC are compressed; by HTTP the received bytes go on as they are.

    Raises:
        SettingsError: a certificate cannot be read.
    """
    try:
        if endpoint.protocol == "grpc":
            return GrpcUpstream(endpoint, timeout, compresses=compresses)
        return HttpUpstream(endpoint, timeout)
    except OSError as error:
        raise SettingsError(f"a certificate of the OTLP endpoint cannot be read: {error}") from error


class HttpUpstream:
    """OTLP/HTTP client that forwards export requests unchanged to the upstream.

    The upstream gets the received bytes with their content type and content encoding.

    For requests of 30 spans aiohttp takes a third of the processor time of httpx, most of what the gateway spent.
    """

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._url = endpoint.url
        tls: Any = True
        if endpoint.url.lower().startswith("https:"):
            tls = ssl.create_default_context()  # the system's authorities, or those of SSL_CERT_FILE
            if endpoint.certificate:
                tls.load_verify_locations(endpoint.certificate)
            if endpoint.client_certificate:
                tls.load_cert_chain(endpoint.client_certificate, endpoint.client_key)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS, ssl=tls),
            headers=dict(endpoint.headers),
            timeout=aiohttp.ClientTimeout(total=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # Looked up once, as `trust_env=True` of aiohttp starts two threads for the look-up at each request.
        address = urlsplit(endpoint.url)
        self._proxy = None if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)

    async def send(self, request: ExportRequest, payload: Payload) -> ExportResult:
        """Post the bytes of *request* unchanged, and return the upstream's response."""
        headers = {"content-type": MEDIA_TYPES[request.content]}
        if request.encoding:
            headers["content-encoding"] = request.encoding
        # A stream is written in pieces, so that a large body does not hold up other requests.
        data = request.body if len(request.body) <= _MOST_BYTES_AT_ONCE else BytesIO(request.body)
        try:
            async with self._session.post(
                self._url, data=data, headers=headers, proxy=self._proxy, allow_redirects=False
            ) as answer:
                body, status, answered = await answer.read(), answer.status, answer.headers
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            return _unreachable(type(error).__name__)
        if status == 200:
            is_json = answered.get("content-type", "").startswith(MEDIA_TYPES["json"])
            response, rejected = read_response(body, "json" if is_json else "protobuf", request.content)
            return ExportResult("accepted", response=response, rejected=rejected)
        refusal: Any = _REFUSALS.get(status)
        if refusal is not None:
            return ExportResult(refusal, "upstream_refused", f"the upstream refused the request: {status}")
        return _unavailable(f"HTTP {status}", seconds_until_retry(answered.get("retry-after")))

    async def aclose(self) -> None:
        """Close the connections to the upstream."""
        await self._session.close()


class GrpcUpstream:
    """OTLP/gRPC client that forwards export requests to the upstream.

    The upstream gets the received protobuf message, or one converted from JSON.
    """

    def __init__(self, endpoint: Endpoint, timeout: float, *, compresses: bool) -> None:
        target = urlsplit(endpoint.url).netloc if "://" in endpoint.url else endpoint.url
        compression = grpc.Compression.Gzip if compresses else grpc.Compression.NoCompression
        if endpoint.insecure:
            self._channel = grpc.aio.insecure_channel(target, compression=compression)
        else:
            files = (endpoint.certificate, endpoint.client_key, endpoint.client_certificate)
            credentials = grpc.ssl_channel_credentials(*(Path(file).read_bytes() if file else None for file in files))
            self._channel = grpc.aio.secure_channel(target, credentials, compression=compression)
        self._export: Any = self._channel.unary_unary(METHOD)
        self._metadata = [(name.lower(), value) for name, value in endpoint.headers.items()]
        self._timeout = timeout

    async def send(self, request: ExportRequest, payload: Payload) -> ExportResult:
        """Send the protobuf message of *payload*, and return the upstream's response.

        Raises:
            RefusedError: the message was JSON, and cannot be read as one of protobuf.
        """
        message = payload.body
        if request.content == "json":
            message = await asyncio.to_thread(json_to_protobuf, payload.body)
        try:
            answer: bytes = await self._export(message, timeout=self._timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return _grpc_refusal(error)
        response, rejected = read_response(answer, "protobuf", request.content)
        return ExportResult("accepted", response=response, rejected=rejected)

    async def aclose(self) -> None:
        """Close the gRPC channel."""
        await self._channel.close()


def _grpc_refusal(error: grpc.aio.AioRpcError) -> ExportResult:
    code: Any = error.code()
    retry_after = _retry_delay(dict(error.trailing_metadata() or ()))
    refusal: Any = _GRPC_REFUSALS.get(code)
    if refusal is not None and (code is not grpc.StatusCode.RESOURCE_EXHAUSTED or retry_after is None):
        return ExportResult(refusal, "upstream_refused", f"the upstream refused the request: {code.name}")
    return _unavailable(code.name, retry_after)


def _retry_delay(metadata: Mapping[str, Any]) -> float | None:
    """Return after how many seconds the upstream asks for a retry, or None if it does not say."""
    info = RetryInfo()
    try:
        if _RETRY_INFO in metadata:
            info.ParseFromString(metadata[_RETRY_INFO])
            return _seconds(info)
        for detail in RpcStatus.FromString(metadata.get(_STATUS_DETAILS, b"")).details:
            if detail.Unpack(info):
                return _seconds(info)
    except DecodeError:
        pass
    return None


def _seconds(info: RetryInfo) -> float:
    return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)


def retry_metadata(code: int, message: str, seconds: float) -> tuple[tuple[str, bytes], ...]:
    """Return the gRPC trailing metadata that asks a client to retry after *seconds*.

    OTLP has the delay in the details of the status; the Python exporter reads it from a key of its own.
    """
    info = RetryInfo()
    info.retry_delay.FromNanoseconds(int(seconds * 1e9))
    status = RpcStatus(code=code, message=message)
    status.details.add().Pack(info)
    return (_STATUS_DETAILS, status.SerializeToString()), (_RETRY_INFO, info.SerializeToString())


def _unreachable(error: str) -> ExportResult:
    return _log_unavailable("upstream_unreachable", error, None)


def _unavailable(answer: str, retry_after: float | None) -> ExportResult:
    return _log_unavailable("upstream_unavailable", answer, retry_after)


def _log_unavailable(reason: str, detail: str, retry_after: float | None) -> ExportResult:
    faults.log_once(
        f"gateway: {reason} {detail}",
        "the OTLP endpoint of the gateway does not take spans (%s): their senders are asked to try again. Check "
        "OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS, or start ragtrace serve with --no-forward",
        detail,
    )
    delay = RETRY_AFTER_SECONDS if retry_after is None else retry_after
    return ExportResult("unavailable", reason, f"the upstream does not take spans: {detail}", delay)
