"""Whatever judges and readers do, all outlets say the same of a guarded call, and no unchecked piece leaves.

The same with 10,000 calls of each kind: `tests/benchmarks/guard_accounts.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guard_traffic import TEMPERS, paid_and_dropped, run_traffic

SEED = 38


@pytest.mark.parametrize("temper", TEMPERS)
def test_the_accounts_of_guarded_calls_are_equal_everywhere(temper: str, tmp_path: Path) -> None:
    """Verdicts and actions on spans, events, history, `stats()` and the metric, call by call."""
    calls = 200 if temper == "quick" else 40
    accounts = run_traffic(calls, seed=SEED, temper=temper, budget_ms=50.0, store=tmp_path / "history.db")
    assert accounts.differences() == []
    assert len(accounts.outlets.spans) > 3 * calls


@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.3])
def test_a_shutdown_loses_no_call_that_the_judge_was_asked_about(after_s: float) -> None:
    """It waits for guarded calls and streams in the middle of their checks, within its time."""
    _, wrong = paid_and_dropped(60, seed=SEED, after_s=after_s)
    assert wrong == []
