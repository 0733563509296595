"""Where an exporter sends things, for whoever wants to know whether anybody is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an exporter sends one signal: what a function `endpoints(environ)` in an exporter's module returns.

    With it `ragtrace doctor` can ask there with an empty OTLP export. `headers` hold secrets and are never shown.
    """

    signal: Literal["traces", "metrics", "logs"]
    url: str
    protocol: Literal["grpc", "http/protobuf"]
    origin: str
    """The variable it came from."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    certificate: str | None = None
    """File of the authorities that its certificate is checked against; None: those of the system."""
    client_certificate: str | None = None
    client_key: str | None = None
    """Files with which we show who we are, where the backend asks."""
    insecure: bool = False
    """gRPC without TLS."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of metrics that the processes of an application serve: what a function `page(environ)` beside it returns.

    With it `ragtrace doctor` can look whether anybody serves it.
    """

    url: str
    origin: str
    """The variable that its port came from, or `default`."""
    folder: str
    """Where the processes put their metrics together."""
    folder_origin: str
