"""Addresses that `ragtrace doctor` checks: where telemetry is sent to, and where metrics pages are served. And what a
backend there says of what it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address to which an exporter sends one OpenTelemetry signal: traces, metrics or logs.

    The function `endpoints(environ)` in the exporter's module returns it. `ragtrace doctor` checks it with an empty
    OTLP export. `headers` hold secrets and are never shown.
    """

    signal: Literal["traces", "metrics", "logs"]
    url: str
    protocol: Literal["grpc", "http/protobuf"]
    origin: str
    """Environment variable from which the address was read."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    certificate: str | None = None
    """File of the authorities that the backend's certificate is checked against; None: those of the system."""
    client_certificate: str | None = None
    client_key: str | None = None
    """File with the private key of `client_certificate`, by which a backend recognises the client; None: no key."""
    insecure: bool = False
    """Whether gRPC is used without TLS."""


class Page(NamedTuple):
    """HTTP page on which a process serves its metrics.

    The function `page(environ)` in the exporter's module returns it. `ragtrace doctor` checks whether a process serves
    it.
    """

    url: str
    origin: str
    """Environment variable from which the page's port was read, or `default`."""


class Rejected(NamedTuple):
    """Items of an accepted request that an OTLP backend did not store, and what it says of them.

    An exporter that knows it has one as its attribute `rejected`, of the last batch.
    """

    items: int = 0
    message: str = ""
