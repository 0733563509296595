"""Common properties of bad calls, such as a workflow, model, tag, chunk or word with clearly worse scores.

**Rates.** Each group's mean score is estimated from its judged calls alone, weighted by the inverse of the probability
with which each was judged, and compared with that of all other judged calls.

**Repeated questions.** A question counts once inside a group and once outside, with the mean score of its calls there,
however often it is asked: answers to one question are bad together, and one that is given from a cache is one answer.
Where the history has no texts, each call counts as a question of its own.

**Many comparisons.** With hundreds of groups, some look bad by chance. A group is reported if it is worse by the
procedure of Benjamini and Yekutieli, which keeps the expected share of false ones among those reported at 5 % whatever
the dependence between the groups, which overlap. The p-value is one-sided and normal, with the arm of the difference's
interval that points to 0 for the standard error. The intervals that are shown are plain 95 % intervals.

**Sources.** Benjamini and Yekutieli 2001, The Annals of Statistics 29:1165; `estimates.difference` for the interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ragtrace.core.labels import STATEMENT_METRICS
from ragtrace.core.tags import tag_text
from ragtrace.core.text import format_plainly
from ragtrace.estimates import Estimate, difference, estimate_mean
from ragtrace.history.reading import CallColumns, HistoryReader
from ragtrace.judges.lexical.words import ENGLISH
from ragtrace.report.comparison import change_between
from ragtrace.report.dataset import normalized
from ragtrace.report.model import Defect, Grouping, GroupRate, RepeatedQuestion
from ragtrace.report.series import ScoreSeries

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragtrace.report.series import Mask

FALSE_DISCOVERY_RATE: Final = 0.05
BAD: Final = 0.5
"""Lowest badness (0 is good, 1 is bad) at which a call counts as bad."""
FEWEST_VALUES: Final = 2
MOST_VALUES: Final = 50
"""Numbers of values of a tag by which calls are divided into groups."""
_MOST_READ: Final = 5_000
_FEWEST: Final = 5
"""Fewest judged calls inside a group, and outside it."""
_SHORTEST_WORD: Final = 3
_NAME_CHARS: Final = 80
_Z: Final = 1.959963984540054
_DEFECTS: Final = (
    ("missing context", "nothing relevant was retrieved"),
    ("contradicting", "a statement contradicts the retrieved chunks"),
    ("invented", "a statement is in none of the retrieved chunks"),
    ("overstated", "a statement is supported in part only"),
    ("not known", "no statement is marked"),
)


class _Group(NamedTuple):
    kind: str
    name: str
    member: Mask


def group_bad_calls(
    reader: HistoryReader, columns: CallColumns, series: ScoreSeries, chosen: Mask, relevance: ScoreSeries | None
) -> Grouping | None:
    """Find the groups of calls in which a metric is clearly worse than in the other calls.

    The result is None if no call was judged, or if the scores are raw probabilities, of which no rate is known.

    Args:
        reader: the history.
        columns: its calls.
        series: scores of the main metric.
        chosen: the calls that are looked at.
        relevance: scores of `context_relevance`, if there are any.
    """
    judged = series.judged_calls()
    judged = judged[chosen[judged]]
    if not len(judged) or series.is_raw:
        return None
    # Evenly spread over the calls in order, so that no part of the period is left out.
    positions = judged[np.unique(np.linspace(0, len(judged) - 1, min(_MOST_READ, len(judged))).astype(np.int64))]
    part = series.among(positions)
    bodies = reader.bodies(columns.number[positions].tolist())
    found = [bodies.get(number, {}) for number in columns.number[positions].tolist()]
    questions = _Questions(found)
    groups = [
        group
        for group in (
            *_groups_by_name(columns, positions),
            *_groups_by_tag(reader, columns.number[positions].tolist(), questions),
            *_groups_by_content(found, questions),
        )
        if min(questions.count(group.member), questions.count(~group.member)) >= _FEWEST
    ]
    bad = _badness(part) >= BAD
    return Grouping(
        metric=series.metric,
        evaluator=series.evaluator,
        judged=len(judged),
        read=len(positions),
        examined=len(groups),
        worse=tuple(_worse_groups(part, groups, questions, bad)),
        defects=tuple(_defects(reader, columns, part, positions, found, relevance)),
        questions=questions.count(np.ones(len(found), dtype=bool)),
        mostly=questions.most_of(bad),
    )


def _estimate(series: ScoreSeries, member: Mask) -> Estimate:
    (moments,) = series.moments(np.where(member, 0, -1), 1)
    return estimate_mean(moments, method="weighted", metric=series.metric, evaluator=series.evaluator)


def _badness(series: ScoreSeries) -> NDArray[np.float64]:
    """Return for each score how bad it is, from 0 (good) to 1 (bad)."""
    return 1.0 - series.scores if series.higher_is_better else series.scores


class _Questions:
    """Questions of judged calls: near-identical queries are one, and a call without a text is one of its own.

    Args:
        bodies: stored texts of the calls.
    """

    def __init__(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        self._queries = [str(body.get("query") or "") for body in bodies]
        keys = [normalized(query) or at for at, query in enumerate(self._queries)]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        self.number = np.array([numbers[key] for key in keys], dtype=np.intp)
        """Number of each call's question, from 0 on."""

    def count(self, member: Mask) -> int:
        """Return the number of distinct questions of the calls in *member*."""
        return int(np.count_nonzero(np.bincount(self.number[member])))

    def once(self, series: ScoreSeries, member: Mask) -> tuple[ScoreSeries, Mask]:
        """Return *series* with each question once inside the group *member* and once outside, and who is inside.

        Args:
            series: scores of the calls, all of which count.
            member: the calls in the group.
        """
        place = 2 * self.number + member
        of = np.bincount(place)
        there = np.flatnonzero(of)
        weight = np.bincount(place, weights=series.weights)[there]
        score = np.bincount(place, weights=series.weights * np.clip(series.scores, 0.0, 1.0))[there] / weight
        always = np.bincount(place, weights=series.always_judged)[there]
        units = len(there)
        once = replace(
            series, scored_call=np.arange(units, dtype=np.int32), scores=score, weights=weight / of[there],
            always_judged=always == of[there], eligible=np.ones(units, dtype=bool), screen_score=np.zeros(units),
        )  # fmt: skip
        return once, there % 2 == 1

    def most_of(self, bad: Mask) -> RepeatedQuestion | None:
        """Return the question of more than half of the *bad* calls, if there are several of it."""
        asked = np.bincount(self.number[bad], minlength=1)
        most, total = int(asked.argmax()), int(bad.sum())
        if asked[most] < 2 or 2 * asked[most] <= total:
            return None
        query = self._queries[int(np.argmax(self.number == most))]
        return RepeatedQuestion(" ".join(query.split()), int(asked[most]), total)


