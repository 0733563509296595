"""How much of the answer is to the point: by statement, by sentence, or as one rating. Truth plays no part.

Relevant is what answers the query or is useful background to the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ragtrace.core.types import Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, Formula
from ragtrace.metrics.preconditions import declined, no_answer, no_query, too_many, why_missing

_RELEVANT: Final = ("yes", "background")
_BEST_RATING: Final = 3


def answer_relevancy_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's statements that answer the query or are useful background to the answer.

    Inputs: query and answer; statements that cannot be checked count too.
    Formula: relevant statements / statements.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_answer`; `empty_query`; `abstained` (nothing checkable was said); `no_statements`;
        `too_many_unjudged` (over 20 % of the statements have no valid label).
    Source: the answer relevancy of the deepeval framework, counted by the ids of statements.
    """
    if reason := _inapplicable(call, judgement):
        return Unscored(reason)
    if judgement.claims is None:
        return Unscored(why_missing(judgement, "claims"))
    if not judgement.claims:
        return Unscored("no_statements")
    return _share("statements", [claim.relevant for claim in judgement.claims], max_unjudged)


def answer_relevancy_sentences_of(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's sentences, courtesies aside, that answer the query or are useful background.

    Inputs: query and answer, in sentences as the splitter finds them: decimals, abbreviations and addresses stay
        whole, every item of a list is one.
    Formula: relevant sentences / sentences that are not filler.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_answer`; `empty_query`; `abstained` (nothing checkable was said); `no_sentences` (only filler);
        `too_many_unjudged` (over 20 % of the sentences have no valid label).
    Source: answer relevancy by sentence, as in the RAG triad's relevancy score.
    """
    if reason := _inapplicable(call, judgement):
        return Unscored(reason)
    if judgement.sentences is None:
        return Unscored(why_missing(judgement, "sentences"))
    labels = [sentence.relevant for sentence in judgement.sentences if sentence.relevant != "filler"]
    if not labels:
        return Unscored("no_sentences", attributes={"filler": len(judgement.sentences)})
    return _share("sentences", labels, max_unjudged, {"filler": len(judgement.sentences) - len(labels)})


def answer_relevancy_rating_of(call: RagCall, judgement: Judgement) -> Result:
    """One rating of how directly and completely the answer answers the query.

    Inputs: query and answer.
    Formula: rating / 3; 0 is off the question, 1 touches it, 2 answers in part or with much surplus, 3 is direct and
        complete.
    Range: [0, 1], higher is better.
    Judge calls: none beside the main reply.
    Unscored: `empty_answer`; `empty_query`; `abstained` (nothing checkable was said); `out_of_range` (not one of the
        four ratings).
    Source: rating the answer as a whole, here by four described labels instead of a free number.
    """
    if reason := _inapplicable(call, judgement):
        return Unscored(reason)
    rating = judgement.answer_rating
    if rating is None:
        return Unscored(why_missing(judgement, "answer_rating"))
    if rating not in range(_BEST_RATING + 1):
        return Unscored("out_of_range", explanation=f"rating {rating!r} is none of 0, 1, 2, 3")
    return Score(rating / _BEST_RATING, attributes={"rating": rating})


def _inapplicable(call: RagCall, judgement: Judgement) -> str:
    if no_answer(call):
        return "empty_answer"
    if no_query(call):
        return "empty_query"
    return "abstained" if declined(judgement) else ""


def _share(
    items: str, labels: Sequence[str | None], max_unjudged: float, counts: Mapping[str, int] = MappingProxyType({})
) -> Result:
    """The relevant share of the items that have a valid label; *items* is what they are called."""
    relevant = sum(label in _RELEVANT for label in labels)
    unjudged = len(labels) - relevant - sum(label == "no" for label in labels)
    judged = len(labels) - unjudged
    attributes = {items: judged, "relevant": relevant, "unjudged": unjudged, **counts}
    if too_many(unjudged, len(labels), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    return Score(relevant / judged, attributes=attributes)


_NEEDS: Final = frozenset({"claims", "answer_label"})
# The threshold asks for a majority, as that of faithfulness does; of a rating, for more than touching the question.
answer_relevancy: Final = Formula("answer_relevancy", "2", answer_relevancy_of, _NEEDS, threshold=0.5)
answer_relevancy_sentences: Final = Formula(
    "answer_relevancy_sentences", "2", answer_relevancy_sentences_of, _NEEDS | {"sentences"}, threshold=0.5
)
answer_relevancy_rating: Final = Formula(
    "answer_relevancy_rating", "1", answer_relevancy_rating_of, _NEEDS | {"answer_rating"}, threshold=0.5
)
METRICS: Final[tuple[Metric, ...]] = (answer_relevancy, answer_relevancy_sentences, answer_relevancy_rating)
