"""Interface of alert notifiers, and notifiers that call a function, write to the log, or emit events."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from opentelemetry._logs import SeverityNumber

from ragtrace.core import semconv
from ragtrace.system.event_loops import run
from ragtrace.system.threads import background_thread

if TYPE_CHECKING:
    from opentelemetry._logs import Logger

    from ragtrace.alerts.notice import Notice

log = logging.getLogger("ragtrace.alerts")
Attributes = dict[str, "str | bool | int | float | list[str]"]
_MOST_HUNG: Final = 3


class UndeliveredError(Exception):
    """Raised when a notifier could not deliver the notification of an alert.

    Args:
        reason: one word for the counts: `unavailable`, `refused`, `timeout` ...
        detail: what was seen, for the log, without secrets.
        again: whether a later attempt may deliver the same notification.
        after_s: seconds until the next attempt, where the receiver names them.
    """

    def __init__(self, reason: str, detail: str = "", *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.again, self.after_s = reason, detail, again, after_s


@runtime_checkable
class Notifier(Protocol):
    """Interface of notifiers, which deliver the notifications of alerts.

    `send` is called on a thread of the notifier's own, with one notification at a time, so it may wait for the network.
    """

    @property
    def name(self) -> str:
        """Name of the notifier for log lines, without secrets."""
        ...

    def send(self, notice: Notice, timeout: float) -> None:
        """Deliver the notification *notice* within *timeout* seconds.

        Raises:
            UndeliveredError: the notification was not delivered; says whether to try again. Any other exception counts
                as a failure for good.
        """
        ...


class FunctionNotifier:
    """Notifier that calls a plain or async function with every notification, each on a new daemon thread.

    A plain function that does not return in time cannot be stopped: its thread is abandoned. While three of them hang,
    the function is not called. A failed call is not repeated, as its effects are unknown.
    """

    def __init__(self, function: Callable[[Notice], object]) -> None:
        self.function = function
        self._hung: list[threading.Thread] = []

    @property
    def name(self) -> str:
        """Name of the function that the notifier calls."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))

    def send(self, notice: Notice, timeout: float) -> None:
        """Call the notifier's function with *notice*, and wait at most *timeout* seconds for it."""
        self._hung = [thread for thread in self._hung if thread.is_alive()]
        if len(self._hung) >= _MOST_HUNG:
            raise UndeliveredError(
                "hangs", f"{_MOST_HUNG} earlier calls of the notifier still hang; set a timeout in its code"
            )
        raised: list[Exception] = []

        def call() -> None:
            try:
                result = self.function(notice)
                if inspect.isawaitable(result):
                    run(asyncio.wait_for(result, timeout))
            except Exception as error:
                raised.append(error)
            except BaseException as error:  # sys.exit() in a notifier must not end the thread without a result
                raised.append(UndeliveredError("raised", type(error).__name__))

        thread = background_thread(call, "ragtrace-notify")
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            call()
        else:
            thread.join(timeout)
        if thread.is_alive():
            self._hung.append(thread)
            raise UndeliveredError("timeout", f"the notifier did not return within {timeout:g} s")
        if raised:
            raise raised[0]


def have_same_receiver(one: object, other: object) -> bool:
    """Return whether two notifiers deliver to the same receiver.

    Two notifiers of the application's own classes count as different, unless they are one object.
    """
    if isinstance(one, FunctionNotifier) and isinstance(other, FunctionNotifier):
        first, second = one.function, other.function
        return first == second if isinstance(first, (MethodType, BuiltinMethodType)) else first is second
    ours = type(one) is type(other) and type(one).__module__.partition(".")[0] == "ragtrace"
    return one is other or (ours and one == other)


class LogNotifier:
    """Notifier that writes every notification to the Python logger `ragtrace.alerts`.

    The level is WARNING when a problem begins or lasts. It is INFO when a problem is over, and where there are no
    scores for a while, which may be usual.
    """

    name = "log"

    def send(self, notice: Notice, timeout: float) -> None:
        """Write the text of *notice* to the log."""
        usual = notice.problem == "no_data" and notice.due_within is None
        firing = notice.status == "firing" and not usual
        log.log(logging.WARNING if firing else logging.INFO, "alert %r: %s", notice.alert, notice.text)


class EventNotifier:
    """Notifier that emits every notification as an OpenTelemetry log event."""

    name = "OpenTelemetry event"

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def send(self, notice: Notice, timeout: float) -> None:
        """Emit *notice* as an OpenTelemetry log event."""
        firing = notice.status == "firing"
        self._logger.emit(
            timestamp=int(notice.at * 1e9),
            severity_number=SeverityNumber.WARN if firing else SeverityNumber.INFO,
            event_name=semconv.EVENT_ALERT,
            body=notice.text,
            attributes=event_attributes(notice),
        )


def event_attributes(notice: Notice) -> Attributes:
    """Return the attributes of the OpenTelemetry log event for the notification *notice*."""
    found: Attributes = {
        semconv.ALERT_NAME: notice.alert,
        semconv.ALERT_STATE: notice.problem,
        semconv.ALERT_STATUS: notice.status,
        semconv.ALERT_SINCE: notice.since,
        semconv.ALERT_CALLS: notice.calls,
        semconv.EVALUATION_NAME: notice.metric,
    }
    estimate = notice.estimate
    if estimate is not None and estimate.value is not None:
        found[semconv.ALERT_ESTIMATE] = estimate.value
        found[semconv.ALERT_LOW] = estimate.low or 0.0
        found[semconv.ALERT_HIGH] = estimate.high or 0.0
    optional = {
        semconv.WORKFLOW_NAME: notice.workflow,
        semconv.REQUEST_MODEL: notice.model,
        semconv.EVALUATOR_ID: notice.evaluator,
        semconv.ALERT_PART_OF: notice.part_of,
    }
    found.update({key: value for key, value in optional.items() if value})
    if notice.tag is not None:
        name, _, value = notice.tag.partition("=")
        found[semconv.tag(name)] = value
    if notice.worst:
        found[semconv.ALERT_TRACES] = [example.trace_id for example in notice.worst if example.trace_id]
    return found
