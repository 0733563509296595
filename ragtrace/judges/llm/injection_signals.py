"""Signals of a prompt injection in the texts of a call. They are reported and never change a score.

A signal is no proof: a manual about prompts has them too. An attack need not have one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# Plain searches are many times cheaper than the patterns, and nearly always find nothing.
_CALLS: Final = ("ignor", "disregard", "forget", "overrid", "instruct", "supported", "pretend")
_ORDERS: Final = re.compile(
    r"\b(?:ignor\w*|disregard\w*|forget|overrid\w*)\b[^.\n]{0,60}\b(?:instru\w*|anweisung\w*|consign\w*|prompts?|rules?"
    r"|regeln?|guidelines?|above|before|previous|prior)\b"
    r"|\b(?:mark|label|rate|grade|score|judge|treat|consider|return|answer|reply|respond|output)\b[^.\n]{0,80}"
    r"\b(?:supported|as (?:fully )?(?:true|correct|relevant|faithful|verified)|grade [\"']?3)\b"
    r"|\b(?:new|real|updated|system|following) instructions?\b|\bpretend (?:to be|that you|you)\b"
)
_VERDICT: Final = re.compile(
    r"\b(?:verdict|support|supported|faithfulness|hallucination|relevance|relevancy|grade|score|rating|label)[\"']?"
    r"\s{0,3}[:=]\s{0,3}[\"']?(?:supported|not_supported|unsupported|contradicted|partial|not_found|yes|no|full|none|true"
    r"|false|answered|abstained|[0-9])\b"
)
_VERDICT_WORDS: Final = (
    "verdict", "support", "faithful", "hallucinat", "relevan", "grade", "score", "rating", "label",
)  # fmt: skip
_ROLES: Final = re.compile(
    r"<\|(?:im_start|im_end|system|user|assistant|eot_id|start_header_id|end_header_id)\|>|\[/?inst\]|<<sys>>|</?system>"
    r"|</data|##? ?(?:instruction|system)|\bsystem ?:|\bassistant:|\bsystem (?:message|prompt)\b|\bbegin system\b"
)
_ROLE_WORDS: Final = ("<", "inst]", "#", "system", "assistant:")
_KEYS: Final = re.compile(
    r"evidence_chunk_ids|sentence_ids|answer_rating|answer_label|given_statements|answer_sentences|checkable[\"']"
)
_KEY_WORDS: Final = ("_", "checkable")
_QUESTIONS: Final = (
    "one sentence of the answer is:", "is everything in this sentence stated in the passages",
    "the chunks state or imply part",
)  # fmt: skip
"""Words of the questions to a decision model, which a text of a call has only to answer them in the model's place."""
MOST_HIDDEN: Final = 50
"""Most invisible characters in a call that may be an accident of typography."""


def has_injection_signal(texts: Iterable[str], hidden: int = 0) -> bool:
    """Return whether *texts* contain a signal of a prompt injection, such as an order to ignore instructions.

    Args:
        hidden: number of invisible characters that were removed from them; more than `MOST_HIDDEN` are a signal.
    """
    text = "\n".join(texts).lower()
    return (
        hidden > MOST_HIDDEN
        or _matches(_ROLES, _ROLE_WORDS, text)
        or _matches(_KEYS, _KEY_WORDS, text)
        or any(words in text for words in _QUESTIONS)
        or _matches(_ORDERS, _CALLS, text)
        or ((":" in text or "=" in text) and _matches(_VERDICT, _VERDICT_WORDS, text))
    )


def _matches(pattern: re.Pattern[str], words: tuple[str, ...], text: str) -> bool:
    """Return whether *pattern* matches in *text*, skipping the search if none of *words* occurs in *text*."""
    for word in words:
        if word in text:
            return pattern.search(text) is not None
    return False
