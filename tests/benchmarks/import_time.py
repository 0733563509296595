"""What `import ragtrace` costs, next to the OpenTelemetry SDK that it needs anyway.

    python tests/benchmarks/import_time.py [--pairs 21]

Each pair starts two fresh interpreters, one after the other in alternating order, so that a slow moment of the machine
hits both; the table has the medians, and the ratio is the median of the pairs' ratios. Times are wall-clock
milliseconds of the import statement alone, with compiled bytecode present.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

BASE, OURS = "opentelemetry.sdk.trace", "ragtrace"
PROGRAM = "import time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1e3)"


def import_ms(module: str) -> float:
    """Milliseconds that importing *module* takes in a fresh interpreter."""
    argv = [sys.executable, "-c", PROGRAM.format(module)]
    return float(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout)


def measure(pairs: int) -> list[tuple[float, float]]:
    """(base, ours) in milliseconds, *pairs* times after one warm-up."""
    import_ms(BASE), import_ms(OURS)
    results: list[tuple[float, float]] = []
    for number in range(pairs):
        order = (BASE, OURS) if number % 2 else (OURS, BASE)
        taken = {module: import_ms(module) for module in order}
        results.append((taken[BASE], taken[OURS]))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=21)
    results = measure(parser.parse_args().pairs)
    base, ours = (statistics.median(column) for column in zip(*results, strict=True))
    ratios = sorted(ours / base for base, ours in results)
    print(f"{'import':<26}{'median ms':>10}")
    print(f"{BASE:<26}{base:>10.1f}")
    print(f"{OURS:<26}{ours:>10.1f}")
    print(f"ratio: median {statistics.median(ratios):.2f}, quartiles", end=" ")
    print(f"{ratios[len(ratios) // 4]:.2f} to {ratios[3 * len(ratios) // 4]:.2f}, {len(ratios)} pairs")


if __name__ == "__main__":
    main()
