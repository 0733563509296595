"""A rating as the mean of what the model could have written, weighted by how probable that was."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

LEAST_PROBABILITY: Final = 0.01
"""A less probable candidate is left out."""
_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_MOST_STARTS: Final = 20
_ROUNDING: Final = 0.01
"""How far the probabilities of a server that rounds may sum to more than 1."""


def weighted(
    candidates: Iterable[tuple[str, float]], low: int, high: int, before: str = "", after: str = ""
) -> float | None:
    """Return sum(s p) / sum(p) over the candidates that are exactly a label of the scale, with p >= 0.01.

    Args:
        candidates: distinct texts, each with the natural logarithm of its probability.
        before: what stands in front of the label in every candidate.
        after: what stands behind it.

    Returns:
        None if there is no such candidate; if the probabilities are none (not a number, above 1, summing to more); or
        if a candidate with p >= 0.01 is the beginning of another label, as of a tokenizer that splits digits: what
        would have followed is not known.

    Source: Liu et al. 2023, "G-Eval", arXiv:2303.16634, section 2.3.
    """
    logprobs = dict(candidates)
    if not all(logprob <= 0 for logprob in logprobs.values()):
        return None
    if math.fsum(map(math.exp, logprobs.values())) > 1 + _ROUNDING:
        return None
    labels = {f"{before}{score}{after}": score for score in range(low, high + 1)}
    likely = {text: p for text, logprob in logprobs.items() if (p := math.exp(logprob)) >= LEAST_PROBABILITY}
    if any(label != text and label.startswith(text) for text in likely for label in labels):
        return None
    scores = {labels[text]: p for text, p in likely.items() if text in labels}
    total = math.fsum(scores.values())
    return math.fsum(score * p for score, p in scores.items()) / total if total else None


def score_token(text: str, tokens: Sequence[str], field: str) -> tuple[int, str, str] | None:
    """Which token holds the value of *field*, a string of a top-level field of the JSON object that *text* ends with.

    The place in the JSON decides, not equal text: a number in the reason before it is not taken.

    Returns:
        Index of the token, and what it has before and after the value's own characters; None: the value is spread
        over several tokens, or the tokens are not those of *text*.
    """
    start = "".join(tokens).find(text) if text else -1
    span = value_span(text, field)
    if start < 0 or span is None:
        return None
    first, last = span[0] + start, span[1] + start
    at = 0
    for index, token in enumerate(tokens):
        if at <= first and last <= at + len(token):
            return index, token[: first - at], token[last - at :]
        at += len(token)
    return None


def value_span(text: str, field: str) -> tuple[int, int] | None:
    """Where the characters of the string value of *field* stand in *text*, without its quotes; None: nowhere."""
    for start in islice((match.start() for match in re.finditer(r"\{", text)), _MOST_STARTS):
        span = _span_in_object(text, start, field)
        if span is not None:
            return span
    return None


def _span_in_object(text: str, start: int, field: str) -> tuple[int, int] | None:
    """Walk the members of the object at *start*, which must be the last thing in *text* but for a closing fence."""
    try:
        if text[_DECODER.raw_decode(text, start)[1] :].strip().strip("`"):
            return None
        at = _skip(text, start + 1)
        while text[at] != "}":
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
            value, end = _DECODER.raw_decode(text, at)
            if name == field:
                return (at + 1, end - 1) if isinstance(value, str) and text[at + 1 : end - 1] == value else None
            at = _skip(text, end)
            at = _skip(text, at + 1) if text[at] == "," else at
    except (ValueError, IndexError, RecursionError):
        pass
    return None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def expected(
    text: str, tokens: Sequence[str], alternatives: Sequence[Mapping[str, float]], field: str, low: int, high: int
) -> float | None:
    """The weighted rating at *field*; None if it cannot be told.

    Args:
        tokens: the tokens written, in order.
        alternatives: for each of them, what could have stood there, with the logarithm of its probability.
    """
    found = score_token(text, tokens, field)
    if found is None:
        return None
    index, before, after = found
    # A reply that its own distribution holds for unlikely was not drawn from that distribution.
    if alternatives[index].get(tokens[index], -math.inf) < math.log(LEAST_PROBABILITY):
        return None
    return weighted(alternatives[index].items(), low, high, before, after)