# --- the groups -------------------------------------------------------------------------------------------------------


def _groups_by_name(columns: CallColumns, positions: NDArray[np.int64]) -> Iterator[_Group]:
    releases = {number: source.release for number, source in columns.sources.items()}
    for kind, codes, names in (
        ("workflow", columns.workflow, dict(enumerate(columns.workflows))),
        ("model", columns.model, dict(enumerate(columns.models))),
        ("release", columns.source, releases),
    ):
        here = codes[positions]
        for name in sorted({names[code] for code in np.unique(here).tolist()} - {""}):
            yield _Group(kind, name, np.isin(here, [code for code, each in names.items() if each == name]))


def _groups_by_tag(reader: HistoryReader, numbers: Sequence[int], questions: _Questions) -> Iterator[_Group]:
    """Yield groups of calls with the same value of a tag.

    A tag with many values, such as the id of a request, divides the calls into no groups, and one with a single value
    into none that could be compared.
    """
    if not reader.tag_names():
        return
    of_call = reader.tags(numbers)
    texts = [{name: tag_text(value) for name, value in of_call.get(number, {}).items()} for number in numbers]
    values: dict[str, set[str]] = {}
    for mine in texts:
        for name, text in mine.items():
            values.setdefault(name, set()).add(text)
    divided = {name for name, texts_of in values.items() if FEWEST_VALUES <= len(texts_of) <= MOST_VALUES}
    elements = [{f"{name}={text}" for name, text in mine.items() if name in divided} for mine in texts]
    yield from _groups_by_element("tag", elements, questions)


