"""The demo beside the backends: it runs through them, and stays up with them until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import Final

from ragtrace.demo.backends.arrival import arrived
from ragtrace.demo.backends.beside import Beside, beside, ended
from ragtrace.demo.backends.interrupts import Interrupts
from ragtrace.demo.outcome import Outcome
from ragtrace.demo.run import Options, Progress, running

_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Stay:
    """A finished run whose application and backends are still up."""

    outcome: Outcome
    _backends: Beside

    def until_interrupted(self, tell: Callable[[str], None]) -> None:
        """Return at Ctrl-C, SIGTERM or SIGHUP, at once if no backend runs; one that ends before is told of."""
        left = set(self._backends.running)
        if not left:
            return
        pause = Event()
        try:
            tell("staying up until Ctrl-C")
            while left:
                pause.wait(_LOOK_S)
                gone = left.intersection(ended(self._backends))
                left -= gone
                for name in sorted(gone):
                    tell(f"{name} has ended; its log: {self._backends.running[name].launch.log}")
        except KeyboardInterrupt:
            tell("stopping the backends")


@contextmanager
def staying(options: Options, progress: Progress) -> Generator[Stay, None, None]:
    """Run the demo with its telemetry in every backend that is installed; all of it ends with the block.

    Raises:
        DemoError: if the demo cannot run as asked, or the served model keeps failing.
    """
    with ExitStack() as stack:
        backends = stack.enter_context(beside(progress, stack.enter_context(Interrupts())))
        finished = stack.enter_context(running(options, progress, backends.servers()))
        outcome = finished()
        raised = any(alarm.raised_after is not None for alarm in outcome.alarms)
        shown = arrived(backends, progress, alarmed=raised)
        yield Stay(replace(outcome, backends=shown), backends)
