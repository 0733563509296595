"""The public class `Route`: exporters by the value of a tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.tags import check_tag_name, tag_text, tag_value
from ragtrace.core.types import Signals
from ragtrace.tagging.routing.routed_export import open_routing
from ragtrace.telemetry.export.routes import Routes

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from ragtrace.core.settings import Settings
    from ragtrace.system.forks import PerProcess
    from ragtrace.telemetry.export.routes import Routing


@dataclass(frozen=True)
class Route(Routes):
    """Exporters by the value of a tag, such as a tenant: each takes the calls with its value, and no others.

    Examples:
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> acme, globex = InMemorySpanExporter(), InMemorySpanExporter()
        >>> ragtrace.configure(exporter=ragtrace.types.Route("tenant", {"acme": acme, "globex": globex}))
        >>> with ragtrace.call("Where is the tower?", name="support", tags={"tenant": "acme"}) as call:
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> len(acme.get_finished_spans()), len(globex.get_finished_spans())
        (1, 0)

    Raises:
        SettingsError: the tag's name or a value is none, something is no exporter, or one exporter is there twice.
    """

    tag: str
    """Name of the tag."""
    exporters: Mapping[Any, str | SpanExporter | Signals]  # Any: keys are invariant, and most are texts
    """Exporter of each value, as `configure(exporter=)` takes one: an object, or a name such as "otlp"."""
    default: str | SpanExporter | Signals | None = None
    """Exporter of all other calls, of the metrics, and of what is no call's; None: they are dropped and counted."""

    def __post_init__(self) -> None:
        check_tag_name(self.tag)
        given: object = self.exporters
        if not isinstance(given, Mapping) or not given:
            raise SettingsError(
                f"Route(exporters=) must be a mapping of the values of {self.tag!r} to exporters, got "
                f"{type(given).__name__ if given else 'none'}; write for instance "
                f'Route("{self.tag}", {{"acme": SpanExporter(...)}})'
            )
        exporters: dict[str, object] = {}
        for raw, exporter in cast("Mapping[object, object]", given).items():
            if (value := tag_value(raw)) is None:
                raise SettingsError(
                    f"Route(exporters=) has {type(raw).__name__} as a value of {self.tag!r}; it must be a text of 1 to "
                    "200 characters, a boolean or a finite number"
                )
            text = tag_text(value)
            if text in exporters:
                raise SettingsError(f"Route(exporters=) has {text!r} twice as a value of {self.tag!r}; leave one out")
            _check_exporter(exporter, f"of {text!r}")
            if isinstance(exporter, Signals) and exporter.metrics is not None:
                raise SettingsError(
                    f"Route(exporters=) has metrics for {text!r}; metrics are sums over all calls, so that they cannot "
                    "be one tenant's: give them to Route(default=)"
                )
            exporters[text] = exporter
        if self.default is not None:
            _check_exporter(self.default, "default=")
        _check_distinct({**{f"of {text!r}": each for text, each in exporters.items()}, "default=": self.default})
        object.__setattr__(self, "exporters", exporters)

    @property
    def fallback(self) -> object:
        """Exporter of the metrics, and of what is no call's."""
        return self.default

    def open(
        self, settings: Settings, resource: Resource, sizes: tuple[int, int], fallback: PerProcess[Signals]
    ) -> Routing:
        """Make the exporters, with a queue each."""
        names = cast("Mapping[str, object]", self.exporters)
        return open_routing(self.tag, names, self.default, settings, resource, sizes, fallback)


def _check_exporter(exporter: object, where: str) -> None:
    if isinstance(exporter, (str, Signals)) or callable(getattr(exporter, "export", None)):
        return
    raise SettingsError(
        f"Route must have names of exporters, SpanExporters or ragtrace.types.Signals, got {type(exporter).__name__} "
        f"({where}); write for instance 'none', which takes everything and exports nothing"
    )


def _check_distinct(exporters: Mapping[str, object]) -> None:
    """Check that no exporter is in two routes: each is used by one thread at a time, and counts for itself."""
    seen: dict[int, str] = {}
    for where, exporter in exporters.items():
        parts = (exporter.spans, exporter.logs, exporter.scores) if isinstance(exporter, Signals) else (exporter,)
        for part in parts:
            if part is None or isinstance(part, str):
                continue
            other = seen.setdefault(id(part), where)
            if other != where:
                raise SettingsError(
                    f"Route has one {type(part).__name__} in two places ({other} and {where}); make one for each"
                )
