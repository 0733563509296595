"""Gold checks (control items): two statements with a known label, mixed in with the others and never counted.

One is a sentence of a chunk, and must be labelled supported; one is a sentence of a chunk with a number or a name
changed, and must not be. A judge that obeys a text in the data, or labels without reading, gets one of them wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ragtrace.judges.lexical.lexicon import language
from ragtrace.judges.lexical.statements import sentences
from ragtrace.judges.llm.injection_signals import has_injection_signal
from ragtrace.judges.llm.label_reply import Verdict
from ragtrace.judges.llm.prompt_input import Chunk
from ragtrace.judges.llm.quotes import absent_terms, names, numbers

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
_TRIES: Final = 5
"""Attempts to find a number that no chunk has."""
_SAMPLE_CHARS: Final = 500
"""Characters that are enough to tell a language."""
_LOOSE: Final = re.compile(
    r"\b(?:about|around|approximately|roughly|nearly|almost|over|under|above|below|between|up to|than|least|most|until"
    r"|since|before|after|within|not|no|never|nicht|kein\w*|nie|etwa|rund|circa|ca|\u00fcber|unter|mehr|weniger|mindestens"
    r"|h\u00f6chstens|bis|seit|vor|nach|pas|jamais|environ|plus|moins|depuis|avant|jusqu\w*|m\u00e1s|menos|hasta|desde|nunca"
    r"|mais|at\u00e9|n\u00e3o|pi\u00f9|meno|fino|non|meer|minder|sinds|tot|niet|geen)\b|n't\b|[~<>\u2248\u2264\u2265]",
    re.IGNORECASE,
)
"""A sentence with one of these may be true with another number, too: \"more than 300\" entails \"more than 200\"."""


class GoldCheck(NamedTuple):
    """Statement with a known label."""

    text: str
    supported: bool

    def failed(self, verdict: Verdict) -> bool:
        """Return whether *verdict* is wrong; a missing label certifies nothing, and is wrong too."""
        return verdict.support is None or (verdict.support == "supported") is not self.supported


def gold_checks(chunks: Sequence[Chunk], chance: random.Random) -> tuple[GoldCheck, ...]:
    """Return a sentence that one of *chunks* says word for word, if there is a fit one, and one that no chunk says.

    The latter names an invented name if no sentence has a number or name to change.
    """
    copied = _copied(chunks, chance)
    text = _changed(chunks, copied, chance) or chance.choice(_INVENTED).format(_name(chance))
    false = GoldCheck(text, supported=False)
    return (false,) if copied is None else (GoldCheck(copied, supported=True), false)


def _changed(chunks: Sequence[Chunk], copied: str | None, chance: random.Random) -> str | None:
    """Return a sentence of *chunks* with one number, or else one name, replaced by another that no chunk has.

    The sentence *copied* is only taken if there is no other.
    """
    evidence = [chunk.terms for chunk in chunks]
    for text in _firm(chunks, copied, chance):
        places = list(numbers(text))
        chance.shuffle(places)
        for place in places * _TRIES:
            number = _number(place[0], chance)
            if absent_terms(number, evidence):
                return text[: place.start()] + number + text[place.end() :]
    if language("\n".join(chunk.text for chunk in chunks)[:_SAMPLE_CHARS]) == "de":
        return None  # every noun has a capital letter
    for text in _firm(chunks, copied, chance):
        if found := names(text):
            return text.replace(chance.choice(found), _name(chance))
    return None


def _firm(chunks: Sequence[Chunk], copied: str | None, chance: random.Random) -> Iterator[str]:
    """Yield the sentences of *chunks* that are false with another number or name; of a chunk's, *copied* comes last."""
    for chunk in chance.sample(chunks, len(chunks)):
        fit = list(_fit(chunk.text))
        chance.shuffle(fit)
        fit.sort(key=lambda text: text == copied)
        yield from (text for text in fit if not _LOOSE.search(text) and not has_injection_signal([text]))


def _number(old: str, chance: random.Random) -> str:
    """Return a number of the same form and length; of the same century, where *old* may be a year."""
    kept = 2 if len(old) == 4 and old[:2] in ("18", "19", "20") else 0
    return old[:kept] + "".join(chance.choice("123456789") if c.isdigit() else c for c in old[kept:])


def _copied(chunks: Sequence[Chunk], chance: random.Random) -> str | None:
    """Return a sentence of *chunks*, without a signal of an injection; None if there is none.

    A sentence that refers to the one before it is only taken if there is no other: a careful judge might not know who
    "she" is.
    """
    leaning: str | None = None
    for chunk in chance.sample(chunks, len(chunks)):
        fit = [text for text in _fit(chunk.text) if not has_injection_signal([text])]
        standing = [text for text in fit if not _LEANING.match(text)]
        if standing:
            return chance.choice(standing)
        leaning = leaning or (chance.choice(fit) if fit else None)
    return leaning


def _fit(text: str) -> Iterator[str]:
    """Yield the sentences of *text* that are long and plain enough for a gold check."""
    for start, end in sentences(text):
        sentence = " ".join(text[start:end].split())
        if _SHORTEST <= len(sentence) <= _LONGEST and sentence[-1] in ".\u3002" and " " in sentence:
            yield sentence


def _name(chance: random.Random) -> str:
    """Return an invented name that no text has: about 10^9 are possible."""
    syllables = [chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS) for _ in range(3)]
    return "".join(syllables).capitalize()
