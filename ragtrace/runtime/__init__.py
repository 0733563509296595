"""Runtime of ragtrace in the current process, which `configure` builds.

The module of `configure` is imported on first use.
"""

from ragtrace.runtime.current_runtime import current, switched_off

__all__ = ["current", "switched_off"]
