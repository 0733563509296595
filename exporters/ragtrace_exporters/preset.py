"""What the presets share: a backend's OTLP endpoint and headers, as the standard variables would say it.

A preset fills in the signals that its backend takes. A signal that has an endpoint of its own in the environment
(`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, for instance) goes there, also one that the backend does not take, and one whose
`OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER` or `OTEL_LOGS_EXPORTER` is `none` is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, urlsplit

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.score_sink import ScoreSink
from ragtrace.core.types import Signals
from ragtrace_exporters import otlp
from ragtrace_exporters.sinks.http import JsonClient

TRACES: Final = ("traces",)
ALL: Final = ("traces", "metrics", "logs")
OPENINFERENCE: Final = ("otel", "openinference")


@dataclass(frozen=True, slots=True)
class Preset:
    """Where and how a backend takes OTLP over HTTP."""

    base: str
    """URL; the path of a signal, `/v1/traces` for instance, comes behind it."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    signals: tuple[str, ...] = TRACES
    signal_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]], repr=False)
    """More headers for one of the signals."""
    dialects: tuple[str, ...] = ()
    resource: Mapping[str, str] = field(default_factory=dict[str, str])
    where: tuple[str, ...] = ()
    """The variables that say where the backend is; the first one that is set counts."""

    def signals_of(self, environ: Mapping[str, str], scores: ScoreSink | None = None) -> Signals:
        """Exporters of the signals that the backend takes, and *scores* beside them.

        Raises:
            SettingsError: a standard variable has a value that cannot be used.
        """
        signals = otlp.otlp(self._as_variables(environ))
        if text(environ, "OTEL_SDK_DISABLED").lower() == "true":
            return signals
        return replace(signals, scores=scores, dialects=self.dialects, resource=self.resource)

    def endpoints_of(self, environ: Mapping[str, str]) -> list[Endpoint]:
        """Where each signal goes, with the variable of the preset that says so."""
        named = next((name for name in self.where if text(environ, name)), "")
        origin = named or f"the default of {self.where[0]}"
        found = otlp.endpoints(self._as_variables(environ))
        return [each if text(environ, each.origin) else replace(each, origin=origin) for each in found]

    def _as_variables(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        said = dict(environ)
        # The common ones are for any other backend: they neither lead these signals astray nor give it their keys.
        for part in ("ENDPOINT", "HEADERS", "PROTOCOL"):
            said.pop(f"OTEL_EXPORTER_OTLP_{part}", None)
        for signal in ALL:
            own = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
            placed = bool(text(environ, f"{own}_ENDPOINT"))
            if signal in self.signals:
                said[f"{own}_HEADERS"] = self._headers_of(signal, text(environ, f"{own}_HEADERS"))
                if not placed:
                    said |= {f"{own}_ENDPOINT": f"{self.base}/v1/{signal}", f"{own}_PROTOCOL": "http/protobuf"}
            elif not placed:
                said[f"OTEL_{signal.upper()}_EXPORTER"] = "none"
        return said

    def _headers_of(self, signal: str, more: str) -> str:
        headers = {**self.headers, **self.signal_headers.get(signal, {})}
        pairs = [f"{name}={quote(value, safe='')}" for name, value in headers.items()]
        return ",".join([*pairs, *filter(None, [more])])


def client(environ: Mapping[str, str], base: str, headers: Mapping[str, str]) -> JsonClient:
    """A client for the backend's own API, which trusts the authorities that the exporter of its spans trusts."""
    own, common = (text(environ, f"OTEL_EXPORTER_OTLP_{part}CERTIFICATE") for part in ("TRACES_", ""))
    return JsonClient(base, headers, own or common or None)


def text(environ: Mapping[str, str], *variables: str) -> str:
    """The first of *variables* that is set, without surrounding blanks; "" if none is."""
    return next((value for name in variables if (value := environ.get(name, "").strip())), "")


def required(environ: Mapping[str, str], backend: str, *variables: str, advice: str) -> str:
    """The same, for a value that the backend cannot do without.

    Raises:
        SettingsError: none of them is set.
    """
    found = text(environ, *variables)
    if not found:
        raise SettingsError(
            f"exporter {backend!r} needs {' or '.join(variables)}, which is not set; {advice}, or name another exporter"
        )
    if not found.isprintable():
        raise SettingsError(
            f"exporter {backend!r} cannot use the value of {' or '.join(variables)}: it has line breaks or other "
            f"characters that do not print; {advice}"
        )
    return found


def url(environ: Mapping[str, str], *variables: str, default: str = "", advice: str = "") -> str:
    """A base URL out of the first of *variables* that is set, without a final slash.

    Raises:
        SettingsError: it is not an HTTP URL, or none is set and there is no *default*.
    """
    for variable in variables:
        found = text(environ, variable)
        if not found:
            continue
        try:
            parts = urlsplit(found)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
        except ValueError:
            usable = False
        if not usable:
            # What we saw stays out of the message: a URL may hold a password.
            raise SettingsError(
                f"{variable} must be a URL that begins with http:// or https:// and has no user name in it; "
                f"write {default or 'https://host:port'}, for example"
            )
        return found.rstrip("/")
    if not default:
        raise SettingsError(f"{' or '.join(variables)} must say where the backend is; {advice}")
    return default
