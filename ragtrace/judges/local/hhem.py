"""`HHEM`: judge that runs Vectara's hallucination evaluation model, or another local classifier of pairs of texts.

HHEM-2.1-Open comes with loading code of its own, which would have to be trusted and which newer versions of
transformers no longer run. Its weights are those of a T5 encoder with a token classifier, so they are loaded as that,
and no code of a model's is ever run.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.judges.local.scorer import OFFERED, Pair, judge_consistency
from ragtrace.system.forks import PerProcess

_VECTARA: Final = "vectara/hallucination_evaluation_model"
_FOUNDATION: Final = "google/flan-t5-base"
# The prompt template that the model was trained with; "<pad>" is the classification token.
_PROMPT: Final = (
    "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {text1}\n\nHypothesis: {text2}"
)
_CONSISTENT: Final = frozenset("consistent entailment entailed supported factual faithful".split())
_UNNAMED: Final = "label_"
_BATCH: Final = 8


class HHEM:
    """Judge that runs a local model, by default Vectara's HHEM, to rate how well the contexts support an answer.

    It needs no network once the model is on this machine.

    The model is loaded at the first call, in a thread of the background, and runs there, one call at a time. Offers
    `consistency`; as `screen=` it sees every call, as `judge=` a sample. Contexts that are too long for it are read in
    windows, as `ScorerJudge` describes; nothing is cut.

    Examples:
        >>> judge = ragtrace.judges.HHEM("models/hhem", local_only=True)  # loaded at the first call
        >>> ragtrace.configure(exporter="none", screen=judge)

    Args:
        model: name on the Hugging Face hub, or path of a folder. Vectara's model, or any that
            `AutoModelForSequenceClassification` loads: with one output, whose sigmoid is the probability, or with
            several, of which one is called consistent, entailment, entailed, supported, factual or faithful (of two
            without names it is the second).
        device: "cpu", "cuda" ...; default: "cuda" if there is one.
        max_tokens: that premise and hypothesis may have together; default: what the model can read, and 2,048 for
            Vectara's.
        label: name or index of the output that means consistent, where that is not clear.
        local_only: use only what is on this machine, never the hub.

    Raises:
        SettingsError: the extra `hhem` is not installed, or max_tokens is not positive.
    """

    id = "hhem"
    type: EvaluatorType = "model"

    def __init__(
        self,
        model: str | Path = _VECTARA,
        *,
        device: str | None = None,
        max_tokens: int | None = None,
        label: str | int | None = None,
        local_only: bool = False,
    ) -> None:
        if missing := [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]:
            raise SettingsError(f"HHEM needs {' and '.join(missing)}; pip install 'ragtrace-otel[hhem]'")
        if max_tokens is not None and max_tokens < 1:
            raise SettingsError(f"max_tokens must be positive, got {max_tokens!r}")
        self._model, self._device, self._label, self._local_only = str(model), device, label, local_only
        self._max_tokens = max_tokens
        self.version = f"1:{Path(model).name}"  # of the splitting of texts, and the model
        self._loaded: _LoadedModel | None = None
        self._lock = PerProcess(threading.Lock)

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy begins with: it loads the model itself."""
        return {**vars(self), "_loaded": None}

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* is computed from `consistency`, the only label that this judge gives."""
        return metric.needs == OFFERED

    def load(self) -> None:
        """Load the model now instead of at the first call, because a download takes longer than a judge's deadline.

        Raises:
            JudgeError: the model cannot be loaded ("unavailable").
        """
        with self._lock.get():
            self._load()

    def judge(self, call: RagCall) -> Judgement:
        """Return a judgement that states how well the contexts of *call* support its answer (`consistency`).

        It blocks: ragtrace calls it in a thread.

        Raises:
            JudgeError: the model cannot be loaded ("unavailable"), or gives no probability.
        """
        with self._lock.get():  # several calls at a time would only share the same cores
            loaded = self._load()
            return judge_consistency(call, loaded.scores, loaded.fits)

    def _load(self) -> _LoadedModel:
        if self._loaded is None:
            try:
                self._loaded = _load(self._model, self._device, self._max_tokens, self._label, self._local_only)
            except JudgeError:
                raise
            except Exception as error:
                detail = f"{self._model} could not be loaded: {type(error).__name__}: {error}"
                raise JudgeError("unavailable", detail[:500], retryable=False) from error
        return self._loaded


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    """Loaded model with its tokenizer, ready to score pairs of texts."""

    network: Any
    tokenizer: Callable[..., Any]
    max_tokens: int
    column: int | None
    """Index of the output that means consistent; None: the network has one output, whose sigmoid is the probability."""
    prompt: tuple[str, str, str] | None = None
    """Texts before, between and after the two texts of a pair; None: the tokenizer joins them."""

    def fits(self, premise: str, hypothesis: str) -> bool:
        """Return whether *premise* and *hypothesis* together are short enough for the model to read at once."""
        return len(self._tokens([(premise, hypothesis)])["input_ids"][0]) <= self.max_tokens

    def scores(self, pairs: Sequence[Pair]) -> list[float | str]:
        """Return for each pair of texts the probability that its premise supports its hypothesis."""
        torch, found = import_module("torch"), list[float | str]()
        for start in range(0, len(pairs), _BATCH):
            tokens = self._tokens(pairs[start : start + _BATCH], return_tensors="pt", padding=True)
            with torch.inference_mode():
                logits = self.network(**tokens.to(self.network.device)).logits.double()
            if logits.ndim == 3:  # a token classifier, whose first token is the pair's
                logits = logits[:, 0]
            found += (logits[:, 0].sigmoid() if self.column is None else logits.softmax(-1)[:, self.column]).tolist()
        return found

    def _tokens(self, pairs: Sequence[Pair], **options: object) -> Any:
        if self.prompt is None:
            return self.tokenizer(*map(list, zip(*pairs, strict=True)), verbose=False, **options)
        before, between, after = self.prompt
        texts = [before + premise + between + hypothesis + after for premise, hypothesis in pairs]
        return self.tokenizer(texts, verbose=False, **options)


def _load(name: str, device: str | None, max_tokens: int | None, label: str | int | None, local: bool) -> _LoadedModel:
    torch, transformers = import_module("torch"), import_module("transformers")
    described: dict[str, Any] = transformers.PretrainedConfig.get_config_dict(name, local_files_only=local)[0]
    if any(str(architecture).startswith("HHEMv2") for architecture in described.get("architectures") or ()):
        foundation, prompt = described.get("foundation") or _FOUNDATION, _prompt_parts(described)
        config = transformers.T5Config.from_pretrained(foundation, local_files_only=local)
        config.num_labels = 2
        network = transformers.T5ForTokenClassification(config)
        _load_weights(network, name, local)
        inputs = ["input_ids", "attention_mask"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            foundation, local_files_only=local, model_input_names=inputs
        )
        # The model has relative positions and could read more tokens, in a time that grows with the square.
        loaded = _LoadedModel(network, tokenizer, max_tokens or 2_048, 1, prompt)
    else:
        network = transformers.AutoModelForSequenceClassification.from_pretrained(name, local_files_only=local)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=local)
        limit, column = max_tokens or _max_tokens(network.config, tokenizer), _consistent_output(network.config, label)
        loaded = _LoadedModel(network, tokenizer, limit, column)
    network.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()
    return loaded


def _prompt_parts(described: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the model's prompt template in three parts, between which the two texts are inserted.

    The texts are premise and hypothesis. They are joined with the texts, so that nothing in a text is read as a
    placeholder.
    """
    before, _, rest = str(described.get("prompt") or _PROMPT).partition("{text1}")
    between, found, after = rest.partition("{text2}")
    if not found:
        raise JudgeError("unavailable", "the prompt template of the model lacks {text1} or {text2}", retryable=False)
    return before, between, after


