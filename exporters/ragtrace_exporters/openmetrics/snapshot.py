"""Snapshot of a process's metrics as plain data, and the folder through which an application's processes share them.

Every process keeps a lock on a file of its own while it lives (the system releases it however the process ends) and
writes its metrics beside that file every few seconds. The one process that serves the page adds all of them up. The
counts of an ended process are folded into the past, so no sum ever falls, not even when all processes are restarted.

Metrics and labels have the names that the collector's exporters give them, so that one set of rules and dashboards
serves with and without a collector. Source: OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeAlias

try:
    import fcntl
except ImportError:  # Windows: one process
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[tuple[str, str], ...]
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": ""}


def metric_name(name: str, unit: str, kind: Kind) -> str:
    """Return the Prometheus name of an OpenTelemetry metric, without the suffix `_total` of counters."""
    suffix = "ratio" if (unit, kind) == ("1", "gauge") else "" if unit.startswith("{") else _UNITS.get(unit, unit)
    plain = label_name(name)
    return f"{plain}_{label_name(suffix)}" if suffix and not plain.endswith(f"_{suffix}") else plain


def sample_names(name: str, unit: str, kind: Kind) -> tuple[str, ...]:
    """Return the names by which Prometheus queries an OpenTelemetry metric, such as `..._total`."""
    endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}[kind]
    return tuple(f"{metric_name(name, unit, kind)}{ending}" for ending in endings)


def label_name(name: str) -> str:
    """Return the Prometheus label name of an OpenTelemetry attribute, with letters, digits and underscores only."""
    plain = re.sub(r"[^0-9A-Za-z_]+", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain


@dataclass(frozen=True, slots=True)
class Exemplar:
    """Measurement in a histogram bucket or counter that is kept as an example, with its trace and span ids."""

    value: float
    at: float
    """Seconds since the epoch."""
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Series:
    """Values of a metric for one combination of labels, with exemplars."""

    values: tuple[float, ...]
    """For a histogram the count of every bucket (not cumulative) and then the sum; else one number."""
    exemplars: Mapping[int, Exemplar] = field(default_factory=dict[int, Exemplar])
    """By the number of the bucket; for a counter, 0."""

    def __add__(self, other: Series) -> Series:
        newest = dict(self.exemplars)
        for bucket, exemplar in other.exemplars.items():
            if bucket not in newest or newest[bucket].at < exemplar.at:
                newest[bucket] = exemplar
        return Series(tuple(a + b for a, b in zip(self.values, other.values, strict=True)), newest)


@dataclass(frozen=True, slots=True)
class Family:
    """Metric family: name, kind and help text of a metric, with its series for all combinations of labels."""

    name: str
    kind: Kind
    help: str
    bounds: tuple[float, ...] = ()
    series: Mapping[Labels, Series] = field(default_factory=dict[Labels, Series])

    def __add__(self, other: Family) -> Family:
        if (self.kind, self.bounds) != (other.kind, other.bounds):
            return self  # from another release: buckets that do not match cannot be added up
        series = dict(self.series)
        for labels, more in other.series.items():
            series[labels] = series[labels] + more if labels in series else more
        return replace(self, series=series)


Snapshot: TypeAlias = "dict[str, Family]"
"""Families by name."""


def total(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Add up the metric *snapshots* of several processes. Of histograms with different buckets, keep only the first."""
    found: Snapshot = {}
    for snapshot in snapshots:
        for name, family in snapshot.items():
            found[name] = found[name] + family if name in found else family
    return found


def _with_exemplars(now: Snapshot, before: Snapshot) -> Snapshot:
    """Return the snapshot *now*, with exemplars of the earlier snapshot *before* where *now* has none."""
    found: Snapshot = {}
    for name, family in now.items():
        old = before[name].series if name in before else dict[Labels, Series]()
        series = {
            labels: replace(each, exemplars={**old[labels].exemplars, **each.exemplars}) if labels in old else each
            for labels, each in family.series.items()
        }
        found[name] = replace(family, series=series)
    return found


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """Return the *snapshot* of an ended process without gauges and exemplars, which no longer apply."""
    return {
        name: replace(family, series={labels: Series(each.values) for labels, each in family.series.items()})
        for name, family in snapshot.items()
        if family.kind != "gauge"
    }


