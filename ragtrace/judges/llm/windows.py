"""Texts that a model can read at once, out of texts that may be too long for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ragtrace.judges.lexical.sentences import sentences

SEPARATOR = "\n\n"


def windows(texts: Sequence[str], fits: Callable[[str], bool]) -> list[str]:
    """*texts* put together, in order, as far as each window fits; nothing is left out.

    A text that does not fit alone is split at sentences, and each of its windows begins with the last sentence of the
    one before. A sentence that does not fit alone is split at white space, or anywhere if it has none.

    Raises:
        ValueError: not even one character fits.
    """
    found: list[str] = []
    window = ""
    for text in texts:
        joined = window + SEPARATOR + text if window else text
        if fits(joined):
            window = joined
            continue
        if window:
            found.append(window)
        window = text if fits(text) else ""
        if not window:
            found.extend(_split(text, fits))
    return [*found, window] if window else found


def _split(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    pieces = [(start, start + len(piece)) for start, piece in _pieces(text, fits)]
    first = 0
    while first < len(pieces):
        last = first
        while last + 1 < len(pieces) and fits(text[pieces[first][0] : pieces[last + 1][1]]):
            last += 1
        yield text[pieces[first][0] : pieces[last][1]]
        if last + 1 == len(pieces):
            return
        # One sentence of overlap, unless the two together do not fit: then it would add nothing.
        overlaps = last > first and fits(text[pieces[last][0] : pieces[last + 1][1]])
        first = last if overlaps else last + 1


def _pieces(text: str, fits: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    """Offset and text of the sentences with their list markers, the longer ones in parts that fit."""
    done = 0
    for start, end in sentences(text):
        marker = len(text[done:start].lstrip())
        yield from _parts(text[start - marker : end], start - marker, fits)
        done = end


def _parts(text: str, at: int, fits: Callable[[str], bool]) -> Iterator[tuple[int, str]]:
    if fits(text):
        yield at, text
        return
    if len(text) < 2:
        raise ValueError("no text is short enough")
    middle = text.rfind(" ", 1, len(text) // 2 + 1)
    middle = middle if middle > 0 else len(text) // 2
    yield from _parts(text[:middle], at, fits)
    yield from _parts(text[middle:], at + middle, fits)
