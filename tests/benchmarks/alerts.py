"""False alarms and delay of the alerts' detector, beside a moving average that is tuned to the same false-alarm rate.

Run: python -m tests.benchmarks.alerts
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ragtrace.alerts.detector import Detector
from ragtrace.alerts.evaluator import SpikeState
from tests.support.alarms import (
    Draw,
    Floats,
    binary,
    bursts,
    graded,
    moving_average_lengths,
    run_lengths,
    runs,
    sampled,
    thirds,
)

ASKED = 10_000.0
STREAMS = 200
SEEDS = (20_260, 20_261, 20_262)
"""None of them was looked at when bets and weights were chosen."""
TUNING_SEED = 77
LONGEST = 120_000
AFTER = 1_000
WINDOWS = (50, 100, 200, 400)

Case = tuple[str, Callable[[float], Draw], float, float]
KINDS: tuple[tuple[str, Callable[[float], Draw]], ...] = (
    ("binary", binary),
    ("graded", graded),
    ("thirds", thirds),
    ("sampled", sampled),
)
SHIFTS = ((0.05, 0.15), (0.02, 0.10), (0.10, 0.30), (0.05, 0.08), (0.05, 0.50))


def false_alarms() -> None:
    print(f"Calls to a false alarm at the bound itself; asked for: {ASKED:,.0f}; {STREAMS} streams a seed\n")
    print("| scores | bound | " + " | ".join(f"seed {seed}" for seed in SEEDS) + " | cut off |")
    print("|---|---|" + "---|" * (len(SEEDS) + 1))
    for kind, draw in KINDS:
        for bound in (0.02, 0.05, 0.10):
            found = [run_lengths(bound, ASKED, draw(bound), streams=STREAMS, seed=s, most=LONGEST) for s in SEEDS]
            cut = sum(int((lengths >= LONGEST).sum()) for lengths in found)
            print(
                f"| {kind} | {bound:g} | " + " | ".join(f"{lengths.mean():,.0f}" for lengths in found) + f" | {cut} |"
            )


def clusters() -> None:
    print(f"\nThe same where bad calls come in clusters, 5 % in all, bound 5 %, cut off at {LONGEST // 3:,}\n")
    print("| bad calls | as shipped | in batches of 10 | without an expectation |")
    print("|---|---|---|---|")
    cases = [(f"in runs of {size} in the mean", runs(size, 0.05)) for size in (2, 3, 5, 10)]
    cases += [(f"3 of 5 in bursts of {length} calls", bursts(length, 0.05)) for length in (4, 8)]
    for name, draw in cases:
        found = [
            run_lengths(
                0.05, ASKED, draw, streams=STREAMS, seed=SEEDS[0], most=LONGEST // 3, batch=batch, expecting=expecting
            ).mean()
            for batch, expecting in ((1, True), (10, True), (1, False))
        ]  # fmt: skip
        print(f"| {name} | " + " | ".join(f"{mean:,.0f}" for mean in found) + " |")


def long_runs(scored: int = 40_000, streams: int = 8) -> None:
    """False alarms of an alert that recovers from each, where bad calls come in runs for ever."""
    print(
        f"\nFalse alarms in 10,000 scored calls in the second half of {scored:,}, 5 % bad in runs; {streams} streams\n"
    )
    print("| runs of, in the mean | every call | in batches of 10 | 20 % of the calls judged | 5 % |")
    print("|---|---|---|---|---|")
    for size in (3, 5, 10, 30):
        cells: list[float] = []
        for batch, share in ((1, 1.0), (10, 1.0), (1, 0.2), (1, 0.05)):
            rng = np.random.default_rng([SEEDS[0], size])
            scores = runs(size, 0.05)(rng, (round(scored / share), streams))[0]
            alarms = sum(_false_alarms(scores[rng.random(len(scores)) < share, at], batch) for at in range(streams))
            cells.append(alarms / (streams * scored / 2) * 10_000)
        print(f"| {size} | " + " | ".join(f"{each:.1f}" for each in cells) + " |", flush=True)


def _false_alarms(scores: Floats, batch: int) -> int:
    state = SpikeState(Detector(0.05, ASKED, batch), min_calls=20, recovery_calls=100)
    alarms = 0
    for at, score in enumerate(scores.tolist()):
        was = state.condition
        state.add(score, 1.0, 1.0)
        alarms += was == "ok" != state.condition and at >= len(scores) / 2
    return alarms


def delays() -> None:
    print(f"\nCalls from the change to the alarm, mean of {STREAMS} streams (in brackets: 90th percentile)\n")
    print(
        f"| scores | from | to | from the first call | after {AFTER:,} calls at the bound | after {AFTER:,} good ones ",
        end="",
    )
    print("| in batches of 10, from the first call | without an expectation |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, draw in KINDS:
        for bound, rate in SHIFTS:
            cells = [
                _cell(
                    run_lengths(
                        bound, ASKED, draw(rate), streams=STREAMS, seed=SEEDS[0], most=20_000,
                        before=binary(0.0) if good else draw(bound), calls_before=before, batch=batch,
                        expecting=expecting,
                    )
                )
                for before, good, batch, expecting in (
                    (0, False, 1, True), (AFTER, False, 1, True), (AFTER, True, 1, True), (0, False, 10, True),
                    (0, False, 1, False),
                )
            ]  # fmt: skip
            print(f"| {kind} | {bound:g} | {rate:g} | " + " | ".join(cells) + " |")


def moving_averages() -> None:
    print(
        f"\nThe same binary streams through a moving average, its threshold tuned to {ASKED:,.0f} calls at the bound\n"
    )
    print("| from | to | window | alarm at | calls to a false alarm | change at the first call | after 1,000 |")
    print("|---|---|---|---|---|---|---|")
    for bound, rate in SHIFTS:
        for window in WINDOWS:
            threshold, length = _tuned(window, bound)
            cells = [
                _cell(
                    moving_average_lengths(
                        window, threshold - 1, binary(rate), streams=STREAMS, seed=SEEDS[0], most=8_000,
                        before=binary(bound), calls_before=before,
                    )
                )
                for before in (0, AFTER)
            ]  # fmt: skip
            alarm = f"{threshold} of {window}"
            print(f"| {bound:g} | {rate:g} | {window} | {alarm} | {length:,.0f} | " + " | ".join(cells) + " |")


def _tuned(window: int, bound: float) -> tuple[int, float]:
    """The smallest number of bad calls in the window that is reached once in `ASKED` calls at most, in the mean."""
    threshold = int(window * bound) + 1
    while True:
        lengths = moving_average_lengths(
            window, threshold - 1, binary(bound), streams=STREAMS, seed=TUNING_SEED, most=40_000
        )
        if lengths.mean() >= ASKED:
            return threshold, float(lengths.mean())
        threshold += 1


def _cell(lengths: Floats) -> str:
    return f"{lengths.mean():.1f} ({np.quantile(lengths, 0.9):.0f})"


if __name__ == "__main__":
    began = time.monotonic()
    false_alarms()
    clusters()
    long_runs()
    delays()
    moving_averages()
    print(f"\n{time.monotonic() - began:.0f} s")
