"""HHEM and BERTScore with models that the tests make: tiny, random, saved to disk and loaded as real ones are."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Document, RagCall, Score
from ragtrace.evaluation.judge_client import JudgeClient
from ragtrace.judges.local.hhem import HHEM
from ragtrace.metrics.bert_score import BertScoreTokens, bert_score
from ragtrace.metrics.repeated_runs import run_consistency
from ragtrace.testing import Captured

WORDS = "the depot port is in ghent antwerp a of lies . ? : premise hypothesis determine if true given".split()
CALL = RagCall("q", (Document("the depot is in ghent ."), Document("the port is in antwerp .")), "it is in ghent .")
RUNS = ("the depot is in ghent", "the depot lies in ghent", "a port")

hhem_extra = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "transformers")), reason="needs the extra hhem"
)
bert_score_extra = pytest.mark.skipif(
    importlib.util.find_spec("bert_score") is None, reason="needs the extra bertscore"
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may look for a model on the network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def save_tokenizer(folder: Path, length: int) -> None:
    """One token a known word."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=length,
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
    ).save_pretrained(folder)  # fmt: skip


def bert_config(labels: dict[int, str], length: int = 64) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(WORDS) + 4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=length, id2label=labels, label2id={name: index for index, name in labels.items()},
    )  # fmt: skip


def classifier(folder: Path, labels: dict[int, str], length: int = 64) -> Any:
    """A random classifier of pairs, saved into *folder*."""
    import torch
    from transformers import BertForSequenceClassification

    torch.manual_seed(7)
    network = BertForSequenceClassification(bert_config(labels, length)).eval()
    network.classifier.weight.data *= 20  # far from 0.5
    network.save_pretrained(folder)
    save_tokenizer(folder, length)
    return network


def logits(network: Any, folder: Path, premise: str, hypothesis: str) -> list[float]:
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        found: list[float] = network(**tokenizer(premise, hypothesis, return_tensors="pt")).logits[0].tolist()
    return found


def softmax(values: Sequence[float], index: int) -> float:
    import torch

    return float(torch.softmax(torch.tensor(values, dtype=torch.float64), 0)[index])


# --- HHEM ------------------------------------------------------------------------------------------------------------
@hhem_extra
@pytest.mark.parametrize(
    ("labels", "label", "column"),
    [
        ({0: "LABEL_0", 1: "LABEL_1"}, None, 1),
        ({0: "entailment", 1: "neutral", 2: "contradiction"}, None, 0),
        ({0: "hallucinated", 1: "consistent"}, None, 1),
        ({0: "good", 1: "bad"}, "good", 0),
        ({0: "good", 1: "bad"}, 1, 1),
    ],
)
def test_a_local_classifier_gives_the_probability_of_consistency(
    tmp_path: Path, labels: dict[int, str], label: str | int | None, column: int
) -> None:
    """That of the output which means consistent, by its name or as the caller says."""
    network = classifier(tmp_path, labels)
    judgement = HHEM(tmp_path, label=label, device="cpu").judge(CALL)
    premise = "the depot is in ghent .\n\nthe port is in antwerp ."
    expected = softmax(logits(network, tmp_path, premise, CALL.answer or ""), column)
    assert judgement.consistency == pytest.approx(expected, abs=1e-6)
    assert judgement.attributes["method"] == "whole"


@hhem_extra
def test_a_classifier_with_one_output_is_read_by_its_sigmoid(tmp_path: Path) -> None:
    """As cross-encoders are."""
    import torch

    network = classifier(tmp_path, {0: "LABEL_0"})
    found = logits(network, tmp_path, "the depot is in ghent .", "it is in ghent .")[0]
    judgement = HHEM(tmp_path).judge(replace(CALL, contexts=(Document("the depot is in ghent ."),)))
    assert judgement.consistency == pytest.approx(float(torch.sigmoid(torch.tensor(found))), abs=1e-6)


