"""How far the demo is, on standard error: a bar where rich is installed, a line that counts where it is not."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

from ragtrace.demo.run import Progress


@contextmanager
def shown(rich: bool, quiet: bool) -> Generator[Progress, None, None]:
    """A `Progress` to hand to `run`; nothing is shown where standard error is not a terminal."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield _silent
    elif rich:
        with _bars() as progress:
            yield progress
    else:
        yield _counting
        sys.stderr.write("\n")


def _silent(stage: str, done: int, total: int) -> None:
    pass


def _counting(stage: str, done: int, total: int) -> None:
    sys.stderr.write(f"\r{stage:<34} {done:>5} of {total:<5}")
    sys.stderr.flush()


@contextmanager
def _bars() -> Generator[Progress, None, None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = TextColumn("{task.description:<33}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console, transient=True) as bars:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield show
