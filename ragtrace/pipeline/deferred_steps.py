"""Steps that have ended inside a call that goes on: they go to the background along with it, or after a moment.

Handing over is a good part of what a short step costs. What waits here is in no queue, so whoever sees that the queue
is empty has to have it handed over first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ragtrace.pipeline.work_item import Finished

if TYPE_CHECKING:
    from ragtrace.core.step import Step
    from ragtrace.instrument.call_builder import CallBuilder

_MOST_STEPS: Final = 8
"""Of a call whose steps wait for each other."""


class Joined:
    """Knows the open calls with steps that wait; safe from any thread.

    Args:
        hand_over: gives a step to the background at once.
    """

    def __init__(self, hand_over: Callable[[CallBuilder | None, Step], None]) -> None:
        self._hand_over = hand_over
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Forget them: after a fork they are the parent's."""
        self._open: set[CallBuilder] = set()
        self._swept = False

    def keep(self, assembly: CallBuilder, step: Step) -> bool:
        """Let *step*, which has ended, wait for the root of its call; False if it must be handed over at once."""
        if not self._swept or len(assembly.steps) > _MOST_STEPS:  # nobody comes by, or it would be too much at a time
            return False
        step.joined = True
        self._open.add(assembly)
        # Only now: whoever closed, or ended the root, before we looked may have missed the step, or dealt with it.
        return not ((assembly.root.ended or self._closed) and step.detach())

    def over(self, assembly: CallBuilder) -> None:
        """The root has ended: what waited goes with it."""
        self._open.discard(assembly)

    def sweep(self) -> None:
        """Hand over everything that waits: on the worker's thread now and then, and before its queue is drained."""
        self._swept = True
        for assembly in tuple(self._open):
            self._open.discard(assembly)  # first: a step that comes now brings it back
            self.part(assembly)

    def part(self, assembly: CallBuilder | None) -> None:
        """Hand over what waits in one call: there is no room for all of it together, or its root takes its time."""
        for step in () if assembly is None else tuple(assembly.steps):
            if step.detach():
                self._hand_over(assembly, step)

    def close(self) -> None:
        """The same for the last time: nothing waits any more."""
        self._closed = True
        self.sweep()


def joined(work: Finished) -> list[Finished]:
    """The steps that go along with *work*, a call: whoever asks deals with their spans."""
    if not work.is_call or work.assembly is None:
        return []
    return [Finished(step, work.assembly) for step in tuple(work.assembly.steps) if step.detach()]
