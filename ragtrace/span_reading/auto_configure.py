"""Configuration of ragtrace by `opentelemetry-instrument`, for applications without any ragtrace code.

opentelemetry-instrumentation calls the entry points of the group `opentelemetry_pre_instrument` in each process that it
instruments, after it has set the OpenTelemetry providers (its configurator) and before it instruments any library
(opentelemetry-instrumentation 0.66b2, `auto_instrumentation/_load.py`). An exception there would leave the application
without any instrumentation.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from ragtrace.system.faults import log_safely

_VARIABLE: Final = "RAGTRACE_EVALUATE_SPANS"
_INSTRUMENT: Final = "RAGTRACE_INSTRUMENT"
"""Environment variable that names frameworks, repeated here to save the import of `instrument`."""


def configure_if_enabled() -> None:
    """Configure ragtrace if RAGTRACE_EVALUATE_SPANS or RAGTRACE_INSTRUMENT is set.

    A failure is logged and never raised.
    """
    listens = bool(os.environ.get(_INSTRUMENT))
    if not (listens or os.environ.get(_VARIABLE)):
        return
    try:
        from ragtrace.core.settings import resolve_settings
        from ragtrace.runtime.configure import configure

        if listens or resolve_settings({}, os.environ).evaluate_spans:
            configure()
        if listens:
            from ragtrace.span_reading.instrument import instrument_from_environment

            instrument_from_environment(os.environ)
    except Exception as error:
        log_safely(logging.ERROR, "not configured, so no call is scored: %s: %s", type(error).__name__, error)
