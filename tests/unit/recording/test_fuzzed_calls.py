"""Calls made at random: nothing is raised into the application, and it sees what it would see without ragtrace."""

from __future__ import annotations

from random import Random
from typing import Final

import ragtrace
from ragtrace.system.faults import faults
from tests.support.examples import examples
from tests.support.fuzzed_calls import decorated, function_of, outcome, script
from tests.support.watched import watch

SEEDS: Final = range(examples(2_000))
"""28,000 others were called once, with the same result."""
OUTSIDE: Final = ("capture.", "answer= of ", "reduce= of ", "a selector of ", "capture of results", "stream piece")
"""Beginnings of what is counted where an argument is not understood, or where a function of the application fails."""
OURS: Final = frozenset(
    {"capture.documents", "capture.answer", "capture.query", "capture.stream", "capture.tool", "capture"}
)
"""Places where an exception would be a mistake of ragtrace."""


def test_the_application_sees_what_it_would_see_without_ragtrace() -> None:
    """Whatever it passes, returns, yields, raises and leaves: the same objects and the same end."""
    faults.clear()  # those of other tests
    watch()
    for seed in SEEDS:
        made = script(Random(seed))
        undecorated = outcome(function_of(made), made)
        assert outcome(decorated(made, Random(-seed - 1)), made) == undecorated, (seed, made.kind)
        if seed % 500 == 0:
            assert ragtrace.flush()
    assert ragtrace.flush()
    found = ragtrace.stats().faults
    faults.clear()
    assert {name for name in found if not name.startswith(OUTSIDE) or name in OURS} == set()
