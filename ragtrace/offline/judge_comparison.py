"""Measurement of judges on human-labelled calls: what their scores tell, how many there are, and what they take.

The raw results of a judge are a journal: a run that is cut off goes on where it was, and asks nothing twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from ragtrace.core.cost import Cost
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judge, Metric
from ragtrace.estimates.agreement import Interval
from ragtrace.estimates.discrimination import auroc_difference, discrimination
from ragtrace.evaluation.judge_client import fingerprint
from ragtrace.offline.journal import Journal
from ragtrace.offline.labelled_calls import LabelledFileCall
from ragtrace.offline.offline_evaluator import RETRYABLE, OfflineEvaluator, Timeout
from ragtrace.offline.progress import show_progress
from ragtrace.offline.score_rows import ScoreRow, score_row
from ragtrace.system.sync_bridge import suppress_instrumentation

_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Contestant:
    """Judge to measure, with the metrics whose scores are held against the labels."""

    name: str
    """As the user wrote it."""
    judge: Judge
    metrics: tuple[Metric, ...]
    server: str = ""
    """Base URL of the judge's server: another server may run another model of the same name."""
    timeout: Timeout = "judge"
    """Seconds for a call, as for `OfflineEvaluator`."""
    concurrency: int | None = None
    """Calls that the judge sees at a time, as for `OfflineEvaluator`."""

    @property
    def evaluator(self) -> str:
        """Judge as id@version."""
        return f"{self.judge.id}@{self.judge.version}"


@dataclass(frozen=True, slots=True)
class MetricResult:
    """What one judge's scores of one metric tell about the labels."""

    judge: str
    metric: str
    unscored: Mapping[str, int]
    """Number of calls without a score, by reason."""
    scored: int
    bad: int
    """Number of the scored calls that are labelled bad."""
    auroc: Interval | None
    """With the other figures, on the calls that this judge scored; None: it scored none, or labels are of one kind."""
    average_precision: Interval | None
    best_f1: Interval | None
    below_best: Interval | None
    """AUROC of the best row less this one's, on the calls that both scored; None: this is the best row, both have no
    call in common, or labels are of one kind."""


@dataclass(frozen=True, slots=True)
class JudgeCost:
    """What one judge took for the calls, as means of a call."""

    judge: str
    evaluator: str
    """As id@version."""
    served_models: tuple[str, ...]
    """Models that the judge's server said it ran."""
    requests: float
    input_tokens: float
    output_tokens: float
    seconds: float
    """With the other calls that were judged at the same time."""
    usd: float | None
    """US dollars; None: the price is not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of judges on the same labelled calls: one row a judge and metric, best AUROC first, and the costs."""

    rows: tuple[MetricResult, ...]
    costs: tuple[JudgeCost, ...]


