"""`ScorerJudge`: judge that asks a user's function how well the contexts support an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.judges.lexical.statements import sentences
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.json_reading import parse_rating

Pair: TypeAlias = tuple[str, str]
"""Premise (source text) and hypothesis (text to be supported)."""
Scores: TypeAlias = Callable[[Sequence[Pair]], Sequence["float | str"]]
OFFERED: Final = frozenset({"consistency"})
_SEPARATOR: Final = "\n\n"


class ScorerJudge:
    """Judge that asks a user's function how well the contexts support an answer.

    The function may be any scorer of pairs: it returns the probability that a premise supports a hypothesis.

    If all contexts and the answer fit the scorer, they are one pair (`method=whole`). Otherwise the contexts are joined
    into windows of whole chunks, a longer chunk split at sentences with one sentence of overlap, and each sentence of
    the answer is scored against each window: the highest over the windows, the mean over the sentences
    (`method=windowed`). Nothing is cut.

    The scorer is called in threads. It does not know abstentions: an answer that declines is scored like any other.

    Examples:
        >>> def entailment(premise: str, hypothesis: str) -> float:  # in place of your model's probability
        ...     return 0.9 if hypothesis.lower().rstrip(".") in premise.lower() else 0.1
        >>> judge = ragtrace.judges.ScorerJudge(entailment, name="my-nli")
        >>> ragtrace.score(contexts=["The tower is in Paris."], answer="In Paris.", judge=judge)["consistency"]
        Score(0.9, metric='consistency')

    Args:
        score: returns a number in [0, 1] for a premise and a hypothesis, or a text that is nothing but such a number.
        max_chars: characters that premise and hypothesis may have together.
        name: the judge's id.
        version: version of the scorer; it stands on every score.

    Raises:
        SettingsError: *max_chars* is below 2.
    """

    type: EvaluatorType = "model"

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
        self.id, self.version = name, version

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* is computed from `consistency`, the only label that this judge gives."""
        return metric.needs == OFFERED

    def judge(self, call: RagCall) -> Judgement:
        """Return a judgement that states how well the contexts of *call* support its answer (`consistency`).

        Raises:
            JudgeError: the scorer returned something that is no number in [0, 1].
        """
        return judge_consistency(
            call,
            lambda pairs: [self._score(premise, hypothesis) for premise, hypothesis in pairs],
            lambda premise, hypothesis: len(premise) + len(hypothesis) <= self._max_chars,
        )


def judge_consistency(call: RagCall, scores: Scores, fits: Callable[[str, str], bool]) -> Judgement:
    """Return a judgement that states how well the contexts of *call* support its answer (`consistency`).

    Contexts that are blank or repeated are left out. Without an answer or a context the judgement has no label.

    Args:
        scores: returns a number in [0, 1], or a text with one, for each pair.
        fits: returns whether the scorer can read premise and hypothesis at once.

    Raises:
        JudgeError: a value is no number ("unparsable"), not finite or not in [0, 1]; or a sentence is longer than the
            scorer can read ("truncated").
    """
    answer = without_invisible(call.answer or "").strip()
    texts = list(dict.fromkeys(without_invisible(document.text).strip() for document in call.contexts or ()))
    texts = [text for text in texts if text]
    if not answer or not texts:
        return Judgement()
    whole = _SEPARATOR.join(texts)
    if fits(whole, answer):
        value = _number(scores([(whole, answer)])[0])
        return Judgement(consistency=value, mode="whole", attributes={"method": "whole", "windows": 1})
    # Windows leave room for the longest sentence, so that all sentences are compared with the same windows.
    parts = [answer[start:end] for start, end in sentences(answer)] or [answer]
    longest = max(parts, key=len)
    widest = {longest, parts[0]}
    while True:
        try:
            premises = join_into_windows(texts, lambda premise: all(fits(premise, part) for part in widest))
        except ValueError:
            detail = f"a sentence of {len(longest)} characters leaves no room for any context"
            raise JudgeError("truncated", detail, retryable=False) from None
        pairs = [(premise, part) for part in parts for premise in premises]
        too_wide = {part for premise, part in pairs if not fits(premise, part)}
        if not too_wide:
            break
        widest.update(too_wide)  # a sentence with fewer characters may have more tokens
    values = [_number(value) for value in scores(pairs)]
    if len(values) != len(pairs):
        raise JudgeError(
            "unparsable",
            f"the scorer returned {len(values)} values; expected one for each of {len(pairs)} pairs",
            retryable=False,
        )
    best = [max(values[at : at + len(premises)]) for at in range(0, len(values), len(premises))]
    return Judgement(
        consistency=math.fsum(best) / len(best),
        mode="windowed",
        attributes={"method": "windowed", "windows": len(premises), "sentences": len(parts)},
    )


