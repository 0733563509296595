"""Delay and false alarms of the alert on canaries: a judge whose sensitivity falls from 0.9 to 0.6, and one that stays.

    python -m tests.benchmarks.canary_drift

Labels are drawn half and half. "fixed" judges always judge the same canary alike, of 15 with each label; all others err
independently at each judgement. All seeds are fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import mean
from typing import Final

from tests.support.canary_judges import LESS_SENSITIVE, USUAL, CanaryStream, ErrorRates

_STREAMS: Final = 300
_MOST: Final = 5_000
_QUIET: Final = 300_000
_BEFORE: Final = (100, 200, 300, 500, 1_000, 3_000)
_QUIET_RATES: Final = (
    USUAL,
    ErrorRates(0.3, 0.02),
    ErrorRates(0.02, 0.3),
    ErrorRates(0.5, 0.5),
    ErrorRates(0.01, 0.01),
)


def delays(before: int, streams: int, canaries: int | None) -> list[int]:
    """Return the judgements until the alarm in streams whose judge gets worse after *before* judgements, sorted.

    Streams with a false alarm before that are left out.
    """
    found: list[int] = []
    for seed in range(streams):
        stream = CanaryStream(seed, canaries)
        if stream.run(USUAL, before) == 0:
            found.append(stream.judgements_until_alarm(LESS_SENSITIVE, _MOST))
    return sorted(found)


def main(arguments: Sequence[str] = ()) -> None:
    """Print the delays, then the false alarms; the first argument is the number of streams a row."""
    streams = int(arguments[0]) if arguments else _STREAMS
    print("sensitivity falls from 0.9 to 0.6, specificity 0.95")
    print("judge  judgements before  mean delay  90 % within  most")
    for canaries in (None, 15):
        for before in _BEFORE:
            found = delays(before, streams, canaries)
            name = "errs at random" if canaries is None else "fixed"
            print(f"{name:<14} {before:>6,}  {mean(found):>8.0f}  {found[len(found) * 9 // 10]:>8,}  {found[-1]:>8,}")
    print(f"no change, {_QUIET * streams // _STREAMS:,} judgements")
    for rates in _QUIET_RATES:
        judgements = _QUIET * streams // _STREAMS
        alarms = CanaryStream(1).run(rates, judgements)
        every = f"one in {judgements / alarms:,.0f}" if alarms else "none"
        print(f"errors on bad {rates.bad:.2f}, on good {rates.good:.2f}: {alarms} false alarms, {every}")


if __name__ == "__main__":
    main(sys.argv[1:])
