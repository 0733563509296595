"""The runtime that `configure` builds for the process; the module `configure` is imported on first use."""

from ragtrace.runtime.current_runtime import current, switched_off

__all__ = ["current", "switched_off"]
