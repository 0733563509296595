"""Asks an OTLP endpoint for a sign of life, the way its exporter would: with an export of nothing."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from ragtrace.core.endpoints import Endpoint

if TYPE_CHECKING:
    import grpc

_SERVICES: Final[Mapping[str, str]] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_GRPC_PORT, _HTTP_PORT = 4317, 4318
_MOST_CHARS: Final = 160


class Answer(NamedTuple):
    """What came back."""

    ok: bool
    seen: str
    advice: str = ""


def shown(endpoint: Endpoint) -> str:
    """Where it is, without secrets: no user, no query, of the headers their names."""
    parts = urlsplit(endpoint.url)
    query = "..." if parts.query else ""
    # A gRPC target may be host:port, which is no URL.
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl() if parts.netloc else endpoint.url
    names = ", ".join(sorted(endpoint.headers))
    return f"{url} ({endpoint.protocol}, from {endpoint.origin}{', headers: ' + names if names else ''})"


def ask(endpoint: Endpoint, timeout: float) -> Answer:
    """Send an export of nothing to *endpoint* and wait at most *timeout* seconds for the answer. Never raises."""
    try:
        return _ask_grpc(endpoint, timeout) if endpoint.protocol == "grpc" else _ask_http(endpoint, timeout)
    except Exception as error:
        return Answer(False, _cause(error), _advice_for(error, endpoint))


# --- HTTP ------------------------------------------------------------------------------------------------------------


def _ask_http(endpoint: Endpoint, timeout: float) -> Answer:
    import requests  # what the exporter uses, so proxies and certificates are found as it finds them

    client = (endpoint.client_certificate, endpoint.client_key)
    response = requests.post(
        endpoint.url,
        data=b"",
        headers={**endpoint.headers, "content-type": "application/x-protobuf"},
        timeout=timeout,
        allow_redirects=False,
        verify=endpoint.certificate or True,
        cert=client if client[0] and client[1] else client[0],  # type: ignore[arg-type,unused-ignore]
        stream=True,
    )
    with response:
        return _of_status(response.status_code, response.headers.get("location", ""), endpoint)


def _of_status(status: int, location: str, endpoint: Endpoint) -> Answer:
    seen = f"{status} {_phrase(status)}".strip()
    if status < 300:
        return Answer(True, seen)
    if status < 400:
        return Answer(
            False,
            f"{seen} to {urlsplit(location)._replace(query='').geturl()}",
            f"write that address into {endpoint.origin}",
        )
    if status in (400, 422):
        return Answer(True, f"{seen}: it answers, and takes no export of nothing")
    if status in (401, 403):
        return Answer(False, f"{seen}: the credentials are refused", _key_advice(endpoint))
    if status in (404, 405):
        advice = f"the path should be the backend's for {endpoint.signal}, mostly .../v1/{endpoint.signal}; "
        advice = _none_advice(endpoint) + advice + _base_advice(endpoint)
        return Answer(False, f"{seen}: nothing takes {endpoint.signal} at this path", advice)
    if status == 415:
        return Answer(False, f"{seen}: it takes no protobuf", "name an endpoint for OTLP over HTTP in protobuf")
    return Answer(False, seen, "look into the backend's own log")


def _none_advice(endpoint: Endpoint) -> str:
    """Return what to write if the backend takes traces alone."""
    if endpoint.signal == "traces":
        return ""
    return (
        f"if the backend takes no {endpoint.signal}, set OTEL_{endpoint.signal.upper()}_EXPORTER=none (for Phoenix "
        'write exporter="phoenix", which sends it what it takes); '
    )


def _key_advice(endpoint: Endpoint) -> str:
    if endpoint.origin.startswith("OTEL_"):
        return "set OTEL_EXPORTER_OTLP_HEADERS as the backend asks"
    return "check the keys that this exporter reads from the environment"


def _base_advice(endpoint: Endpoint) -> str:
    own = f"OTEL_EXPORTER_OTLP_{endpoint.signal.upper()}_ENDPOINT"
    if endpoint.origin == own:
        return f"{own} is used as it is, with nothing added"
    return f"/v1/{endpoint.signal} is added to {endpoint.origin}, and not to {own}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


# --- gRPC ------------------------------------------------------------------------------------------------------------


def _ask_grpc(endpoint: Endpoint, timeout: float) -> Answer:
    import grpc

    with _channel(endpoint) as channel:
        export = cast("Callable[..., object]", channel.unary_unary(_SERVICES[endpoint.signal]))
        try:
            export(
                b"", timeout=timeout, metadata=tuple((name.lower(), value) for name, value in endpoint.headers.items())
            )
        except grpc.RpcError as error:
            return _of_code(error, endpoint)
    return Answer(True, "OK")


def _channel(endpoint: Endpoint) -> grpc.Channel:
    import grpc

    parts = urlsplit(endpoint.url)
    target = parts.netloc or endpoint.url
    if endpoint.insecure:
        return grpc.insecure_channel(target)
    files = (endpoint.certificate, endpoint.client_key, endpoint.client_certificate)
    return grpc.secure_channel(
        target, grpc.ssl_channel_credentials(*(Path(name).read_bytes() if name else None for name in files))
    )


def _of_code(error: Any, endpoint: Endpoint) -> Answer:
    name, detail = str(error.code().name), _short(str(error.details() or ""))
    seen = f"{name}: {detail}" if detail else name
    if name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Answer(False, seen, _key_advice(endpoint))
    if name == "INVALID_ARGUMENT":
        return Answer(True, f"{seen}: it answers, and takes no export of nothing")
    if name == "UNIMPLEMENTED":
        advice = f"nothing takes {endpoint.signal} there; {_none_advice(endpoint)}or name the OTLP port of the backend"
        return Answer(False, seen, advice)
    if f":{_HTTP_PORT}" in endpoint.url:
        return Answer(False, seen, _protocol_advice("http/protobuf", _HTTP_PORT, _GRPC_PORT))
    return Answer(False, seen, "is the backend up, and reachable from this machine?")


# --- what went wrong -------------------------------------------------------------------------------------------------


def _chain(error: BaseException) -> Iterator[BaseException]:
    """*error* and what it came from, first things last."""
    seen: set[int] = set()
    todo: list[object] = [error]
    while todo:
        one = todo.pop(0)
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            todo += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]


def _cause(error: BaseException) -> str:
    """The innermost thing that the operating system, or TLS, said."""
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, ssl.SSLError):
            return _short(
                f"TLS error: {one.reason or one}"
                if not isinstance(one, ssl.SSLCertVerificationError)
                else f"TLS error: {one.verify_message}"
            )
    for one in chain:
        if isinstance(one, ConnectionRefusedError):
            return "connection refused"
        if isinstance(one, socket.gaierror):
            return f"the name is not known: {one.strerror}"
        if isinstance(one, TimeoutError) or "timeout" in type(one).__name__.lower():
            return "no answer in time"
    inner = next((one for one in reversed(chain) if isinstance(one, OSError) and one.strerror), chain[-1])
    return _short(f"{type(inner).__name__}: {getattr(inner, 'strerror', None) or inner}")


def _advice_for(error: BaseException, endpoint: Endpoint) -> str:
    chain = list(_chain(error))
    if any(isinstance(one, ssl.SSLError) for one in chain):
        if any("WRONG_VERSION_NUMBER" in str(one) for one in chain):
            return f"it does not speak TLS: write http:// in {endpoint.origin}"
        return "set OTEL_EXPORTER_OTLP_CERTIFICATE to the file of the authority that signed its certificate"
    if f":{_GRPC_PORT}" in endpoint.url:
        return _protocol_advice("grpc", _GRPC_PORT, _HTTP_PORT)
    return "is the backend up, and reachable from this machine?"


def _protocol_advice(protocol: str, port: int, other: int) -> str:
    return (
        f"port {port} is usually that of OTLP over {'gRPC' if port == _GRPC_PORT else 'HTTP'}: set "
        f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}, or take port {other}"
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."
