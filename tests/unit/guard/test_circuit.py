"""The circuit breaker of guards: when late checks open it, and what closes it again."""

from __future__ import annotations

from ragtrace.guard.circuit import GuardCircuit
from ragtrace.testing import FakeClock


def late(circuit: GuardCircuit, clock: FakeClock, together: int) -> None:
    """Let *together* checks begin at once, and be late together."""
    tickets = [(circuit.admit(), clock.now) for _ in range(together)]
    clock.advance(0.4)
    for ticket, began in tickets:
        if ticket is not None:
            circuit.record(ticket, began, in_time=False)
    clock.advance(0.1)


def test_ten_late_checks_one_after_the_other_open_it() -> None:
    """The eleventh is not let through."""
    clock = FakeClock()
    circuit = GuardCircuit(clock)
    for _ in range(10):
        assert circuit.state == "closed"
        late(circuit, clock, 1)
    assert (circuit.state, circuit.admit()) == ("open", None)


def test_one_pause_of_the_machine_does_not_open_it() -> None:
    """All checks under way are late, and only five count; a second time opens it."""
    clock = FakeClock()
    circuit = GuardCircuit(clock)
    late(circuit, clock, 50)
    assert circuit.state == "closed"
    late(circuit, clock, 50)
    assert circuit.state == "open"


def test_a_check_in_time_begins_the_count_anew() -> None:
    """Late ones have to be in a row."""
    clock = FakeClock()
    circuit = GuardCircuit(clock)
    for _ in range(5):
        late(circuit, clock, 50)
        ticket = circuit.admit()
        assert ticket is not None
        circuit.record(ticket, clock.now, in_time=True)
    assert circuit.state == "closed"


def test_a_probe_in_time_closes_it_and_a_late_one_does_not() -> None:
    """One check is let through once the pause is over."""
    clock = FakeClock()
    circuit = GuardCircuit(clock)
    for _ in range(2):
        late(circuit, clock, 50)
    clock.advance(5)
    late(circuit, clock, 2)
    assert circuit.state == "open"
    clock.advance(10)
    ticket = circuit.admit()
    assert ticket is not None
    assert circuit.admit() is None
    circuit.record(ticket, clock.now, in_time=True)
    assert circuit.state == "closed"
