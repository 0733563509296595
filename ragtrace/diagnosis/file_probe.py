"""Probes of the files that calls and baselines are kept in: whether they can be written to, and what they hold."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final
from urllib.request import pathname2url

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import Settings
from ragtrace.diagnosis.probes import Answer, Probes
from ragtrace.estimates import Baseline
from ragtrace.system.sqlite_files import using_sqlite

if TYPE_CHECKING:
    import sqlite3

_LEAST_BYTES: Final = 16 << 20
"""Free space below which a disk counts as full."""


def probe_files(settings: Settings, probes: Probes) -> None:
    """Probe the history, the spool and the baseline that are configured. Writes nothing and makes no file."""
    for name, path, contents in (("store", settings.store, _history), ("spool", settings.spool, _spool)):
        if path:
            origin = settings.origins.get(name, "")
            ask = partial(_ask_database, path, origin, contents, probes.timeout)
            probes.start(name, f"{path} (from {origin})", ask)
    if settings.baseline:
        origin = settings.origins.get("baseline", "")
        where = f"{settings.baseline} (from {origin})"
        probes.start("baseline", where, partial(_ask_baseline, settings.baseline, origin))


def _ask_baseline(path: str, origin: str) -> Answer:
    around = ask_directory(Path(path).absolute().parent, origin)
    if not os.path.exists(path):
        return Answer(True, f"not made yet, but it can be; {around.seen}") if around.ok else around
    try:
        known = Baseline.load(path)
    except SettingsError as error:
        return Answer(False, str(error))
    begun = len(known.learning)
    seen = f"{len(known.distributions)} baselines, {begun} more are being learned"
    # A complete one may be read from a disk without write access.
    return Answer(around.ok or not begun, f"{seen}; {around.seen}", around.advice)


def _ask_database(path: str, origin: str, contents: Callable[[sqlite3.Connection], str], timeout: float) -> Answer:
    around = ask_directory(Path(path).absolute().parent, origin)
    if not around.ok:
        return around
    if not os.path.exists(path):
        return Answer(True, f"not made yet, but it can be; {around.seen}")
    try:
        import sqlite3

        uri = f"file:{pathname2url(os.path.abspath(path))}?mode=rw"  # does not make a file
        with using_sqlite(), closing(sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True)) as database:
            database.execute("BEGIN IMMEDIATE")  # the lock of a writer; other writers wait for a moment
            database.execute("ROLLBACK")
            return Answer(True, f"can be written to; {contents(database)}; {around.seen}")
    except Exception as error:  # of sqlite3, which some builds of Python lack
        seen = str(error)
        if "locked" in seen:
            advice = "another process has been writing to it all the time: look for one that hangs (fuser, lsof)"
        elif "no such table" in seen or "not a database" in seen or "malformed" in seen:
            advice = f"it is another program's file, or damaged: move it away, or write another path into {origin}"
        else:
            advice = (
                f"name a file in a directory that this process may write to: change {origin}, or the owner of the file"
            )
        return Answer(False, f"{type(error).__name__}: {error}", advice)


def ask_directory(directory: Path, origin: str) -> Answer:
    """Return whether this process can write in *directory*, and the space that is free on its disk."""
    if not directory.is_dir():
        return Answer(False, "there is no such directory", f"make it, or write another into {origin}")
    if not os.access(directory, os.W_OK | os.X_OK):
        return Answer(False, "this process may not write there", f"change its owner, or write another into {origin}")
    free = shutil.disk_usage(directory).free
    if free < _LEAST_BYTES:
        return Answer(False, f"the disk is full: {_size(free)} free", "make room on it")
    return Answer(True, f"{_size(free)} free")


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _history(database: sqlite3.Connection) -> str:
    count, newest = database.execute("SELECT count(*), max(at) FROM calls").fetchone()
    return f"{count:,} calls" if newest is None else f"{count:,} calls, newest {_age(float(newest))} ago"


def _spool(database: sqlite3.Connection) -> str:
    count, claimed = database.execute("SELECT count(*), count(owner) FROM calls").fetchone()
    return f"{count:,} calls wait, {claimed:,} of them taken up"


def _age(at: float) -> str:
    seconds = max(0.0, time() - at)
    for unit, length in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
