"""How often the first page says that something changed where nothing did, and how soon where something did.

    python -m tests.benchmarks.hourly_looks [--weeks 200] [--seed 1] [--only weeks,rises,incidents,rollouts]

- weeks: in each, the page is looked at every hour (or minute) for seven days, with nothing wrong: 5 or 20 % are bad,
  all or the suspicious are judged, or the rate has a rhythm of a day or a week and two or three weeks of history.
  Counted are weeks in which any look says "went up", "went down", shows an onset, or is red.
- rises: the rate rises for good, after ten days of history; counted are runs that are red within some hours.
- incidents: 20 % are bad for one to six hours, which ended 2 to 20 hours ago.
- rollouts: two releases at the same time, looked at hourly until each has 1,000 judged calls, or for good.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from ragtrace.estimates import estimate_mean
from ragtrace.estimates.moments import Moments
from ragtrace.estimates.rhythm import DAY
from ragtrace.report.comparison import change_between, rollout_widening
from tests.support.hourly_looks import HOUR, T0, Floats, between, drawn, look

KINDS: Final[tuple[tuple[str, float, str, float, float], ...]] = (
    ("5 % bad", 200, "all", 2.0, HOUR),
    ("5 % bad", 2000, "all", 2.0, HOUR),
    ("5 % bad, every minute", 200, "all", 2.0, 60.0),
    ("5 % bad, suspicious ones judged", 200, "suspicious", 2.0, HOUR),
    ("5 % bad, suspicious ones judged", 2000, "suspicious", 2.0, HOUR),
    ("20 % bad", 200, "all", 2.0, HOUR),
    ("20 % bad", 2000, "all", 2.0, HOUR),
    ("3 to 7 % over the day", 200, "all", 16.0, HOUR),
    ("3 to 7 % over the day", 2000, "all", 16.0, HOUR),
    ("4 to 8 % over the week", 200, "all", 23.0, HOUR),
    ("4 to 8 % over the week", 2000, "all", 23.0, HOUR),
)
"""Name, calls a day, calls that are judged, days of history before the first look, and seconds between looks."""


def rate_of(name: str, shift: float) -> Callable[[Floats], Floats]:
    if "day" in name:
        return lambda days: 0.05 + 0.02 * np.sin(2.0 * np.pi * (days + shift))
    if "week" in name:
        return lambda days: 0.06 + 0.02 * np.sin(2.0 * np.pi * (days + shift) / 7.0)
    return lambda days: np.full(len(days), 0.2 if name.startswith("20") else 0.05)


def weeks(count: int, seed: int) -> None:
    print(f"{'nothing wrong':<34}{'calls a day':>12}{'weeks':>7}{'said':>6}")
    for number, (name, per_day, kind, history, step) in enumerate(KINDS):
        rng, said = np.random.default_rng([seed, number]), 0
        runs = count if step > 60.0 else max(1, count // 20)
        for _ in range(runs):
            traffic = drawn(rng, history + 7.0, per_day, rate_of(name, 7.0 * rng.random()), kind)
            times = T0 + history * DAY + np.arange(0.0, 7.0 * DAY, step)
            said += any(look(traffic, float(now)).says_something for now in times)
        print(f"{name:<34}{per_day:>12,.0f}{runs:>7}{said / runs:>6.1%}", flush=True)


def rises(count: int, seed: int) -> None:
    print(f"{'rise':<14}{'within':>8}{'runs':>6}{'red':>6}")
    for number, (before, after, hours) in enumerate(((0.03, 0.09, 12), (0.03, 0.06, 48), (0.03, 0.06, 24))):
        rng, red = np.random.default_rng([seed, number]), 0
        for _ in range(count):
            traffic = drawn(rng, 10.0 + hours / 24, 2000, partial(between, 0.0, 10.0, before, after))
            red += any(look(traffic, T0 + 10 * DAY + hour * HOUR).is_red for hour in range(1, hours + 1))
        print(f"{before:.0%} to {after:.0%}{'':<5}{hours:>6} h{count:>6}{red / count:>6.0%}", flush=True)


def incidents(count: int, seed: int) -> None:
    print("ended incidents: 2,000 judged a day, 5 to 20 %, four days of history")
    rng = np.random.default_rng([seed, 99])
    since = over = held_first = held_end = 0
    for _ in range(count):
        end = 4.0 - rng.uniform(2.0, 20.0) / 24.0
        begin = end - rng.uniform(1.0, 6.0) / 24.0
        traffic = drawn(rng, 4.0, 2000, partial(between, begin, end, 0.2, 0.05))
        onset = look(traffic, T0 + 4.0 * DAY).onset
        if onset is not None and onset.end is not None:
            over += 1
            held_first += onset.earliest <= T0 + begin * DAY <= onset.latest
            held_end += onset.end.earliest <= T0 + end * DAY <= onset.end.latest
        else:
            since += onset is not None and onset.direction == "worse"
    held = f"{held_first / over:.1%} of the beginnings and {held_end / over:.1%} of the ends" if over else "-"
    print(
        f"{count} runs: 'worse since' in {since / count:.1%}, 'was worse' in {over / count:.1%}; intervals hold {held}"
    )


def rollouts(count: int, seed: int) -> None:
    print("roll-outs, looked at after every 10 judged calls of each release")
    for number, (old, new, most) in enumerate(((0.05, 0.05, 5000), (0.2, 0.2, 5000), (0.04, 0.08, 1000))):
        rng, worse = np.random.default_rng([seed, number]), 0
        for _ in range(count):
            old_bad, new_bad = np.cumsum(rng.random((2, most)) < np.array([[old], [new]]), axis=1).astype(float)
            worse += any(called_worse(old_bad[n - 1], new_bad[n - 1], n) for n in range(10, most + 1, 10))
        print(
            f"{old:.0%} and {new:.0%}, until {most:,} each: called worse in {worse / count:.1%} of {count}", flush=True
        )


def called_worse(old: float, new: float, n: int) -> bool:
    before, after = (
        estimate_mean(Moments(n=n, w=n, ww=n, www=n, c=n, wy=bad, wyy=bad, wwy=bad, wwyy=bad, cy=bad, cyy=bad))
        for bad in (old, new)
    )
    change = change_between(before, after, higher_is_better=False, widening=rollout_widening(before, after))
    return change is not None and change.direction == "worse"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="weeks,rises,incidents,rollouts")
    options = parser.parse_args()
    for name in options.only.split(","):
        {"weeks": weeks, "rises": rises, "incidents": incidents, "rollouts": rollouts}[name](
            options.weeks, options.seed
        )


if __name__ == "__main__":
    main()
