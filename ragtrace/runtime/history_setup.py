"""The local history of a configured process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.trace import get_tracer_provider

from ragtrace.core import semconv
from ragtrace.core.errors import SettingsError
from ragtrace.history.source import Source

if TYPE_CHECKING:
    from ragtrace.core.settings import Settings
    from ragtrace.evaluation.scoring import Evaluators
    from ragtrace.history.history import History
    from ragtrace.telemetry.export.providers import Telemetry


def check_store(settings: Settings) -> None:
    """See that the history can be kept, if there is to be one: before anything is started.

    Raises:
        SettingsError: it cannot.
    """
    if settings.store:
        _history(settings, Source()).prepare(settings.origins["store"])


def histories(settings: Settings, evaluators: Evaluators, telemetry: Telemetry, provider: object) -> list[History]:
    """The history that finished calls are kept in, if there is to be one.

    Args:
        provider: the user's provider of spans, whose resource says which release this is; None: the process's.
    """
    if not settings.store:
        return []
    service = settings.service or _of_resource(telemetry, provider, semconv.SERVICE_NAME)
    return [_history(settings, Source.of(evaluators, service=service, release=release(telemetry, provider)))]


def release(telemetry: Telemetry, provider: object) -> str:
    """Return the `service.version` of the application; empty: it says none. *provider* as of `histories`."""
    return _of_resource(telemetry, provider, semconv.SERVICE_VERSION)


def _of_resource(telemetry: Telemetry, provider: object, name: str) -> str:
    theirs = getattr(provider or get_tracer_provider(), "resource", None)
    resource = theirs if telemetry.resource is None else telemetry.resource()
    return str(getattr(resource, "attributes", {}).get(name, ""))


def _history(settings: Settings, source: Source) -> History:
    try:
        from ragtrace.history.history import History
    except ImportError as error:
        raise SettingsError(
            f"a history needs Python's module sqlite3, got {error} (for {settings.origins['store']}); leave it out, or "
            "use another build"
        ) from error
    return History(
        settings.store,
        source,
        days=settings.store_days,
        most_bytes=settings.store_bytes,
        texts=settings.capture_content != "NO_CONTENT",
    )
