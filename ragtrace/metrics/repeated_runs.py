"""Consistency of repeated runs of one query: how alike the answers are, and how much a metric's scores vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, Literal, TypeAlias

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import OwnText
from ragtrace.core.types import Judgement, Metric, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.bert_score import EmbeddingError, TokenEmbedder, bert_score, unit_rows
from ragtrace.metrics.formula import Formula, formula
from ragtrace.metrics.rouge import TOKENS, VARIANTS, Tokens, Variant, rouge, tokens_of

Part = Literal["precision", "recall", "f1"]
PARTS: Final[tuple[Part, ...]] = ("precision", "recall", "f1")
LEAST_RUNS: Final = 3
Results: TypeAlias = "Sequence[Result | float]"


@formula(opt_in=True)
def _rouge(
    call: RagCall, _: Judgement, *, variant: Variant = "rougeL", part: Part = "f1", tokens: Tokens = "unicode"
) -> Result:
    """Mean ROUGE between the answers of all pairs of runs of one query, with each pair's earlier answer as reference.

    Inputs: the answers of at least three runs of one query, in order.
    Formula: ROUGE-1, ROUGE-2: common n-grams as multisets / those of the candidate (precision) or reference (recall);
        ROUGE-L: the longest common subsequence of tokens / tokens; f1 is their harmonic mean. Mean over the pairs:
        pairs in which both answers have no token are left out, pairs in which one answer has no token score 0.
    Range: [0, 1], higher is better; only f1 does not depend on the order of the runs.
    Judge calls: none.
    Unscored: `needs_runs` (fewer than three); `empty_answer` (no pair has a token).
    Source: Lin 2004, "ROUGE", https://aclanthology.org/W04-1013; over pairs of runs as in the open-rag-eval framework.
    """
    runs = call.runs or ()
    if len(runs) < LEAST_RUNS:
        return _too_few(runs)
    texts = [tokens_of(run, tokens) for run in runs]
    pairs = [
        getattr(rouge(candidate, reference, variant), part)
        for reference, candidate in combinations(texts, 2)
        if candidate or reference
    ]
    if not pairs:
        return Unscored("empty_answer", explanation=OwnText("no run has a word"))
    return _mean(runs, pairs, {"tokens": tokens})


@formula(range=(-math.inf, 1.0), opt_in=True)
def _bert_score(
    call: RagCall, _: Judgement, *, token_embedder: TokenEmbedder | None = None, baseline: float | None = None
) -> Result:
    """Mean BERTScore F1 between the answers of all pairs of runs of one query, with the earlier answer as reference.

    Inputs: the answers of at least three runs of one query, in order, and an embedder of tokens.
    Formula: P is the mean over the candidate's tokens of the highest cosine with a token of the reference, R the same
        the other way round, F1 = 2 P R / (P + R); with a baseline b, (F1 - b) / (1 - b). Mean over the pairs:
        pairs in which both answers have no token are left out, pairs in which one answer has no token score 0.
    Range: at most 1, may be negative; higher is better.
    Judge calls: none; each run is embedded once.
    Unscored: `needs_runs` (fewer than three); `no_token_embedder`; `empty_answer` (no run has a token); `zero_norm`
        (an embedding of zeros); `non_finite` (an embedding with NaN or infinity); `unparsable` (shapes do not fit).
    Source: Zhang et al. 2020, "BERTScore", arXiv:1904.09675, section 3, without idf weighting.

    The cosine of embeddings of whole answers is something else and does not carry this name. The attributes
    `precision` and `recall` are the means over the pairs, not rescaled.
    """
    runs = call.runs or ()
    if len(runs) < LEAST_RUNS:
        return _too_few(runs)
    if token_embedder is None:
        return Unscored("no_token_embedder")
    try:
        matrices = unit_rows(token_embedder(runs), len(runs))
    except EmbeddingError as error:
        return Unscored(str(error))
    matches = [bert_score(b, a) for a, b in combinations(matrices, 2) if len(a) or len(b)]
    if not matches:
        return Unscored("empty_answer", explanation=OwnText("no run has a token"))
    values = [m.f1 if baseline is None else (m.f1 - baseline) / (1 - baseline) for m in matches]
    if not all(math.isfinite(value) for value in values):
        return Unscored("non_finite")
    attributes: dict[str, Plain] = {
        "precision": math.fsum(m.precision for m in matches) / len(matches),
        "recall": math.fsum(m.recall for m in matches) / len(matches),
    }
    return _mean(runs, values, attributes if baseline is None else {**attributes, "baseline": baseline})


def _too_few(runs: Sequence[str]) -> Unscored:
    return Unscored("needs_runs", explanation=OwnText(f"{len(runs)} runs, at least {LEAST_RUNS} are needed"))


def _mean(runs: Sequence[str], pairs: Sequence[float], more: dict[str, Plain]) -> Score:
    about: dict[str, Plain] = {"runs": len(runs), "pairs": len(pairs), "pair_values": tuple(pairs), **more}
    return Score(math.fsum(pairs) / len(pairs), attributes=about)


def run_consistency_rouge(variant: Variant = "rougeL", part: Part = "f1", *, tokens: Tokens = "unicode") -> Formula:
    """Return the metric `run_consistency_{variant}_{part}`: how alike repeated answers are by ROUGE.

    The kinds of tokens are those of `tokens_of`.

    Raises:
        SettingsError: there is no such variant, part or kind of tokens.
    """
    for name, value, known in (("variant", variant, VARIANTS), ("part", part, PARTS), ("tokens", tokens, TOKENS)):
        if value not in known:
            raise SettingsError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return _rouge.variant(f"run_consistency_{variant}_{part}", variant=variant, part=part, tokens=tokens)


def run_consistency_bert_score(
    token_embedder: TokenEmbedder | None = None, *, baseline: float | None = None
) -> Formula:
    """Return the metric `run_consistency_bert_score`: how alike repeated answers are by BERTScore.

    Args:
        token_embedder: gives the vectors of the tokens of each text: `BertScoreTokens`, or any callable.
        baseline: b < 1: the value of unrelated texts, for (F1 - b) / (1 - b).

    Raises:
        SettingsError: the baseline is not below 1.
    """
    if baseline is not None and not baseline < 1:
        raise SettingsError(f"baseline must be below 1, got {baseline!r}; it is the score of unrelated texts")
    made = _bert_score.variant("run_consistency_bert_score", token_embedder=token_embedder, baseline=baseline)
    return replace(made, computes=token_embedder is None)


def run_consistency(
    answers: Sequence[str],
    *,
    tokens: Tokens = "unicode",
    token_embedder: TokenEmbedder | None = None,
    baseline: float | None = None,
) -> dict[str, Result]:
    """Return how alike the answers of repeated runs of one query are, as the mean over all pairs of answers.

    Examples:
        >>> answers = ["The tower is in Paris.", "It is in Paris.", "The tower is in Berlin."]
        >>> ragtrace.metrics.run_consistency(answers)["run_consistency_rouge1_f1"]
        Score(0.637037, metric='run_consistency_rouge1_f1')

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
    return {metric.name: metric(call) for metric in metrics}


