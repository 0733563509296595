"""Presets: exporters for backends that accept OTLP, configured by the backends' own environment variables.

A preset fills in the signals that its backend takes. A signal that has an endpoint of its own in the environment
(`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, for instance) goes there, also one that the backend does not take, and one whose
`OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER` or `OTEL_LOGS_EXPORTER` is `none` is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from typing import Final, TypeAlias
from urllib.parse import quote, urlsplit

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.score_sink import ScoreSink
from ragtrace.core.types import Signals
from ragtrace_exporters import otlp
from ragtrace_exporters.score_api import JsonClient

Environ: TypeAlias = "Mapping[str, str]"
"""Environment variables by name."""
TRACES: Final = ("traces",)
ALL: Final = ("traces", "metrics", "logs")
OPENINFERENCE: Final = ("otel", "openinference")
text: Final = otlp.text


@dataclass(frozen=True, slots=True)
class Backend:
    """Backend that accepts OTLP over HTTP: its address and the signals that it accepts."""

    base: str
    """URL that the path of a signal follows, `/v1/traces` for instance."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    signals: tuple[str, ...] = TRACES
    signal_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]], repr=False)
    """More headers for one of the signals."""
    dialects: tuple[str, ...] = ()
    resource: Mapping[str, str] = field(default_factory=dict[str, str])
    service_attribute: str = ""
    """Resource attribute that has the name of the service, unless `resource` or the user sets it; empty: none."""
    scores: ScoreSink | None = None
    """Sink for the scores where the backend does not read them from OTLP."""

    def as_variables(self, environ: Environ) -> Mapping[str, str]:
        """Return *environ* with the `OTEL_*` variables that direct the OTLP exporters to this backend."""
        said = dict(environ)
        # The common ones are for any other backend: they neither lead these signals astray nor give it their keys.
        for part in ("ENDPOINT", "HEADERS", "PROTOCOL"):
            said.pop(f"OTEL_EXPORTER_OTLP_{part}", None)
        for signal in ALL:
            own = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
            placed = bool(text(environ, f"{own}_ENDPOINT"))
            if signal in self.signals:
                headers = {**self.headers, **self.signal_headers.get(signal, {})}
                pairs = [f"{name}={quote(value, safe='')}" for name, value in headers.items()]
                said[f"{own}_HEADERS"] = ",".join([*pairs, *filter(None, [text(environ, f"{own}_HEADERS")])])
                if not placed:
                    said |= {f"{own}_ENDPOINT": f"{self.base}/v1/{signal}", f"{own}_PROTOCOL": "http/protobuf"}
            elif not placed:
                said[f"OTEL_{signal.upper()}_EXPORTER"] = "none"
        return said


class Preset:
    """Entry point of a backend, which returns exporters of the signals that the backend accepts, and its score sink.

    Raises:
        SettingsError: when called, a variable is missing or has a value that cannot be used.
    """

    def __init__(self, read: Callable[[Environ], Backend], where: tuple[str, ...]) -> None:
        self.read, self._where = read, where
        update_wrapper(self, read)  # `ragtrace exporters` shows its docstring and module

    def __call__(self, environ: Environ) -> Signals:
        backend = self.read(environ)
        signals = otlp.otlp(backend.as_variables(environ))
        if text(environ, "OTEL_SDK_DISABLED").lower() == "true":
            return signals
        return replace(
            signals,
            scores=backend.scores,
            dialects=backend.dialects,
            resource=backend.resource,
            service_attribute=backend.service_attribute,
        )

    def endpoints(self, environ: Environ) -> list[Endpoint]:
        """Return the endpoint of each signal to export, with the environment variable that sets the endpoint."""
        named = next((name for name in self._where if text(environ, name)), f"the default of {self._where[0]}")
        found = otlp.endpoints(self.read(environ).as_variables(environ))
        return [each if text(environ, each.origin) else replace(each, origin=named) for each in found]


def preset(*where: str) -> Callable[[Callable[[Environ], Backend]], Preset]:
    """Return a decorator that makes a `Preset` of a function which reads the environment and returns a `Backend`.

    Args:
        where: the variables for the address of the backend; the first one that is set counts.
    """
    return lambda read: Preset(read, where)


def client(environ: Environ, base: str, headers: Mapping[str, str]) -> JsonClient:
    """Return an HTTP client for a backend's own API, with the certificate authorities of its span exporter."""
    own, common = (text(environ, f"OTEL_EXPORTER_OTLP_{part}CERTIFICATE") for part in ("TRACES_", ""))
    return JsonClient(base, headers, own or common or None)


def required(environ: Environ, backend: str, variable: str, *, advice: str) -> str:
    """Return the value of the environment variable *variable*, without which the exporter for *backend* cannot work.

    Raises:
        SettingsError: the variable is not set, or cannot be used.
    """
    found = text(environ, variable)
    if not found:
        raise SettingsError(
            f"exporter {backend!r} needs {variable}, which is not set; {advice}, or name another exporter"
        )
    if not found.isprintable():
        raise SettingsError(
            f"exporter {backend!r} cannot use the value of {variable}: it has line breaks or other characters that do "
            f"not print; {advice}"
        )
    return found


def url(environ: Environ, *variables: str, default: str = "", advice: str = "") -> str:
    """Return the base URL in the first of *variables* that is set in *environ*, without a trailing slash.

    Raises:
        SettingsError: it is not an HTTP URL, or none is set and there is no *default*.
    """
    found = text(environ, *variables) or default
    if not found:
        raise SettingsError(f"{' or '.join(variables)} must say where the backend is; {advice}")
    try:
        parts = urlsplit(found)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable:
        # What we saw stays out of the message: a URL may hold a password.
        raise SettingsError(
            f"{next(name for name in variables if text(environ, name))} must be a URL that begins with http:// or "
            f"https:// and has no user name in it; write {default or 'https://host:port'}, for example"
        )
    return found.rstrip("/")
