"""How well `EmbeddedJudge` agrees with people, and what it costs.

    RAGTRACE_LABELLED_DATA=DIR python tests/benchmarks/accuracy.py [--resamples 1000]

DIR holds `*.json.gz` files of human-labelled calls: `{"contexts": {id: text}, "calls": [{"query", "context_ids",
"answer", "hallucinated": 0 | 1, "ans"?: [...]}]}`. Without DIR only the cost is measured. Intervals are 95 % percentile
bootstraps that resample whole groups of calls with the same contexts: answers to one question are not independent.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import decimal
import difflib
import gzip
import inspect
import json
import logging
import math
import os
import random
import statistics
import string
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragtrace.core.follow_ups import needs_earlier_turns
from ragtrace.core.types import Document, RagCall, Result, Score, Unscored
from ragtrace.judges import EmbeddedJudge
from ragtrace.metrics import registry

Floats = NDArray[np.float64]
SEED = 20_251
CHARS = 2_000
ANSWER_CHARS = (200, 400, 600, 800)


@dataclass(frozen=True)
class Labelled:
    """One call, what people said of it, and what the judge does."""

    group: str
    call: RagCall
    bad: bool
    answerable: str
    results: dict[str, Result]

    def value(self, metric: str) -> float:
        """The metric's value; NaN when unscored."""
        result = self.results[metric]
        return result.value if isinstance(result, Score) else math.nan