@formula(range=(-math.inf, math.inf), opt_in=True)
def run_consistency_mean(
    call: RagCall, _: Judgement, *, results: Results | None = None, base: Metric | None = None, ddof: int = 0
) -> Result:
    """Mean score of one metric over repeated runs of one query.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sum / number; runs without a score are left out.
    Range: that of the base metric, and its direction.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values).
    Source: the run statistics of the open-rag-eval framework.
    """
    return _statistic(call, results, base, ddof, lambda mean, _: mean)


@formula(range=(0.0, math.inf), higher_is_better=False, opt_in=True)
def run_consistency_variance(
    call: RagCall, _: Judgement, *, results: Results | None = None, base: Metric | None = None, ddof: int = 0
) -> Result:
    """Variance of the scores of one metric over repeated runs of one query.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sum of (value - mean)^2 / (number - ddof), ddof = 0 unless set otherwise.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values).
    Source: the run statistics of the open-rag-eval framework.
    """
    return _statistic(call, results, base, ddof, lambda _, variance: variance)


@formula(range=(0.0, math.inf), higher_is_better=False, opt_in=True)
def run_consistency_coefficient_of_variation(
    call: RagCall, _: Judgement, *, results: Results | None = None, base: Metric | None = None, ddof: int = 0
) -> Result:
    """Standard deviation of the scores of one metric over repeated runs, relative to their mean.

    Inputs: at least three scored values of one base metric, named in the attribute `base_metric`.
    Formula: sqrt(variance) / |mean|.
    Judge calls: none beside those of the base metric.
    Unscored: `needs_runs` (fewer than three scored values); `zero_mean`.
    Source: the usual coefficient of variation; not mean / (1 + standard deviation), which some systems call so.
    """
    return _statistic(
        call, results, base, ddof, lambda mean, variance: math.sqrt(variance) / abs(mean) if mean else None
    )


