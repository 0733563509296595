"""Probes of the destinations of telemetry: OTLP endpoints, and the metrics endpoint that Prometheus scrapes."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from ragtrace.core.endpoints import Endpoint, Page
from ragtrace.core.errors import SettingsError
from ragtrace.diagnosis.probes import ProbeResult, Probes, shortened
from ragtrace.system.installation import find_exporter
from ragtrace.system.urls import displayed_url

_NOWHERE: Final = (
    "nothing is sent anywhere: no OTLP endpoint is set; set OTEL_EXPORTER_OTLP_ENDPOINT, or RAGTRACE_EXPORTER=none if "
    "that is meant"
)
_METRICS_ALONE: Final = (
    "metrics are served for Prometheus; spans and events are sent nowhere, as no OTLP endpoint is set: bad answers are "
    "counted, but cannot be looked at"
)
_SERVICES: Final[Mapping[str, str]] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_GRPC_PORT, _HTTP_PORT = 4317, 4318
_REACHABLE: Final = "is the backend up, and reachable from this machine?"
_REACHABLE_HOSTS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_MOST_BYTES: Final = 64 << 20


def probe_endpoints(exporter: str, environ: Mapping[str, str], probes: Probes, *, page: bool) -> None:
    """Start a probe of every endpoint to which the exporter named *exporter* sends telemetry.

    Args:
        page: whether the exporter serves a metrics page.
    """
    if exporter == "none":
        probes.notes.append("nothing is sent anywhere, as the exporter is 'none'")
        return
    try:
        endpoints = exporter_function(exporter, "endpoints")
        found: list[Endpoint] | None = None if endpoints is None else endpoints(environ)
    except (SettingsError, ImportError) as error:
        probes.problems.append(str(error))
        return
    if found is None:
        probes.notes.append(f"the exporter {exporter!r} does not say where it sends things, so that is not checked")
    elif not found:
        (probes.notes if page else probes.problems).append(_METRICS_ALONE if page else _NOWHERE)
    for each in found or ():
        probes.start(each.signal, safe_address(each), partial(probe_endpoint, each, probes.timeout))


def exporter_function(exporter: str, name: str) -> Callable[[Mapping[str, str]], Any] | None:
    """Look up a function of an installed exporter by name, or return None if the exporter has no such function.

    Raises:
        SettingsError: no such exporter is installed.
        ImportError: its module cannot be imported.
    """
    if (point := find_exporter(exporter)) is not None:
        module = import_module(point.module)
        found = getattr(getattr(module, point.attr, None), name, None) or getattr(module, name, None)
        return cast("Callable[[Mapping[str, str]], Any] | None", found)
    raise SettingsError(
        f"no exporter named {exporter!r} is installed (from RAGTRACE_EXPORTER); write otlp, for example"
    )


def safe_address(endpoint: Endpoint) -> str:
    """Return the address of *endpoint* for display, without secrets.

    Of the headers only the names are shown.
    """
    names, url = ", ".join(sorted(endpoint.headers)), displayed_url(endpoint.url)
    return f"{url} ({endpoint.protocol}, from {endpoint.origin}{', headers: ' + names if names else ''})"


def probe_endpoint(endpoint: Endpoint, timeout: float) -> ProbeResult:
    """Send an empty OTLP export to *endpoint*, and wait at most *timeout* seconds for the response. Never raises."""
    try:
        return _probe_grpc(endpoint, timeout) if endpoint.protocol == "grpc" else _probe_http(endpoint, timeout)
    except Exception as error:
        chain = _error_chain(error)
        return ProbeResult(False, _describe_cause(chain), _advice(chain, endpoint))


# --- HTTP ------------------------------------------------------------------------------------------------------------


def _probe_http(endpoint: Endpoint, timeout: float) -> ProbeResult:
    import requests  # the library of the exporter, so that proxies and certificates are found in the same way

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
        if response.status_code < 300 and "text/html" in response.headers.get("content-type", "").lower():
            advice = "is that the address of a receiver of OTLP, and no login or page of the backend's before it?"
            return ProbeResult(False, f"{response.status_code} with a web page", advice)
        return _http_answer(response.status_code, response.headers.get("location", ""), endpoint)


def _http_answer(status: int, location: str, endpoint: Endpoint) -> ProbeResult:
    phrase = next((each.phrase for each in HTTPStatus if each == status), "")
    seen, signal = f"{status} {phrase}".strip(), endpoint.signal
    if status < 300:
        return ProbeResult(True, seen)
    if status < 400:
        target = displayed_url(location.partition("?")[0])
        return ProbeResult(False, f"{seen} to {target}", f"write that address into {endpoint.origin}")
    if status in (400, 422):
        return ProbeResult(True, f"{seen}: it answers, and takes no export of nothing")
    if status in (401, 403):
        return ProbeResult(False, f"{seen}: the credentials are refused", _key_advice(endpoint))
    if status in (404, 405):
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
        advice = f"the path should be the backend's for {signal}, mostly .../v1/{signal}; "
        if endpoint.origin == own:
            advice += f"{own} is used as it is, with nothing added"
        else:
            advice += f"/v1/{signal} is added to {endpoint.origin}, and not to {own}"
        return ProbeResult(False, f"{seen}: nothing takes {signal} at this path", _switch_off_advice(endpoint) + advice)
    if status == 415:
        return ProbeResult(False, f"{seen}: it takes no protobuf", "name an endpoint for OTLP over HTTP in protobuf")
    return ProbeResult(False, seen, "look into the backend's own log")


def _switch_off_advice(endpoint: Endpoint) -> str:
    """Return advice on how to turn off the export of metrics or logs to a backend that accepts only traces."""
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


# --- gRPC ------------------------------------------------------------------------------------------------------------


def _probe_grpc(endpoint: Endpoint, timeout: float) -> ProbeResult:
    import grpc

    target = urlsplit(endpoint.url).netloc or endpoint.url
    if endpoint.insecure:
        channel = grpc.insecure_channel(target)
    else:
        files = (endpoint.certificate, endpoint.client_key, endpoint.client_certificate)
        read = (Path(name).read_bytes() if name else None for name in files)
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(*read))
    with channel:
        export = cast("Callable[..., object]", channel.unary_unary(_SERVICES[endpoint.signal]))
        metadata = tuple((name.lower(), value) for name, value in endpoint.headers.items())
        try:
            export(b"", timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            return _grpc_answer(error, endpoint)
    return ProbeResult(True, "OK")


def _grpc_answer(error: Any, endpoint: Endpoint) -> ProbeResult:
    name, detail = str(error.code().name), shortened(str(error.details() or ""))
    seen = f"{name}: {detail}" if detail else name
    if name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return ProbeResult(False, seen, _key_advice(endpoint))
    if name == "INVALID_ARGUMENT":
        return ProbeResult(True, f"{seen}: it answers, and takes no export of nothing")
    if name == "UNIMPLEMENTED":
        off = _switch_off_advice(endpoint)
        return ProbeResult(
            False, seen, f"nothing takes {endpoint.signal} there; {off}or name the OTLP port of the backend"
        )
    if f":{_HTTP_PORT}" in endpoint.url:
        return ProbeResult(False, seen, _protocol_advice("http/protobuf", _HTTP_PORT, _GRPC_PORT))
    return ProbeResult(False, seen, _REACHABLE)


# --- what went wrong -------------------------------------------------------------------------------------------------


def _error_chain(error: BaseException) -> list[BaseException]:
    """Return *error* and the exceptions that caused it, with the innermost last."""
    found: dict[int, BaseException] = {}
    todo: list[object] = [error]
    while todo:
        one = todo.pop(0)
        if isinstance(one, BaseException) and id(one) not in found:
            found[id(one)] = one
            todo += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return list(found.values())


def _describe_cause(chain: list[BaseException]) -> str:
    """Describe the innermost TLS or operating-system error in *chain*, the causes of a failed export."""
    for one in chain:
        if isinstance(one, ssl.SSLCertVerificationError):
            return shortened(f"TLS error: {one.verify_message}")
        if isinstance(one, ssl.SSLError):
            return shortened(f"TLS error: {one.reason or one}")
    for one in chain:
        if isinstance(one, ConnectionRefusedError):
            return "connection refused"
        if isinstance(one, socket.gaierror):
            return f"the name is not known: {one.strerror}"
        if isinstance(one, TimeoutError) or "timeout" in type(one).__name__.lower():
            return "no answer in time"
    inner = next((one for one in reversed(chain) if isinstance(one, OSError) and one.strerror), chain[-1])
    return shortened(f"{type(inner).__name__}: {getattr(inner, 'strerror', None) or inner}")


def _advice(chain: list[BaseException], endpoint: Endpoint) -> str:
    if any(isinstance(one, ssl.SSLError) for one in chain):
        if any("WRONG_VERSION_NUMBER" in str(one) for one in chain):
            return f"it does not speak TLS: write http:// in {endpoint.origin}"
        return "set OTEL_EXPORTER_OTLP_CERTIFICATE to the file of the authority that signed its certificate"
    if f":{_GRPC_PORT}" in endpoint.url:
        return _protocol_advice("grpc", _GRPC_PORT, _HTTP_PORT)
    return _REACHABLE


def _protocol_advice(protocol: str, port: int, other: int) -> str:
    return (
        f"port {port} is usually that of OTLP over {'gRPC' if port == _GRPC_PORT else 'HTTP'}: set "
        f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}, or take port {other}"
    )


# --- the page of metrics ---------------------------------------------------------------------------------------------


def metrics_page(exporter: str, environ: Mapping[str, str]) -> Page | None:
    """Return the Prometheus metrics endpoint of an exporter, or None if there is none.

    The result is None as well if the exporter's settings are wrong.
    """
    try:
        page = exporter_function(exporter, "page")
        found: Page | None = None if page is None else page(environ)
    except (SettingsError, ImportError):  # already reported by `probe_endpoints`
        return None
    return found


def probe_page(page: Page, probes: Probes, *, instance: str | None) -> None:
    """Start a probe of the Prometheus metrics endpoint.

    Args:
        instance: the `service.instance.id` of this process, which should be serving the page; None: ragtrace is not
            configured in this process.
    """
    ask = partial(_ask_page, page, probes.timeout, instance)
    probes.start("page of metrics", f"{page.url} (port from {page.origin})", ask)


def _ask_page(page: Page, timeout: float, instance: str | None) -> ProbeResult:
    url, host = page.url, urlsplit(page.url).hostname or ""
    if host in _REACHABLE_HOSTS:
        url = url.replace(f"[{host}]" if ":" in host else host, _REACHABLE_HOSTS[host], 1)
    request = Request(url, headers={"Accept": "text/plain"})
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=timeout) as response:
            return _page_answer(response.read(_MOST_BYTES).decode("utf-8", "replace"), instance)
    except HTTPError as error:
        error.close()
        advice = "look into the application's log, or at what else is there"
        return ProbeResult(False, f"{error.code} {error.reason}", advice)
    except OSError as error:
        cause = error.reason if isinstance(error, URLError) else error
    if not isinstance(cause, ConnectionRefusedError):
        return ProbeResult(False, f"{type(cause).__name__}: {cause}", "look for what hangs at that port (lsof -i)")
    if instance is None:
        return ProbeResult(True, "not served now: no process of the application runs here")
    advice = "Prometheus gets nothing; the log says why it is not served"
    return ProbeResult(False, "connection refused: it is not served", advice)


def _page_answer(body: str, instance: str | None) -> ProbeResult:
    target = re.search(r'^target_info\{.*?service_name="([^"]*)".*', body, re.MULTILINE)
    series = sum(bool(line) and not line.startswith("#") for line in body.splitlines())
    if target is None:
        advice = "set RAGTRACE_PROMETHEUS_PORT to a port that is free, and tell Prometheus"
        return ProbeResult(False, "another program answers there", advice)
    if instance is not None and f'service_instance_id="{instance}"' not in target[0]:
        advice = "a page shows one process: send the metrics of several by exporter='otlp', or give each its own port"
        return ProbeResult(False, f"another process of {target[1]!r} is on it; this one is on no page", advice)
    return ProbeResult(True, f"{series} series of {target[1]!r}")
