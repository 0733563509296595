"""Merges the labels of several main replies: batches of one call, and votes of repeated rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, TypeVar

from ragtrace.core.labels import AnswerLabel, CitationSupport, SentenceRelevance
from ragtrace.judges.llm.main_reply import UNJUDGED, ExtractedStatement, MainReply, Verdict
from ragtrace.judges.llm.quotes import fold

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

BEST_FIRST: Final = ("supported", "contradicted", "partial", "not_found")


@dataclass(slots=True)
class Extraction:
    """Labels of the answer: its sentences, the statements extracted from it, its rating."""

    sentences: dict[str, SentenceRelevance | None] | None = None
    statements: list[ExtractedStatement] | None = None
    answer_rating: int | None = None
    answer_label: AnswerLabel | None = None


@dataclass(slots=True)
class Verification:
    """Labels of statements, chunks and citations held against each other."""

    verdicts: dict[int, Verdict] = field(default_factory=dict[int, Verdict])
    """Verdicts by index of the statement."""
    contradicted: dict[str, bool | None] | None = None
    grades: dict[str, int | None] | None = None
    citations: dict[str, CitationSupport | None] | None = None


def extraction(replies: Sequence[MainReply]) -> Extraction:
    """Return the labels of all parts of an answer: statements add up, and the answer is as good as its best part."""
    ratings = [reply.answer_rating for reply in replies if reply.answer_rating is not None]
    labels = [reply.answer_label for reply in replies]
    label: AnswerLabel | None = None if None in labels else "answered" if "answered" in labels else "abstained"
    whole = [reply.statements for reply in replies]
    return Extraction(
        sentences=_union(reply.sentences for reply in replies),
        statements=None if None in whole else distinct(one for statements in whole for one in statements or ()),
        answer_rating=max(ratings, default=None),
        answer_label=label,
    )


def distinct(statements: Iterable[ExtractedStatement]) -> list[ExtractedStatement]:
    """Return *statements* with each text once; where two of a text differ in a label, that label is none."""
    found: dict[object, ExtractedStatement] = {}
    for index, one in enumerate(statements):
        key = fold(one.text).rstrip(".,;:!? ") or index
        old = found.get(key)
        found[key] = one if old is None else _joined(old, one)
    return list(found.values())


def _joined(old: ExtractedStatement, new: ExtractedStatement) -> ExtractedStatement:
    return replace(
        old,
        sentences=tuple(sorted({*old.sentences, *new.sentences})),
        checkable=old.checkable or new.checkable,
        relevant=old.relevant if old.relevant == new.relevant else None,
        verdict=old.verdict if old.verdict.support == new.verdict.support else UNJUDGED,
    )


def verification(replies: Sequence[MainReply], verdicts: Iterable[tuple[int, Verdict]]) -> Verification:
    """Return the labels of all batches of one round.

    Of a statement held against several groups of chunks the best label counts; if one group left it unjudged, only
    support by another group counts.
    """
    merged: dict[int, Verdict] = {}
    for index, verdict in verdicts:
        merged[index] = _better(merged[index], verdict) if index in merged else verdict
    cited: list[dict[str, CitationSupport | None] | None] = [reply.citations for reply in replies]
    return Verification(
        verdicts=merged,
        contradicted=_fold([reply.contradicted for reply in replies], lambda old, new: old or new),
        grades=_fold([reply.grades for reply in replies]),
        citations=_fold(cited),  # type: ignore[arg-type]  # mypy widens the literals
    )


def _better(old: Verdict, new: Verdict) -> Verdict:
    if old.support is None or new.support is None:
        return next((one for one in (old, new) if one.support == "supported"), UNJUDGED)
    return min(old, new, key=lambda verdict: BEST_FIRST.index(verdict.support or "not_found"))


def _union(parts: Iterable[dict[K, V] | None]) -> dict[K, V] | None:
    """Return the union of *parts*; None if a part is missing."""
    merged: dict[K, V] = {}
    for part in parts:
        if part is None:
            return None
        merged |= part
    return merged


def _fold(
    parts: Sequence[Mapping[str, V | None] | None], join: Callable[[V, V], V] | None = None
) -> dict[str, V | None] | None:
    """Return the label of each id, by *join* where there are several (None: the first); None if there is no part."""
    merged: dict[str, V | None] | None = None
    for part in parts:
        if part is None:
            continue
        merged = merged or {}
        for key, label in part.items():
            old = merged.get(key)
            merged[key] = label if old is None else old if label is None or join is None else join(old, label)
    return merged


# --- votes -----------------------------------------------------------------------------------------------------------


def vote(rounds: Sequence[Verification]) -> tuple[Verification, float]:
    """Return the label that most rounds agree on, of grades the median; and the share of items without unanimity.

    An item without a majority is unjudged. The share leaves out items that no round judged.
    """
    split: list[bool] = []
    verdicts = {
        index: _majority_verdict([one.verdicts.get(index, UNJUDGED) for one in rounds], split)
        for index in rounds[0].verdicts
    }
    cited: list[dict[str, CitationSupport | None] | None] = [one.citations for one in rounds]
    elected = Verification(
        verdicts=verdicts,
        contradicted=_elect([one.contradicted for one in rounds], split),
        grades=_elect([one.grades for one in rounds], split, _median),
        citations=_elect(cited, split),  # type: ignore[arg-type]  # mypy widens the literals
    )
    return elected, sum(split) / len(split) if split else 0.0


def _majority_verdict(verdicts: Sequence[Verdict], split: list[bool]) -> Verdict:
    support = _count([verdict.support for verdict in verdicts], split)
    if support is None:
        return UNJUDGED
    agreeing = [verdict for verdict in verdicts if verdict.support == support]
    return min(agreeing, key=lambda verdict: (verdict.unverified, verdict.quote is None))


def _elect(
    ballots: Sequence[Mapping[str, V | None] | None],
    split: list[bool],
    choose: Callable[[Sequence[V | None]], V | None] | None = None,
) -> dict[str, V | None] | None:
    cast = [ballot for ballot in ballots if ballot is not None]
    if not cast:
        return None
    keys = dict.fromkeys(key for ballot in cast for key in ballot)
    return {key: _count([None if b is None else b.get(key) for b in ballots], split, choose) for key in keys}


def _count(
    labels: Sequence[V | None], split: list[bool], choose: Callable[[Sequence[V | None]], V | None] | None = None
) -> V | None:
    """Return the label that the rounds elect, by majority unless *choose* is given; note in *split* if they differ."""
    if any(label is not None for label in labels):
        split.append(len(set(labels)) > 1)
    return choose(labels) if choose else _majority(labels)


def _majority(labels: Sequence[V | None]) -> V | None:
    counts = Counter(label for label in labels if label is not None)
    label, votes = counts.most_common(1)[0] if counts else (None, 0)
    return label if 2 * votes > len(labels) else None


def _median(grades: Sequence[int | None]) -> int | None:
    """Return the median of at least two grades; None where it is no grade that was given."""
    given = [grade for grade in grades if grade is not None]
    middle = median(given) if 2 * len(given) > len(grades) else None
    return int(middle) if middle is not None and middle == int(middle) and middle in given else None
