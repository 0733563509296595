"""Labels that a judge gives to the parts of a call, such as claims and sentences, from which metrics compute scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

Support: TypeAlias = Literal["supported", "contradicted", "partial", "not_found"]
"""Relation of a claim to the retrieved chunks."""
STATEMENT_METRICS: Final = frozenset(
    {"hallucinated", "faithfulness", "hallucination", "faithfulness_noncontradiction", "contradiction"}
)
"""Names of the metrics computed from labels of claims; an evaluator that offers none of them only compares words."""
Relevance: TypeAlias = Literal["yes", "background", "no"]
SentenceRelevance: TypeAlias = Literal["yes", "background", "no", "filler"]
AnswerLabel: TypeAlias = Literal["answered", "abstained"]
CitationSupport: TypeAlias = Literal["full", "partial", "none"]
Importance: TypeAlias = Literal["vital", "okay"]
NuggetSupport: TypeAlias = Literal["support", "partial_support", "not_support"]
IntentionState: TypeAlias = Literal["satisfied", "unsatisfied", "pending", "blocked", "withdrawn"]
FactLabel: TypeAlias = Literal["entailment", "neutral", "contradiction"]
RatingMethod: TypeAlias = Literal["logprobs", "samples", "single"]

# In all of these None means unjudged: the judge was asked for the label and gave no valid one.


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim made in the answer, and whether the retrieved chunks support it.

    Examples:
        >>> scores = ragtrace.score(contexts=["The tower is 330 m tall."], answer="The tower is 200 m tall.")
        >>> [claim] = scores["consistency"].claims
        >>> claim.text, [claim.text[start:end] for start, end in claim.unsupported]
        ('The tower is 200 m tall.', ['200'])
    """

    text: str
    start: int
    """Offset in the answer of the claim's first character."""
    end: int
    """Offset in the answer of the end of the claim: one past the last character."""
    support: Support | None
    checkable: bool = True
    relevant: Relevance | None = None
    evidence: tuple[int, ...] = ()
    """Ranks, from 0, of the chunks that support the claim or that the claim was compared with, best first."""
    quote: str | None = None
    score: float | None = None
    """Degree of support in [0, 1]; None: the judge gives no degree."""
    unsupported: tuple[tuple[int, int], ...] = ()
    """Character ranges (start, end) of the answer, within the claim, that no chunk supports."""
    unverified: bool = False
    """Whether the quote given as evidence does not occur in the chunks of `evidence`."""
    probability: float | None = None
    """Probability, by a decision model, that the chunks state or imply the claim; None: the judge gives none."""


class Sentence(NamedTuple):
    """Sentence of the answer, and whether it is relevant to the user's query."""

    text: str
    start: int
    end: int
    relevant: SentenceRelevance | None


class ChunkLabel(NamedTuple):
    """Relevance grade of one retrieved chunk, and whether the answer contradicts the chunk.

    A duplicate chunk has the labels of the first.
    """

    grade: int | None
    """Relevance from 0 to 3; a blank chunk has 0 without being judged. None: unjudged."""
    contradicted: bool | None
    probability: float | None = None
    """Probability, by a decision model, that the chunk helps to answer the query; None: the judge gives none."""


class Citation(NamedTuple):
    """Citation in the answer: the citing part, the cited passage, and whether the passage supports the part.

    Each pair of a part and a passage occurs once.
    """

    part: int
    """Index of the citing part of the answer: a sentence, or a part given by the application."""
    chunk: int | None
    """Rank of the cited chunk, from 0; None: no retrieved chunk has that mark."""
    support: CitationSupport | None
    marker: str = ""
    """Mark of the citation as written in the answer, which tells citations of unknown passages apart."""


@dataclass(frozen=True, slots=True)
class Nugget:
    """Fact that a good answer should contain, and whether the answer contains it."""

    text: str
    importance: Importance
    support: NuggetSupport | None


class Intention(NamedTuple):
    """Intention that the user has in a conversation, and whether it was satisfied."""

    text: str
    state: IntentionState | None
    turns: tuple[int, ...] = ()


class Fact(NamedTuple):
    """Claim made in one text, the answer or the reference answer, and whether the other text entails it."""

    text: str
    label: FactLabel | None
    probability: float | None = None
    """Probability, by a decision model, that the other text entails the claim; None: the judge gives none."""


class Entailments(NamedTuple):
    """Tables that say for each retrieved chunk whether it entails each claim of the answer and the reference answer.

    One row for every distinct chunk that is not blank, in rank order.
    """

    answer: tuple[tuple[bool | None, ...], ...]
    """Table of chunks x claims of the answer; None: unjudged."""
    reference: tuple[tuple[bool | None, ...], ...]
    """Table of chunks x claims of the reference answer; None: unjudged."""


class Rating(NamedTuple):
    """Rating that an LLM judge gave to a call for a `g_eval` metric, on the scale of that metric.

    The metric converts it to a score in [0, 1].
    """

    value: float
    method: RatingMethod
    reason: str = ""
    samples: int = 1


@dataclass(frozen=True, slots=True)
class CitedPart:
    """Part of the answer together with the passages that it cites, as given by the application.

    Without such parts, citations are read from markers in the answer.
    """

    text: str
    cited: tuple[str, ...]
    """Ids of the cited documents, or their ranks as numbers from 1."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation: who spoke, and the text."""

    role: Literal["user", "assistant"]
    text: str
