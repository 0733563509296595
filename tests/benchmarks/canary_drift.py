"""Delay and false alarms of the alert on canaries: a judge that gets worse, by much or by little, and one that stays.

    python -m tests.benchmarks.canary_drift [STREAMS [falls]]

With `falls`, only the table of large and small falls is printed: how many of them are seen within 500 and within 5,000
canary judgements after the fall, and after how many judgements in the median of these.
Labels are drawn half and half. "fixed" judges always judge the same canary alike, of 15 with each label; all others err
independently at each judgement. All seeds are fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import mean, median
from typing import Final

from tests.support.canary_judges import LESS_SENSITIVE, USUAL, CanaryStream, ErrorRates

_STREAMS: Final = 300
_SOON: Final = 500
_MOST: Final = 5_000
_QUIET: Final = 300_000
_BEFORE: Final = (100, 200, 300, 500, 1_000, 3_000)
_FALLS: Final = (
    USUAL,
    *(ErrorRates(1 - sensitivity, USUAL.good) for sensitivity in (0.6, 0.7, 0.75, 0.8, 0.85)),
    *(ErrorRates(USUAL.bad, 1 - specificity) for specificity in (0.7, 0.8, 0.85, 0.9)),
)
_BEFORE_FALLS: Final = (100, 200, 500, 1_000, 3_000)
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


def fall_delays(after: ErrorRates, before: int, streams: int) -> list[int | None]:
    """Return the judgements until the alarm in streams whose judge comes to the rates *after*; None: no alarm.

    Streams with a false alarm during the *before* judgements are left out.
    """
    found: list[int | None] = []
    for seed in range(streams):
        stream = CanaryStream(seed)
        if stream.run(USUAL, before) == 0:
            delay = stream.judgements_until_alarm(after, _MOST)
            found.append(delay if stream.drift is not None else None)
    return found


def fall_table(streams: int) -> Iterator[str]:
    """Yield the lines of a table of falls, large and small: the shares that are seen, and the median delay of these."""
    heads = [f"after {before:,}" for before in _BEFORE_FALLS]
    yield f"seen within {_SOON:,} / within {_MOST:,} canary judgements after the fall, median of these"
    yield f"| fall | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(heads)}"
    for after in _FALLS:
        cells = list[str]()
        for before in _BEFORE_FALLS:
            delays = fall_delays(after, before, streams)
            seen = [delay for delay in delays if delay is not None]
            soon = sum(delay <= _SOON for delay in seen)
            middle = f"{median(seen):,.0f}" if seen else "-"
            cells.append(f"{soon / len(delays):.0%} / {len(seen) / len(delays):.0%}, {middle}")
        if after.bad != USUAL.bad:
            changed = f"sensitivity 0.9 to {1 - after.bad:g}"
        else:
            changed = f"specificity 0.95 to {1 - after.good:g}" if after != USUAL else "none (a false alarm)"
        yield f"| {changed} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] = ()) -> None:
    """Print delays, false alarms and falls; the first argument is the number of streams a row."""
    streams = int(arguments[0]) if arguments else _STREAMS
    if "falls" not in arguments[1:]:
        _print_delays_and_false_alarms(streams)
    for line in fall_table(streams):
        print(line, flush=True)


def _print_delays_and_false_alarms(streams: int) -> None:
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
