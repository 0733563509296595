"""Internal failures of ragtrace: kept away from the application, counted by component, and logged once for each.

After `configure` has returned nothing of ragtrace raises into the application: code that runs on the application's
threads goes through `guarded`, which logs a failure once per place and counts every one.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from sys import is_finalizing
from typing import Final, NamedTuple

from ragtrace.system.forks import PerProcess
from ragtrace.system.urls import hide_secrets

log = logging.getLogger("ragtrace")
_LOGGED_CHARS: Final = 1_000
_MESSAGE_CHARS: Final = 300
_FRAMES: Final = 30
FAILURES: Final = (Exception, SystemExit, KeyboardInterrupt)
"""Exceptions that are failures on a thread of ragtrace: there the last two come from functions of the application,
and would end the thread."""
LEFT_OUT: Final = "(its message is left out, as capture_content is NO_CONTENT)"
"""Replacement for the message of an exception, which may hold content of a call, where no content may be logged."""
_CHAINED: Final = 4
# Line breaks forge log lines, escape sequences drive terminals, direction marks and tag characters hide text.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]+"
)


def printable(text: str, most: int = _LOGGED_CHARS) -> str:
    """Return *text* as one line that is safe to show in a log or on a terminal.

    Runs of control, direction and invisible characters become one space, credentials in URLs and API keys `***`.

    Args:
        most: characters that are kept; a longer text ends in " ...".
    """
    shown = " ".join(hide_secrets(_UNPRINTABLE.sub(" ", text[: 4 * most])).split())
    return shown if len(shown) <= most else f"{shown[:most]} ..."


def log_safely(level: int, message: str, *args: object) -> None:
    """Log a message after making its text and exception arguments safe for a log line. Never raises.

    A log handler or filter of the application that raises must not hurt the application through ragtrace.
    """
    if is_finalizing():  # a thread that is no more may hold a lock of the handlers
        return
    with suppress(Exception):
        log.log(level, message, *[printable(str(arg)) if isinstance(arg, (str, Exception)) else arg for arg in args])


class _Counts:
    """Counts of failures in one process, and the places whose first failure was logged there."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # re-entrant: garbage collection can end a stream at any allocation
        self.counts: Counter[str] = Counter()
        self.earlier: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.here = threading.local()
        self.told: set[str] = set()

    def held(self) -> AbstractContextManager[object]:
        """Return the lock, or none when the interpreter ends: a daemon thread that is no more may hold it for ever."""
        return nullcontext() if is_finalizing() else self.lock


class Messages(NamedTuple):
    """What a configuration lets leave the process of the messages of exceptions, which may hold texts of its calls."""

    filter: Callable[[BaseException], str] | None
    """Function that redacts the message; None if messages stay as they are."""
    hidden: bool
    """Whether no message may leave, as `capture_content` is NO_CONTENT."""


