"""`consistency`: how well the answer as a whole is supported; `suspicious`: whether less well than it used to be."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final, Protocol

from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import Formula, formula
from ragtrace.metrics.preconditions import unmet, why_missing

_NEEDS: Final = frozenset({"consistency"})


@formula(needs=_NEEDS)
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
    usual level of the same application. That is why no threshold makes a `pass` or `fail` of it.
    """
    if reason := unmet(call, judgement, "empty_answer", "contexts_missing", "no_contexts", "abstained"):
        return Unscored(reason)
    value = judgement.consistency
    if value is None:
        if why := why_missing(judgement, "consistency", ""):
            return Unscored(why)
        return Unscored("no_scorer", explanation="no scorer: use a ragtrace.EmbeddedJudge, HHEM or ScorerJudge for it")
    if not math.isfinite(value):
        return Unscored("non_finite")
    if not 0 <= value <= 1:
        return Unscored("out_of_range", explanation=f"{value!r} is outside [0, 1]")
    return Score(float(value), claims=judgement.claims or ())


class Level(Protocol):
    """Distribution of `consistency` in one workflow."""

    @property
    def n(self) -> int: ...
    @property
    def quantile(self) -> float: ...
    def suspicious(self, score: float, call: int) -> bool: ...


class Levels(Protocol):
    """Baselines of `consistency` by workflow."""

    def find(self, workflow: str) -> Level | None: ...
    def missing(self, workflow: str) -> int:
        """Return how many more scored calls of *workflow* make a baseline."""
        ...


@formula(needs=_NEEDS, higher_is_better=False, threshold=0.0, opt_in=True, beside=("consistency",))
def suspicious(call: RagCall, judgement: Judgement, *, baseline: Levels | None = None) -> Result:
    """1 if the answer's consistency is below the 5 % quantile of the application's own baseline, else 0.

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
        return Unscored("no_baseline", explanation="no baseline was given: configure(baseline=PATH) learns one")
    level = baseline.find(call.workflow)
    if level is None:
        missing = baseline.missing(call.workflow)
        why = f"{missing} more scored calls of the workflow {call.workflow!r} make a baseline"
        return Unscored("no_baseline", explanation=why, attributes={"missing_calls": missing})
    value = float(level.suspicious(result.value, _call_number(call)))
    attributes = {"baseline_quantile": level.quantile, "baseline_calls": level.n}
    return Score(value, claims=result.claims, attributes=attributes)


def _call_number(call: RagCall) -> int:
    """Return the trace id; without one, a number that the same question and answer always have."""
    if call.span is not None and call.span.is_valid:
        return call.span.trace_id
    text = f"{call.query}\0{call.answer}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "big")


def suspicious_against(baseline: Levels) -> Formula:
    """Return the metric `suspicious` that compares with *baseline*."""
    return suspicious.variant("suspicious", baseline=baseline)


METRICS: Final = (consistency, suspicious)
