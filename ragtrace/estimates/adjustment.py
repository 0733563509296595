"""Adjustment of scores for what a call was about, so that another mix of topics is not taken for worse answers.

Answers on some documents get lower scores than answers on others, and so do answers from longer contexts. Where the mix
of topics changes with the hour, the mean score changes with it, though no answer is worse. An alert that compares with
a baseline therefore watches scores from which the usual effects of the call's contexts are subtracted, and does not let
a fall count that the baseline itself has shown.

**Effects.** With m the mean score of the baseline's calls, the residual of a call is r = score - m. First, calls are
divided into eight groups of equal size by the length of their contexts; then, on what the first effect leaves, by the
best-ranked document. The effect of a group k with n_k calls is the mean of their residuals,
    e_k = sum(r - mean r) / n_k,  or 0 where n_k < w / b (and 0 everywhere with b <= 0),
where w is the variance within the groups and b the variance between them by analysis of variance. A mean has the error
w / n_k, and 0 the error b, so the better one is taken. The effects are not shrunk towards 0, though each alone would be
more exact: the documents of a topic would all keep a part of their difference on the same side, and calls about the
topic come in a row, whereas errors of means differ from document to document and cancel out. Within the baseline, the
effect of a call's group is that of the group's other calls, (sum - own) / (n_k - 1), as a call must not explain itself.
The watched score is
    c' = clip(score - e_length - e_document, 0, 1).

**New ids.** A rebuilt index may give known texts new ids, or each other's. A document is therefore first looked up by
its text, if all calls of the baseline with that text were about one document, and then by its id.

**New documents.** Where of the latest 20 or 100 calls at most a quarter as many are about a document of the baseline as
of any 20 or 100 calls in a row of the baseline are about a document of two others, the documents have vanished: the
baseline says nothing about the new ones (`KnownDocuments`).

**Bound.** Calls that follow each other are alike, so the mean of the baseline is less exact than its number of calls
says. For a length B, with m_k the calls of a block that are about the document k,
    f = B var(means of blocks of B calls) / var(c') + mean over blocks of sum over k of m_k^2 / (B n_k).
The second part is the error of the effects: it is the same for all later calls about a document, though the baseline
cannot show it, as its own calls have the mean 0 for each document. With the largest f of several lengths, but at least
1, the baseline counts as its effective number of calls divided by f.

**Gate.** The sum W = max(0, W + badness - bound - 0.01) from 0 rises while scores are bad. An alarm waits until W is
2 f^(1/4) times the largest value that it has when the baseline itself is replayed: a baseline with few turns of topics
shows less than what is usual. The gate can only delay an alarm.

Sources: Searle, Casella and McCulloch 1992, section 3.6 (variance components of unbalanced data); Louis 1984, Journal
of the American Statistical Association 79:393 (shrunken means differ less than the groups do); Page 1954 (the
cumulative sum). The factors 2 f^(1/4) and 0.01 are our own, and were chosen by simulation
(`tests/benchmarks/README.md`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate, pairwise
from statistics import fmean, pvariance, variance
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace.core.types import RagCall
from ragtrace.estimates.distribution import Distribution

Direction: TypeAlias = Literal["above", "below"]

ADJUSTED_CALLS: Final = 2_000
"""Number of scored calls from which the effects of documents and lengths are learned."""
LENGTH_GROUPS: Final = 8
MOST_DOCUMENTS: Final = 2_000
"""Largest number of documents whose effects are known: the most frequent ones."""
FEWEST_CALLS: Final = 5
"""Calls below which a document has no effect: a few bad answers in a row would be taken for a difficult document."""
ALLOWANCE: Final = 0.01
"""Amount by which a score must be worse than the bound to add to the excess (W)."""
COURSE_CALLS: Final = 20
_GATE_FACTOR: Final = 2.0
_BLOCKS: Final = (10, 30, 100, 300, 1_000)
_FEWEST_BLOCKS: Final = 5
_REPEATED_WITHIN: Final = 10
_DOCUMENT_BYTES: Final = 4
_KNOWN_AMONG: Final = (20, 100)
_Z_CALLS: Final = 500
_EDGE: Final = 1e-6
"""Distance of a bound made of a baseline from 0 and 1, where the detector's bets would be infinite."""


