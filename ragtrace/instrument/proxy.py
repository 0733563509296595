"""wrapt's transparent proxies, under types that both type checkers agree on (its own differ between releases)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class Proxy:
        """Passes for the object it wraps; keeps its own attributes under names that begin with `_self_`."""

        __wrapped__: Any

        def __init__(self, wrapped: Any) -> None: ...

    class FunctionProxy(Proxy):
        """Passes for a function, and binds like one; calls go to `wrapper(wrapped, instance, args, kwargs)`."""

        def __init__(self, wrapped: Any, wrapper: Any) -> None: ...

else:
    from wrapt import FunctionWrapper as FunctionProxy
    from wrapt import ObjectProxy as Proxy

__all__ = ["FunctionProxy", "Proxy"]