def _number(value: object) -> float:
    """Return *value*, the result of a scoring function, as a number in [0, 1].

    Raises:
        JudgeError: *value* is no such number.
    """
    if isinstance(value, str):
        return parse_rating(value)
    try:
        number = float(value)  # type: ignore[arg-type]  # of any type: a conversion that fails is an error of the scorer
    except (TypeError, ValueError, OverflowError):
        raise JudgeError(
            "unparsable", f"the scorer returned {type(value).__name__}; expected a number", retryable=False
        ) from None
    if not math.isfinite(number):
        raise JudgeError("non_finite", "the scorer returned NaN or infinity", retryable=False)
    if not 0 <= number <= 1:
        raise JudgeError("out_of_range", f"{number!r} is outside [0, 1]", retryable=False)
    return number


def join_into_windows(texts: Sequence[str], fits: Callable[[str], bool]) -> list[str]:
    """Join *texts*, in order, into a few longer texts (windows) that the model can read at once.

    Nothing is left out. A text that does not fit alone is split at sentences, and each of its windows begins with the
    last sentence of the one before. A sentence that does not fit alone is split at white space, or anywhere if it has
    none.

    Args:
        fits: returns whether the model can read a window.

    Raises:
        ValueError: not even one character fits.
    """
    found: list[str] = []
    window = ""
    for text in texts:
        joined = window + _SEPARATOR + text if window else text
        if fits(joined):
            window = joined
            continue
        if window:
            found.append(window)
        window = text if fits(text) else ""
        if not window:
            found.extend(split_at_sentences(text, fits))
    return [*found, window] if window else found


def split_at_sentences(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Split *text* at sentence ends into windows that the model can read at once.

    Each window begins with the last sentence of the one before, where that fits.
    """
    pieces: list[tuple[int, int]] = []
    done = first = 0
    for start, end in sentences(text):
        begin = start - len(text[done:start].lstrip())  # with its list marker
        pieces += [(at, at + len(part)) for at, part in _parts(text[begin:end], begin, fits)]
        done = end
    while first < len(pieces):
        last = _last_that_fits(text, pieces, first, fits)
        yield text[pieces[first][0] : pieces[last][1]]
        if last + 1 == len(pieces):
            return
        # One sentence of overlap, unless the two together do not fit: then it would add nothing.
        overlaps = last > first and fits(text[pieces[last][0] : pieces[last + 1][1]])
        first = last if overlaps else last + 1


def _last_that_fits(text: str, pieces: Sequence[tuple[int, int]], first: int, fits: Callable[[str], bool]) -> int:
    """Return the number of the last piece that fits into one window with piece *first*.

    The window is doubled while it fits, and then halved: *fits* reads the whole window, so trying each sentence would
    take time that is quadratic in the window.
    """
    step, last = 1, first
    while last + step < len(pieces) and fits(text[pieces[first][0] : pieces[last + step][1]]):
        last += step
        step *= 2
    while step:
        if last + step < len(pieces) and fits(text[pieces[first][0] : pieces[last + step][1]]):
            last += step
        step //= 2
    return last


def _parts(text: str, at: int, fits: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    """Cut *text* into parts that the model can read at once, and yield each part with its offset.

    Args:
        at: offset of *text*.
    """
    if fits(text):
        yield at, text
        return
    if len(text) < 2:
        raise ValueError("the tokenizer's limit is too small for a single character")
    middle = text.rfind(" ", 1, len(text) // 2 + 1)
    middle = middle if middle > 0 else len(text) // 2
    yield from _parts(text[:middle], at, fits)
    yield from _parts(text[middle:], at + middle, fits)
