"""Progress display of an evaluation on standard error: number of calls, and cost so far.

A bar on a terminal if rich is installed, else a line now and then: on a terminal at least one at the end; in a pipe, a
log or a notebook one every ten seconds, so that a short run is silent. Where the number of calls is known, the
time left is shown as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from time import monotonic

from ragtrace.core.cost import Cost
from ragtrace.system.terminal import has_rich

_LINE_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.1


class Progress:
    """Progress display of evaluated calls and their cost, redrawn at most every *every_s* seconds.

    Args:
        draw: shows the share done (None: unknown) and a text; None: nothing is shown.
        total: number of calls; None: unknown, see `share_read`.
    """

    def __init__(self, draw: Callable[[float | None, str], None] | None, total: int | None, every_s: float) -> None:
        self._draw, self._total, self._every_s = draw, total, every_s
        self.share_read: float | None = None
        """Share of the input that has been read, from 0 to 1; None if unknown."""
        self._drawn = monotonic()
        self._done = 0
        self._cost = Cost()

    def add(self, cost: Cost) -> None:
        """Count one evaluated call and its cost, and redraw the progress display if that is due."""
        self._done += 1
        self._cost = self._cost.add_known(cost)
        if monotonic() - self._drawn >= self._every_s:
            self._drawn = monotonic()
            self.draw()

    def draw(self) -> None:
        """Draw the progress display now, ignoring errors of a closed terminal."""
        share = self._done / self._total if self._total else self.share_read
        of = f" of {self._total:,}" if self._total else ""
        spent = f", {self._cost.cost_usd:.4f} USD" if self._cost.cost_usd else ""
        if self._draw is not None:
            with suppress(OSError, ValueError):
                self._draw(share, f"{self._done:,}{of} calls, {self._cost.n_calls:,} requests{spent}")


@contextmanager
def show_progress(total: int | None, *, quiet: bool = False) -> Generator[Progress, None, None]:
    """Yield a progress display: a bar on a terminal if rich is installed, else lines on standard error."""
    if quiet or sys.stderr is None or (total is not None and total < 2):
        yield Progress(None, total, _LINE_EVERY_S)
    elif sys.stderr.isatty() and has_rich():
        with _bar(total) as progress:
            yield progress
    else:
        began = monotonic()

        def write_line(share: float | None, text: str) -> None:
            left = f", about {_time_left(monotonic() - began, share)} left" if total and share and share < 1.0 else ""
            sys.stderr.write(f"ragtrace: {'' if share is None else f'{share:4.0%} '}{text}{left}\n")
            sys.stderr.flush()

        progress = Progress(write_line, total, _LINE_EVERY_S)
        yield progress
        if sys.stderr.isatty():
            progress.draw()


def _time_left(spent_s: float, share: float) -> str:
    """Return the time that the rest takes if it goes on as before, in a unit that suits it."""
    left_s = spent_s * (1.0 / share - 1.0)
    if left_s < 90.0:
        return f"{left_s:.0f} s"
    return f"{left_s / 60.0:.0f} min" if left_s < 90.0 * 60.0 else f"{left_s / 3600.0:.1f} h"


@contextmanager
def _bar(total: int | None) -> Generator[Progress, None, None]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn()
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=1.0)
        yield Progress(
            lambda share, text: bars.update(task, completed=share or 0.0, description=text), total, _REDRAW_EVERY_S
        )
