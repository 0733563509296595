"""Measurement of judges on human-labelled calls: what their scores tell, how many there are, and what they take.

The raw results of a judge are a journal: a run that is cut off goes on where it was, and asks nothing twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from ragtrace.core.cost import Cost
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, Judge, Metric, Score
from ragtrace.estimates.agreement import Interval
from ragtrace.estimates.discrimination import Discrimination, auroc_difference, discrimination
from ragtrace.evaluation.judge_client import fingerprint
from ragtrace.offline.journal import Journal
from ragtrace.offline.labelled_calls import LabelledFileCall
from ragtrace.offline.offline_evaluator import RETRYABLE, OfflineEvaluator, Timeout
from ragtrace.offline.progress import Progress, show_progress
from ragtrace.system.sync_bridge import suppress_instrumentation

_FORMAT: Final = 1


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
    quality: Discrimination | None
    """Quality on the calls that this judge scored; None: there is none."""
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
    judged: list[dict[int, dict[str, Any]]] = []
    for each in contestants:
        header = {
            "format": _FORMAT, "judge": each.name, "evaluator": each.evaluator, "server": each.server,
            "metrics": [f"{metric.name}@{metric.version}" for metric in each.metrics],
        }  # fmt: skip
        with Journal(folder / _file_name(header), header, restart=restart) as journal, suppress_instrumentation():
            keys = [fingerprint(call.call, each.evaluator) for call in calls]
            todo = [at for at, key in enumerate(keys) if not journal.has_line(at, key)]
            say(f"{each.name}: {len(todo):,} calls to judge, {len(calls) - len(todo):,} are judged already")
            with show_progress(len(todo), quiet=quiet) as progress:

                def keep(
                    at: int,
                    found: Evaluation,
                    keys: Sequence[bytes] = keys,
                    journal: Journal = journal,
                    progress: Progress = progress,
                ) -> None:
                    journal.add(keys[at], _row(at, found, calls[at]), again=found.error in RETRYABLE)
                    progress.add(Cost.from_report(found))

                made = OfflineEvaluator(each.judge, each.metrics, timeout=each.timeout, concurrency=each.concurrency)
                asyncio.run(_judge_all(made, calls, todo, keep))
            judged.append({row["line"]: dict(row) for row in journal.rows()})
    return Comparison(
        _metric_results(contestants, calls, judged),
        tuple(_cost(each, rows) for each, rows in zip(contestants, judged, strict=True)),
    )


async def _judge_all(
    made: OfflineEvaluator,
    calls: Sequence[LabelledFileCall],
    todo: Sequence[int],
    keep: Callable[[int, Evaluation], None],
) -> None:
    async with aclosing(made) as evaluator:

        async def judge(at: int) -> None:
            keep(at, await evaluator.evaluate_with_retries(calls[at].call))

        await evaluator.for_each(todo, judge)


def _file_name(header: Mapping[str, Any]) -> str:
    """Return a name that tells the judge, and differs for another version, server or metric of the same judge."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", str(header["judge"]))[-60:].strip("-.")
    return f"{readable}-{hashlib.blake2b(repr(header).encode(), digest_size=4).hexdigest()}.jsonl"


def _row(at: int, found: Evaluation, call: LabelledFileCall) -> dict[str, Any]:
    results = {
        name: {"score": result.value, "higher_is_better": result.higher_is_better}
        if isinstance(result, Score) else {"unscored": result.reason, "explanation": result.explanation}
        for name, result in found.results.items()
    }  # fmt: skip
    return {
        "line": at, "bad": call.bad, "results": results, "requests": found.n_calls,
        "input_tokens": found.input_tokens, "output_tokens": found.output_tokens,
        # A judge that sends no requests costs nothing.
        "usd": found.cost_usd if found.n_calls else found.cost_usd or 0.0,
        "seconds": found.duration_s, "served_model": found.served_model,
    }  # fmt: skip


def _metric_results(
    contestants: Sequence[Contestant], calls: Sequence[LabelledFileCall], judged: Sequence[Mapping[int, Any]]
) -> tuple[MetricResult, ...]:
    groups = [call.question or ("", at) for at, call in enumerate(calls)]
    found: list[tuple[str, str, dict[int, float], Counter[str], Discrimination | None]] = []
    for each, rows in zip(contestants, judged, strict=True):
        for metric in each.metrics:
            results = {at: row["results"][metric.name] for at, row in rows.items()}
            badness = {at: _badness(one) for at, one in results.items() if "score" in one}
            known = sorted(badness)
            quality = (
                discrimination([calls[at].bad for at in known], [badness[at] for at in known],
                               [groups[at] for at in known])
                if known else None
            )  # fmt: skip
            unscored = Counter(str(one["unscored"]) for one in results.values() if "unscored" in one)
            found.append((each.name, metric.name, badness, unscored, quality))
    found.sort(key=lambda one: -(one[4].auroc.value if one[4] is not None and one[4].auroc else -1.0))

    def below_best(badness: Mapping[int, float]) -> Interval | None:
        best = found[0][2]
        both = sorted(best.keys() & badness.keys())
        if badness is best or not both:
            return None
        return auroc_difference(
            [calls[at].bad for at in both], [best[at] for at in both], [badness[at] for at in both],
            [groups[at] for at in both],
        )  # fmt: skip

    return tuple(
        MetricResult(judge, metric, dict(unscored), quality, below_best(badness))
        for judge, metric, badness, unscored, quality in found
    )


def _badness(result: Mapping[str, Any]) -> float:
    value = min(1.0, max(0.0, float(result["score"])))
    return 1.0 - value if result["higher_is_better"] else value


def _cost(each: Contestant, rows: Mapping[int, Mapping[str, Any]]) -> JudgeCost:
    def mean(name: str) -> float:
        return fmean(row[name] for row in rows.values())

    known = all(row["usd"] is not None for row in rows.values())
    models = {str(row["served_model"]) for row in rows.values() if row["served_model"]}
    return JudgeCost(
        each.name, each.evaluator, tuple(sorted(models)), mean("requests"), mean("input_tokens"),
        mean("output_tokens"), mean("seconds"), mean("usd") if known else None,
    )  # fmt: skip