def with_zero_starts(snapshot: Snapshot, shown: set[str]) -> tuple[Snapshot, set[str]]:
    """Return *snapshot* with value 0 for each counter or histogram that Prometheus has not yet fetched, and their keys.

    Prometheus takes the first sample of a counter as its start: without the 0, the counts before the first scrape would
    be missing from every increase.
    """
    found: Snapshot = {}
    new: set[str] = set()
    for name, family in snapshot.items():
        series = dict(family.series)
        for labels, each in family.series.items() if family.kind != "gauge" else ():
            key = json.dumps([name, *map(list, labels)], separators=(",", ":"))
            if key not in shown:
                new.add(key)
                series[labels] = Series((0.0,) * len(each.values))
        found[name] = replace(family, series=series)
    return found, new


def read_metrics(data: MetricsData | None, before: Snapshot) -> tuple[Snapshot, dict[str, str]]:
    """Convert collected OpenTelemetry metrics to a snapshot, and return it with their resource attributes.

    Args:
        before: the last snapshot; its exemplars stay where there are no newer ones, as the SDK returns each one once.
    """
    resource: dict[str, str] = {}
    families: list[Family | None] = []
    for of_resource in data.resource_metrics if data else ():
        resource |= {key: str(value) for key, value in of_resource.resource.attributes.items()}
        families += [_family(metric) for scope in of_resource.scope_metrics for metric in scope.metrics]
    return _with_exemplars(total({family.name: family} for family in families if family), before), resource


def _family(metric: Metric) -> Family | None:
    from opentelemetry.sdk.metrics.export import ExponentialHistogram, Histogram, Sum

    data, bounds = metric.data, tuple[float, ...]()
    if isinstance(data, ExponentialHistogram):
        return None  # none of ours is one, and a page of OpenMetrics cannot hold it
    kind: Kind = "counter" if isinstance(data, Sum) and data.is_monotonic else "gauge"
    if isinstance(data, Histogram):
        kind, bounds = "histogram", tuple(data.data_points[0].explicit_bounds) if data.data_points else ()
    name = metric_name(metric.name, metric.unit or "", kind)
    return Family(name, kind, metric.description or "", bounds, dict(map(_series, data.data_points)))


def _series(point: Any) -> tuple[Labels, Series]:
    attributes: Mapping[str, object] = point.attributes or {}
    labels = tuple(sorted((label_name(key), str(value)) for key, value in attributes.items()))
    values = (*point.bucket_counts, point.sum) if hasattr(point, "bucket_counts") else (point.value,)
    return labels, Series(tuple(map(float, values)), _exemplars(point, getattr(point, "explicit_bounds", ())))


def _exemplars(point: Any, bounds: Iterable[float]) -> dict[int, Exemplar]:
    """Return the newest exemplar in each bucket of a metric data point, by bucket number."""
    found: dict[int, Exemplar] = {}
    for each in sorted(point.exemplars or (), key=lambda one: int(one.time_unix_nano)):
        if each.trace_id and each.span_id:
            bucket = sum(each.value > bound for bound in bounds)
            ids = f"{each.trace_id:032x}", f"{each.span_id:016x}"
            found[bucket] = Exemplar(float(each.value), each.time_unix_nano / 1e9, *ids)
    return found


def to_json(snapshot: Snapshot) -> list[Any]:
    """Convert *snapshot* to lists, numbers and texts that JSON can represent."""
    found: list[Any] = []
    for family in snapshot.values():
        exemplars = {
            key: [[n, *astuple(at)] for n, at in each.exemplars.items()] for key, each in family.series.items()
        }
        series = [[labels, each.values, exemplars[labels]] for labels, each in family.series.items()]
        found.append([family.name, family.kind, family.help, family.bounds, series])
    return found


def from_json(families: Any) -> Snapshot:
    """Convert *families*, as returned by `to_json`, back to a snapshot.

    Raises:
        TypeError, ValueError: *families* has another form.
    """
    found: Snapshot = {}
    for name, kind, description, bounds, listed in families:
        series = {
            tuple((str(key), str(value)) for key, value in labels): Series(
                tuple(map(float, values)), {bucket: Exemplar(*rest) for bucket, *rest in exemplars}
            )
            for labels, values, exemplars in listed
        }
        found[name] = Family(name, kind, description, tuple(bounds), series)
    return found


# --- the shared folder ------------------------------------------------------------------------------------------------


def _locked(path: Path) -> IO[bytes] | None:
    """Open and lock the file at *path* until it is closed, or return None if another process has locked it."""
    file = path.open("ab")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


