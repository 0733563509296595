"""Support of the answer by the retrieved chunks: of each of its statements, or of the answer as a whole.

A statement is supported, contradicted, partial or not found; the metrics differ in which of these they count.
`consistency` is one number of the judge for the whole answer, and `suspicious` compares it with the application's own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from hashlib import blake2b
from statistics import fmean
from typing import Final, Protocol, get_args

from ragtrace.core.labels import Support
from ragtrace.core.text import OwnText, first_ranks
from ragtrace.core.types import CALIBRATION, Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import (
    MAX_UNJUDGED,
    Formula,
    any_text,
    blank,
    declined,
    formula,
    share,
    too_many,
    uncalibrated,
    unmet,
    why_missing,
)

# By the thresholds, one statement without support fails: an answer that is half invented is not to pass, and neither is
# one that contradicts its sources. A metric and its complement give the same label.
_NEEDS: Final = frozenset({"claims", "answer_label"})
_READS: Final = frozenset({"statements", "support", "answer_label"})
_CONSISTENCY: Final = frozenset({"consistency"})
_SUPPORTS: Final[tuple[str, ...]] = get_args(Support)
_UNSUPPORTED: Final = ("contradicted", "partial", "not_found")
_NOT_CONTRADICTED: Final = ("supported", "partial", "not_found")


@formula(needs=_NEEDS, reads=_READS, higher_is_better=False, threshold=0.0)
def hallucinated(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """1 if the answer states anything that the retrieved chunks do not support, else 0.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: 1 if a checkable statement is contradicted, partial or not found, else 0. From probabilities of a decision
        model: the largest probability, over the checkable statements, that the chunks do not support the statement.
    Range: 0 or 1, lower is better; from probabilities any number in [0, 1].
    Unscored: exactly when `faithfulness` is, for the same reason.
    Source: the hallucination rate of public leaderboards, a share of answers; Hughes and Bae 2023, Vectara
        hallucination leaderboard.

    The mean over answers is the hallucination rate; the mean of `hallucination`, a share of statements, is smaller.
    """
    result = _share(call, judgement, _UNSUPPORTED, max_unjudged, of_chances=lambda chances: 1.0 - min(chances))
    if isinstance(result, Unscored) or CALIBRATION in result.attributes:
        return result
    return replace(result, value=float(result.value > 0))


@formula(needs=_NEEDS, reads=_READS, threshold=1.0)
def faithfulness(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that the retrieved chunks support.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: supported / n. Contradicted, partial and not found all count against the answer. From probabilities of a
        decision model: the mean probability that the chunks support a statement.
    Unscored: `empty_answer`; `contexts_missing` (retrieval was not captured); `no_claims`, `abstained` (nothing
        checkable was said); `too_many_unjudged` (over 20 % of the statements have no valid label); `unverified` (over
        20 % of the labels come without a passage that shows them).
    Source: Es et al. 2023, "RAGAS", arXiv:2309.15217, section 3 (faithfulness).

    With contexts that are empty or blank every checkable statement is unsupported, and no judge need be asked.
    """
    return _share(call, judgement, ("supported",), max_unjudged, of_chances=fmean)


