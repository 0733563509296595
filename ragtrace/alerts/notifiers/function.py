"""A function of the application's, told of an alert."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Final

from ragtrace.alerts.notifiers.notifier import UndeliveredError

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_MOST_HUNG: Final = 3


class Function:
    """Calls a function, plain or async, on a daemon thread of its own for every notice.

    A plain function that does not come back in time cannot be stopped: its thread is left alone. While three of them
    hang, it is not called. A failure is not repeated, as nobody knows what the function had done by then.
    """

    def __init__(self, function: Callable[[Notice], object]) -> None:
        self.function = function
        self._hung: list[threading.Thread] = []

    @property
    def name(self) -> str:
        """Of the function."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))

    def send(self, notice: Notice, timeout: float) -> None:
        """Call the function."""
        self._hung = [thread for thread in self._hung if thread.is_alive()]
        if len(self._hung) >= _MOST_HUNG:
            raise UndeliveredError("hangs", f"{_MOST_HUNG} earlier calls have not come back")
        call = _Call(self.function, notice, timeout)
        # An empty context: it is no part of the request that happened to bring the alert about.
        thread = threading.Thread(
            target=contextvars.Context().run, args=(call.run,), name="ragtrace-notify", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            call.run()
        else:
            thread.join(timeout)
        if thread.is_alive():
            self._hung.append(thread)
            raise UndeliveredError("timeout", f"it did not come back within {timeout:g} s")
        if call.error is not None:
            raise call.error


class _Call:
    """One call, and what it raised."""

    def __init__(self, function: Callable[[Notice], object], notice: Notice, timeout: float) -> None:
        self.function, self._notice, self._timeout = function, notice, timeout
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            result = self.function(self._notice)
            if inspect.isawaitable(result):
                asyncio.run(asyncio.wait_for(_awaited(result), self._timeout))
        except Exception as error:
            self.error = error
        except BaseException as error:  # sys.exit() in a notifier ends nothing
            self.error = UndeliveredError("raised", type(error).__name__)


async def _awaited(result: object) -> None:
    if inspect.isawaitable(result):
        await result


def is_same(one: object, other: object) -> bool:
    """Return whether two notifiers tell the same receiver; objects of the application's classes are not compared."""
    if one is other:
        return True
    if type(one) is not type(other) or type(one).__module__.partition(".")[0] != "ragtrace":
        return False
    if not isinstance(one, Function) or not isinstance(other, Function):
        return one == other
    first, second = one.function, other.function
    if isinstance(first, (MethodType, BuiltinMethodType)) and isinstance(second, (MethodType, BuiltinMethodType)):
        return first.__self__ is second.__self__ and first.__name__ == second.__name__
    return first is second