@hhem_extra
def test_long_contexts_are_read_in_windows_of_the_models_length(tmp_path: Path) -> None:
    """The maximum over windows of whole chunks, the mean over sentences; the model never sees a cut text."""
    network = classifier(tmp_path, {0: "LABEL_0", 1: "LABEL_1"}, length=16)
    call = replace(CALL, answer="The depot is in ghent. The port lies in a depot.")
    judgement = HHEM(tmp_path).judge(call)
    premises, parts = [d.text for d in CALL.contexts or ()], ["The depot is in ghent.", "The port lies in a depot."]
    best = [max(softmax(logits(network, tmp_path, premise, part), 1) for premise in premises) for part in parts]
    assert judgement.attributes == {"method": "windowed", "windows": 2, "sentences": 2}
    assert judgement.consistency == pytest.approx(sum(best) / 2, abs=1e-6)


@hhem_extra
def test_vectaras_model_is_loaded_without_code_of_its_own(tmp_path: Path) -> None:
    """A folder as it is published: weights of a T5 token classifier under a prefix, the embedding stored once."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoTokenizer, T5Config, T5ForTokenClassification

    foundation, published = tmp_path / "foundation", tmp_path / "published"
    published.mkdir()
    config = T5Config(
        vocab_size=len(WORDS) + 4, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, pad_token_id=0, num_labels=2
    )
    config.save_pretrained(foundation)
    save_tokenizer(foundation, 512)
    torch.manual_seed(3)
    network = T5ForTokenClassification(config).eval()
    weights = {f"t5.{key}": value.clone() for key, value in network.state_dict().items() if "embed_tokens" not in key}
    save_file(weights, published / "model.safetensors")
    described = {"architectures": ["HHEMv2ForSequenceClassification"], "foundation": str(foundation)}
    (published / "config.json").write_text(json.dumps(described))

    judgement = HHEM(published).judge(CALL)
    text = (
        "<pad> Determine if the hypothesis is true given the premise?\n\n"
        "Premise: the depot is in ghent .\n\nthe port is in antwerp .\n\nHypothesis: it is in ghent ."
    )
    inputs = AutoTokenizer.from_pretrained(foundation)(text, return_tensors="pt")
    with torch.inference_mode():
        found = network(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[0, 0].tolist()
    assert judgement.consistency == pytest.approx(softmax(found, 1), abs=1e-6)

    del weights["t5.classifier.weight"]
    save_file(weights, published / "model.safetensors")
    with pytest.raises(JudgeError, match="its weights do not fit a T5 encoder: 1 missing, 0 too many"):
        HHEM(published).judge(CALL)


@hhem_extra
def test_it_is_a_judge_that_is_loaded_at_the_first_call(tmp_path: Path) -> None:
    """In a thread; made before there is a model, and asked for consistency alone."""
    judge = HHEM(tmp_path / "model")
    assert (judge.id, judge.version, judge.type) == ("hhem", "1:model", "model")
    classifier(tmp_path / "model", {0: "LABEL_0", 1: "LABEL_1"})
    judgement = asyncio.run(JudgeClient(judge, timeout=60.0).ask(CALL))
    assert judgement.consistency is not None
    found = ragtrace.score(
        query="q", contexts=["the depot is in ghent ."], answer="it is in ghent .", metrics=["consistency"], judge=judge
    )
    assert isinstance(found["consistency"], Score)


@hhem_extra
@pytest.mark.parametrize("role", ["screen", "judge"])
def test_it_scores_live_calls(tmp_path: Path, role: str) -> None:
    """As the screen of every call, or as the judge of a sample."""
    classifier(tmp_path, {0: "LABEL_0", 1: "LABEL_1"})
    captured, judge = Captured(), HHEM(tmp_path)
    screen, main = (judge, None) if role == "screen" else (None, judge)
    ragtrace.configure(exporter=captured.signals, screen=screen, judge=main, sampling=ragtrace.Sampling(rate=1.0))
    with ragtrace.call("where is it ?") as call:
        call.retrieved(["the depot is in ghent ."])
        call.answered("it is in ghent .")
    assert ragtrace.flush(30)
    value = (captured.root().attributes or {})["ragtrace.eval.consistency.score"]
    assert isinstance(value, float)
    assert 0 <= value <= 1


@hhem_extra
def test_a_model_that_cannot_be_loaded_is_unavailable(tmp_path: Path) -> None:
    """With what was seen; it is not tried again for the same call."""
    with pytest.raises(JudgeError) as raised:
        HHEM(tmp_path / "nowhere", local_only=True).load()
    assert (raised.value.reason, raised.value.retryable) == ("unavailable", False)
    classifier(tmp_path / "unclear", {0: "good", 1: "bad"})
    with pytest.raises(JudgeError, match=r"which output means consistent; pass label=.*0 'good', 1 'bad'"):
        HHEM(tmp_path / "unclear").judge(CALL)


def test_without_the_extra_hhem_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is made, not when the first call arrives."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"HHEM needs torch and transformers; pip install 'ragtrace-otel\[hhem\]'"):
        HHEM()


@hhem_extra
def test_hhem_refuses_a_length_of_nothing() -> None:
    """At the start."""
    with pytest.raises(SettingsError, match="max_tokens must be positive"):
        HHEM(max_tokens=0)


# --- BERTScore -------------------------------------------------------------------------------------------------------
def encoder(folder: Path, length: int = 64) -> Path:
    import torch
    from transformers import BertModel

    torch.manual_seed(5)
    BertModel(bert_config({0: "LABEL_0"}, length)).save_pretrained(folder)
    save_tokenizer(folder, length)
    return folder


@bert_score_extra
def test_bert_score_equals_the_packages_arithmetic(tmp_path: Path) -> None:
    """On its embeddings, of the tokens alone."""
    import numpy as np
    import torch
    from bert_score.utils import greedy_cos_idf

    vectors = BertScoreTokens(str(encoder(tmp_path)), num_layers=2)(RUNS[:2])
    unit = [np.asarray(v) / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors]
    ours = bert_score(unit[1], unit[0])
    reference, candidate = (torch.tensor(v)[None] for v in vectors)
    weights = [torch.ones(v.shape[:2], dtype=torch.float64) for v in (reference, candidate)]
    theirs = greedy_cos_idf(reference, weights[0], weights[0], candidate, weights[1], weights[1])
    assert ours == pytest.approx([float(part) for part in theirs], abs=1e-9)


@bert_score_extra
def test_bert_score_of_runs_with_a_real_encoder(tmp_path: Path) -> None:
    """Equal runs are 1; the value is finite and at most 1."""
    tokens = BertScoreTokens(str(encoder(tmp_path)), num_layers=2)
    found = run_consistency(RUNS, token_embedder=tokens)["run_consistency_bert_score"]
    assert isinstance(found, Score)
    assert found.value < 1
    same = run_consistency([RUNS[0]] * 3, token_embedder=tokens)["run_consistency_bert_score"]
    assert isinstance(same, Score)
    assert same.value == pytest.approx(1.0, abs=1e-6)


@bert_score_extra
def test_long_texts_are_embedded_in_pieces(tmp_path: Path) -> None:
    """Every token has a vector; nothing is cut at the model's length, and special tokens are none of the text's."""
    tokens = BertScoreTokens(str(encoder(tmp_path, length=16)), num_layers=2)
    long = " ".join(["the depot is in ghent"] * 20)
    assert [len(matrix) for matrix in tokens([long, "a port", " "])] == [100, 2, 0]


@bert_score_extra
def test_an_unknown_encoder_needs_a_layer() -> None:
    """The package knows the best one only of some."""
    with pytest.raises(SettingsError, match="give num_layers="):
        BertScoreTokens("somebody/some-encoder")


def test_without_the_extra_bert_score_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is made."""
    monkeypatch.setitem(__import__("sys").modules, "bert_score.utils", None)
    with pytest.raises(SettingsError, match=r"pip install 'ragtrace-otel\[bertscore\]'"):
        BertScoreTokens("roberta-large")
