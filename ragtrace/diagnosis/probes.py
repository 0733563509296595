"""Probes of judges, score backends, notifiers and files, which run concurrently with a time limit each."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, pathname2url, proxy_bypass

from opentelemetry.context import attach, set_value

from ragtrace.core.errors import SettingsError
from ragtrace.core.score_sink import ProbedSink
from ragtrace.core.settings import Settings
from ragtrace.core.types import Probed
from ragtrace.diagnosis.report import Check
from ragtrace.estimates import Baseline, read_calibrations
from ragtrace.runtime.runtime import Runtime
from ragtrace.system.event_loops import run
from ragtrace.system.faults import printable
from ragtrace.system.sqlite_files import delay_forks
from ragtrace.system.threads import background_thread
from ragtrace.system.urls import displayed_url, hide_secrets
from ragtrace.telemetry.export.score_poster import ScorePoster

if TYPE_CHECKING:
    import sqlite3

    from ragtrace.alerts import Alert

T = TypeVar("T")
_MOST_CHARS: Final = 200
_GRACE_SECONDS: Final = 0.5
"""Seconds after its time limit within which a probe may still report that it reached the limit."""
_REACHABLE: Final = "is it up, and reachable from this machine?"
_CAUSES: Final = (
    (re.compile("refused", re.IGNORECASE), "connection refused"),
    (re.compile("timed? ?out", re.IGNORECASE), "no answer in time"),
    (re.compile("resol|not known|getaddrinfo", re.IGNORECASE), "the name is not known"),
)
_LEAST_BYTES: Final = 16 << 20
"""Number of free bytes below which a disk counts as full."""


class ProbeResult(NamedTuple):
    """Result of a probe: whether the target works, what was observed, and advice in case of failure."""

    ok: bool
    seen: str
    advice: str = ""


class Probe:
    """Running check of an endpoint, judge, file or backend.

    Another thread or event loop sets the result.
    """

    def __init__(self, what: str, where: str, timeout: float, otherwise: str = "no answer in time") -> None:
        self.what, self._where, self._timeout, self._otherwise = what, where, timeout, otherwise
        self._began = perf_counter()
        self._answered = threading.Event()
        self._answer = ProbeResult(False, "")
        self._seconds = 0.0

    def set_result(self, answer: ProbeResult) -> None:
        seen = printable(answer.seen)  # which may be the words of a server
        self._answer, self._seconds = answer._replace(seen=seen), perf_counter() - self._began
        self._answered.set()

    def wait(self) -> Check:
        """Wait for the result of the probe, at most until the probe's time limit, and return it."""
        self._answered.wait(max(0.0, self._began + self._timeout + _GRACE_SECONDS - perf_counter()))
        if not self._answered.is_set():
            return Check(self.what, self._where, False, perf_counter() - self._began, self._otherwise)
        return Check(self.what, self._where, self._answer.ok, self._seconds, self._answer.seen, self._answer.advice)


