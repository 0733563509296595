"""How alike repeated runs are: ROUGE and BERTScore over pairs, and statistics of a metric's scores."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, RagCall, Result, Score, Unscored
from ragtrace.metrics import Formula, registry
from ragtrace.metrics.repeated_runs import (
    PARTS,
    STATISTICS,
    run_consistency,
    run_consistency_bert_score,
    run_consistency_rouge,
    run_statistic,
    run_statistics,
)
from ragtrace.metrics.rouge import VARIANTS, Variant, rouge, tokens_of

RUNS = ("the cat sat on the mat", "the cat sat", "a cat on the mat")


def value(result: Result) -> float:
    assert isinstance(result, Score), result
    return result.value


def reason(result: Result) -> str:
    assert isinstance(result, Unscored), result
    return f"{result.status}/{result.reason}"


def of_runs(*runs: str) -> RagCall:
    return RagCall("q", None, None, runs=runs)


# --- tokens ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The CAT, sat!", ["the", "cat", "sat"]),
        ("Straße 3.5", ["strasse", "3", "5"]),
        ("東京は大きい city", ["東", "京", "は", "大", "き", "い", "city"]),
        ("\uff46\uff55\uff4c\uff4c width", ["full", "width"]),
        ("서울은 크다", ["서울은", "크다"]),
        ("हिन्दी की किताब", ["हिन्दी", "की", "किताब"]),
        ("snake_case", ["snake", "case"]),
        ("... !", []),
    ],
)
def test_unicode_tokens(text: str, expected: list[str]) -> None:
    """Folded runs of letters and digits of any script; one token a Chinese or Japanese character."""
    assert tokens_of(text) == expected


def test_ascii_tokens_are_those_of_rouge_score_without_stemming() -> None:
    """Other scripts are no tokens there, and two runs in them have nothing in common."""
    assert tokens_of("Naïve Cats, 3.5 東京", "ascii") == ["na", "ve", "cats", "3", "5"]


# --- ROUGE -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("variant", "expected"),
    [("rouge1", (3 / 4, 3 / 6)), ("rouge2", (2 / 3, 2 / 5)), ("rougeL", (3 / 4, 3 / 6))],
)
def test_rouge_of_two_texts(variant: Variant, expected: tuple[float, float]) -> None:
    """Common units over those of the candidate, and over those of the reference."""
    found = rouge("a cat on the".split()[0:1] + "on the mat".split(), "the cat sat on the mat".split(), variant)
    assert (found.precision, found.recall) == pytest.approx(expected)
    assert found.f1 == pytest.approx(2 * expected[0] * expected[1] / sum(expected))


def test_repeated_words_are_a_multiset() -> None:
    """Three times "the" does not match one "the" three times."""
    assert rouge(["the"] * 3, ["the", "end"], "rouge1") == pytest.approx((1 / 3, 1 / 2, 0.4))


def test_without_units_an_overlap_is_zero() -> None:
    """One side without tokens, or without bigrams."""
    assert rouge([], ["a"], "rouge1") == rouge(["a"], [], "rougeL") == (0.0, 0.0, 0.0)
    assert rouge(["a"], ["a"], "rouge2") == (0.0, 0.0, 0.0)


WORDS = st.lists(st.sampled_from("ab c de running ran 3".split()), max_size=12)


@settings(deadline=None)
@given(WORDS, WORDS)
def test_ascii_rouge_equals_the_rouge_score_package(candidate: list[str], reference: list[str]) -> None:
    """For all variants and parts, without stemming."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    theirs = scorer.RougeScorer(list(VARIANTS)).score(" ".join(reference), " ".join(candidate))
    for variant in VARIANTS:
        ours = rouge(tokens_of(" ".join(candidate), "ascii"), tokens_of(" ".join(reference), "ascii"), variant)
        assert ours == pytest.approx(tuple(theirs[variant]), abs=1e-12)


def test_stemmed_tokens_equal_the_rouge_score_package() -> None:
    """Its stemming, for figures that compare with those published with it."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    texts = "The runners were running quickly", "A runner runs, quick and happily"
    theirs = scorer.RougeScorer(["rouge1"], use_stemmer=True).score(*texts)["rouge1"]
    assert rouge(tokens_of(texts[1], "stemmed"), tokens_of(texts[0], "stemmed")) == pytest.approx(tuple(theirs))


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stemming alone needs the package."""
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    monkeypatch.setitem(sys.modules, "rouge_score.tokenizers", None)
    with pytest.raises(SettingsError, match=r"pip install 'ragtrace-otel\[rouge\]'"):
        tokens_of("a", "stemmed")


def test_long_texts_are_compared_quickly() -> None:
    """Ten thousand tokens a side: the plain table of a subsequence has a hundred million cells."""
    tokens = [str(i % 997) for i in range(10_000)]
    assert rouge(tokens, tokens, "rougeL").f1 == 1.0


