"""What `configure` starts and everything runs through; `control` and `engine` are loaded when it is called."""

from ragtrace.runtime.current_runtime import current, switched_off

__all__ = ["current", "switched_off"]
