"""Gold checks: statements with a known label, mixed in with the statements of an answer to test the LLM judge.

One is a sentence of a chunk, and must be labelled supported; one is a sentence of a chunk with a number or a name
changed, and must not be. A judge that obeys a text in the data, or labels without reading, gets one of them wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from ragtrace.judges.lexical.lexicon import detect_language
from ragtrace.judges.lexical.statements import sentences
from ragtrace.judges.llm.injection_signals import has_injection_signal
from ragtrace.judges.llm.label_reply import Verdict
from ragtrace.judges.llm.prompt_input import PromptChunk
from ragtrace.judges.llm.quotes import absent_terms, find_names, find_numbers

_SHORTEST, _LONGEST = 25, 300
_ONSETS: Final = "b br d dr f g gr h k kl l m n p pr r s st t tr v z".split()
_VOWELS: Final = "a e i o u ia eo".split()
_CODAS: Final = "l n r s th x ld nt".split()
_INVENTED: Final = (
    "The project was led by {} until it ended.",
    "{} is the name of the main warehouse.",
    "The first report on this was written by {}.",
    "All of this was moved to {} at the request of the owner.",
    "{} is responsible for the final approval.",
)
_LEANING: Final = re.compile(
    r"(?:it|its|he|she|his|her|they|their|them|this|that|these|those|such|there|here|who|which|what|and|but|or|so|yet"
    r"|then|thus|however|also|both|another|other|instead|therefore|moreover|according)\b",
    re.IGNORECASE,
)
_LOOSE: Final = re.compile(
    r"\b(?:about|around|approximately|roughly|nearly|almost|over|under|above|below|between|up to|than|least|most|until"
    r"|since|before|after|within|not|no|never|nicht|kein\w*|nie|etwa|rund|circa|ca|\u00fcber|unter|mehr|weniger|mindestens"
    r"|h\u00f6chstens|bis|seit|vor|nach|pas|jamais|environ|plus|moins|depuis|avant|jusqu\w*|m\u00e1s|menos|hasta|desde|nunca"
    r"|mais|at\u00e9|n\u00e3o|pi\u00f9|meno|fino|non|meer|minder|sinds|tot|niet|geen)\b|n't\b|[~<>\u2248\u2264\u2265]",
    re.IGNORECASE,
)
"""Words that may leave a sentence true with another number, too: "more than 300" entails "more than 200"."""


class GoldCheck(NamedTuple):
    """Test of the LLM judge: a statement for which it is known whether the retrieved chunks support it."""

    text: str
    supported: bool

    def failed(self, verdict: Verdict) -> bool:
        """Return whether the LLM judge labelled this test statement wrongly or not at all."""
        return verdict.support is None or (verdict.support == "supported") is not self.supported


def gold_checks(chunks: Sequence[PromptChunk], chance: random.Random) -> tuple[GoldCheck, ...]:
    """Return test statements for the LLM judge: one copied from *chunks*, and one that *chunks* do not support.

    The copied one is left out if no sentence is usable. A sentence that refers to the one before it is only copied if
    there is no other: a careful judge might not know who "she" is. The false sentence names an invented name if no
    sentence has a number or name to change.
    """
    copied: str | None = None
    for text in _usable_sentences(chunks, chance):
        if not _LEANING.match(text):
            copied = text
            break
        copied = copied or text
    changed = _falsified_sentence(chunks, copied, chance) or chance.choice(_INVENTED).format(_invented_name(chance))
    false = GoldCheck(changed, supported=False)
    return (false,) if copied is None else (GoldCheck(copied, supported=True), false)


def _usable_sentences(chunks: Sequence[PromptChunk], chance: random.Random) -> Iterator[str]:
    """Yield, in random order, the sentences of *chunks* that can serve as test statements for the LLM judge.

    They are plain, neither short nor long, and show no signal of a prompt injection.
    """
    for chunk in chance.sample(chunks, len(chunks)):
        texts = [" ".join(chunk.text[start:end].split()) for start, end in sentences(chunk.text)]
        texts = [one for one in texts if _SHORTEST <= len(one) <= _LONGEST and one[-1] in ".\u3002" and " " in one]
        chance.shuffle(texts)
        yield from (one for one in texts if not has_injection_signal([one]))


def _falsified_sentence(chunks: Sequence[PromptChunk], copied: str | None, chance: random.Random) -> str | None:
    """Return a false sentence, made by replacing a number or name in a sentence of the chunks.

    None if no sentence can be changed like this. The sentence *copied* is only taken if there is no other.
    """

    def firm() -> Iterator[str]:
        others = (text for text in _usable_sentences(chunks, chance) if text != copied)
        return (text for text in chain(others, [copied] if copied else []) if not _LOOSE.search(text))

    evidence = [chunk.terms for chunk in chunks]
    for text in firm():
        places = list(find_numbers(text))
        chance.shuffle(places)
        # Most attempts to replace a number in a sentence by one that no chunk has.
        for place in places * 5:
            # A number of the same form and length; of the same century, where it may be a year.
            old = place[0]
            kept = 2 if len(old) == 4 and old[:2] in ("18", "19", "20") else 0
            new = old[:kept] + "".join(chance.choice("123456789") if c.isdigit() else c for c in old[kept:])
            if absent_terms(new, evidence):
                return text[: place.start()] + new + text[place.end() :]
    # Number of characters from which the language is detected.
    if detect_language("\n".join(chunk.text for chunk in chunks)[:500]) != "de":  # in German, every noun has a capital
        for text in firm():
            if found := find_names(text):
                return text.replace(chance.choice(found), _invented_name(chance))
    return None


def _invented_name(chance: random.Random) -> str:
    """Return a random invented name that no text is likely to contain.

    There are about 10^9 such names.
    """
    syllables = [chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS) for _ in range(3)]
    return "".join(syllables).capitalize()