def _groups_by_content(bodies: Sequence[Mapping[str, Any]], questions: _Questions) -> Iterator[_Group]:
    """Yield groups of calls with the same retrieved chunk, then groups of calls with the same word in the query."""
    contexts: list[Sequence[Mapping[str, Any]] | None] = [body.get("contexts") for body in bodies]
    yield _Group("retrieval", "nothing was retrieved", np.array([each is not None and not each for each in contexts]))
    scores = [[c["score"] for c in each or () if isinstance(c.get("score"), (int, float))] for each in contexts]
    best = np.array([max(each, default=math.nan) for each in scores], dtype=np.float64)
    if (~np.isnan(best)).sum() >= 4 * _FEWEST:
        quarter = float(np.nanquantile(best, 0.25))
        yield _Group("retrieval", f"best retrieval score at most {format_plainly(quarter, 3)}", best <= quarter)
    chunks = [{_chunk_name(each) for each in of_call or () if each.get("text")} for of_call in contexts]
    yield from _groups_by_element("chunk", chunks, questions)
    words = [
        {
            word
            for word in normalized(str(body.get("query") or "")).split()
            if len(word) >= _SHORTEST_WORD and word not in ENGLISH
        }
        for body in bodies
    ]
    # Highest share of the queries, from 0 to 1, that a word may occur in to make a group.
    yield from _groups_by_element("word of the query", words, questions, most=0.8)


def _chunk_name(chunk: Mapping[str, Any]) -> str:
    return str(chunk.get("id") or " ".join(str(chunk["text"]).split())[:_NAME_CHARS])


def _groups_by_element(
    kind: str, elements: Sequence[set[str]], questions: _Questions, most: float = 1.0
) -> Iterator[_Group]:
    """Yield one group of calls for each element of many questions, such as a word of the queries.

    Args:
        kind: kind of the elements.
        elements: elements of each call.
        questions: question of each call.
        most: share of the calls above which an element makes no group.
    """
    calls: dict[str, list[int]] = {}
    for at, mine in enumerate(elements):
        for element in mine:
            calls.setdefault(element, []).append(at)
    asked = {name: len(set(questions.number[at].tolist())) for name, at in calls.items() if len(at) >= _FEWEST}
    frequent = sorted(
        (name for name, count in asked.items() if count >= _FEWEST and len(calls[name]) <= most * len(elements)),
        key=lambda name: (-asked[name], name),
    )
    # Most tags, chunks and words that are compared: the most frequent ones of each.
    for name in frequent[:200]:
        member = np.zeros(len(elements), dtype=bool)
        member[calls[name]] = True
        yield _Group(kind, name, member)


# --- which of them are worse ------------------------------------------------------------------------------------------


