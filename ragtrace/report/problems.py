"""The worst answers, with what no chunk supports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ragtrace.history.reading import Columns, Reader, Texts
from ragtrace.report.model import Passage, Problem
from ragtrace.report.series import Track

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOOKED_AT: Final = 40
"""Calls read for each problem shown: the same question may have gone wrong many times."""
_MOST_READ: Final = 2_000


def worst(
    reader: Reader,
    columns: Columns,
    found: Sequence[Track],
    chosen: NDArray[np.bool_],
    count: int,
    *,
    labelling: Collection[str],
) -> tuple[Problem, ...]:
    """The *count* calls with the worst scores, of equally bad ones the latest; none without fault.

    Args:
        found: tracks of one metric by different evaluators, each of other calls.
        labelling: evaluators that label statements, where others only compare words.
    """
    badness, by = np.zeros(len(columns)), np.zeros(len(columns), dtype=np.int64)
    for number, track in enumerate(found):
        here = chosen & (track.weight > 0)
        badness[here] = (1.0 - track.y if track.higher_is_better else track.y)[here]
        by[here] = number
    order = np.lexsort((-columns.at, -badness))
    order = order[badness[order] > 0][: min(count * _LOOKED_AT, _MOST_READ)]
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
    problems = (
        _problem(columns, found[int(by[at])], at, texts, repeats[key], len(order)) for key, (at, texts) in kept.items()
    )
    return tuple(
        replace(problem, compared=bool(problem.marks) and problem.evaluator not in labelling) for problem in problems
    )


def _problem(columns: Columns, track: Track, at: int, texts: Texts, repeats: int, among: int) -> Problem:
    body = texts.body
    answer = str(body.get("answer") or "")
    evidence = _evidence(columns, track, texts)
    claims = [claim for claim in evidence.get("claims", ()) if _is_unsupported(claim)]
    explanations: Mapping[str, str] = evidence.get("explanations", {})
    return Problem(
        float(columns.at[at]),
        track.metric,
        float(track.y[at]),
        track.evaluator,
        columns.workflows[int(columns.workflow[at])],
        columns.models[int(columns.model[at])],
        columns.sources[int(columns.source[at])].release,
        texts.trace_id,
        str(body.get("query") or ""),
        answer,
        tuple(merged(_ranges(claims), len(answer))),
        _passages(body, claims),
        str(explanations.get(track.metric, "")),
        repeats,
        bool(body) and not body.get("without_texts"),
        among,
    )


def _evidence(columns: Columns, track: Track, texts: Texts) -> Mapping[str, Any]:
    """Of the evaluator whose score it is."""
    none: Mapping[str, Any] = {}
    return next((body for by, body in texts.evidence.items() if columns.evaluators.get(by) == track.evaluator), none)


def _is_unsupported(claim: Mapping[str, Any]) -> bool:
    return bool(claim.get("checkable", True)) and claim.get("support") not in ("supported", None)


def _ranges(claims: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """The unsupported words of each claim; where nobody found out which, all of them."""
    found: list[tuple[int, int]] = []
    for claim in claims:
        ranges = claim.get("unsupported") or [(claim["start"], claim["end"])]
        found += [(int(start), int(end)) for start, end in ranges]
    return found


def merged(ranges: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """*ranges* inside [0, length), in order, overlapping ones joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((max(0, start), min(length, end)) for start, end in ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif start < end:
            joined.append((start, end))
    return joined


def _passages(body: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> tuple[Passage, ...] | None:
    held = {rank for claim in claims for rank in claim.get("evidence", ())}
    contexts: Sequence[Mapping[str, Any]] | None = body.get("contexts")
    if contexts is None:
        return None
    return tuple(
        Passage(str(document.get("text") or ""), str(document.get("id") or ""), rank in held)
        for rank, document in enumerate(contexts)
    )