def _load_weights(network: Any, name: str, local: bool) -> None:
    """Load the weights of the model *name* into *network*.

    Raises:
        JudgeError: a weight is missing or left over.
    """
    hub, tensors = import_module("transformers.utils"), import_module("safetensors.torch")
    found: dict[str, Any] = tensors.load_file(hub.cached_file(name, "model.safetensors", local_files_only=local))
    weights = {key.removeprefix("t5."): value for key, value in found.items()}
    missing, unexpected = network.load_state_dict(weights, strict=False)
    network.tie_weights()  # the embedding is stored once, under another name
    missing = [key for key in missing if not key.endswith("embed_tokens.weight")]
    if missing or unexpected:
        detail = f"its weights do not fit a T5 encoder: {len(missing)} missing, {len(unexpected)} too many"
        raise JudgeError("unavailable", detail, retryable=False)


def _consistent_output(config: Any, label: str | int | None) -> int | None:
    """Return the index of the model output that means "consistent", or None if the model has only one output."""
    names = {int(index): str(name).casefold() for index, name in config.id2label.items()}
    if label is not None:
        found = [index for index, name in names.items() if label in (index, name) or str(label).casefold() == name]
    elif len(names) == 1:
        return None
    else:
        found = [index for index, name in names.items() if name in _CONSISTENT]
        if not found and len(names) == 2 and all(name.startswith(_UNNAMED) for name in names.values()):
            found = [1]
    if len(found) != 1:
        known = ", ".join(f"{index} {name!r}" for index, name in sorted(names.items()))
        raise JudgeError(
            "unavailable", f"cannot tell which output means consistent; pass label=, one of {known}", retryable=False
        )
    return found[0]


def _max_tokens(config: Any, tokenizer: Any) -> int:
    """Return how many tokens the model can read at once, or 512 if neither *config* nor *tokenizer* says."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions and "roberta" in str(getattr(config, "model_type", "")):
        positions -= 2  # two positions are reserved by the model
    # Highest credible limit of a tokenizer: a higher one means that the tokenizer knows none.
    said = [length for length in (positions, tokenizer.model_max_length) if length and length < 100_000]
    return min(said, default=512)