# --- pairs of runs ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("part", PARTS)
def test_rouge_of_runs_is_the_mean_over_pairs(variant: Variant, part: str) -> None:
    """The earlier run is the reference; the pairs are published."""
    result = registry.get(f"run_consistency_{variant}_{part}")(of_runs(*RUNS), Judgement())
    texts = [tokens_of(run) for run in RUNS]
    pairs = [getattr(rouge(b, a, variant), part) for a, b in combinations(texts, 2)]
    assert value(result) == pytest.approx(sum(pairs) / 3)
    assert result.attributes["pair_values"] == tuple(pairs)


def test_runs_without_words() -> None:
    """A pair without words on both sides is left out, on one side it is 0; with no pair left there is no score."""
    metric = registry.get("run_consistency_rouge1_f1")
    assert value(metric(of_runs("a", "", ""), Judgement())) == 0.0
    assert metric(of_runs("a", "", ""), Judgement()).attributes["pairs"] == 2
    assert value(metric(of_runs("a", "a", ""), Judgement())) == pytest.approx(1 / 3)
    assert reason(metric(of_runs("", ".", " "), Judgement())) == "not_applicable/empty_answer"


@pytest.mark.parametrize("name", [name for name in registry.names() if name.startswith("run_consistency_")])
@pytest.mark.parametrize("runs", [None, (), ("a", "b")])
def test_fewer_than_three_runs_say_nothing(name: str, runs: tuple[str, ...] | None) -> None:
    """And the metric is asked for by name only."""
    call = RagCall("q", None, "a", runs=runs)
    assert reason(registry.get(name)(call, Judgement())) == "not_applicable/needs_runs"
    assert registry.get(name) not in registry.defaults()


def test_f1_does_not_depend_on_the_order_of_runs() -> None:
    """Precision and recall change places."""
    forth, back = run_consistency(RUNS), run_consistency(RUNS[::-1])
    assert value(forth["run_consistency_rougeL_f1"]) == pytest.approx(value(back["run_consistency_rougeL_f1"]))
    assert value(forth["run_consistency_rouge1_recall"]) == pytest.approx(
        value(back["run_consistency_rouge1_precision"])
    )


def test_run_consistency_gives_all_text_forms() -> None:
    """Nine of ROUGE, and BERTScore where tokens can be embedded."""
    found = run_consistency(RUNS)
    assert len(found) == 10
    assert reason(found["run_consistency_bert_score"]) == "not_applicable/no_token_embedder"
    assert all(0 <= value(result) <= 1 for name, result in found.items() if "rouge" in name)


def test_a_wrong_variant_is_refused() -> None:
    """With the known ones."""
    with pytest.raises(SettingsError, match="tokens must be one of unicode, ascii, stemmed, got 'words'"):
        run_consistency_rouge(tokens="words")  # type: ignore[arg-type]


# --- BERTScore -------------------------------------------------------------------------------------------------------
def vectors_of(table: dict[str, list[list[float]]]) -> Formula:
    return run_consistency_bert_score(lambda texts: [table[text] for text in texts])


def test_bert_score_matches_tokens_greedily() -> None:
    """Row maxima are the candidate's precision, column maxima the reference's recall."""
    table = {"a": [[1.0, 0.0], [0.0, 1.0]], "b": [[2.0, 0.0]], "c": [[0.0, 3.0]]}
    result = vectors_of(table)(of_runs("a", "b", "c"), Judgement())
    assert result.attributes["pair_values"] == pytest.approx((2 / 3, 2 / 3, 0.0))
    assert result.attributes["precision"] == pytest.approx(2 / 3)
    assert result.attributes["recall"] == pytest.approx(1 / 3)
    assert value(result) == pytest.approx(4 / 9)


def test_bert_score_may_be_negative_and_is_rescaled_by_a_baseline() -> None:
    """(F1 - b) / (1 - b)."""
    table = {"a": [[1.0]], "b": [[-1.0]], "c": [[1.0]]}
    embedder = lambda texts: [table[text] for text in texts]  # noqa: E731
    assert value(run_consistency_bert_score(embedder)(of_runs("a", "b", "c"), Judgement())) == pytest.approx(-1 / 3)
    rescaled = run_consistency_bert_score(embedder, baseline=0.5)(of_runs("a", "a", "a"), Judgement())
    assert value(rescaled) == 1.0
    assert value(run_consistency_bert_score(embedder, baseline=0.5)(of_runs("a", "b", "c"), Judgement())) == -5 / 3
    with pytest.raises(SettingsError, match="baseline must be below 1"):
        run_consistency_bert_score(embedder, baseline=1.0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([[[0.0, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]]], "judge_error/zero_norm"),
        ([[[math.nan, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]]], "judge_error/non_finite"),
        ([[[1.0]], [[1.0, 0.0]], [[1.0]]], "judge_error/unparsable"),
        ([[[1.0]], [[1.0]]], "judge_error/unparsable"),
        ([[["x"]], [[1.0]], [[1.0]]], "judge_error/unparsable"),
        ([[], [], []], "not_applicable/empty_answer"),
    ],
)
def test_broken_token_embeddings_are_no_score(found: list[list[list[float]]], expected: str) -> None:
    """Not 0, and no exception."""
    assert reason(run_consistency_bert_score(lambda _: found)(of_runs("a", "b", "c"), Judgement())) == expected


