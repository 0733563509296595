"""Previews of documents: texts beside an answer that break off with an ellipsis.

`document.text[:200] + "..."` beside an answer says which document the answer rests on, and is not that document: a
judge would miss what was cut off. Only the documents that were retrieved tell a preview from a text that ends in three
dots, so that both are kept with the step until its call is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ragtrace.core.text import LazyPattern
from ragtrace.core.types import Document, DocumentsInPart

_CLOSING: Final = "])\"'\u2019\u201d\u00bb"
_WORDS: Final = LazyPattern(r"[^\W_]+")
_STEP_CHARS: Final = 10
"""Programs cut texts at a length that this divides."""
_FEWEST_CHARS: Final = 40


def breaks_off(text: str) -> bool:
    """Return whether *text* ends in an ellipsis, perhaps in brackets or quotation marks."""
    return text.rstrip().rstrip(_CLOSING).endswith(("\u2026", "..."))


def contexts_beside(
    previews: tuple[Document, ...], found: tuple[Document, ...] | None, source: str
) -> tuple[tuple[Document, ...] | None, str]:
    """Return the contexts of an answer that came with *previews*, and the name of their source.

    Where what was *found* holds the text before an ellipsis, the texts beside the answer name documents: what was found
    stays, and is joined by those texts that it does not hold. So it is where all of them break off. Else they are the
    documents that the answer rests on, and some of them end in three dots.

    The contexts are `DocumentsInPart` if a text among them was certainly cut: others beside it are previews of what was
    found, or several were cut at the same length. An ellipsis alone is no proof: authors write it, too.

    Args:
        previews: documents beside the answer, of which at least one breaks off.
        found: documents that were retrieved; None: there was no retrieval.
        source: the name of the source of *found*.
    """
    given = tuple(each for each in previews if _WORDS.search(each.text))
    if not found:
        if not given:
            return found, source
        return (DocumentsInPart(given) if _are_cut_alike(given) else given), "result"
    letters = list(map(_letters, (each.text for each in found)))
    whole = {" ".join(each.text.split()) for each in found}
    held = [_is_held(each.text, letters) for each in given]
    is_named = any(
        is_held and breaks_off(each.text) and " ".join(each.text.split()) not in whole
        for each, is_held in zip(given, held, strict=True)
    )
    if not is_named and not all(breaks_off(each.text) for each in given):
        return given, "result"
    added = tuple(each for each, is_held in zip(given, held, strict=True) if not is_held)
    if not added:
        return found, source
    is_cut = (is_named and any(breaks_off(each.text) for each in added)) or _are_cut_alike(added)
    contexts = (*found, *added)
    in_part = is_cut or isinstance(found, DocumentsInPart)
    return (DocumentsInPart(contexts) if in_part else contexts), f"{source}+result"


def _are_cut_alike(documents: Sequence[Document]) -> bool:
    """Return whether a program cut texts of *documents*: several break off at one round length, which none exceeds."""
    texts = {each.text.rstrip() for each in documents}
    longest = max(map(len, texts))
    cut = [text for text in texts if len(text) == longest and breaks_off(text)]
    if longest < _FEWEST_CHARS or len(cut) < 2 or any(len(text) == longest and not breaks_off(text) for text in texts):
        return False
    return any((longest - mark) % _STEP_CHARS == 0 for mark in (0, len("\u2026"), len("...")))


def _is_held(text: str, letters: Sequence[str]) -> bool:
    """Return whether one of the documents has all stretches of *text* between ellipses, apart from punctuation."""
    stretches = [part for part in map(_letters, text.replace("\u2026", "...").split("...")) if part]
    return any(all(stretch in each for stretch in stretches) for each in letters)


def _letters(text: str) -> str:
    return "".join(_WORDS.findall(text.casefold()))