def _worse_groups(series: ScoreSeries, groups: Sequence[_Group], questions: _Questions, bad: Mask) -> list[GroupRate]:
    """Return the groups of calls that are clearly worse than all other calls, by number of excess bad calls."""
    rated: list[tuple[float, float, _Group, GroupRate]] = []
    for group in groups:
        once, member = questions.once(series, group.member)
        inside, outside = _estimate(once, member), _estimate(once, ~member)
        change = change_between(outside, inside, higher_is_better=series.higher_is_better)
        if change is None:
            continue
        excess = abs(change.value) * float(series.weight_by_call()[group.member].sum())
        mine = group.member
        rate = GroupRate(
            group.kind, group.name, int(mine.sum()), inside, outside, change,
            questions=questions.count(mine), mostly=questions.most_of(bad & mine),
        )  # fmt: skip
        rated.append((_p_value(inside, outside, higher_is_better=series.higher_is_better), excess, group, rate))
    limit = _largest_p_value([p for p, *_ in rated])
    chosen = sorted((each for each in rated if each[0] <= limit), key=lambda each: -each[1])
    kept: list[tuple[Mask, GroupRate]] = []
    for _, _, group, rate in chosen:
        for at, (member, other) in enumerate(kept):
            # Lowest share of common calls, from 0 to 1, at which two groups count as one.
            if (member & group.member).sum() >= 0.8 * (member | group.member).sum():
                kept[at] = member, replace(other, alike=(*other.alike, f"{group.kind} {group.name}"))
                break
        else:
            kept.append((group.member, rate))
    return [rate for _, rate in kept]


def _p_value(inside: Estimate, outside: Estimate, *, higher_is_better: bool) -> float:
    """Return the one-sided p-value for the hypothesis that a group of calls is not worse than all other calls."""
    found = difference(inside, outside)
    if found is None:
        return 1.0
    value, low, high = found if not higher_is_better else (-found[0], -found[2], -found[1])
    arm = value - low
    if value <= 0.0 or arm <= 0.0 or high < low:
        return 1.0
    return 0.5 * math.erfc(_Z * value / arm / math.sqrt(2.0))


def _largest_p_value(values: Sequence[float]) -> float:
    """Return the largest p-value rejected by the Benjamini-Yekutieli procedure, or -1 if it rejects none."""
    count = len(values)
    share = FALSE_DISCOVERY_RATE / (count * sum(1.0 / rank for rank in range(1, count + 1))) if count else 0.0
    passed = [p for rank, p in enumerate(sorted(values), start=1) if p <= rank * share]
    return max(passed, default=-1.0)


# --- what is wrong with the bad calls ---------------------------------------------------------------------------------


def _defects(
    reader: HistoryReader,
    columns: CallColumns,
    series: ScoreSeries,
    positions: NDArray[np.int64],
    bodies: Sequence[Mapping[str, Any]],
    relevance: ScoreSeries | None,
) -> Iterator[Defect]:
    """Yield the kinds of defects in the bad calls, each with its share of the bad calls.

    Only a judge that labels statements finds bad calls. A score that compares words (`consistency`) has no limit
    between good and bad: flawless answers have statements with words that no chunk has.
    """
    if series.metric not in STATEMENT_METRICS:
        return
    bad = _badness(series) >= BAD
    if not bad.any():
        return
    kinds = np.full(len(positions), "", dtype=object)
    relevant = None if relevance is None else relevance.score_by_call()
    for at in np.flatnonzero(bad).tolist():
        irrelevant = relevant is not None and float(relevant[positions[at]]) < BAD  # False for NaN
        evidence = reader.evidence(int(columns.number[positions[at]]))
        claims = [
            claim
            for number, of_evaluator in evidence.items()
            if columns.evaluators.get(number) == series.evaluator
            for claim in of_evaluator.get("claims", ())
        ]
        kinds[at] = _defect_of(bodies[at], claims, irrelevant=irrelevant)
    for kind, meaning in _DEFECTS:
        of_kind = replace(series, scores=(kinds == kind).astype(np.float64), higher_is_better=False)
        count = int((kinds == kind).sum())
        if count:
            yield Defect(kind, meaning, count, _estimate(of_kind, bad))


def _defect_of(body: Mapping[str, Any], claims: Iterable[Mapping[str, Any]], *, irrelevant: bool) -> str:
    """Return the kind of defect in a bad call, such as a missing context or an invented statement."""
    if irrelevant or body.get("contexts") == []:
        return "missing context"
    support = {claim.get("support") for claim in claims if claim.get("checkable", True)}
    order = (("contradicted", "contradicting"), ("not_found", "invented"), ("partial", "overstated"))
    return next((kind for label, kind in order if label in support), "not known")
