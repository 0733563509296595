"""Whether the files that calls are kept in can be written to, and what is in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final
from urllib.request import pathname2url

from ragtrace.core.errors import SettingsError
from ragtrace.core.settings import Settings
from ragtrace.diagnosis.otlp_probe import Answer
from ragtrace.diagnosis.question import Question, ask_beside
from ragtrace.estimates import Baseline
from ragtrace.system.sqlite_files import using_sqlite

if TYPE_CHECKING:
    import sqlite3

_LEAST_BYTES: Final = 16 << 20
"""With less free on the disk, it is as good as full."""
_ADVICE: Final = "name a file in a directory that this process may write to: {}"


def of_files(settings: Settings, timeout: float) -> list[Question]:
    """Ask the history, the spool and the baseline, where there is one. Nothing is written, and no file is made."""
    wanted = (("store", settings.store, _calls_kept), ("spool", settings.spool, _calls_waiting))
    questions = [_of_file(name, path, settings, inside, timeout) for name, path, inside in wanted if path]
    if settings.baseline:
        path, origin = settings.baseline, settings.origins.get("baseline", "")
        where = f"{path} (from {origin})"
        questions.append(ask_beside("baseline", where, timeout, lambda: _of_baseline(path, origin)))
    return questions


def _of_baseline(path: str, origin: str) -> Answer:
    around = room(Path(path).absolute().parent, origin)
    if not os.path.exists(path):
        return Answer(True, f"not made yet, but it can be; {around.seen}") if around.ok else around
    try:
        known = Baseline.load(path)
    except SettingsError as error:
        return Answer(False, str(error))
    begun = len(known.learning)
    seen = f"{len(known.distributions)} baselines, {begun} more are being learned"
    # A complete one may be read from a disk that nobody writes to.
    return Answer(around.ok or not begun, f"{seen}; {around.seen}", around.advice)


def room(directory: Path, origin: str) -> Answer:
    """Whether something can be written in *directory*, and what is free on its disk."""
    if not directory.is_dir():
        return Answer(False, "there is no such directory", f"make it, or write another into {origin}")
    if not os.access(directory, os.W_OK | os.X_OK):
        return Answer(False, "this process may not write there", f"change its owner, or write another into {origin}")
    free = shutil.disk_usage(directory).free
    if free < _LEAST_BYTES:
        return Answer(False, f"the disk is full: {size(free)} free", "make room on it")
    return Answer(True, f"{size(free)} free")


def size(count: float) -> str:
    """Bytes, for a reader."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _of_file(
    name: str, path: str, settings: Settings, inside: Callable[[sqlite3.Connection], str], timeout: float
) -> Question:
    origin = settings.origins.get(name, "")
    return ask_beside(name, f"{path} (from {origin})", timeout, lambda: _answer(path, origin, inside, timeout))


def _answer(path: str, origin: str, inside: Callable[[sqlite3.Connection], str], timeout: float) -> Answer:
    around = room(Path(path).absolute().parent, origin)
    if not around.ok:
        return around
    if not os.path.exists(path):
        return Answer(True, f"not made yet, but it can be; {around.seen}")
    try:
        return Answer(True, f"can be written to; {_looked_into(path, inside, timeout)}; {around.seen}")
    except Exception as error:  # of sqlite3, which some builds of Python lack
        return Answer(False, f"{type(error).__name__}: {error}", _advice(str(error), origin))


def _looked_into(path: str, inside: Callable[[sqlite3.Connection], str], timeout: float) -> str:
    import sqlite3

    uri = f"file:{pathname2url(os.path.abspath(path))}?mode=rw"  # does not make one
    with using_sqlite(), closing(sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True)) as database:
        database.execute("BEGIN IMMEDIATE")  # as who is about to write; other writers wait for a moment
        database.execute("ROLLBACK")
        return inside(database)


def _advice(what: str, origin: str) -> str:
    if "locked" in what:
        return "another process has been writing to it all the time: look for one that hangs (fuser, lsof)"
    if "no such table" in what or "not a database" in what or "malformed" in what:
        return f"it is another program's file, or damaged: move it away, or write another path into {origin}"
    return _ADVICE.format(f"change {origin}, or the owner of the file")


def _calls_kept(database: sqlite3.Connection) -> str:
    count, newest = next(_rows(database, "SELECT count(*), max(at) FROM calls"))
    return f"{count:,} calls{_age(', newest', newest)}"


def _calls_waiting(database: sqlite3.Connection) -> str:
    count, claimed = next(_rows(database, "SELECT count(*), count(owner) FROM calls"))
    return f"{count:,} calls wait, {claimed:,} of them taken up"


def _rows(database: sqlite3.Connection, query: str) -> Iterator[tuple[int, float | None]]:
    yield from database.execute(query)


def _age(what: str, at: float | None) -> str:
    if at is None:
        return ""
    seconds = max(0.0, time() - at)
    for unit, length in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{what} {seconds / length:.0f} {unit} ago"
    return f"{what} {seconds:.0f} s ago"