class Folder:
    """Folder in which all processes of the application *service* share their metrics."""

    def __init__(self, path: Path, service: str) -> None:
        self._path = path
        self._group = hashlib.sha256(service.encode()).hexdigest()[:12]
        self._id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._serving: IO[bytes] | None = None
        # Locked before it has its name: no other process takes it for that of an ended process.
        unnamed = self._file(self._id, "locked")
        self._alive = _locked(unnamed)
        unnamed.rename(self._file(self._id, "alive"))

    @property
    def serves(self) -> bool:
        """Whether this process is the one that serves the page of metrics."""
        return self._serving is not None

    def try_to_serve(self) -> bool:
        """Try to become the process that serves the page of metrics, and return whether this process serves it now."""
        if self._serving is None:
            self._serving = _locked(self._file("page", "serving"))
        return self.serves

    def stop_serving(self) -> None:
        """Let another process serve the page of metrics. A forked child only closes its copy of the lock."""
        file, self._serving = self._serving, None
        if file is not None:
            file.close()

    def publish(self, snapshot: Snapshot) -> None:
        """Write the metrics of this process to the shared folder, where the process that serves the page reads them."""
        self._write(self._file(self._id, "metrics"), to_json(snapshot))

    def total_with(self, own: Snapshot) -> Snapshot:
        """Add up the metrics of this process (*own*), of the other running processes, and of ended processes.

        Only the process that serves the page may call it.
        """
        self._fold()
        return total([own, *self._others(), self._past()[0]])

    def read_shown(self) -> set[str]:
        """Return the keys of all series that Prometheus has fetched, as stored in the shared folder."""
        return set(self._read(self._file("page", "shown")) or ())

    def write_shown(self, series: set[str]) -> None:
        """Store the keys of all *series* that Prometheus has fetched in the shared folder."""
        self._write(self._file("page", "shown"), sorted(series))

    def close(self) -> None:
        """Release this process's file locks, after which another process counts it among the ended processes."""
        self.stop_serving()
        if self._alive is not None:
            self._alive.close()

    def _others(self) -> Iterator[Snapshot]:
        folded = self._past()[1]
        for file in sorted(self._path.glob(f"{self._group}.*.metrics")):
            if self._id_of(file) != self._id and self._id_of(file) not in folded:
                yield _snapshot(self._read(file))

    def _fold(self) -> None:
        """Add the counts of ended processes to the file of past counts, then delete the files of those processes.

        A process that is killed in between leaves files whose counts are in the past already, which is known by name.
        """
        past, folded = self._past()
        ended = [file for file in self._path.glob(f"{self._group}.*.alive") if self._has_ended(file)]
        if not ended:
            return
        names = {self._id_of(file) for file in ended}
        more = [_snapshot(self._read(self._file(name, "metrics"))) for name in sorted(names - folded)]
        self._write(self._file("page", "past"), [to_json(total([past, *map(without_gauges, more)])), sorted(names)])
        for name in names:
            for file in (self._file(name, "metrics"), *self._path.glob(f"*.{name}.part")):
                file.unlink(missing_ok=True)
            # Last: if we are killed while deleting, the next process finds that these counts are in the past already.
            self._file(name, "alive").unlink(missing_ok=True)

    def _has_ended(self, file: Path) -> bool:
        if self._id_of(file) == self._id:
            return False
        with suppress(OSError):
            lock = _locked(file)
            if lock is not None:
                lock.close()
                return True
        return False

    def _past(self) -> tuple[Snapshot, set[str]]:
        found = self._read(self._file("page", "past"))
        return (_snapshot(found[0]), set(found[1])) if found else ({}, set())

    def _file(self, name: str, kind: str) -> Path:
        return self._path / f"{self._group}.{name}.{kind}"

    def _id_of(self, file: Path) -> str:
        return file.name.split(".")[1]

    def _read(self, file: Path) -> Any:
        with suppress(OSError, ValueError):
            return json.loads(file.read_bytes())
        return None

    def _write(self, file: Path, content: Any) -> None:
        part = file.with_name(f"{file.name}.{self._id}.part")
        part.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
        part.replace(file)  # at once: no process reads half a file


def _snapshot(content: Any) -> Snapshot:
    try:
        return from_json(content or ())
    except (TypeError, ValueError):
        return {}  # of another release
