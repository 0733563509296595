"""BERTScore of repeated runs: greedy matching of token embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float64]

TokenEmbedder: TypeAlias = Callable[[Sequence[str]], Sequence[Any]]
"""Texts to one matrix a text: a row a token, in the order of the tokens; no row for a text without tokens. It must not
cut long texts: what is cut is not compared, and nobody would see it."""
_LEAST_RUNS = 3
_NOTHING = Judgement()


class Match(NamedTuple):
    """BERTScore of a candidate against a reference, each at most 1 and possibly negative."""

    precision: float
    recall: float
    f1: float


class _EmbeddingError(Exception):
    """Token embeddings that nothing can be computed from; the text is the reason."""


def bert_score_of(
    call: RagCall,
    _: Judgement = _NOTHING,
    *,
    token_embedder: TokenEmbedder | None = None,
    baseline: float | None = None,
) -> Result:
    """Mean BERTScore F1 over all pairs of runs of one query, the earlier run of a pair as the reference.

    Inputs: the answers of at least three runs of one query, in order, and an embedder of tokens.
    Formula: P is the mean over the candidate's tokens of the highest cosine with a token of the reference, R the same
        the other way round, F1 = 2 P R / (P + R); with a baseline b, (F1 - b) / (1 - b). Mean over the pairs; a pair
        without a token on either side is left out, without one on one side it is 0.
    Range: at most 1, may be negative; higher is better.
    Judge calls: none; each run is embedded once.
    Unscored: `needs_runs` (fewer than three); `no_token_embedder`; `empty_answer` (no run has a token); `zero_norm`
        and `non_finite` (an embedding without direction); `unparsable` (matrices that do not fit).
    Source: Zhang et al. 2020, "BERTScore", arXiv:1904.09675, section 3, without weights by rarity.

    The cosine of embeddings of whole answers is something else and does not carry this name. The attributes
    `precision` and `recall` are the means over the pairs, not rescaled.
    """
    runs = call.runs or ()
    if len(runs) < _LEAST_RUNS:
        return Unscored("needs_runs", explanation=f"{len(runs)} runs, at least {_LEAST_RUNS} are needed")
    if token_embedder is None:
        return Unscored("no_token_embedder")
    try:
        matrices = _unit_rows(token_embedder(runs), len(runs))
        matches = [match(b, a) for a, b in combinations(matrices, 2) if len(a) or len(b)]
    except _EmbeddingError as error:
        return Unscored(str(error))
    if not matches:
        return Unscored("empty_answer", explanation="no run has a token")
    values = [m.f1 if baseline is None else (m.f1 - baseline) / (1 - baseline) for m in matches]
    if not all(math.isfinite(value) for value in values):
        return Unscored("non_finite")
    attributes: dict[str, Plain] = {
        "runs": len(runs),
        "pairs": len(values),
        "pair_values": tuple(values),
        "precision": math.fsum(m.precision for m in matches) / len(matches),
        "recall": math.fsum(m.recall for m in matches) / len(matches),
    }
    if baseline is not None:
        attributes["baseline"] = baseline
    return Score(math.fsum(values) / len(values), attributes=attributes)


def match(candidate: Matrix, reference: Matrix) -> Match:
    """Greedy matching of two texts.

    Args:
        candidate: (m, d) token embeddings of unit length.
        reference: (n, d) token embeddings of unit length.

    Returns:
        All 0 if one of them has no token.
    """
    if not len(candidate) or not len(reference):
        return Match(0.0, 0.0, 0.0)
    cosines = candidate @ reference.T
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    total = precision + recall
    if total:
        return Match(precision, recall, 2 * precision * recall / total)
    return Match(precision, recall, 0.0 if precision == 0 else math.nan)


def _unit_rows(found: Sequence[Any], texts: int) -> list[Matrix]:
    import numpy as np

    if len(found) != texts:
        raise _EmbeddingError("unparsable")
    try:
        matrices = [np.asarray(matrix, dtype=np.float64) for matrix in found]
    except (TypeError, ValueError) as error:
        raise _EmbeddingError("unparsable") from error
    matrices = [matrix if matrix.size else np.zeros((0, 0)) for matrix in matrices]
    if any(matrix.ndim != 2 for matrix in matrices) or len({m.shape[1] for m in matrices if len(m)}) > 1:
        raise _EmbeddingError("unparsable")
    return [_unit(matrix) if len(matrix) else matrix for matrix in matrices]


def _unit(matrix: Matrix) -> Matrix:
    import numpy as np

    if not np.isfinite(matrix).all():
        raise _EmbeddingError("non_finite")
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # first, as the squares of huge numbers overflow
    if not largest.all():
        raise _EmbeddingError("zero_norm")
    scaled: Matrix = matrix / largest
    unit: Matrix = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return unit


class BertScoreTokens:
    """Token embeddings as the bert-score package makes them (the extra `bertscore`).

    Without the package's special tokens, so figures differ slightly from its own, which let a word match those. A text
    longer than the model can read is embedded in pieces and never cut.

    Args:
        model: name or path of an encoder of `transformers`, for instance "roberta-large".
        num_layers: the layer to take; default: the package's choice for a model that it knows.
        device: "cpu", "cuda" ...

    Raises:
        SettingsError: the extra is not installed, or the model needs num_layers=.
    """

    def __init__(self, model: str, *, num_layers: int | None = None, device: str = "cpu") -> None:
        utils = _package()
        known: dict[str, int] = utils.model2layers
        if num_layers is None and model not in known:
            raise SettingsError(f"no best layer is known for {model!r}; give num_layers=")
        self._name, self._layers, self._device = model, num_layers or known[model], device
        self._loaded: tuple[Any, Any] | None = None

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        """One (tokens, d) matrix a text; loads the model at the first call."""
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Any:
        import numpy as np

        pieces = [self._vectors(piece) for piece in self._pieces(text)]
        return np.concatenate(pieces) if pieces else np.zeros((0, 0))

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            utils = _package()
            tokenizer, model = utils.get_tokenizer(self._name), utils.get_model(self._name, self._layers)
            self._loaded = tokenizer, model.to(self._device).eval()
        return self._loaded

    def _pieces(self, text: str) -> list[str]:
        """The text in pieces that the model can read, cut at white space where there is any."""
        tokenizer, model = self._load()
        limit = min(tokenizer.model_max_length, _positions(model))
        if not text.strip():
            return []
        if len(tokenizer(text, verbose=False)["input_ids"]) <= limit or len(text) < 2:
            return [text]
        middle = text.rfind(" ", 1, len(text) // 2 + 1)
        middle = middle if middle > 0 else len(text) // 2
        return self._pieces(text[:middle]) + self._pieces(text[middle:])

    def _vectors(self, text: str) -> Any:
        tokenizer, model = self._load()
        # The package weighs a token by its rarity; with 0 for the special ones the weights say which those are.
        rarity = dict.fromkeys(tokenizer.get_vocab().values(), 1.0) | dict.fromkeys(tokenizer.all_special_ids, 0.0)
        found, _, weights = _package().get_bert_embedding([text], model, tokenizer, rarity, device=self._device)
        return found[0][weights[0] > 0].double().cpu().numpy()


def _positions(model: Any) -> int:
    """Tokens that the model has positions for; RoBERTa and its like keep two for themselves."""
    known: int = getattr(model.config, "max_position_embeddings", 512)
    return known - 2 if "roberta" in type(model).__name__.lower() else known


def _package() -> Any:
    try:
        return import_module("bert_score.utils")
    except ImportError as error:
        raise SettingsError("BERTScore needs the bert-score package; pip install 'ragtrace-otel[bertscore]'") from error
