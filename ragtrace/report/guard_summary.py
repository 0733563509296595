"""Summary of what guards did with the answers of the reported RAG calls, beside the labels that people gave them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.core.step import CHECKED
from ragtrace.estimates.agreement import Interval, share_interval
from ragtrace.labels.label_store import labels_in
from ragtrace.report.model import GuardSummary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ragtrace.history.reading import GuardCount, HistoryReader
    from ragtrace.history.segments import Floats
    from ragtrace.report.model import Period

_FEWEST_BAD: Final = 10
"""Fewest labelled bad answers from which the share that a guard caught is given."""


def guard_summaries(
    reader: HistoryReader, period: Period, workflow: str | None, *, model: str | None, release: str | None
) -> tuple[GuardSummary, ...]:
    """Return a summary for each workflow, metric and mode of the guards of the calls that the arguments choose.

    Args:
        reader: the history.
        period: time of the calls.
        workflow: workflow of the calls; None: all.
        model: model of the calls; None: all.
        release: release of the application that made the calls; None: all.
    """
    counts = reader.guard_counts(period.start, period.end, workflow, model=model, release=release)
    if not counts:
        return ()
    by_guard: defaultdict[tuple[str, str, str], list[GuardCount]] = defaultdict(list)
    for count in counts:
        by_guard[count.workflow, count.metric, count.mode].append(count)
    labelled = _labelled_answers(reader, period, workflow, model=model, release=release)
    return tuple(
        _summary(key, mine, reader.guard_added(period.start, period.end, *key, model=model, release=release), labelled)
        for key, mine in sorted(by_guard.items())
    )


def _labelled_answers(
    reader: HistoryReader, period: Period, workflow: str | None, *, model: str | None, release: str | None
) -> Mapping[tuple[str, str, str], Counter[tuple[bool, bool]]]:
    """Count the labelled answers of each guard by whether people call the answer bad, and whether it failed.

    Labels for another metric than the guard's do not count, nor answers about which people disagree or are unsure.
    """
    said: defaultdict[tuple[bytes, str], set[str]] = defaultdict(set)
    for label in labels_in(reader):
        said[label.identity, label.metric].add(label.label)
    found: defaultdict[tuple[str, str, str], Counter[tuple[bool, bool]]] = defaultdict(Counter)
    checked = reader.guard_verdicts_of(
        {identity for identity, _ in said}, period.start, period.end, workflow, model=model, release=release
    )
    for identity, of_workflow, verdict in checked:
        labels = said.get((identity, verdict.metric), set())
        if verdict.is_checked and labels in ({"good"}, {"bad"}):
            found[of_workflow, verdict.metric, verdict.mode][labels == {"bad"}, verdict.verdict == "fail"] += 1
    return found


def _summary(
    key: tuple[str, str, str],
    counts: Sequence[GuardCount],
    added_s: Floats,
    labelled: Mapping[tuple[str, str, str], Counter[tuple[bool, bool]]],
) -> GuardSummary:
    answers = sum(count.calls for count in counts)
    verdicts: Counter[str] = Counter()
    actions: Counter[str] = Counter()
    unchecked: Counter[str] = Counter()
    for count in counts:
        verdicts[count.verdict] += count.calls
        actions[count.action] += count.calls
        if count.verdict not in CHECKED:
            unchecked[count.reason or count.verdict] += count.calls
    of_labels = labelled.get(key, Counter())
    good, bad = (sum(of_labels[is_bad, failed] for failed in (False, True)) for is_bad in (False, True))
    p50, p95 = (float(1000 * np.quantile(added_s, share)) if len(added_s) else None for share in (0.5, 0.95))
    return GuardSummary(
        *key,
        answers,
        verdicts["pass"],
        verdicts["fail"],
        share_interval(verdicts["fail"] / answers, answers),
        dict(sorted(unchecked.items(), key=lambda item: (-item[1], item[0]))),
        {action: calls for action, calls in sorted(actions.items()) if action != "none"},
        p50,
        p95,
        good,
        _share(of_labels[False, True], good),
        bad,
        _share(of_labels[True, True], bad) if bad >= _FEWEST_BAD else None,
    )


def _share(part: int, whole: int) -> Interval | None:
    return share_interval(part / whole, whole) if whole else None