def test_huge_vectors_keep_their_direction() -> None:
    """The squares of their numbers would overflow."""
    table = {"a": [[1e200, 0.0]], "b": [[1e200, 1e200]], "c": [[1e-200, 0.0]]}
    assert value(vectors_of(table)(of_runs("a", "b", "c"), Judgement())) == pytest.approx((2 * 2**-0.5 + 1) / 3)


# --- statistics ------------------------------------------------------------------------------------------------------
def test_statistics_of_scores() -> None:
    """Mean, population variance and coefficient of variation."""
    found = run_statistics([0.7, 0.6, 0.6])
    assert value(found["run_consistency_mean"]) == pytest.approx(0.6333333333, abs=1e-9)
    assert value(found["run_consistency_variance"]) == pytest.approx(0.0022222222, abs=1e-9)
    assert value(found["run_consistency_coefficient_of_variation"]) == pytest.approx(0.0744322928, abs=1e-9)
    sample = run_statistics([0.7, 0.6, 0.6], ddof=1)
    assert value(sample["run_consistency_variance"]) == pytest.approx(0.0033333333, abs=1e-9)
    assert value(sample["run_consistency_coefficient_of_variation"]) == pytest.approx(0.0911605688, abs=1e-9)
    assert sample["run_consistency_variance"].attributes["ddof"] == 1


def test_unscored_runs_are_left_out_of_the_statistics() -> None:
    """And counted; of three runs two scores are too few."""
    scored: list[Result] = [Score(0.5, metric="faithfulness"), Score(0.7, metric="faithfulness")]
    missing = Unscored("no_claims", metric="faithfulness")
    assert reason(run_statistics([*scored, missing])["run_consistency_mean"]) == "not_applicable/needs_runs"
    found = run_statistics([*scored, Score(0.6, metric="faithfulness"), missing])["run_consistency_mean"]
    assert value(found) == pytest.approx(0.6)
    assert (found.attributes["base_metric"], found.attributes["unscored_runs"]) == ("faithfulness", 1)


def test_a_mean_of_zero_has_no_coefficient() -> None:
    """Mean and variance have their numbers."""
    found = run_statistics([-1.0, 0.0, 1.0])
    assert reason(found["run_consistency_coefficient_of_variation"]) == "not_applicable/zero_mean"
    assert value(found["run_consistency_mean"]) == 0.0


def test_the_mean_has_the_direction_of_its_base_metric() -> None:
    """Scatter is better low, whatever the metric."""
    down = [Score(0.1, metric="hallucination", higher_is_better=False)] * 3
    assert [result.higher_is_better for result in run_statistics(down).values()] == [False, False, False]
    assert [result.higher_is_better for result in run_statistics([0.1] * 3).values()] == [True, False, False]


def test_statistics_mix_no_metrics() -> None:
    """Scores of two metrics are no sample."""
    with pytest.raises(ValueError, match="over one metric, got results of a, b"):
        run_statistics([Score(0.1, metric="a"), Score(0.1, metric="b"), Score(0.2, metric="a")])


def test_a_statistic_of_a_metric_without_a_judge_runs_on_the_call() -> None:
    """Each run is the answer once."""
    length = Formula("words", "1", lambda call, _: Score(len((call.answer or "").split())), frozenset(), range=(0, 99))
    result = run_statistic("mean", length)(of_runs(*RUNS), Judgement())
    assert value(result) == pytest.approx(14 / 3)
    assert result.attributes["base_metric"] == "words"
    with pytest.raises(SettingsError, match="needs a judge"):
        run_statistic("mean", registry.get("faithfulness"))
    with pytest.raises(SettingsError, match="statistic must be one of"):
        run_statistic("median")


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=9))
def test_statistics_are_finite_and_in_their_range(values: Sequence[float]) -> None:
    """Whatever the scores."""
    for name, result in run_statistics(list(values)).items():
        if isinstance(result, Score):
            assert math.isfinite(result.value)
            assert name == "run_consistency_mean" or result.value >= 0


def test_the_public_names_are_these() -> None:
    """Of the package."""
    assert ragtrace.metrics.run_consistency is run_consistency
    assert ragtrace.metrics.run_statistics is run_statistics
    assert len(STATISTICS) == 3
