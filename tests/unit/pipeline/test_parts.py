"""The parts of a runtime: driven in one order and in the same way, and none of them stops another."""

from __future__ import annotations

import asyncio

import pytest

from ragtrace.core.part import Part
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.shutdown import ShutdownBudget
from ragtrace.system.faults import faults


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


class Noting(Part):
    """Part that notes what it was asked to do, and fails if it is told to."""

    def __init__(self, name: str, notes: list[str], *, well: bool = True, error: BaseException | None = None) -> None:
        self._name, self._notes, self._well, self._error = name, notes, well, error
        self.timeouts: list[float] = []

    def _note(self, what: str) -> bool:
        self._notes.append(f"{what} {self._name}")
        if self._error is not None:
            raise self._error
        return self._well

    def tick(self) -> None:
        self._note("tick")

    def flush(self, timeout: float) -> bool:
        self.timeouts.append(timeout)
        return self._note("flush")

    def close(self, timeout: float) -> bool:
        return self._note("close")

    async def aclose(self) -> None:
        self._note("aclose")


def test_parts_are_driven_in_their_order() -> None:
    """Each hands over to later ones."""
    notes: list[str] = []
    parts = Parts([Noting("one", notes), Noting("two", notes)])
    parts.tick()
    assert parts.flush(ShutdownBudget(1.0))
    assert parts.close(ShutdownBudget(1.0)) == frozenset()
    asyncio.run(parts.aclose())
    assert notes == [f"{what} {name}" for what in ("tick", "flush", "close", "aclose") for name in ("one", "two")]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_function_that_ends_the_program_ends_no_periodic_work(error: BaseException) -> None:
    """A `sys.exit()` in a function that a part calls counts as its failure, and the parts after it have their turn."""
    notes: list[str] = []
    Parts([Noting("one", notes, error=error), Noting("two", notes)]).tick()
    assert notes == ["tick one", "tick two"]
    assert faults.counts() == {"background tick": 1}


def test_a_part_that_raises_stops_no_other_and_is_counted() -> None:
    """Neither when it works nor when it ends."""
    notes: list[str] = []
    broken, fine = Noting("broken", notes, error=OSError("no disk")), Noting("fine", notes)
    parts = Parts([broken, fine])
    parts.tick()
    assert not parts.flush(ShutdownBudget(1.0))
    assert parts.close(ShutdownBudget(1.0)) == {broken}
    asyncio.run(parts.aclose())
    assert [note for note in notes if note.endswith("fine")] == ["tick fine", "flush fine", "close fine", "aclose fine"]
    places = ("background tick", "flush of Noting", "close of Noting", "end of the background worker")
    assert faults.counts() == dict.fromkeys(places, 1)


def test_a_part_that_lost_something_is_named() -> None:
    """The result of a shutdown depends on which part it was."""
    lossy = Noting("lossy", [], well=False)
    parts = Parts([lossy, Noting("fine", [])])
    assert not parts.flush(ShutdownBudget(1.0))
    assert parts.close(ShutdownBudget(1.0)) == {lossy}


def test_each_part_gets_half_of_the_time_and_the_last_one_all_of_it() -> None:
    """One that hangs leaves time for the export."""
    parts = [Noting(name, []) for name in ("one", "two", "last")]
    assert Parts(parts).flush(ShutdownBudget(10.0))
    timeouts = [part.timeouts[0] for part in parts]
    assert timeouts == pytest.approx([5.0, 5.0, 10.0], abs=0.5)


def test_a_part_does_nothing_where_it_has_no_method() -> None:
    """And succeeds."""
    parts = Parts([_Idle()])
    parts.tick()
    assert parts.flush(ShutdownBudget(0.0))
    assert not parts.close(ShutdownBudget(0.0))
    asyncio.run(parts.aclose())


class _Idle(Part):
    """Part without any method."""