class Probes:
    """Concurrent probes of one diagnosis, with notes and problems about what cannot be probed.

    Args:
        timeout: seconds that each probe may take.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._probes: list[Probe] = []

    def add(self, what: str, where: str, otherwise: str = "no answer in time") -> Probe:
        """Add and return a probe whose result the caller sets.

        Args:
            what: what is probed: a signal, the id of a judge, a file ...
            where: address or path of the target.
            otherwise: what the result says if no answer comes in time.
        """
        self._probes.append(Probe(what, where, self.timeout, otherwise))
        return self._probes[-1]

    def start(self, what: str, where: str, ask: Callable[[], ProbeResult]) -> None:
        """Start a probe that calls *ask* on its own thread, and uses the return value as the result."""
        probe = self.add(what, where)

        def run() -> None:
            attach(set_value("suppress_instrumentation", True))  # an instrumented HTTP client must not trace the probe
            try:
                probe.set_result(ask())
            except Exception as error:
                probe.set_result(ProbeResult(False, f"{type(error).__name__}: {error}"))

        background_thread(run, "ragtrace-doctor").start()

    def wait(self) -> tuple[Check, ...]:
        """Wait for all probes, and return the results in the order in which the probes were added."""
        return tuple(probe.wait() for probe in self._probes)


def probe_judges(runtime: Runtime, probes: Probes) -> None:
    """Start a probe of every judge that supports probing.

    It runs on the event loop to which the judge's connections belong.
    """
    for evaluator in (runtime.evaluators.screen, runtime.evaluators.judge):
        if evaluator is None or evaluator.judge_client.computes:
            continue
        if not isinstance(evaluator.judge, Probed):
            probes.notes.append(f"{evaluator.id} has no probe(), so whether it answers shows only when it is asked")
            continue
        where = f"{type(evaluator.judge).__name__} {evaluator.identity}"
        late = "the background did not come to ask it in time: is a judge blocking its thread?"
        probe = probes.add(evaluator.id, where, late)
        if not runtime.run_job(partial(_ask_judge, evaluator.judge, probe, probes.timeout)):
            probe.set_result(
                ProbeResult(False, "the background takes nothing more", "see the accounts: is the queue full?")
            )


async def _ask_judge(judge: Probed, probe: Probe, timeout: float) -> None:
    try:
        seen = await asyncio.wait_for(judge.probe(), timeout)
        probe.set_result(ProbeResult(True, shortened(str(seen))))
    except (TimeoutError, asyncio.TimeoutError):
        probe.set_result(ProbeResult(False, f"no answer within {timeout:g} s"))
    except Exception as error:
        probe.set_result(ProbeResult(False, shortened(str(error) or type(error).__name__)))


def shortened(text: str) -> str:
    """Shorten *text* of somebody else to one line of at most 200 characters that is safe on a terminal."""
    return printable(text, _MOST_CHARS)


def probe_sinks(posters: Iterable[ScorePoster], probes: Probes) -> None:
    """Start a probe of every backend that receives scores through its own API and can be probed.

    For those that cannot, *probes* gets a note.
    """
    for sink in (poster.sink for poster in posters):
        if isinstance(sink, ProbedSink):
            probes.start(f"scores for {sink.name}", sink.where, partial(_ask_sink, sink, probes.timeout))
        else:
            probes.notes.append(f"the sink {sink.name!r} cannot be asked; whether it takes scores is in the accounts")


def _ask_sink(sink: ProbedSink, timeout: float) -> ProbeResult:
    refusal = sink.probe(timeout)
    if refusal is None:
        return ProbeResult(True, "its API answers; nothing was posted")
    seen = f"{refusal.reason}: {refusal.detail}" if refusal.detail else refusal.reason
    if refusal.reason == "unauthorized":
        return ProbeResult(False, seen, "check the keys that this exporter reads from the environment")
    if refusal.reason != "unavailable":
        return ProbeResult(False, seen, "is that the address of the backend's API, and not only of its OTLP?")
    # The text of a failed connection in requests is long, so a known cause replaces it.
    plain = next((cause for pattern, cause in _CAUSES if pattern.search(refusal.detail)), seen)
    return ProbeResult(False, plain, f"{_REACHABLE} Scores wait for ten minutes, then they are lost to it")


def probe_notifiers(alerts: Iterable[Alert], probes: Probes) -> None:
    """Start a connection test to the host of every alert notifier with a URL, without sending anything.

    A diagnosis raises no alarm.
    """
    notifiers = {id(each): each for alert in alerts for each in alert.notifiers}
    for notifier in notifiers.values():
        parts = urlsplit(str(getattr(notifier, "url", "")))
        if not parts.hostname:
            probes.notes.append(f"the notifier {notifier.name!r} cannot be tried without an alarm, so it is not")
        elif parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
            probes.notes.append(f"the notifier {notifier.name!r} is reached through a proxy, so it is not tried")
        else:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            probes.start("notifier", notifier.name, partial(_connect, (parts.hostname, port), probes.timeout))


def _connect(address: tuple[str, int], timeout: float) -> ProbeResult:
    try:
        with socket.create_connection(address, timeout):
            return ProbeResult(True, "takes connections; nothing was sent")
    except socket.gaierror:
        seen = "the name is not known"
    except TimeoutError:
        seen = "no answer in time"
    except ConnectionRefusedError:
        seen = "connection refused"
    except OSError as error:
        seen = error.strerror or str(error)
    return ProbeResult(False, seen, f"{_REACHABLE} Alerts would be in the log alone")


def probe_files(settings: Settings, probes: Probes) -> None:
    """Start probes of the configured files: history of calls, spool of unscored calls, baseline and calibration.

    They write nothing and create no file.
    """
    for name, path, contents in (
        ("store", settings.store, _describe_history),
        ("spool", settings.spool, _describe_spool),
    ):
        if path:
            origin = settings.origins.get(name, "")
            ask = partial(_ask_database, path, origin, contents, probes.timeout)
            probes.start(name, f"{path} (from {origin})", ask)
    if settings.baseline:
        origin = settings.origins.get("baseline", "")
        where = f"{settings.baseline} (from {origin})"
        probes.start("baseline", where, partial(_ask_baseline, settings.baseline, origin))
    if settings.calibration:
        where = f"{settings.calibration} (from {settings.origins.get('calibration', '')})"
        probes.start("calibration", where, partial(_ask_calibration, settings.calibration))


def probe_fleet(settings: Settings, environ: Mapping[str, str], probes: Probes) -> None:
    """Start probes of a fleet's message broker, and of the Redis server that the fleet's workers share.

    A broker on Redis is also asked whether it keeps queued calls.
    """
    from ragtrace.fleet.broker import STORE_VARIABLE, is_redis

    if settings.fleet:
        probes.start("fleet", displayed_url(settings.fleet), partial(_ask_broker, settings.fleet))
        if is_redis(settings.fleet):
            probes.start("fleet queue", displayed_url(settings.fleet), partial(_ask_redis_settings, settings.fleet))
    store = environ.get(STORE_VARIABLE, "")
    if store:
        probes.start("fleet store", displayed_url(store), partial(_ask_redis, store))


def _ask_broker(url: str) -> ProbeResult:
    from ragtrace.fleet.broker import check_broker_url
    from ragtrace.fleet.dead_letters import read_state

    check_broker_url(url, "fleet")
    try:
        state = run(_asked(url, read_state))
    except Exception as error:
        advice = "start the broker, or correct fleet= or RAGTRACE_FLEET; until then calls wait, or go into the spool"
        return ProbeResult(False, f"{type(error).__name__}: {hide_secrets(str(error))}", advice)
    seen = f"{state.calls} calls wait for a judge, {state.consumers} workers, {state.dead_letters} dead letters"
    advice = "no worker judges the calls: start ragtrace worker; until then they wait in the queue"
    seen += " (ragtrace fleet status)" if state.dead_letters else ""
    return ProbeResult(state.consumers > 0, seen, "" if state.consumers else advice)


async def _asked(url: str, ask: Callable[[Any], Awaitable[T]]) -> T:
    """Return what *ask* finds out from the broker at *url*."""
    from ragtrace.fleet.broker import open_broker

    broker = open_broker(url)
    try:
        return await ask(broker)
    finally:
        await broker.aclose()


def _ask_redis_settings(url: str) -> ProbeResult:
    """Check whether Redis is set to keep queued calls.

    Redis may hide its settings, which is no failure.
    """
    from ragtrace.fleet.redis_streams import RedisBroker, redis_risks

    settings: dict[str, str] = {}
    with suppress(Exception):  # Redis is away, as another probe says
        settings = run(_asked(url, RedisBroker.settings))
    if risks := redis_risks(settings):
        return ProbeResult(False, ", ".join(seen for seen, _ in risks), "; ".join(meaning for _, meaning in risks))
    if "appendonly" not in settings:
        return ProbeResult(True, "unknown whether Redis keeps queued calls: it does not show its settings")
    return ProbeResult(True, ", ".join(f"{name} {value}" for name, value in settings.items()))


def _ask_redis(url: str) -> ProbeResult:
    from ragtrace.fleet.broker import STORE_VARIABLE, check_store_url
    from ragtrace.fleet.redis_streams import RedisBroker

    try:
        check_store_url(url, STORE_VARIABLE)
    except SettingsError as error:
        return ProbeResult(False, str(error))
    try:
        run(_asked(url, RedisBroker.ping))
    except Exception as error:
        advice = "start it: while it does not answer, workers with a budget ask no judge"
        return ProbeResult(False, f"{type(error).__name__}: {hide_secrets(str(error))}", advice)
    return ProbeResult(True, "answers")


def _ask_calibration(path: str) -> ProbeResult:
    try:
        known = read_calibrations(path)
    except SettingsError as error:
        return ProbeResult(False, str(error))
    shown = (
        f"{each.key.metric} by {each.key.evaluator}@{each.key.evaluator_version}: {each.labels} labels"
        for each in known
    )
    return ProbeResult(True, "; ".join(shown) or "no calibration in it")


def _ask_baseline(path: str, origin: str) -> ProbeResult:
    around = check_directory(Path(path).absolute().parent, origin)
    if not os.path.exists(path):
        return ProbeResult(True, f"not made yet, but it can be; {around.seen}") if around.ok else around
    try:
        known = Baseline.load(path)
    except SettingsError as error:
        return ProbeResult(False, str(error))
    begun = len(known.learning)
    seen = f"{len(known.distributions)} baselines, {begun} more are being learned"
    # A file in which no baseline is being learned is only read, so a disk without write access will do.
    return ProbeResult(around.ok or not begun, f"{seen}; {around.seen}", around.advice)


def _ask_database(path: str, origin: str, contents: Callable[[sqlite3.Connection], str], timeout: float) -> ProbeResult:
    around = check_directory(Path(path).absolute().parent, origin)
    if not around.ok:
        return around
    if not os.path.exists(path):
        return ProbeResult(True, f"not made yet, but it can be; {around.seen}")
    try:
        import sqlite3

        uri = f"file:{pathname2url(os.path.abspath(path))}?mode=rw"  # mode=rw creates no file
        with delay_forks(), closing(sqlite3.connect(uri, timeout=timeout, isolation_level=None, uri=True)) as database:
            database.execute("BEGIN IMMEDIATE")  # takes the write lock, for which other writers wait a moment
            database.execute("ROLLBACK")
            return ProbeResult(True, f"can be written to; {contents(database)}; {around.seen}")
    except Exception as error:  # includes the ImportError of a Python built without sqlite3
        seen = str(error)
        if "locked" in seen:
            advice = "another process has been writing to it all the time: look for one that hangs (fuser, lsof)"
        elif "no such table" in seen or "not a database" in seen or "malformed" in seen:
            advice = f"it is another program's file, or damaged: move it away, or write another path into {origin}"
        else:
            advice = (
                f"name a file in a directory that this process may write to: change {origin}, or the owner of the file"
            )
        return ProbeResult(False, f"{type(error).__name__}: {error}", advice)


def check_directory(directory: Path, origin: str) -> ProbeResult:
    """Check whether this process can write to *directory*, and how much disk space is free."""
    if not directory.is_dir():
        return ProbeResult(False, "there is no such directory", f"make it, or write another into {origin}")
    if not os.access(directory, os.W_OK | os.X_OK):
        return ProbeResult(
            False, "this process may not write there", f"change its owner, or write another into {origin}"
        )
    free = shutil.disk_usage(directory).free
    if free < _LEAST_BYTES:
        return ProbeResult(False, f"the disk is full: {_size(free)} free", "make room on it")
    return ProbeResult(True, f"{_size(free)} free")


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _describe_history(database: sqlite3.Connection) -> str:
    count, newest = database.execute("SELECT count(*), max(at) FROM calls").fetchone()
    return f"{count:,} calls" if newest is None else f"{count:,} calls, newest {_describe_age(float(newest))} ago"


def _describe_spool(database: sqlite3.Connection) -> str:
    count, claimed = database.execute("SELECT count(*), count(owner) FROM calls").fetchone()
    return f"{count:,} calls wait, {claimed:,} of them taken up"


def _describe_age(at: float) -> str:
    seconds = max(0.0, time() - at)
    for unit, length in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