@formula(needs=_NEEDS, reads=_READS, higher_is_better=False, threshold=0.0)
def hallucination(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that the retrieved chunks do not support.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: (n - supported) / n = 1 - faithfulness.
    Unscored: exactly when `faithfulness` is, for the same reason.
    Source: the complement of faithfulness in Es et al. 2023, arXiv:2309.15217.
    """
    return _share(call, judgement, _UNSUPPORTED, max_unjudged, of_chances=lambda chances: 1.0 - fmean(chances))


@formula(needs=_NEEDS, reads=_READS | {"denial"}, threshold=1.0, beside=("faithfulness",))
def faithfulness_noncontradiction(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that no retrieved chunk contradicts.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: (supported + partial + not found) / n = 1 - contradiction.
    Unscored: as `faithfulness`; `no_contexts` (nothing was retrieved that could contradict).
    Source: the yes / no / undecided reading of faithfulness, as in the deepeval framework.

    An invented statement about something that the chunks do not mention scores 1, so `faithfulness` is always computed
    beside it; its value and the counts are attributes.
    """
    return _share(call, judgement, _NOT_CONTRADICTED, max_unjudged, held_against_chunks=True)


@formula(needs=_NEEDS, reads=_READS | {"denial"}, higher_is_better=False, threshold=0.0)
def contradiction(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the checkable statements of the answer that a retrieved chunk contradicts.

    Inputs: answer and contexts; the query only to resolve what the answer refers to.
    Formula: contradicted / n, never more than hallucination.
    Unscored: as `faithfulness`; `no_contexts` (nothing was retrieved that could contradict).
    Source: the complement of the yes / no / undecided reading of faithfulness.
    """
    return _share(call, judgement, ("contradicted",), max_unjudged, held_against_chunks=True)


@formula(
    needs=_NEEDS | {"chunks", "reference_contexts_contradicted"},
    reads=_READS | {"denial", "contradicted"},
    higher_is_better=False,
    threshold=0.0,
    settled=lambda call: not any_text(call.contexts if call.reference_contexts is None else call.reference_contexts),
)
def context_contradiction(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the retrieved chunks (or of the call's reference contexts) that the answer contradicts.

    Inputs: answer and contexts; with reference contexts the retrieved ones play no part.
    Formula: contradicted contexts / distinct contexts that are not blank. A context is contradicted when the judge
        says so, or when it is evidence of a statement labelled contradicted.
    Judge calls: none beside the main reply; one with reference contexts.
    Unscored: `empty_answer`; `contexts_missing`; `no_contexts` (none but blank ones); `abstained` (nothing checkable
        was said); `too_many_unjudged` (over 20 % of the contexts have no valid label).
    Source: the hallucination metric of the deepeval framework, under a name that says what it measures.

    The attribute `contexts` is `reference` or `retrieved`. Over retrieved chunks the share is diluted: one contradicted
    chunk of ten is 0.1, and an invention that contradicts nothing is 0.
    """
    reference = call.reference_contexts is not None
    contexts = call.reference_contexts if reference else call.contexts
    origin: dict[str, Plain] = {"contexts": "reference" if reference else "retrieved"}
    given = replace(call, contexts=contexts) if reference else call
    if reason := unmet(given, judgement, "empty_answer", "contexts_missing", "no_contexts", "abstained"):
        return Unscored(reason, attributes=origin)
    if not (reference or any(context.duplicate for context in contexts or ())):  # retrieval has marked duplicates
        firsts = {rank: rank for rank, context in enumerate(contexts or ()) if not blank(context.text)}
    else:
        firsts = first_ranks(context.text for context in contexts or ())
    verdicts = judgement.reference_contexts_contradicted if reference else _contradicted_chunks(call, judgement, firsts)
    if verdicts is None:
        field = "reference_contexts_contradicted" if reference else "chunks"
        return Unscored(why_missing(judgement, field), attributes=origin)
    distinct = len(set(firsts.values()))
    if len(verdicts) != distinct:
        seen = f"{len(verdicts)} labels for {distinct} distinct contexts"
        return Unscored("unparsable", explanation=OwnText(seen), attributes=origin)
    contradicted = sum(verdict is True for verdict in verdicts)
    judged = contradicted + sum(verdict is False for verdict in verdicts)
    unjudged = distinct - judged
    attributes = {**origin, "distinct_contexts": judged, "contradicted_contexts": contradicted, "unjudged": unjudged}
    return share(contradicted, unjudged, distinct, max_unjudged, attributes)


def _share(
    call: RagCall,
    judgement: Judgement,
    counted: Collection[str],
    limit: float,
    *,
    held_against_chunks: bool = False,
    of_chances: Callable[[Sequence[float]], float] | None = None,
) -> Result:
    """Return the share of the answer's checkable claims that have one of the support labels *counted*.

    The share is returned as a metric's result. With *held_against_chunks*, the result is unscored if there is no
    retrieved text to compare the claims with.

    Args:
        call: the call.
        judgement: the judge's labels.
        counted: support labels that count.
        limit: largest share of claims without a label.
        held_against_chunks: whether the result needs a retrieved text.
        of_chances: computes the value from the probability of support of each checkable claim, where the judge gives
            probabilities; None: the labels are counted all the same.
    """
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing"):
        return Unscored(reason)
    if judgement.claims is None:
        return Unscored(why_missing(judgement, "claims"))
    claims = [claim for claim in judgement.claims if claim.checkable]
    if not claims:
        return Unscored("abstained" if declined(judgement) else "no_claims")
    if retrieved := any_text(call.contexts):
        counts = Counter(claim.support if claim.support in _SUPPORTS else "unjudged" for claim in claims)
    else:  # settled without a judge, whatever a judge would say
        counts = Counter({"not_found": len(claims)})
    judged = len(claims) - counts["unjudged"]
    attributes: dict[str, Plain] = {label: counts[label] for label in (*_SUPPORTS, "unjudged")}
    attributes["statements"] = judged
    attributes["unverified"] = sum(claim.unverified for claim in claims)
    if judgement.answer_label == "abstained":
        attributes["abstained"] = True
    if held_against_chunks and not retrieved:
        return Unscored("no_contexts", attributes=attributes)
    if too_many(counts["unjudged"], len(claims), limit):
        # Where no claim at all has a label, the judge may have said why.
        why = "" if judged else judgement.reasons.get("claims")
        return Unscored(why or "too_many_unjudged", attributes=attributes)
    if retrieved and of_chances is not None and any(claim.probability is not None for claim in claims):
        chances = [claim.probability for claim in claims if claim.probability is not None]
        if len(chances) < len(claims):  # the largest or mean probability of the others would be another call's
            return Unscored(why_missing(judgement, "claims", "unanswered"), attributes=attributes)
        label = "pass" if counts["supported"] == len(claims) else "fail"
        return uncalibrated(of_chances(chances), label, attributes, judgement.claims)
    if held_against_chunks:
        attributes["faithfulness"] = counts["supported"] / judged
    value = sum(counts[label] for label in counted) / judged
    return Score(value, attributes=attributes, claims=judgement.claims)


def _contradicted_chunks(call: RagCall, judgement: Judgement, firsts: dict[int, int]) -> tuple[bool | None, ...] | None:
    """Return for each distinct retrieved chunk, in rank order, whether the answer contradicts the chunk.

    None if the chunks were not judged, () if the judgement has not one label a chunk.
    """
    labels = judgement.chunks
    if labels is None or len(labels) != len(call.contexts or ()):
        return None if labels is None else ()
    contradicted = [claim for claim in judgement.claims or () if claim.checkable and claim.support == "contradicted"]
    against = {firsts.get(rank) for claim in contradicted for rank in claim.evidence}
    return tuple(True if rank in against else labels[rank].contradicted for rank in sorted(set(firsts.values())))


@formula(needs=_CONSISTENCY)
def consistency(call: RagCall, judgement: Judgement) -> Result:
    """How well the retrieved chunks support the answer as a whole, as a single number from the judge.

    Inputs: answer and contexts.
    Formula: the judge's own value. The attribute `method` says how it was computed: `whole` (the answer against all
        chunks at once) or `windowed` (each sentence is scored against every window of consecutive chunks and keeps its
        best score; the value is the mean over sentences).
    Judge calls: no chat call; a local judge or scorer gives it.
    Unscored: `empty_answer`; `contexts_missing`; `no_contexts` (none but blank ones); `abstained`, `no_claims` (nothing
        checkable was said); `language_mismatch`, `unscorable_script` (the answer is in another language or script than
        the contexts, and the judge compares words); `no_scorer` (the judge gives no such value); `non_finite`;
        `out_of_range`.
    Source: the quantity that Vectara's HHEM model estimates, here by whatever judge is configured.

    It orders answers; it is a probability only where the judge says so. The embedded judge compares words: the level of
    its scores depends on how freely an application words its answers, so that a score says something only against the
    usual level of the same application. That is why no threshold makes a `pass` or `fail` of it. In a language in which
    the embedded judge does not recognise that an answer declines (attribute `unknown_language`), a refusal is compared
    with the chunks like any other answer, and so has a low consistency instead of `abstained`.
    """
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing", "no_contexts", "abstained"):
        return Unscored(reason)
    value = judgement.consistency
    if value is None:
        if why := why_missing(judgement, "consistency", ""):
            return Unscored(why)
        why = OwnText("no scorer: use a ragtrace.EmbeddedJudge, HHEM or ScorerJudge for it")
        return Unscored("no_scorer", explanation=why)
    if not math.isfinite(value):
        return Unscored("non_finite")
    if not 0 <= value <= 1:
        return Unscored("out_of_range", explanation=OwnText(f"{value!r} is outside [0, 1]"))
    return Score(float(value), claims=judgement.claims or ())


class WorkflowBaseline(Protocol):
    """Baseline of one workflow: the usual distribution of its `consistency` scores."""

    @property
    def n(self) -> int: ...
    @property
    def quantile(self) -> float: ...
    def suspicious(self, score: float, call: int) -> bool: ...


class WorkflowBaselines(Protocol):
    """Baselines, which are the usual distributions of `consistency` scores, one for each workflow."""

    def find(self, workflow: str) -> WorkflowBaseline | None: ...
    def missing(self, workflow: str) -> int:
        """Return how many more calls of *workflow* must be scored before it has a baseline."""
        ...


@formula(needs=_CONSISTENCY, higher_is_better=False, threshold=0.0, opt_in=True, beside=("consistency",))
def suspicious(call: RagCall, judgement: Judgement, *, baseline: WorkflowBaselines | None = None) -> Result:
    """1 if the answer's consistency is unusually low for the application (below its 5 % quantile), else 0.

    Inputs: as `consistency`, and the baseline of the call's workflow.
    Formula: 1 if the consistency is below the 5 % quantile of the baseline. Calls exactly at the quantile are split by
        the hash of their trace id, so that exactly 5 % of the baseline count as suspicious. Attributes:
        `baseline_quantile`, `baseline_calls`; if there is no baseline yet, `missing_calls`.
    Range: {0, 1}, lower is better.
    Judge calls: none; it compares the consistency that the screen gives.
    Unscored: `no_baseline` (there are not enough calls yet, or none of this version of the evaluator); else as
        `consistency`.
    Source: control charts: what happens now against the process in control (Shewhart 1931).

    On traffic like that of the baseline 5 % of the calls are suspicious, whatever the scale of the score. It says that
    answers are less supported than they used to be, not that they hallucinate. `configure` computes it by default on
    live traffic, where there is a baseline; elsewhere it is opt-in.
    """
    result = consistency.compute(call, judgement)
    if isinstance(result, Unscored):
        return result
    if baseline is None:
        why = OwnText("no baseline was given: configure(baseline=PATH) learns one")
        return Unscored("no_baseline", explanation=why)
    level = baseline.find(call.workflow)
    if level is None:
        missing = baseline.missing(call.workflow)
        why = OwnText(f"{missing} more scored calls of the workflow {call.workflow!r} make a baseline")
        return Unscored("no_baseline", explanation=why, attributes={"missing_calls": missing})
    value = float(level.suspicious(result.value, _call_number(call)))
    attributes = {"baseline_quantile": level.quantile, "baseline_calls": level.n}
    return Score(value, claims=result.claims, attributes=attributes)


def _call_number(call: RagCall) -> int:
    """Return a number that identifies the call: its trace id or, without one, a hash of query and answer."""
    if call.span is not None and call.span.is_valid:
        return call.span.trace_id
    text = f"{call.query}\0{call.answer}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "big")


def suspicious_against(baseline: WorkflowBaselines) -> Formula:
    """Return the metric `suspicious`, which compares the consistency of an answer with *baseline*."""
    return suspicious.variant("suspicious", baseline=baseline)


METRICS: Final = (
    hallucinated,
    faithfulness,
    faithfulness_noncontradiction,
    hallucination,
    contradiction,
    context_contradiction,
    consistency,
    suspicious,
)