def _statistic(
    call: RagCall,
    results: Results | None,
    base: Metric | None,
    ddof: int,
    compute: Callable[[float, float], float | None],
) -> Result:
    """Compute a score from the mean and the variance of a metric's scores in repeated runs of one query.

    The score is what *compute* returns for them. Runs without a score are left out. Without *results*, *base* (which
    needs no judge) is computed for each of the runs of *call*.
    """
    if results is None:
        if base is None or len(call.runs or ()) < LEAST_RUNS:
            why = None if base else "no base metric: see run_statistics"
            return Unscored("needs_runs", explanation=OwnText(why if call.runs else "the call has no runs"))
        results = [base(replace(call, answer=run, runs=None), Judgement()) for run in call.runs or ()]
    given = [result.value if isinstance(result, Score) else result for result in results]
    values = [float(value) for value in given if not isinstance(value, Unscored)]
    attributes: dict[str, Plain] = {"runs": len(values), "ddof": ddof}
    more: dict[str, Plain] = {"unscored_runs": len(results) - len(values), "base_metric": _base_name(results, base)}
    if len(values) < LEAST_RUNS:
        seen = f"{len(values)} scored values, at least {LEAST_RUNS} are needed"
        return Unscored("needs_runs", explanation=OwnText(seen), attributes=attributes | more)
    if not all(math.isfinite(value) for value in values):
        return Unscored("non_finite", attributes=attributes | more)
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof)
    attributes |= {"std": math.sqrt(variance), "values": tuple(values), **more}
    value = compute(mean, variance)
    return Unscored("zero_mean", attributes=attributes) if value is None else Score(value, attributes=attributes)


def _base_name(results: Results, base: Metric | None) -> str:
    names = {result.metric for result in results if isinstance(result, (Score, Unscored)) and result.metric}
    if base is not None:
        names.add(base.name)
    if len(names) > 1:
        raise ValueError(f"statistics are over one metric, got results of {', '.join(sorted(names))}; split them")
    return next(iter(names), "")


_STATISTICS: Final = (run_consistency_mean, run_consistency_variance, run_consistency_coefficient_of_variation)
STATISTICS: Final = {metric.name.removeprefix("run_consistency_"): metric for metric in _STATISTICS}


def run_statistic(statistic: str, base: Metric | None = None, *, ddof: int = 0) -> Formula:
    """Return the metric `run_consistency_{statistic}`: mean or spread of the metric *base* over repeated runs.

    The metric *base* must need no judge.

    Args:
        statistic: mean, variance or coefficient_of_variation.
        base: computed for each of the `runs` of a call, as its answer.
        ddof: 0 for the population form, 1 for that of a sample.

    Raises:
        SettingsError: there is no such statistic, *ddof* is neither 0 nor 1, or *base* needs a judge's labels.
    """
    if statistic not in STATISTICS:
        raise SettingsError(f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    if ddof not in (0, 1):
        raise SettingsError(f"ddof must be 0 or 1, got {ddof!r}")
    if base is not None and base.needs:
        raise SettingsError(
            f"{base.name!r} needs a judge, so its runs cannot be scored here; score each run and use run_statistics"
        )
    made = STATISTICS[statistic]
    computes = base is None or bool(getattr(base, "computes", False))
    if base is not None and statistic == "mean":
        made = replace(made, higher_is_better=base.higher_is_better, range=base.range)
    return replace(made.variant(made.name, base=base, ddof=ddof), computes=computes)


def run_statistics(results: Results, *, base: Metric | None = None, ddof: int = 0) -> dict[str, Result]:
    """Return mean, variance and coefficient of variation of one metric's results over repeated runs of one query.

    Examples:
        >>> answers = ["In Paris.", "It is in Paris.", "In Berlin."]  # of one question, asked again
        >>> runs = [ragtrace.score(contexts=["It is in Paris."], answer=each)["consistency"] for each in answers]
        >>> ragtrace.metrics.run_statistics(runs)["run_consistency_mean"]
        Score(0.695413, metric='run_consistency_mean')

    Args:
        results: at least three results of one metric, one a run; those without a score are left out and counted.
        base: the metric, for the direction and range of the mean; by default the direction is that of the results.
        ddof: 0 for the population form, 1 for that of a sample.

    Returns:
        The results of `run_consistency_mean`, `run_consistency_variance`, `run_consistency_coefficient_of_variation`.

    Raises:
        ValueError: the results are of more than one metric.
    """
    up = not any(isinstance(result, (Score, Unscored)) and not result.higher_is_better for result in results)
    found: dict[str, Result] = {}
    for made in _STATISTICS:
        if made is run_consistency_mean:
            made = replace(made, higher_is_better=up if base is None else base.higher_is_better)
        metric = made.variant(made.name, results=results, base=base, ddof=ddof)
        found[metric.name] = metric(RagCall(query=None, contexts=None, answer=None))
    return found


METRICS: Final = (
    *(run_consistency_rouge(variant, part) for variant in VARIANTS for part in PARTS),
    run_consistency_bert_score(),
    *_STATISTICS,
)
FACTORIES: Final = (run_consistency_rouge, run_consistency_bert_score, run_statistic)
