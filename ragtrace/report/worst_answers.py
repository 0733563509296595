"""The answers with the worst scores, with the words that no retrieved chunk supports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragtrace.history.reading import Columns, Reader, Texts
from ragtrace.report.model import RetrievedChunk, WorstAnswer
from ragtrace.report.series import ScoreSeries

if TYPE_CHECKING:
    from ragtrace.report.series import Mask

_READ_PER_ANSWER: Final = 40
"""Calls read for each answer shown, because the same question may have gone wrong many times."""
_MOST_READ: Final = 2_000


def worst_answers(
    reader: Reader,
    columns: Columns,
    found: Sequence[ScoreSeries],
    chosen: Mask,
    count: int,
    *,
    labelling: Collection[str],
) -> tuple[WorstAnswer, ...]:
    """Return the *count* calls with the worst scores, the latest first among equals; perfect ones are left out.

    Args:
        found: series of one metric by different evaluators, each of other calls.
        labelling: evaluators that label statements; other evaluators only compare words.
    """
    badness, by = np.zeros(len(columns)), np.zeros(len(columns), dtype=np.int64)
    for number, series in enumerate(found):
        here = chosen & (series.weight > 0)
        badness[here] = (1.0 - series.score if series.higher_is_better else series.score)[here]
        by[here] = number
    order = np.lexsort((-columns.at, -badness))
    order = order[badness[order] > 0][: min(count * _READ_PER_ANSWER, _MOST_READ)]
    kept: dict[tuple[object, object], tuple[int, Texts]] = {}
    repeats: dict[tuple[object, object], int] = {}
    for at in order.tolist():
        number = int(columns.number[at])
        texts = reader.texts([number])[number]
        key = (texts.body.get("query"), texts.body.get("answer"))
        key = key if key != (None, None) else (number, None)
        repeats[key] = repeats.get(key, 0) + 1
        if len(kept) < count:
            kept.setdefault(key, (at, texts))
    return tuple(
        _worst_answer(columns, found[int(by[at])], at, texts, repeats[key], len(order), labelling)
        for key, (at, texts) in kept.items()
    )


def _worst_answer(
    columns: Columns,
    series: ScoreSeries,
    at: int,
    texts: Texts,
    repeats: int,
    among: int,
    labelling: Collection[str],
) -> WorstAnswer:
    body = texts.body
    answer = str(body.get("answer") or "")
    by_evaluator = {columns.evaluators.get(number): evidence for number, evidence in texts.evidence.items()}
    evidence = by_evaluator.get(series.evaluator, {})
    unsupported = [
        claim
        for claim in evidence.get("claims", ())
        if claim.get("checkable", True) and claim.get("support") not in ("supported", None)
    ]
    marks = tuple(merge_ranges(_unsupported_ranges(unsupported), len(answer)))
    return WorstAnswer(
        at=float(columns.at[at]),
        metric=series.metric,
        score=float(series.score[at]),
        evaluator=series.evaluator,
        workflow=columns.workflows[int(columns.workflow[at])],
        model=columns.models[int(columns.model[at])],
        release=columns.sources[int(columns.source[at])].release,
        trace_id=texts.trace_id,
        query=str(body.get("query") or ""),
        answer=answer,
        marks=marks,
        passages=_chunks(body, unsupported),
        explanation=str(evidence.get("explanations", {}).get(series.metric, "")),
        repeats=repeats,
        texts_kept=bool(body) and not body.get("without_texts"),
        among=among,
        compared=bool(marks) and series.evaluator not in labelling,
    )


def _unsupported_ranges(claims: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return the character ranges of each claim's unsupported words, or of the whole claim if these are unknown."""
    return [
        (int(start), int(end))
        for claim in claims
        for start, end in claim.get("unsupported") or [(claim["start"], claim["end"])]
    ]


def merge_ranges(ranges: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Clip *ranges* to [0, length), sort them and join those that overlap."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((max(0, start), min(length, end)) for start, end in ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif start < end:
            joined.append((start, end))
    return joined


def _chunks(body: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> tuple[RetrievedChunk, ...] | None:
    held_against = {rank for claim in claims for rank in claim.get("evidence", ())}
    contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
    if contexts is None:
        return None
    return tuple(
        RetrievedChunk(str(document.get("text") or ""), str(document.get("id") or ""), rank in held_against)
        for rank, document in enumerate(contexts)
    )
