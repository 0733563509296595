"""Relevancy of the answer to the query, by statement, by sentence or as a whole, and whether the query is answered.

Relevant is what answers the query or is useful background to the answer. Truth plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import (
    LIKELY,
    MAX_UNJUDGED,
    any_text,
    blank,
    formula,
    share,
    uncalibrated,
    unmet,
    why_missing,
)

_NEEDS: Final = frozenset({"claims", "answer_label"})
_DECLINED: Final = frozenset({"statements", "answer_label"})
"""What tells whether the answer declines: its label, and whether it states anything that can be checked."""
_BEST_RATING: Final = 3
_ANSWERED: Final[Mapping[str | None, float]] = {"answered": 1.0, "abstained": 0.0}


# The thresholds ask for a majority of relevant items, or for a rating above "touches the question".
@formula(needs=_NEEDS, reads=_DECLINED | {"relevant"}, version="2", threshold=0.5)
def answer_relevancy(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's statements that answer the query or are useful background.

    Inputs: query and answer; statements that cannot be checked count too.
    Formula: relevant statements / statements. From probabilities of a decision model: the probability that the answer
        addresses the query.
    Unscored: `empty_answer`; `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known);
        `abstained` (nothing checkable was said); `no_statements`; `too_many_unjudged` (over 20 % of the statements have
        no valid label).
    Source: the answer relevancy of the deepeval framework, counted by the ids of statements.
    """
    if reason := unmet(call, judgement, *_REQUIRED):
        return Unscored(reason)
    if judgement.relevancy_probability is not None:
        chance = judgement.relevancy_probability
        return uncalibrated(chance, "pass" if chance >= LIKELY else "fail", {})
    if (why := judgement.reasons.get("relevancy_probability")) is not None:
        return Unscored(why)
    if judgement.claims is None:
        return Unscored(why_missing(judgement, "claims"))
    if not judgement.claims:
        return Unscored("no_statements")
    return _relevant_share("statements", [claim.relevant for claim in judgement.claims], max_unjudged, {})


@formula(needs=_NEEDS | {"sentences"}, reads=_DECLINED, version="2", threshold=0.5)
def answer_relevancy_sentences(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the answer's sentences, except courtesies, that answer the query or are useful background.

    Inputs: query and answer, in sentences as the splitter finds them: decimals, abbreviations and addresses stay
        whole, every item of a list is one.
    Formula: relevant sentences / sentences that are not filler.
    Unscored: `empty_answer`; `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known);
        `abstained` (nothing checkable was said); `no_sentences` (only filler); `too_many_unjudged` (over 20 % of the
        sentences have no valid label).
    Source: answer relevancy by sentence, as in the RAG triad's relevancy score.
    """
    if reason := unmet(call, judgement, *_REQUIRED):
        return Unscored(reason)
    if judgement.sentences is None:
        return Unscored(why_missing(judgement, "sentences"))
    labels = [sentence.relevant for sentence in judgement.sentences if sentence.relevant != "filler"]
    counts = {"filler": len(judgement.sentences) - len(labels)}
    if not labels:
        return Unscored("no_sentences", attributes=counts)
    return _relevant_share("sentences", labels, max_unjudged, counts)


@formula(needs=_NEEDS | {"answer_rating"}, reads=_DECLINED, threshold=0.5)
def answer_relevancy_rating(call: RagCall, judgement: Judgement) -> Result:
    """The judge's rating, from 0 to 1, of how directly and completely the answer answers the query.

    Inputs: query and answer.
    Formula: rating / 3; 0 is off the question, 1 touches it, 2 answers in part or with much surplus, 3 is direct and
        complete.
    Unscored: `empty_answer`; `empty_query`; `query_needs_turns` (a follow-up of which no earlier turn is known);
        `abstained` (nothing checkable was said); `out_of_range` (not one of the four ratings).
    Source: rating the answer as a whole, here by four described labels instead of a free number.
    """
    if reason := unmet(call, judgement, *_REQUIRED):
        return Unscored(reason)
    rating = judgement.answer_rating
    if rating is None:
        return Unscored(why_missing(judgement, "answer_rating"))
    if rating not in range(_BEST_RATING + 1):
        return Unscored("out_of_range", explanation=f"rating {rating!r} is none of 0, 1, 2, 3")
    return Score(rating / _BEST_RATING, attributes={"rating": rating})


@formula(needs=frozenset({"answer_label"}))
def answered(call: RagCall, judgement: Judgement) -> Result:
    """1 if the answer attempts to answer the query, 0 if it declines.

    Inputs: query and answer.
    Formula: 1 if the answer is labelled `answered`, 0 if `abstained`. A wrong or partial answer is an attempt; a blank
        one is 0 whatever the query. From probabilities of a decision model: the probability that the answer does not
        decline.
    Range: 0 or 1, higher is better; from probabilities any number in [0, 1].
    Unscored: `empty_query` (with an answer that is not blank); `unknown_language` (the embedded judge recognises
        refusals by word lists, and has none for the language of the answer).
    Source: the no-answer check of the open-rag-eval framework, as a metric of its own.
    Labels: `answered`, `abstained`.

    The mean over calls is the share of calls answered.
    """
    if blank(call.answer):
        return Score(0.0, label="abstained")
    if blank(call.query):
        return Unscored("empty_query")
    label = judgement.answer_label
    if label not in _ANSWERED:
        return Unscored(why_missing(judgement, "answer_label"))
    if judgement.answered_probability is not None:
        return uncalibrated(judgement.answered_probability, label, {})
    return Score(_ANSWERED[label], label=label)


@formula(needs=_NEEDS, reads=_DECLINED, higher_is_better=False, threshold=0.0)
def answered_without_context(call: RagCall, judgement: Judgement) -> Result:
    """1 if an answer was given although retrieval returned nothing, 0 if chunks were retrieved.

    Inputs: answer and contexts.
    Formula: 1 if no retrieved chunk has a text, else 0, over answers that are neither blank nor abstentions. An answer
        that is labelled `abstained` and still states something checkable counts as given.
    Range: 0 or 1, lower is better.
    Unscored: `empty_answer`; `contexts_missing` (retrieval was not captured); `abstained`; `unknown_language` (as
        `answered`).
    Source: ragtrace.

    It is the plainest sign of an ungrounded answer and of a broken retriever, and does not depend on the judge's labels
    of support.
    """
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing"):
        return Unscored(reason)
    if judgement.answer_label not in _ANSWERED:
        return Unscored(why_missing(judgement, "answer_label"))
    if reason := unmet(call, judgement, "abstained"):
        return Unscored(reason)
    return Score(0.0 if any_text(call.contexts) else 1.0)


_REQUIRED: Final = ("empty_answer", "empty_query", "query_needs_turns", "abstained")


def _relevant_share(items: str, labels: Sequence[str | None], limit: float, counts: Mapping[str, int]) -> Result:
    """Return the share of relevant items among the items that have a valid label, as a metric's result.

    Args:
        items: name of the attribute with their number, such as "statements".
        labels: the relevance label of each item.
    """
    relevant = labels.count("yes") + labels.count("background")
    judged = relevant + labels.count("no")
    unjudged = len(labels) - judged
    attributes = {items: judged, "relevant": relevant, "unjudged": unjudged, **counts}
    return share(relevant, unjudged, len(labels), limit, attributes)


METRICS: Final = (
    answer_relevancy,
    answer_relevancy_sentences,
    answer_relevancy_rating,
    answered,
    answered_without_context,
)
