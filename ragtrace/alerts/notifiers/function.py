"""Notifier that calls a function of the application."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Final

from ragtrace.alerts.notifiers.notifier import UndeliveredError

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_MOST_HUNG: Final = 3


class FunctionNotifier:
    """Notifier that calls a function, plain or async, on a daemon thread of its own for every notice.

    A plain function that does not return in time cannot be stopped: its thread is abandoned. While three of them hang,
    the function is not called. A failed call is not repeated, as its effects are unknown.
    """

    def __init__(self, function: Callable[[Notice], object]) -> None:
        self.function = function
        self._hung: list[threading.Thread] = []

    @property
    def name(self) -> str:
        """Name of the function."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))

    def send(self, notice: Notice, timeout: float) -> None:
        """Call the function with *notice*."""
        self._hung = [thread for thread in self._hung if thread.is_alive()]
        if len(self._hung) >= _MOST_HUNG:
            raise UndeliveredError("hangs", f"{_MOST_HUNG} earlier calls have not come back")
        raised: list[Exception] = []

        def call() -> None:
            try:
                result = self.function(notice)
                if inspect.isawaitable(result):
                    asyncio.run(asyncio.wait_for(_awaited(result), timeout))
            except Exception as error:
                raised.append(error)
            except BaseException as error:  # sys.exit() in a notifier ends nothing
                raised.append(UndeliveredError("raised", type(error).__name__))

        # An empty context: the call is no part of the request that happened to raise the alert.
        thread = threading.Thread(target=contextvars.Context().run, args=(call,), name="ragtrace-notify", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            call()
        else:
            thread.join(timeout)
        if thread.is_alive():
            self._hung.append(thread)
            raise UndeliveredError("timeout", f"it did not come back within {timeout:g} s")
        if raised:
            raise raised[0]


async def _awaited(result: Awaitable[object]) -> None:
    await result


def is_same(one: object, other: object) -> bool:
    """Return whether two notifiers have the same receiver; notifiers of the application's own classes never have."""
    if one is other:
        return True
    if type(one) is not type(other) or type(one).__module__.partition(".")[0] != "ragtrace":
        return False
    if not isinstance(one, FunctionNotifier) or not isinstance(other, FunctionNotifier):
        return one == other
    first, second = one.function, other.function
    if isinstance(first, (MethodType, BuiltinMethodType)) and isinstance(second, (MethodType, BuiltinMethodType)):
        return first.__self__ is second.__self__ and first.__name__ == second.__name__
    return first is second
