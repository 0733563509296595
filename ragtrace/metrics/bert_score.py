"""BERTScore of two texts: greedy matching of their token embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ragtrace.core.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float64]

TokenEmbedder: TypeAlias = Callable[[Sequence[str]], Sequence[Any]]
"""Function from texts to one matrix for each text, which has a row for each token in order. The function must not cut
long texts: the part cut off would silently not be compared."""


class BertScoreMatch(NamedTuple):
    """BERTScore of a candidate text against a reference text: precision, recall and F1.

    Each is at most 1 and may be negative.
    """

    precision: float
    recall: float
    f1: float


class EmbeddingError(Exception):
    """Raised, with a reason as its text, when token embeddings cannot be used to compute a score."""


def bert_score(candidate: Matrix, reference: Matrix) -> BertScoreMatch:
    """Return the BERTScore of *candidate* against *reference*, two texts given by their token embeddings.

    All of it is 0 if one of them has no token.

    Args:
        candidate: (m, d) token embeddings of unit length.
        reference: (n, d) token embeddings of unit length.
    """
    if not len(candidate) or not len(reference):
        return BertScoreMatch(0.0, 0.0, 0.0)
    cosines = candidate @ reference.T
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    total = precision + recall
    if total:
        return BertScoreMatch(precision, recall, 2 * precision * recall / total)
    return BertScoreMatch(precision, recall, 0.0 if precision == 0 else math.nan)


def unit_rows(found: Sequence[Any], texts: int) -> list[Matrix]:
    """Return the token embeddings of some texts as matrices whose rows have unit length.

    Raises:
        EmbeddingError: `unparsable` (not one matrix a text, all of one width), `non_finite`, or `zero_norm`.

    Args:
        found: what the embedder returned.
        texts: number of texts that it was given.
    """
    import numpy as np

    try:
        matrices = [np.asarray(matrix, dtype=np.float64) for matrix in found]
    except (TypeError, ValueError) as error:
        raise EmbeddingError("unparsable") from error
    matrices = [matrix if matrix.size else np.zeros((0, 0)) for matrix in matrices]
    widths = {matrix.shape[1] for matrix in matrices if matrix.ndim == 2 and len(matrix)}
    if len(found) != texts or any(matrix.ndim != 2 for matrix in matrices) or len(widths) > 1:
        raise EmbeddingError("unparsable")
    return [_unit(matrix) if len(matrix) else matrix for matrix in matrices]


def _unit(matrix: Matrix) -> Matrix:
    import numpy as np

    if not np.isfinite(matrix).all():
        raise EmbeddingError("non_finite")
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # first, as the squares of huge numbers overflow
    if not largest.all():
        raise EmbeddingError("zero_norm")
    scaled: Matrix = matrix / largest
    unit: Matrix = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return unit


class BertScoreTokens:
    """Token embedder that runs a `transformers` model as the bert-score package does (extra `bertscore`).

    Without the package's special tokens, so figures differ slightly from its own, which let a word match those. A text
    longer than the model can read is embedded in pieces and never cut.

    Examples:
        >>> embedder = ragtrace.metrics.BertScoreTokens("roberta-large")  # loaded at the first use

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
        """Return a matrix of token embeddings for each text, one row per token. The first call loads the model."""
        import numpy as np

        found = ([self._vectors(piece) for piece in self._pieces(text)] for text in texts)
        return [np.concatenate(pieces) if pieces else np.zeros((0, 0)) for pieces in found]

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            utils = _package()
            tokenizer, model = utils.get_tokenizer(self._name), utils.get_model(self._name, self._layers)
            self._loaded = tokenizer, model.to(self._device).eval()
        return self._loaded

    def _pieces(self, text: str) -> list[str]:
        """Split *text* into pieces that fit the model's input limit, at white space where possible."""
        tokenizer, model = self._load()
        # RoBERTa and models like it reserve two of their positions.
        positions: int = getattr(model.config, "max_position_embeddings", 512)
        positions -= 2 if "roberta" in type(model).__name__.lower() else 0
        limit = min(tokenizer.model_max_length, positions)
        if not text.strip():
            return []
        if len(tokenizer(text, verbose=False)["input_ids"]) <= limit or len(text) < 2:
            return [text]
        middle = text.rfind(" ", 1, len(text) // 2 + 1)
        middle = middle if middle > 0 else len(text) // 2
        return self._pieces(text[:middle]) + self._pieces(text[middle:])

    def _vectors(self, text: str) -> Any:
        tokenizer, model = self._load()
        # The package weighs tokens by rarity; with weight 0 for special tokens, the weights tell these from all others.
        rarity = dict.fromkeys(tokenizer.get_vocab().values(), 1.0) | dict.fromkeys(tokenizer.all_special_ids, 0.0)
        found, _, weights = _package().get_bert_embedding([text], model, tokenizer, rarity, device=self._device)
        return found[0][weights[0] > 0].double().cpu().numpy()


def _package() -> Any:
    try:
        return import_module("bert_score.utils")
    except ImportError as error:
        raise SettingsError("BERTScore needs the bert-score package; pip install 'ragtrace-otel[bertscore]'") from error
