"""The configured runtime of the process; the module `configure`, which builds it, is imported on first use."""

from ragtrace.runtime.current_runtime import current, switched_off

__all__ = ["current", "switched_off"]
