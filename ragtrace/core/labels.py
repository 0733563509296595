"""What a judge says of one part of a call: one small frozen class a label. Metrics turn labels into numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Support: TypeAlias = Literal["supported", "contradicted", "partial", "not_found"]
"""How a statement stands to the retrieved chunks; in merging, best first."""
LABELLING: Final = frozenset(
    {"hallucinated", "faithfulness", "hallucination", "faithfulness_noncontradiction", "contradiction"}
)
"""Metrics for which an evaluator labels statements; one that offers none of them only compares words."""
Relevance: TypeAlias = Literal["yes", "background", "no"]
SentenceRelevance: TypeAlias = Literal["yes", "background", "no", "filler"]
AnswerLabel: TypeAlias = Literal["answered", "abstained"]
CitationSupport: TypeAlias = Literal["full", "partial", "none"]
Importance: TypeAlias = Literal["vital", "okay"]
NuggetSupport: TypeAlias = Literal["support", "partial_support", "not_support"]
IntentionState: TypeAlias = Literal["satisfied", "unsatisfied", "pending", "blocked", "withdrawn"]
FactLabel: TypeAlias = Literal["entailment", "neutral", "contradiction"]
RatingMethod: TypeAlias = Literal["logprobs", "samples", "single"]

# In all of these None means unjudged: the judge was asked and gave no valid label.


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the answer and how the chunks stand to it."""

    text: str
    start: int
    """Offset of the first character in the answer."""
    end: int
    """Offset after the last character in the answer."""
    support: Support | None
    checkable: bool = True
    relevant: Relevance | None = None
    evidence: tuple[int, ...] = ()
    """Ranks, from 0, of the chunks it was held against or supported by, best first."""
    quote: str | None = None
    score: float | None = None
    """Continuous support in [0, 1] where the judge has one."""
    unsupported: tuple[tuple[int, int], ...] = ()
    """Character ranges of the answer, within this claim, that no chunk supports."""
    unverified: bool = False
    """The quote that should show the support does not occur in the chunks named."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the answer, as the splitter found it."""

    text: str
    start: int
    end: int
    relevant: SentenceRelevance | None


@dataclass(frozen=True, slots=True)
class ChunkLabel:
    """What the judge says of the chunk at the same rank; duplicates carry the labels of the first."""

    grade: int | None
    """0 to 3; a blank chunk is 0 without being judged."""
    contradicted: bool | None


@dataclass(frozen=True, slots=True)
class Citation:
    """One distinct pair of a part of the answer and a passage it cites."""

    part: int
    """Index of the part (a sentence, or a part the application gave)."""
    chunk: int | None
    """Rank of the cited chunk, from 0; None: there is no such passage."""
    support: CitationSupport | None
    marker: str = ""
    """As the answer cites it: tells unknown passages apart."""


@dataclass(frozen=True, slots=True)
class Nugget:
    """One fact that a good answer should contain."""

    text: str
    importance: Importance
    support: NuggetSupport | None


@dataclass(frozen=True, slots=True)
class Intention:
    """One thing a user wanted in a conversation, and what became of it."""

    text: str
    state: IntentionState | None
    turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """One claim of the answer (or reference), held against the reference (or answer)."""

    text: str
    label: FactLabel | None


@dataclass(frozen=True, slots=True)
class Entailments:
    """For every non-blank distinct chunk, in rank order: whether it entails each claim."""

    answer: tuple[tuple[bool | None, ...], ...]
    """chunks x claims of the answer."""
    reference: tuple[tuple[bool | None, ...], ...]
    """chunks x claims of the reference."""


@dataclass(frozen=True, slots=True)
class Rating:
    """A judge's rating on the scale of a g_eval metric, before it is brought to [0, 1]."""

    value: float
    method: RatingMethod
    reason: str = ""
    samples: int = 1


@dataclass(frozen=True, slots=True)
class CitedPart:
    """A part of the answer with what it cites, where the application knows it itself."""

    text: str
    cited: tuple[str, ...]
    """Ids of documents, or numbers from 1 by rank."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str
