"""Interface of notifiers, which deliver notices of alerts, and the notifier that calls a function."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ragtrace.alerts.notice import Notice

_MOST_HUNG: Final = 3


class UndeliveredError(Exception):
    """A notice could not be delivered.

    Args:
        reason: one word for the counts: `unavailable`, `refused`, `timeout` ...
        detail: what was seen, for the log, without secrets.
        again: whether the same notice may be delivered by a later attempt.
        after_s: seconds until the next attempt, where the receiver names them.
    """

    def __init__(self, reason: str, detail: str = "", *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.again, self.after_s = reason, detail, again, after_s


@runtime_checkable
class Notifier(Protocol):
    """Receiver of alerts. Notices arrive one at a time on a thread of its own, so `send` may wait for the network."""

    @property
    def name(self) -> str:
        """Name for the log, without secrets."""
        ...

    def send(self, notice: Notice, timeout: float) -> None:
        """Deliver *notice* within *timeout* seconds.

        Raises:
            UndeliveredError: the notice was not delivered; says whether to try again. Any other exception counts as a
                failure for good.
        """
        ...


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
    if isinstance(one, FunctionNotifier) and isinstance(other, FunctionNotifier):
        first, second = one.function, other.function
        return first == second if isinstance(first, (MethodType, BuiltinMethodType)) else first is second
    ours = type(one) is type(other) and type(one).__module__.partition(".")[0] == "ragtrace"
    return one is other or (ours and one == other)