def auroc(bad: NDArray[np.bool_], suspicion: Floats) -> float:
    """Probability that a bad answer is more suspicious than a good one, ties counting half (Mann-Whitney U).

    Args:
        bad: (n,) labels. suspicion: (n,) numbers, finite.

    Returns:
        A number in [0, 1]; NaN if either class is empty.
    """
    positives = int(bad.sum())
    negatives = len(bad) - positives
    if not positives or not negatives:
        return math.nan
    _, inverse, counts = np.unique(suspicion, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[bad].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def interval(
    groups: Sequence[str], statistic: Callable[[NDArray[np.intp]], float], resamples: int
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of *statistic* (a function of row numbers), resampling whole *groups*."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        rows[group].append(row)
    members = [np.array(found, dtype=np.intp) for found in rows.values()]
    generator = np.random.default_rng(SEED)
    drawn = (generator.integers(len(members), size=len(members)) for _ in range(resamples))
    values = np.array([statistic(np.concatenate([members[index] for index in draw])) for draw in drawn])
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


async def judge_all(path: Path) -> list[Labelled]:
    """Every call of the file with the results of all metrics that the embedded judge offers."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        data: dict[str, Any] = json.load(file)
    judge = EmbeddedJudge(extractive=True)
    metrics = registry.resolve(["hallucinated", "consistency", "answered", "answered_without_context"])
    found: list[Labelled] = []
    for row in data["calls"]:
        documents = tuple(Document(data["contexts"][key]) for key in row["context_ids"])
        call = RagCall(row.get("query"), documents, row["answer"])
        judgement = await judge.judge(call)
        found.append(
            Labelled(
                group=" ".join(row["context_ids"]) or str(row.get("query")),
                call=call,
                bad=bool(row["hallucinated"]),
                answerable=" ".join(row.get("ans") or ()),
                results={metric.name: metric(call, judgement) for metric in metrics},
            )
        )
    return found


def report(name: str, calls: Sequence[Labelled], resamples: int) -> None:
    """Print what people and the judge agree on in one set."""
    scored = [call for call in calls if not math.isnan(call.value("consistency"))]
    bad = np.array([call.bad for call in scored], dtype=np.bool_)
    groups = [call.group for call in scored]
    print(f"\n{name}: {len(calls)} calls, {sum(call.bad for call in calls)} rejected")
    columns = {
        "consistency": -np.array([call.value("consistency") for call in scored]),
        "answer length (control)": np.array([float(len(call.call.answer or "")) for call in scored]),
    }
    for title, suspicion in columns.items():
        low, high = interval(groups, lambda rows, s=suspicion: auroc(bad[rows], s[rows]), resamples)
        print(f"  AUROC  {title:<26}{auroc(bad, suspicion):.3f}  [{low:.3f}, {high:.3f}]")
    for title, part in (("approved", [c for c in calls if not c.bad]), ("rejected", [c for c in calls if c.bad])):
        print(f"  {title}: {', '.join(shares(part)) or 'none'}")
    for kind in sorted({call.answerable for call in calls if call.answerable}):
        labels = [label(call.results["answered"]) for call in calls if call.answerable == kind]
        print(f"  answered  {kind:<23}{labels.count('abstained')} of {len(labels)} labelled abstained")
    queries = sorted({call.call.query or "" for call in calls} - {""})
    results = [call.results["answered_without_context"] for call in calls]
    unknown = sum(isinstance(each, Unscored) and each.reason == "unknown_language" for each in results)
    print(f"  unknown language: {unknown} of {len(calls)} answers")
    print(f"  follow-ups: {[query for query in queries if needs_earlier_turns(query)]} of {len(queries)} questions")


def shares(calls: Sequence[Labelled]) -> list[str]:
    """Shares of *calls*: unscored by reason, answered without context, flagged by words; and where the scores lie."""
    scored = [call for call in calls if not math.isnan(call.value("consistency"))]
    named = {f"unscored {reason}": count for reason, count in reasons(calls).items()}
    named["answered_without_context"] = sum(call.value("answered_without_context") == 1 for call in calls)
    lines = [f"{title} {count / len(calls):.1%} ({count})" for title, count in named.items()]
    if scored:
        flagged = sum(call.value("hallucinated") == 1 for call in scored)
        lines.append(f"hallucinated by words (extractive=True) {flagged / len(scored):.1%} of {len(scored)} scored")
        low, middle, high = np.quantile([call.value("consistency") for call in scored], [0.05, 0.5, 0.95]).tolist()
        lines.append(f"consistency 5 %, 50 %, 95 %: {low:.2f}, {middle:.2f}, {high:.2f}")
    return lines


def label(result: Result) -> str:
    """The label of a score; empty when unscored."""
    return (result.label or "") if isinstance(result, Score) else ""


def reasons(calls: Sequence[Labelled]) -> dict[str, int]:
    """How many calls have no consistency, by reason."""
    counts: dict[str, int] = defaultdict(int)
    for call in calls:
        result = call.results["consistency"]
        if not isinstance(result, Score):
            counts[result.reason] += 1
    return dict(counts)


def cut(call: RagCall, answer_chars: int) -> RagCall | None:
    """*call* cut to exactly `CHARS` characters, *answer_chars* of them answer; None if it is shorter."""
    left, documents = CHARS - answer_chars, []
    for document in call.contexts or ():
        documents.append(Document(document.text[:left]))
        left -= len(documents[-1].text)
    if left or len(call.answer or "") < answer_chars:
        return None
    return RagCall(call.query, tuple(d for d in documents if d.text), (call.answer or "")[:answer_chars])


async def cost(calls: Sequence[RagCall]) -> float:
    """Median milliseconds of CPU per call, each judged once by a judge that has met none of them.

    The judge caches no chunk, but remembers single words, as it does in production: the first third only teaches it.
    """
    judge, taken = EmbeddedJudge(), []
    for call in calls:
        began = time.process_time_ns()
        await judge.judge(call)
        taken.append((time.process_time_ns() - began) / 1e6)
    return statistics.median(taken[len(taken) // 3 :])


def documented(count: int) -> list[RagCall]:
    """Calls over the docstrings of the standard library, for measuring cost where there is no data."""
    modules = (
        argparse,
        asyncio,
        csv,
        decimal,
        difflib,
        json,
        logging,
        random,
        statistics,
        string,
        subprocess,
        threading,
    )
    found = {inspect.getdoc(thing) or "" for module in modules for thing in vars(module).values() if callable(thing)}
    text = " ".join(sorted(doc for doc in found if len(doc) > 100))
    size = min(len(text) // count, 2 * CHARS)
    starts = range(0, size * count, size)
    return [
        RagCall("What does it do?", (Document(text[at : at + CHARS]),), text[at + CHARS // 2 : at + 2 * CHARS])
        for at in starts
    ]


def report_cost(calls: Sequence[RagCall]) -> None:
    """Print the median CPU time of a call of `CHARS` characters, for several lengths of the answer in it."""
    print(f"\nCPU time of a call of {CHARS} characters, median, first time each text is met")
    for answer_chars in ANSWER_CHARS:
        fitting = [short for call in calls if (short := cut(call, answer_chars))]
        if fitting:
            took = asyncio.run(cost(fitting))
            print(
                f"  answer {answer_chars:>4}, contexts {CHARS - answer_chars:>4}: {took:.2f} ms  ({len(fitting)} calls)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--resamples", type=int, default=1_000)
    resamples = parser.parse_args().resamples
    folder = os.environ.get("RAGTRACE_LABELLED_DATA")
    if not folder:
        print("RAGTRACE_LABELLED_DATA is not set: no labelled calls, so only the cost is measured, on docstrings")
        report_cost(documented(60))
        return
    everything: list[RagCall] = []
    for path in sorted(Path(folder).glob("*.json.gz")):
        calls = asyncio.run(judge_all(path))
        report(path.name.removesuffix(".json.gz"), calls, resamples)
        everything.extend(labelled.call for labelled in calls)
    report_cost(everything)


if __name__ == "__main__":
    main()