class Faults:
    """Counter of ragtrace's internal failures by component, which logs the first failure of each component.

    A forked child counts its own.
    """

    def __init__(self) -> None:
        self._made = PerProcess(_Counts)
        self.message_filter: Callable[[BaseException], str] | None = None
        """Function, set by `configure`, that redacts the message of an exception; None if messages stay as they are."""
        self.hides_messages = False
        """Whether no message of an exception may leave the process, as `capture_content` is NO_CONTENT."""

        self._former: list[Messages] = []
        """Those of former configurations whose calls are still being scored."""

    def keep_messages_of(self, former: Messages) -> None:
        """Hide what *former* hides as well, until `forget_messages_of` is called for it."""
        self._former.append(former)

    def forget_messages_of(self, former: Messages) -> None:
        """Hide no longer what *former* alone hides."""
        with suppress(ValueError):
            self._former.remove(former)

    def forget_former(self) -> None:
        """Hide no longer what former configurations alone hide: a forked child has none of their calls."""
        self._former.clear()

    def record(self, place: str, error: BaseException) -> None:
        """Count the exception *error* as a failure of the component *place*, and log its first failure. Never raises.

        The log line holds the frames of the traceback, and the error's message as `message_filter` leaves it, or none
        if `hides_messages`: an exception out of a user's function may carry the texts of a call.
        """
        made = self._made.get()
        with made.held():
            _count(made, place, 1)
            first = made.counts[place] == 1
        if not first or is_finalizing():
            return
        try:
            log.error(
                "ragtrace failed in %s; the application is not affected, further failures there are only counted\n%s",
                printable(place),
                self._traceback(error),
            )
        except Exception:  # a hostile __str__ of the error
            log_safely(logging.ERROR, "ragtrace failed in %s; the error could not be printed", place)

    def _traceback(self, error: BaseException) -> str:
        """Return the traceback of *error* and of its causes as text, without the values of variables."""
        parts: list[str] = []
        current: BaseException | None = error
        while current is not None and len(parts) < _CHAINED:
            frames = "".join(traceback.format_tb(current.__traceback__, -_FRAMES))
            parts.append(f"{frames}{type(current).__qualname__}: {printable(self.message(current), _MESSAGE_CHARS)}")
            current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        return "\nwhich led to:\n".join(reversed(parts))

    def message(self, error: BaseException) -> str:
        """Return the message of an exception for the log, redacted or replaced by a fixed text. Never raises."""
        rules = (Messages(self.message_filter, self.hides_messages), *self._former)
        if any(rule.hidden for rule in rules):
            return LEFT_OUT
        try:
            for rule in rules:
                error = error if rule.filter is None else Exception(rule.filter(error))
            return str(error)
        except BaseException as raised:  # the user's redaction, or a hostile __str__: better no message than the wrong
            if not is_failure(raised):
                raise
            return "(its message could not be redacted)"

    def warn_once(self, place: str, message: str, *args: object, count: int = 1) -> None:
        """Add *count* to the failures of the component *place*, and log a warning the first time. Never raises."""
        made = self._made.get()
        with made.held():
            first = place not in made.counts
            _count(made, place, count)
        if first:
            log_safely(logging.WARNING, message, *args)

    def log_once(self, place: str, message: str, *args: object) -> None:
        """Log a warning the first time it is requested for *place*, without counting a failure."""
        made = self._made.get()
        with made.held():
            first = place not in made.told
            made.told.add(place)
        if first:
            log_safely(logging.WARNING, message, *args)

    def counts(self) -> Mapping[str, int]:
        """Return the number of ragtrace's internal failures since the process started, by component."""
        made = self._made.get()
        with made.held():
            return dict(made.counts)

    def counts_here(self) -> Mapping[str, int]:
        """Return the number of ragtrace's internal failures on the current thread, by component."""
        return dict(getattr(self._made.get().here, "counts", {}))

    def counts_since_configure(self) -> Mapping[str, int]:
        """Return the number of ragtrace's internal failures since it was last configured, by component."""
        made = self._made.get()
        with made.held():
            return dict(made.counts - made.earlier)

    def end_configuration(self, of_the_next: Mapping[str, int]) -> None:
        """Record that all failures counted so far belong to the configuration of ragtrace that ends now.

        Those counted in *of_the_next* belong to the next configuration.
        """
        made = self._made.get()
        with made.held():
            made.ended = made.counts - Counter(of_the_next)

    def begin_configuration(self) -> None:
        """Record that all failures from now on belong to the configuration of ragtrace that begins.

        `counts_since_configure` then counts the failures since the end of the previous one, if there was one.
        """
        made = self._made.get()
        with made.held():
            made.earlier = made.ended

    def clear(self) -> None:
        """Remove all counts of failures, so that the next failure of each component is logged again."""
        self._made = PerProcess(_Counts)


def _count(made: _Counts, place: str, count: int) -> None:
    made.counts[place] += count
    if not hasattr(made.here, "counts"):
        made.here.counts = Counter[str]()
    made.here.counts[place] += count


faults = Faults()


def is_failure(error: BaseException) -> bool:
    """Return whether *error*, which a user's function has raised on this thread, is a failure of that function.

    On the main thread `SystemExit` and `KeyboardInterrupt` may come from a signal handler, and are the application's.
    On any other thread only the function itself can have raised them, and they would end ragtrace's thread.
    """
    exits = isinstance(error, (SystemExit, KeyboardInterrupt))
    return isinstance(error, Exception) or (exits and threading.current_thread() is not threading.main_thread())


@contextmanager
def guarded(place: str) -> Generator[None, None, None]:
    """Catch every `Exception` in a block of ragtrace's own code, count it for the component *place* and log the first.

    `KeyboardInterrupt`, `SystemExit`, `GeneratorExit` and cancellation are the application's and pass through.
    """
    try:
        yield
    except Exception as error:
        faults.record(place, error)
