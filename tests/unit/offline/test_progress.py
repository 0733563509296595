"""Progress of an evaluation on standard error, where that is no terminal."""

from __future__ import annotations

import pytest

from ragtrace.core.cost import Cost
from ragtrace.offline.progress import show_progress


def test_the_time_left_is_shown_where_the_number_of_calls_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """A line of a run that is half through says how long the rest takes; one of an unknown length does not."""
    for total, says in ((4, "ragtrace:  50% 2 of 4 calls, 2 requests, about 0 s left\n"), (None, "2 requests\n")):
        with show_progress(total) as progress:
            progress.add(Cost(1))
            progress.add(Cost(1))
            progress.draw()
        assert capsys.readouterr().err.endswith(says)