class CallTraits(NamedTuple):
    """Properties of a call on which its usual score depends: its best-ranked document, and how long contexts are."""

    document: int
    """Hash of the best-ranked document, or of the question where there is none; below 2^32."""
    length: int
    """Number of characters of all contexts."""
    text: int | None = None
    """Hash of the text of the document, which is its name where it has no id; None: not known."""

    @classmethod
    def of(cls, call: RagCall) -> CallTraits:
        """Return the traits of *call*. The document is known by its id, else by its text."""
        return cls.of_texts(call.query, [(each.id, each.text) for each in call.contexts or ()])

    @classmethod
    def of_texts(cls, query: str | None, documents: Sequence[tuple[str | None, str]]) -> CallTraits:
        """Return the traits of a call from its query and the id and text of each document, the best one first."""
        name, text = documents[0] if documents else (None, query or "")
        of_text = _hash(text)
        return cls(_hash(name) if name else of_text, sum(len(text) for _, text in documents), of_text)


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DOCUMENT_BYTES).digest()
    return int.from_bytes(digest, "big")


class KnownDocuments:
    """Record of whether the latest calls were about documents of a baseline, which shows when these have vanished.

    They are back when known ones are at least half as frequent as they were where they were rarest in the baseline.

    Args:
        least: least number of such calls among any `_KNOWN_AMONG` calls in a row of the baseline.
    """

    def __init__(self, least: Sequence[int]) -> None:
        # Where fewer than eight were known in the rarest case, so few may be chance in ten thousand calls.
        self._enough = {size: count // 4 for size, count in zip(_KNOWN_AMONG, least, strict=False) if count >= 8}
        self._back = least[-1] / 2 if least else 0.0
        self._latest: deque[bool] = deque(maxlen=_KNOWN_AMONG[-1])
        self.calls_since_vanished = 0
        """Number of calls since the documents vanished, or 0 if they have not."""

    def add(self, is_known: bool) -> None:
        """Add a call to the record.

        Args:
            is_known: whether the baseline knows the call's document (`Adjustment.knows`).
        """
        self._latest.append(is_known)
        latest = list(self._latest)
        if self.calls_since_vanished:
            self.calls_since_vanished = 0 if sum(latest) >= self._back else self.calls_since_vanished + 1
            return
        for size, enough in self._enough.items():
            if len(latest) >= size and sum(latest[-size:]) <= enough:
                self.calls_since_vanished = size - latest[-size:].index(False)
                self._latest.clear()
                return


class Excess:
    """Running sum by which scores are worse than a bound, as the gate of an alert counts it."""

    def __init__(self, bound: float) -> None:
        self._least = bound + ALLOWANCE
        self.value = 0.0

    def add(self, badness: float, share: float = 1.0) -> None:
        """Add a call with *badness* from 0 (good) to 1, which counts by *share* in (0, 1]."""
        self.value = max(0.0, self.value + share * (badness - self._least))


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Usual effects of documents and lengths on a score, and the baseline of the scores that are adjusted for them."""

    distribution: Distribution
    """Distribution of the adjusted scores of the baseline; its `effective_n` counts that calls in a row are alike."""
    lengths: tuple[float, ...]
    """Numbers of characters at which the next group of lengths begins."""
    length_effects: tuple[float, ...]
    """Effect of each group of lengths: one more than `lengths`."""
    document_effects: Mapping[int, float]
    """Effects by document and by text (see `CallTraits`), of all documents that two or more calls of the baseline were
    about. The effect is 0 for those with too few calls to tell, as it is for documents that are not in it."""
    gate_below: float
    """Excess of low scores below which an alert raises no alarm."""
    gate_above: float
    """Excess of high scores below which an alert raises no alarm."""
    least_known: tuple[int, ...] = ()
    """Least number of calls about a document of two other calls, among any 20 and any 100 calls in a row of the
    baseline; empty in files of versions of ragtrace that did not count them."""
    course: tuple[float, ...] = ()
    """Means of each `COURSE_CALLS` adjusted scores in a row, from which follows what an alert can notice; empty in
    files of versions of ragtrace that did not keep them."""
    counted: float = 1.0
    """Share of a call by which it counts as evidence of an alert, in the mean: less where questions are repeated within
    a few calls, and where suspicious calls are judged more often."""

    @classmethod
    def learn(
        cls,
        scores: Sequence[float],
        traits: Sequence[CallTraits],
        *,
        weights: Sequence[float],
        questions: Sequence[Hashable],
        versions: Sequence[str] = (),
        since: float = 0.0,
        until: float = 0.0,
    ) -> Adjustment:
        """Learn the effects from the calls of a baseline, in the order in which the calls happened.

        Args:
            scores: scores of the calls, in [0, 1].
            traits: document and length of each.
            weights: number of calls of the traffic that each stands for (1 / inclusion probability).
            questions: question of each call, or anything that is equal for equal questions.
            versions: `service.version` of the releases that gave the answers.
            since: time of the first call, in seconds since the epoch.
            until: time of the last call.
        """
        mean = fmean(scores)
        lengths = _edges([each.length for each in traits])
        by_length = _Effects([score - mean for score in scores], [bisect_right(lengths, t.length) for t in traits])
        left = [score - mean - effect for score, effect in zip(scores, by_length.of_calls, strict=True)]
        by_document = _Effects(left, [each.document for each in traits], FEWEST_CALLS)
        adjusted = [
            _clip(score - first - second)
            for score, first, second in zip(scores, by_length.left_out, by_document.left_out, strict=True)
        ]
        found = Distribution.of(
            adjusted, weights=weights, questions=questions, versions=versions, since=since, until=until
        )
        factor = block_factor(adjusted, [each.document for each in traits], by_document.counts)
        found = replace(found, effective_n=max(1.0, found.effective_n / factor))
        shares = _evidence_shares(weights, questions)
        gates: list[float] = []
        for direction in ("below", "above"):
            bound = baseline_bound(found, direction)
            badness = adjusted if direction == "above" else [1.0 - score for score in adjusted]
            largest = _largest_excess(badness, bound if direction == "above" else 1.0 - bound, shares)
            # Power of the block factor in the gate: with 1/2, worse answers are told of late where topics take turns;
            # with 0, more than 3 in 100 alerts raise a false alarm within 1,000 calls there.
            gates.append(_GATE_FACTOR * factor**0.25 * largest)
        effects = by_document.most_frequent(MOST_DOCUMENTS)
        calls = Counter(each.document for each in traits)
        effects = {**{document: 0.0 for document, count in calls.items() if count > 1}, **effects}
        known = tuple(_least_among([calls[each.document] > 2 for each in traits], size) for size in _KNOWN_AMONG)
        effects = {**_effects_by_text(traits, effects), **effects}
        below, above = gates
        by_length_group = tuple(map(by_length.of, range(len(lengths) + 1)))
        course, counted = _course(adjusted, shares), fmean(shares)
        return cls(found, lengths, by_length_group, effects, below, above, known, course, counted)

    def adjust(self, score: float, traits: CallTraits) -> float:
        """Return *score* without the usual effects of the call's document and length, in [0, 1]."""
        length = self.length_effects[bisect_right(self.lengths, traits.length)]
        by_id = self.document_effects.get(traits.document, 0.0)
        by_text = by_id if traits.text is None else self.document_effects.get(traits.text, by_id)
        return _clip(score - length - by_text)

    def knows(self, traits: CallTraits) -> bool:
        """Return whether two or more calls of the baseline were about the call's document, by its id or its text."""
        return not self.document_effects.keys().isdisjoint((traits.document, traits.text))

    def gate(self, direction: Direction) -> float:
        """Return the excess that an alert on this side of its bound must reach before it raises an alarm."""
        return self.gate_above if direction == "above" else self.gate_below


class _Effects:
    """Effects of groups on a residual.

    Args:
        residuals: residual of each call.
        groups: group of each call.
        fewest: calls below which a group has no effect.
    """

    def __init__(self, residuals: Sequence[float], groups: Sequence[int], fewest: int = 1) -> None:
        mean = fmean(residuals)
        centred = [each - mean for each in residuals]
        members: defaultdict[int, list[float]] = defaultdict(list)
        for group, each in zip(groups, centred, strict=True):
            members[group].append(each)
        counts = {group: len(mine) for group, mine in members.items()}
        self._sums = {group: math.fsum(mine) for group, mine in members.items()}
        self._fewest = max(float(fewest), _variance_ratio(list(members.values())))
        """Calls below which a group's mean is a worse guess of its effect than 0."""
        self.counts = {group: count for group, count in counts.items() if count >= self._fewest}
        """Number of calls of each group that has an effect."""
        self.of_calls = [self.of(group) for group in groups]
        """Effect of the group of each call."""
        self.left_out = [
            self._effect(self._sums[group] - own, counts[group] - 1) for group, own in zip(groups, centred, strict=True)
        ]
        """The same from the other calls of the group."""

    def of(self, group: int) -> float:
        """Return the effect of *group*, which is 0 for one without calls."""
        return self._effect(self._sums.get(group, 0.0), self.counts.get(group, 0))

    def most_frequent(self, count: int) -> dict[int, float]:
        """Return the effects of the *count* groups with the most calls, as far as they are not 0."""
        chosen = sorted(self.counts, key=lambda group: (-self.counts[group], group))[:count]
        return {group: effect for group in chosen if (effect := self.of(group))}

    def _effect(self, total: float, count: int) -> float:
        return total / count if count >= self._fewest else 0.0


def _effects_by_text(traits: Sequence[CallTraits], effects: Mapping[int, float]) -> dict[int, float]:
    """Return the effects of documents by text, of texts that belong to one document each."""
    documents: defaultdict[int, set[int]] = defaultdict(set)
    for each in traits:
        if each.text is not None:
            documents[each.text].add(each.document)
    return {
        text: effects[document] for text, (document, *more) in documents.items() if not more and document in effects
    }


def _least_among(flags: Sequence[bool], size: int) -> int:
    """Return the least number of true flags among any *size* in a row."""
    sums = list(accumulate(flags, initial=0))
    return min((end - start for start, end in zip(sums, sums[size:], strict=False)), default=0)


def _variance_ratio(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance within groups by the variance between them; infinite if nothing is between them."""
    count, total = len(groups), sum(map(len, groups))
    if count < 2 or total == count:
        return math.inf
    means = [fmean(group) for group in groups]
    mean = math.fsum(len(group) * each for group, each in zip(groups, means, strict=True)) / total
    inside = math.fsum((value - each) ** 2 for group, each in zip(groups, means, strict=True) for value in group)
    within = inside / (total - count)
    outside = math.fsum(len(group) * (each - mean) ** 2 for group, each in zip(groups, means, strict=True))
    size = (total - math.fsum(len(group) ** 2 for group in groups) / total) / (count - 1)
    between = (outside / (count - 1) - within) / size
    return within / between if between > 0.0 else math.inf


def _edges(lengths: Sequence[int]) -> tuple[float, ...]:
    """Return the lengths that divide the calls into groups of equal size, each length once."""
    ordered = sorted(lengths)
    return tuple(sorted({float(ordered[len(ordered) * at // LENGTH_GROUPS]) for at in range(1, LENGTH_GROUPS)}))


def block_factor(
    scores: Sequence[float], groups: Sequence[int] = (), counts: Mapping[int, int] = MappingProxyType({})
) -> float:
    """Return by how much calls in a row are alike: 1 if scores do not depend on their neighbours, else more.

    It is the largest ratio of the variance of the means of blocks of calls to what it would be without dependence.

    Args:
        scores: adjusted scores of calls in a row.
        groups: document of each call.
        counts: from how many calls the effect of each document was learned, whose error its calls have in common.
    """
    spread = pvariance(scores)
    factor = 1.0
    for size in _BLOCKS:
        blocks = [slice(start, end) for start, end in pairwise(range(0, len(scores) + 1, size))]
        if len(blocks) >= _FEWEST_BLOCKS and spread > 0.0:
            means = [fmean(scores[block]) for block in blocks]
            met = (Counter(groups[block]).items() for block in blocks)
            shared = (calls**2 / (size * counts[group]) for each in met for group, calls in each if group in counts)
            factor = max(factor, size * variance(means) / spread + math.fsum(shared) / len(blocks))
    return factor


def _evidence_shares(weights: Sequence[float], questions: Sequence[Hashable]) -> list[float]:
    """Return by how much each call of a baseline would count as evidence of an alert.

    That is less the more probable it was to be scored, and nothing if its question was asked shortly before.
    """
    largest, shares = max(weights), list[float]()
    asked: deque[Hashable] = deque(maxlen=_REPEATED_WITHIN)
    for weight, question in zip(weights, questions, strict=True):
        repeated = question in asked
        shares.append(0.0 if repeated else weight / largest)
        asked.append(None if repeated else question)
    return shares


def _largest_excess(badness: Sequence[float], bound: float, shares: Sequence[float]) -> float:
    """Return the largest excess when the calls of a baseline are replayed."""
    excess, largest = Excess(bound), 0.0
    for value, share in zip(badness, shares, strict=True):
        excess.add(value, share)
        largest = max(largest, excess.value)
    return largest


def _course(scores: Sequence[float], shares: Sequence[float]) -> tuple[float, ...]:
    """Return the mean of each `COURSE_CALLS` scores in a row, in which each counts by its share."""
    found: list[float] = []
    for at in range(0, len(scores) + 1 - COURSE_CALLS, COURSE_CALLS):
        block = slice(at, at + COURSE_CALLS)
        total = math.fsum(shares[block])
        weighted = math.fsum(share * score for share, score in zip(shares[block], scores[block], strict=True))
        found.append(weighted / total if total else fmean(scores[block]))
    return tuple(found)


def baseline_bound(baseline: Distribution, direction: Direction) -> float:
    """Return the bound on the mean score for an alert that compares with a baseline of earlier scores.

    It is in (0, 1): a confidence limit of the baseline's mean, and at least what the mean would be with one more call
    that is as bad as can be. A baseline without any bad call does not say that there never is one.
    """
    n, worst = baseline.effective_n, 1.0 if direction == "above" else 0.0
    # Margin between a baseline's mean and the bound made of it, in standard errors of the mean of `_Z_CALLS` calls. A
    # baseline is the mean of some hundred calls, so half of all baselines are better than the true mean: with no
    # margin, the alerts of that half would all fire sooner or later although nothing has changed. With a large margin,
    # a real change is detected late. A quarter was chosen by simulation: 10,000 calls between two false alarms were
    # asked for, each run was stopped after 30,000 calls at the latest, and runs took more than 10,000 in the mean, for
    # scores of several shapes (none of them a labelled set; for those see `tests/benchmarks/baseline_alerts.py`). The
    # delay depends on the margin itself, however many calls the baseline has: a longer baseline keeps the margin, which
    # is then more of its standard errors, up to those of `ADJUSTED_CALLS`.
    z = 0.25 * math.sqrt(max(1.0, min(baseline.n, ADJUSTED_CALLS) / _Z_CALLS))
    one_more = (n * baseline.mean + worst) / (n + 1.0)
    limit = baseline.mean_bound(z, "upper" if direction == "above" else "lower")
    found = max(limit, one_more) if direction == "above" else min(limit, one_more)
    return min(1.0 - _EDGE, max(_EDGE, found))


def _clip(score: float) -> float:
    return min(1.0, max(0.0, score))