def measure_judges(
    contestants: Sequence[Contestant],
    calls: Sequence[LabelledFileCall],
    folder: Path,
    *,
    restart: bool = False,
    quiet: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Comparison:
    """Have each judge score all labelled calls, and compare the scores with the labels and with each other.

    Args:
        contestants: the judges, with different names.
        calls: the labelled calls.
        folder: where the raw results are kept, one file of JSON lines a judge; calls that are there are not judged.
        restart: judge all anew.
        quiet: show no progress.
        say: told which judge begins, and how many of the calls it has judged in an earlier run.

    Raises:
        SettingsError: two judges have one name, a judge has wrong limits, or another run writes its
            results.
        OSError: the raw results cannot be read or written.
    """
    if len({each.name for each in contestants}) < len(contestants):
        raise SettingsError("two judges are the same; name each of them once")
    folder.mkdir(parents=True, exist_ok=True)
    judged: list[dict[int, ScoreRow]] = []
    for each in contestants:
        header = {
            "format": _FORMAT, "judge": each.name, "evaluator": each.evaluator, "server": each.server,
            "metrics": [f"{metric.name}@{metric.version}" for metric in each.metrics],
        }  # fmt: skip
        with Journal(folder / _file_name(header), header, restart=restart) as journal, suppress_instrumentation():
            asyncio.run(_judge_all(each, calls, journal, quiet, say))
            judged.append({row["line"]: dict(row) for row in journal.rows()})
    return Comparison(
        _metric_results(contestants, calls, judged),
        tuple(_cost(each, rows.values()) for each, rows in zip(contestants, judged, strict=True)),
    )


async def _judge_all(
    each: Contestant, calls: Sequence[LabelledFileCall], journal: Journal, quiet: bool, say: Callable[[str], None]
) -> None:
    keys = [fingerprint(call.call, each.evaluator) for call in calls]
    todo = [at for at, key in enumerate(keys) if not journal.has_line(at, key)]
    say(f"{each.name}: {len(todo):,} calls to judge, {len(calls) - len(todo):,} are judged already")
    made = OfflineEvaluator(each.judge, each.metrics, timeout=each.timeout, concurrency=each.concurrency)
    async with aclosing(made) as evaluator:
        with show_progress(len(todo), quiet=quiet) as progress:

            async def judge(at: int) -> None:
                found = await evaluator.evaluate_with_retries(calls[at].call)
                took = {"seconds": found.duration_s, "served_model": found.served_model}
                row = {**score_row(at, None, found), "bad": calls[at].bad, **took}
                journal.add(keys[at], row, again=found.error in RETRYABLE)
                progress.add(Cost.from_report(found))

            await evaluator.for_each(todo, judge)


def _file_name(header: Mapping[str, Any]) -> str:
    """Return a name that tells the judge, and differs for another version, server or metric of the same judge."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", str(header["judge"]))[-60:].strip("-.")
    return f"{readable}-{hashlib.blake2b(repr(header).encode(), digest_size=4).hexdigest()}.jsonl"


def _metric_results(
    contestants: Sequence[Contestant], calls: Sequence[LabelledFileCall], judged: Sequence[Mapping[int, Any]]
) -> tuple[MetricResult, ...]:
    groups = [call.question or ("", at) for at, call in enumerate(calls)]
    results: list[tuple[MetricResult, dict[int, float]]] = []
    for each, rows in zip(contestants, judged, strict=True):
        for metric in each.metrics:
            of_metric = {at: row["results"][metric.name] for at, row in rows.items()}
            badness = {at: _badness(one["score"], metric) for at, one in sorted(of_metric.items()) if "score" in one}
            bad, of_questions = [calls[at].bad for at in badness], [groups[at] for at in badness]
            quality = discrimination(bad, list(badness.values()), of_questions) if badness else None
            unscored = Counter(str(one["reason"]) for one in of_metric.values() if "score" not in one)
            figures = (quality.auroc, quality.average_precision, quality.best_f1) if quality else (None, None, None)
            result = MetricResult(each.name, metric.name, dict(unscored), len(badness), sum(bad), *figures, None)
            results.append((result, badness))
    results.sort(key=lambda one: -(one[0].auroc.value if one[0].auroc else -1.0))
    best = results[0][1]

    def below_best(badness: Mapping[int, float]) -> Interval | None:
        both = sorted(best.keys() & badness.keys())
        if badness is best or not both:
            return None
        bad, of_questions = [calls[at].bad for at in both], [groups[at] for at in both]
        return auroc_difference(bad, [best[at] for at in both], [badness[at] for at in both], of_questions)

    return tuple(replace(result, below_best=below_best(badness)) for result, badness in results)


def _badness(score: float, metric: Metric) -> float:
    value = min(1.0, max(0.0, score))
    return 1.0 - value if metric.higher_is_better else value


def _cost(each: Contestant, rows: Collection[ScoreRow]) -> JudgeCost:
    def mean(name: str) -> float:
        return fmean(row[name] for row in rows)

    # A judge that sends no requests costs nothing.
    usd = [row["cost_usd"] if row["n_calls"] else row["cost_usd"] or 0.0 for row in rows]
    models = {str(row["served_model"]) for row in rows if row["served_model"]}
    return JudgeCost(
        each.name, each.evaluator, tuple(sorted(models)), mean("n_calls"), mean("input_tokens"),
        mean("output_tokens"), mean("seconds"), None if None in usd else fmean(usd),
    )  # fmt: skip
