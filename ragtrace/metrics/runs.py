"""`run_consistency_rouge*`, `run_consistency_bert_score`: how alike the answers of repeated runs of one query are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Final, Literal

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.bert_score import TokenEmbedder, bert_score_of
from ragtrace.metrics.formula import Formula
from ragtrace.metrics.rouge import TOKENS, VARIANTS, Tokens, Variant, rouge, tokens_of

Part = Literal["precision", "recall", "f1"]
PARTS: Final[tuple[Part, ...]] = ("precision", "recall", "f1")
LEAST_RUNS: Final = 3
_UP_TO_ONE: Final = (-math.inf, 1.0)
_NOTHING: Final = Judgement()


def rouge_of(
    call: RagCall,
    _: Judgement = _NOTHING,
    *,
    variant: Variant = "rougeL",
    part: Part = "f1",
    tokens: Tokens = "unicode",
) -> Result:
    """Mean ROUGE over all pairs of runs of one query, the earlier run of a pair as the reference.

    Inputs: the answers of at least three runs of one query, in order.
    Formula: ROUGE-1, ROUGE-2: common n-grams as multisets / those of the candidate (precision) or reference (recall);
        ROUGE-L: the longest common subsequence of tokens / tokens; f1 is their harmonic mean. Mean over the pairs; a
        pair without a token on either side is left out, without one on one side it is 0.
    Range: [0, 1], higher is better; only f1 does not depend on the order of the runs.
    Judge calls: none.
    Unscored: `needs_runs` (fewer than three); `empty_answer` (no pair has a token).
    Source: Lin 2004, "ROUGE", https://aclanthology.org/W04-1013; over pairs of runs as in the open-rag-eval framework.
    """
    runs = call.runs or ()
    if len(runs) < LEAST_RUNS:
        return Unscored("needs_runs", explanation=f"{len(runs)} runs, at least {LEAST_RUNS} are needed")
    texts = [tokens_of(run, tokens) for run in runs]
    pairs = [
        getattr(rouge(candidate, reference, variant), part)
        for reference, candidate in combinations(texts, 2)
        if candidate or reference
    ]
    if not pairs:
        return Unscored("empty_answer", explanation="no run has a word")
    attributes: dict[str, Plain] = {
        "runs": len(runs),
        "pairs": len(pairs),
        "pair_values": tuple(pairs),
        "tokens": tokens,
    }
    return Score(math.fsum(pairs) / len(pairs), attributes=attributes)


def run_consistency_rouge(variant: Variant = "rougeL", part: Part = "f1", *, tokens: Tokens = "unicode") -> Formula:
    """The metric `run_consistency_{variant}_{part}` with tokens of another kind (see `tokens_of`).

    Raises:
        SettingsError: there is no such variant, part or kind of tokens.
    """
    for name, value, known in (("variant", variant, VARIANTS), ("part", part, PARTS), ("tokens", tokens, TOKENS)):
        if value not in known:
            raise SettingsError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    compute = partial(rouge_of, variant=variant, part=part, tokens=tokens)
    return Formula(f"run_consistency_{variant}_{part}", "1", compute, frozenset(), opt_in=True)


def run_consistency_bert_score(
    token_embedder: TokenEmbedder | None = None, *, baseline: float | None = None
) -> Formula:
    """The metric `run_consistency_bert_score` with an embedder of tokens.

    Args:
        token_embedder: gives the vectors of the tokens of each text: `BertScoreTokens`, or any callable.
        baseline: b < 1: the value of unrelated texts, for (F1 - b) / (1 - b).

    Raises:
        SettingsError: the baseline is not below 1.
    """
    if baseline is not None and not baseline < 1:
        raise SettingsError(f"baseline must be below 1, got {baseline!r}; it is the score of unrelated texts")
    compute = partial(bert_score_of, token_embedder=token_embedder, baseline=baseline)
    return Formula(
        "run_consistency_bert_score", "1", compute, frozenset(), range=_UP_TO_ONE, opt_in=True,
        computes=token_embedder is None,
    )  # fmt: skip


def run_consistency(
    answers: Sequence[str], *, tokens: Tokens = "unicode", token_embedder: TokenEmbedder | None = None,
    baseline: float | None = None,
) -> dict[str, Result]:  # fmt: skip
    """How alike the answers of repeated runs of one query are, pair by pair.

    Example: `ragtrace.run_consistency([ask(question) for _ in range(5)])["run_consistency_rougeL_f1"]`

    Args:
        answers: at least three, in the order of the runs.
        tokens: `unicode`, `ascii` or `stemmed`: see the documentation of ROUGE tokens.
        token_embedder: for `run_consistency_bert_score`.
        baseline: of BERTScore.

    Returns:
        The results of the nine `run_consistency_rouge...` metrics and of `run_consistency_bert_score`.
    """
    call = RagCall(query=None, contexts=None, answer=None, runs=tuple(answers))
    metrics = [run_consistency_rouge(variant, part, tokens=tokens) for variant in VARIANTS for part in PARTS]
    metrics.append(run_consistency_bert_score(token_embedder, baseline=baseline))
    return {metric.name: metric(call, _NOTHING) for metric in metrics}


METRICS: Final[tuple[Metric, ...]] = (
    *(run_consistency_rouge(variant, part) for variant in VARIANTS for part in PARTS),
    run_consistency_bert_score(),
)
FACTORIES: Final = (run_consistency_rouge, run_consistency_bert_score)
