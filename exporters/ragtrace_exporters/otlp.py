"""Exporter for OTLP over HTTP or gRPC, configured by the standard `OTEL_*` variables alone.

A signal (traces, metrics, logs) is sent when an endpoint is configured for it and it is not switched off; otherwise its
place in `Signals` is None, so nothing is exported and nothing complains. Only the modules of the protocol in use are
imported: no grpc with HTTP, no requests with gRPC.

Sources: OpenTelemetry specification, "OpenTelemetry Protocol Exporter" and "Environment Variable Specification". As in
the Python exporters, `OTEL_EXPORTER_OTLP_TIMEOUT` is in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from ragtrace.core.endpoints import Endpoint, Rejected
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace.system import preload
from ragtrace.system.faults import faults
from ragtrace.system.urls import displayed_url, without_user
from ragtrace_exporters.encodable_spans import encodable_span
from ragtrace_exporters.partial_success import NONE, WEB_PAGE, is_web_page, rejected_of_http, rejected_of_message

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

Signal: TypeAlias = Literal["traces", "metrics", "logs"]
Protocol: TypeAlias = Literal["grpc", "http/protobuf"]

_NOT_TAKEN: Final = frozenset({404, 405, 501})
"""Statuses with which a server says that it has nothing for such a request."""
_SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")
_ENTRY_POINTS: Final[Mapping[Protocol, str]] = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_CLASSES: Final[Mapping[Signal, str]] = {
    "traces": "trace_exporter:OTLPSpanExporter",
    "metrics": "metric_exporter:OTLPMetricExporter",
    "logs": "_log_exporter:OTLPLogExporter",
}
"""Module and class of each exporter, in the package of its protocol."""
_PROTOCOL_OF_NAME: Final[Mapping[str, Protocol]] = {name: protocol for protocol, name in _ENTRY_POINTS.items()}


def otlp(environ: Mapping[str, str]) -> Signals:
    """Return exporters of the signals for which *environ* has an OTLP endpoint.

    Args:
        environ: the environment variables to decide by, usually `os.environ`. Certificates, `INSECURE`, temporality
            and metric-export settings are read from the process environment by the OpenTelemetry exporters themselves.

    Raises:
        SettingsError: a variable has a value that cannot be used.
    """
    made = {endpoint.signal: _exporter(environ, endpoint) for endpoint in endpoints(environ)}
    # A reader starts a thread, which would go on if the configuration of an exporter were refused after it.
    reader = _reader(environ, made["metrics"]) if "metrics" in made else None
    return Signals(spans=made.get("traces"), metrics=reader, logs=made.get("logs"))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Return the OTLP endpoint of each signal (traces, metrics, logs) that is to be exported.

    Raises:
        SettingsError: a variable has a value that cannot be used.
    """
    if text(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return []
    return [found for signal in _SIGNALS if (found := _endpoint(environ, signal)) is not None]


def _endpoint(environ: Mapping[str, str], signal: Signal) -> Endpoint | None:
    """Return the OTLP endpoint of *signal*, or None if the signal is switched off or has no endpoint."""
    protocol, (variable, url) = _protocol(environ, signal), _variable_for(environ, signal, "ENDPOINT")
    if protocol is None or not url:
        return None
    if protocol == "http/protobuf":  # with gRPC, host:port without a scheme is right, and means TLS
        if not url.lower().startswith(("http://", "https://")):
            shown = displayed_url(url)
            instead = "for instance http://localhost:4318" if "..." in shown or "://" in shown else f"http://{shown}"
            raise SettingsError(
                f"an OTLP endpoint over HTTP must be a URL, got {shown!r} (from {variable}); write {instead}, or "
                f"set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
            )
        # An endpoint for one signal is used as it is, the common one is a base.
        url = url if f"_{signal.upper()}_" in variable else f"{url.rstrip('/')}/v1/{signal}"
    headers = _headers(environ, signal)
    url, authorization = without_user(url)
    if protocol == "grpc" and "@" in url:  # a password where none can be, which gRPC would repeat in its errors
        raise SettingsError(
            f"an OTLP endpoint over gRPC must be an address or a URL, got {displayed_url(url)!r} (from {variable}); "
            "write for instance collector:4317 or http://localhost:4317"
        )
    if authorization:  # in place of another, as HTTP clients do it
        headers = {name: value for name, value in headers.items() if name.lower() != "authorization"} | {
            name.lower(): value for name, value in authorization.items()
        }
    insecure = _variable_for(environ, signal, "INSECURE")[1].lower() == "true"
    return Endpoint(
        signal,
        url,
        protocol,
        origin=variable,
        headers=headers,
        certificate=_variable_for(environ, signal, "CERTIFICATE")[1] or None,
        client_certificate=_variable_for(environ, signal, "CLIENT_CERTIFICATE")[1] or None,
        client_key=_variable_for(environ, signal, "CLIENT_KEY")[1] or None,
        # The scheme goes before the switch, says the specification.
        insecure=url.lower().startswith("http://") or (insecure and "://" not in url),
    )


def _exporter(environ: Mapping[str, str], endpoint: Endpoint) -> Any:
    signal, protocol = endpoint.signal, endpoint.protocol
    timeout = _positive(environ, _variable_for(environ, signal, "TIMEOUT")[0], "seconds")
    compression = _compression(environ, signal, protocol)
    if protocol == "http/protobuf":
        preload.import_modules("netrc")  # which requests imports at its first request
    # A session that signs requests is made by OpenTelemetry's own exporter only, which reads these variables.
    prefix = "OTEL_PYTHON_EXPORTER_OTLP_HTTP"
    signers = f"{prefix}_{signal.upper()}_CREDENTIAL_PROVIDER", f"{prefix}_CREDENTIAL_PROVIDER"
    signed = protocol == "http/protobuf" and any(map(environ.get, signers))
    if signal == "traces" and protocol == "http/protobuf" and not signed:
        from ragtrace_exporters.http_spans import HttpSpanExporter

        return HttpSpanExporter(endpoint, timeout, compression.value)
    options = {"headers": endpoint.headers or None, "timeout": timeout, "compression": compression}
    exporter, arguments = _load(signal, protocol), {"endpoint": endpoint.url, **options}
    if protocol == "grpc":
        return _over_grpc(signal, exporter, arguments)
    if signed:
        return exporter(**arguments)
    from ragtrace_exporters.http_spans import new_session

    session = new_session()
    watched = _Watched(signal, exporter(**arguments, session=session))
    session.hooks["response"].append(watched.check_response)
    return watched


def _over_grpc(signal: Signal, exporter: Any, arguments: Mapping[str, Any]) -> _Watched:
    """Create OpenTelemetry's *exporter* over gRPC so that the backend's responses are read.

    It throws them away, and has no public way to them: its stub, which it makes anew after an outage, is wrapped. Spans
    are made encodable before it encodes them.
    """

    def initialize(self: Any) -> None:
        exporter._initialize_channel_and_stub(self)
        self._client = _WatchedStub(self._client, lambda response: watched.add(rejected_of_message(signal, response)))

    def export(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        batch = [encodable_span(span) for span in batch] if signal == "traces" else batch
        return exporter.export(self, batch, *args, **kwargs)

    made = type(exporter.__name__, (exporter,), {"_initialize_channel_and_stub": initialize, "export": export})
    watched = _Watched(signal, made(**arguments))
    return watched


class _WatchedStub:
    """Wrapper of a stub of gRPC that shows each response to a function."""

    def __init__(self, stub: Any, see: Callable[[Any], object]) -> None:
        self._stub, self._see = stub, see

    def Export(self, **request: Any) -> Any:  # noqa: N802 - the protocol's name
        """Send *request*, and return the response."""
        response = self._stub.Export(**request)
        self._see(response)
        return response


class _Watched:
    """Wrapper of OpenTelemetry's exporter that knows what the backend's responses say of the last batch.

    OpenTelemetry's exporter logs an error for each batch that a backend refuses, for ever. A filter on its logger would
    hide the errors of the application's own exporters, too; so the exporter sees the refusal of a whole signal as an
    acceptance, and this class returns the failure. Nothing is held back: the first batch that the backend takes is
    delivered. Responses that accept a part of a batch alone are not read by it at all.
    """

    def __init__(self, signal: Signal, exporter: Any) -> None:
        self._signal: Signal = signal
        self._exporter = exporter
        self.refused = False
        """Whether the backend said last that it does not take the signal."""
        self.rejected: Rejected = NONE
        """Items of the last batch that the backend accepted, but did not store."""

    def __getattr__(self, name: str) -> Any:
        # The SDK's metric reader and meter provider ask for more than the published methods.
        return getattr(self._exporter, name)

    def export(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Export *batch*, and return a failure if the backend does not accept that signal at all."""
        self.refused, self.rejected = False, NONE
        result = self._exporter.export(batch, *args, **kwargs)
        if self._signal == "metrics" and self.rejected.items:  # of which nobody else counts what is lost
            count = min(self.rejected.items, _points_of(batch))
            faults.warn_once(
                "lost metric points: rejected by the backend",
                "the backend took metrics in part: it rejected %d points, and says: %r",
                count,
                self.rejected.message,
                count=count,
            )
        return cast("Any", type(result))["FAILURE"] if self.refused else result

    def add(self, rejected: Rejected) -> None:
        """Add what a response to a part of the batch says."""
        self.rejected = Rejected(self.rejected.items + rejected.items, rejected.message or self.rejected.message)

    def check_response(self, response: Any, **_: object) -> None:
        """Read *response*. Log the refusal of the signal once, and replace its status by 200 for the exporter."""
        if response.status_code < 300 and is_web_page(response):
            response.status_code, response.reason = 406, WEB_PAGE  # so that the exporter fails, and says why
            return
        if response.status_code not in _NOT_TAKEN:
            self.add(rejected_of_http(self._signal, response))
            return
        faults.log_once(
            f"{self._signal} refused",
            "the backend refuses %s: HTTP %d at %s. If it takes none, set OTEL_%s_EXPORTER=none; for Phoenix write "
            'ragtrace.configure(exporter="phoenix"), which sends it what it takes',
            *(self._signal, response.status_code, displayed_url(str(response.url)), self._signal.upper()),
        )
        self.refused, response.status_code = True, 200


def _points_of(data: Any) -> int:
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)


@cache  # looking through all installed distributions takes milliseconds, which a forked child would spend again
def _load(signal: Signal, protocol: Protocol) -> Callable[..., Any]:
    # OpenTelemetry keeps its log exporters in private modules; the entry points it registers for them are public.
    group, name = f"opentelemetry_{signal}_exporter", _ENTRY_POINTS[protocol]
    for entry_point in entry_points(group=group, name=name):
        return cast("Callable[..., Any]", entry_point.load())
    with suppress(ModuleNotFoundError):  # vendored source and frozen programs have the modules, but no entry points
        package = f"opentelemetry.exporter.otlp.proto.{name.rpartition('_')[2]}"
        return cast("Callable[..., Any]", EntryPoint(name, f"{package}.{_CLASSES[signal]}", group).load())
    raise SettingsError(f"no OTLP exporter is registered as {name!r} in {group!r}; install opentelemetry-exporter-otlp")


def _reader(environ: Mapping[str, str], exporter: Any) -> MetricReader:
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(
        exporter,
        export_interval_millis=_positive(environ, "OTEL_METRIC_EXPORT_INTERVAL", "milliseconds"),
        export_timeout_millis=_positive(environ, "OTEL_METRIC_EXPORT_TIMEOUT", "milliseconds"),
    )


def _protocol(environ: Mapping[str, str], signal: Signal) -> Protocol | None:
    """Return the OTLP protocol that is configured for *signal*, or None if the signal is switched off."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip().lower() for name in text(environ, variable).split(",") if name.strip()]
    if names == ["none"]:
        return None
    if names and "otlp" not in names:
        for name in names:
            if name in _PROTOCOL_OF_NAME:
                return _PROTOCOL_OF_NAME[name]
        raise SettingsError(
            f"exporter 'otlp' sends {signal} by OTLP only, got {','.join(names)!r} (from {variable}); "
            f"write otlp or none there, or name another exporter in configure(exporter=...)"
        )
    variable, value = _variable_for(environ, signal, "PROTOCOL")
    if value.lower() not in ("", "http/protobuf", "grpc"):
        raise SettingsError(f"unknown OTLP protocol {value!r} (from {variable}); write http/protobuf or grpc")
    return "grpc" if value.lower() == "grpc" else "http/protobuf"


def _headers(environ: Mapping[str, str], signal: Signal) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers

    variable, value = _variable_for(environ, signal, "HEADERS")
    for item in filter(None, map(str.strip, value.split(","))):
        name, equals, _ = item.partition("=")
        if not name.strip() or not equals:
            # What we saw stays out of the message: it usually holds a key.
            raise SettingsError(
                f"OTLP headers must be pairs, and one of those in {variable} is not; "
                f"write name=value,name=value with the values URL-encoded"
            )
    return dict(parse_env_headers(value, liberal=True))


def _compression(environ: Mapping[str, str], signal: Signal, protocol: Protocol) -> Any:
    variable, value = _variable_for(environ, signal, "COMPRESSION")
    known = ("none", "gzip") if protocol == "grpc" else ("none", "gzip", "deflate")
    name = value.lower() or "none"
    if name not in known:
        raise SettingsError(f"unknown OTLP compression {value!r} (from {variable}); write {' or '.join(known)}")
    if protocol == "grpc":
        import grpc

        # Said even for "none", which the gRPC exporters refuse to read from the environment.
        return grpc.Compression.Gzip if name == "gzip" else grpc.Compression.NoCompression
    from opentelemetry.exporter.otlp.proto.http import Compression

    return Compression(name)


def _variable_for(environ: Mapping[str, str], signal: Signal, part: str) -> tuple[str, str]:
    """Return name and value of the environment variable that sets *part* of the OTLP configuration of *signal*."""
    own, common = f"OTEL_EXPORTER_OTLP_{signal.upper()}_{part}", f"OTEL_EXPORTER_OTLP_{part}"
    value = text(environ, own)
    return (own, value) if value else (common, text(environ, common))


def _positive(environ: Mapping[str, str], variable: str, unit: str) -> float | None:
    value = text(environ, variable)
    if not value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise SettingsError(f"{variable} must be a positive number of {unit}, got {value!r}; write 10, for example")
    return number


def text(environ: Mapping[str, str], *variables: str) -> str:
    """Return the stripped value of the first of *variables* that is set in *environ*, or ""."""
    return next((value for name in variables if (value := environ.get(name, "").strip())), "")
