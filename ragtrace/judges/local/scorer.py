"""`ScorerJudge`: a model that scores pairs of texts gives the consistency of an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.judges.lexical.sentences import sentences
from ragtrace.judges.llm.invisible_chars import without_hidden
from ragtrace.judges.llm.jsonreading import parse_rating
from ragtrace.judges.llm.windows import SEPARATOR, windows

Pair: TypeAlias = tuple[str, str]
"""Premise and hypothesis."""
Scores: TypeAlias = Callable[[Sequence[Pair]], Sequence["float | str"]]
_OFFERED: Final = frozenset({"consistency"})


class ScorerJudge:
    """Consistency from any scorer of pairs: the probability that a premise supports a hypothesis.

    If all contexts and the answer fit the scorer, they are one pair (`method=whole`). Otherwise the contexts are put
    together to windows of whole chunks, a longer chunk split at sentences with one sentence of overlap, and each
    sentence of the answer is scored against each window: the highest over the windows, the mean over the sentences
    (`method=windowed`). Nothing is cut.

    It is a plain function to those who ask it, and is called in threads. It does not know abstentions: an answer that
    declines is scored like any other.

    Example: `ragtrace.ScorerJudge(lambda premise, hypothesis: model.predict(premise, hypothesis), max_chars=8_000)`

    Args:
        score: a number in [0, 1] for a premise and a hypothesis, or a text that is nothing but such a number.
        max_chars: characters that premise and hypothesis may have together.
        name: the judge's id.
        version: of the scorer: it stands on every score.

    Raises:
        SettingsError: max_chars is not positive.
    """

    def __init__(
        self,
        score: Callable[[str, str], float | str],
        *,
        max_chars: int = 8_000,
        name: str = "scorer",
        version: str = "1",
    ) -> None:
        if max_chars < 2:
            raise SettingsError(f"max_chars must be at least 2, got {max_chars!r}")
        self._score, self._max_chars = score, max_chars
        self._name, self._version = name, version

    @property
    def id(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return self._version

    @property
    def type(self) -> EvaluatorType:
        return "model"

    def offers(self, metric: Metric) -> bool:
        """Metrics that need nothing but the consistency."""
        return metric.needs == _OFFERED

    def judge(self, call: RagCall) -> Judgement:
        """The consistency of *call*.

        Raises:
            JudgeError: the scorer's value is none.
        """
        return consistency(call, self._scores, self._fits)

    def _scores(self, pairs: Sequence[Pair]) -> list[float | str]:
        return [self._score(premise, hypothesis) for premise, hypothesis in pairs]

    def _fits(self, premise: str, hypothesis: str) -> bool:
        return len(premise) + len(hypothesis) <= self._max_chars


def consistency(call: RagCall, scores: Scores, fits: Callable[[str, str], bool]) -> Judgement:
    """The consistency of the answer with the distinct contexts that are not blank; nothing is asked without either.

    Raises:
        JudgeError: a value is no number ("unparsable"), not finite or not in [0, 1]; or a sentence is longer than the
            scorer can read ("truncated").
    """
    answer = without_hidden(call.answer or "").strip()
    texts = list(dict.fromkeys(without_hidden(document.text).strip() for document in call.contexts or ()))
    texts = [text for text in texts if text]
    if not answer or not texts:
        return Judgement()
    whole = SEPARATOR.join(texts)
    if fits(whole, answer):
        value = _number(scores([(whole, answer)])[0])
        return Judgement(consistency=value, mode="whole", attributes={"method": "whole", "windows": 1})
    parts = [answer[start:end] for start, end in sentences(answer)]
    return _windowed(texts, parts or [answer], scores, fits)


def _windowed(
    texts: Sequence[str], parts: Sequence[str], scores: Scores, fits: Callable[[str, str], bool]
) -> Judgement:
    """Windows have room for the longest sentence, so that all sentences are held against the same ones."""
    longest = max(parts, key=len)
    try:
        premises = windows(texts, lambda premise: all(fits(premise, part) for part in {longest, *parts[:1]}))
    except ValueError:
        detail = f"a sentence of {len(longest)} characters leaves no room for any context"
        raise JudgeError("truncated", detail, retryable=False) from None
    pairs = [(premise, part) for part in parts for premise in premises]
    values = [_number(value) for value in scores(pairs)]
    if len(values) != len(pairs):
        raise JudgeError("unparsable", f"{len(values)} values for {len(pairs)} pairs", retryable=False)
    best = [max(values[at : at + len(premises)]) for at in range(0, len(values), len(premises))]
    return Judgement(
        consistency=math.fsum(best) / len(best),
        mode="windowed",
        attributes={"method": "windowed", "windows": len(premises), "sentences": len(parts)},
    )


def _number(value: object) -> float:
    if isinstance(value, str):
        return parse_rating(value)
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever it is, it is a number or it is not
    except (TypeError, ValueError, OverflowError):
        raise JudgeError("unparsable", f"the scorer returned {type(value).__name__}", retryable=False) from None
    if not math.isfinite(number):
        raise JudgeError("non_finite", "the scorer returned NaN or infinity", retryable=False)
    if not 0 <= number <= 1:
        raise JudgeError("out_of_range", f"{number!r} is outside [0, 1]", retryable=False)
    return number
