"""Joins the texts of a stream's pieces, or keeps the latest where each piece holds the whole text so far.

Which of the two a stream is shows in its pieces: they hold the whole text if each begins with the one before. Short
pieces show nothing, as the tokens of "haha" do not, so that a decision waits until a repeated text has several words,
or has been repeated twice.
"""

from __future__ import annotations

from io import StringIO
from itertools import pairwise
from typing import Final

LONG_CHARS: Final = 12
"""Length from which a text is not repeated by chance. Half of it will do for several words."""
_SLACK: Final = 3
"""Most characters at the end of a text so far that the next piece may replace: a cursor, the end of repaired JSON."""
_MOST_SPACE: Final = 16
"""White space at both ends of a text, at least so much of which a copy may lack."""
_MOST_RUNS: Final = 8
_MOST_TIMES: Final = 64


class _Text(StringIO):
    """Text that the garbage collector leaves readable.

    It finalizes what is unreachable in any order, a buffer before the stream that is then closed and reads it.
    """

    def close(self) -> None:
        """Keep the text."""


class StreamText:
    """Text of a stream, of which at most *max_chars* characters are kept. Its cost is linear in the pieces' length.

    Not thread-safe: a stream has one reader at a time.
    """

    __slots__ = (
        "_before", "_copied_at", "_cut", "_is_joined", "_latest", "_latest_end", "_max_chars", "_quick_room",
        "_room", "_runs", "_since", "_text", "_told", "_weak_at", "_whole", "is_contradictory", "is_repeated",
    )  # fmt: skip

    def __init__(self, max_chars: int) -> None:
        self._max_chars = self._room = max_chars
        self._quick_room = max_chars - 2 * LONG_CHARS
        self._text = _Text()  # a list of many short strings would take ten times the memory
        self._runs: list[tuple[str, int]] = []
        """First pieces, with the number of times that each came: marks and white space, then such that each is the
        beginning of the next."""
        self._is_joined = False
        """Whether it is decided that the pieces are parts of the text; else they may be, or `_whole` is set."""
        self._whole: str | None = None
        """Latest piece, of pieces that hold the whole text so far after `_before`; None: they are no such pieces."""
        self._before = ""
        self._cut = 0
        self._told = 0
        """Number of characters that were returned as new, while the pieces are not joined."""
        self._since = 0
        """Offset in the joined text behind its last copy: where a further copy may begin."""
        self._copied_at = -1
        """Length of the joined text after a short piece that may be a copy of it; -1: there was none."""
        self._weak_at = -1
        """Length of the joined text at a copy that is none if more text follows: it repeated a single piece."""
        self._latest = ""
        """Latest piece that was long."""
        self._latest_end: int = 0
        """Number of characters up to the end of the latest long piece."""
        self.is_contradictory: bool = False
        """Whether some pieces hold the whole text so far and others do not, so that the text is not known."""
        self.is_repeated = False
        """Whether a long piece came again, and counts once."""

    def add_text(self, text: str) -> str:
        """Add the text of a piece, and return what is new and certain: a text that is not known yet comes later."""
        # Short pieces of a text that has begun are most. They repeat nothing.
        if len(text) < LONG_CHARS and len(text) <= self._room <= self._quick_room and self._is_joined:
            self._room -= len(text)
            self._text.write(text)
            return text
        if not text:
            return ""
        if not self._is_joined:
            return self._first(text) if self._whole is None else self._next_whole(text)
        new = self._repeated(text)
        if new is None:
            self._write(text)
        return text if new is None else new

    def add_whole(self, text: str) -> str:
        """Add a piece that is known to hold the whole text so far, or a copy of it, and return the part that is new."""
        so_far = self._so_far()
        is_copy = text.strip() in so_far
        if self._whole is not None or (is_copy and (self._is_joined or text.strip() != so_far.strip())):
            return "" if is_copy else self._next_whole(text)
        self.is_contradictory = self.is_contradictory or not text.startswith(so_far.rstrip())
        self._told = len(so_far) if self._is_joined else self._told
        self._is_joined, self._whole = False, text
        return self._tell()

    @property
    def cut_chars(self) -> int:
        """Number of characters that were not kept."""
        return self._cut + (0 if self._is_joined else max(0, len(self._so_far()) - self._max_chars))

    @property
    def chars(self) -> int:
        """Number of characters of the text so far, be it certain or not."""
        if self._is_joined:
            return self._max_chars - self._room + self._cut
        if self._whole is not None:
            return len(self._before) + len(self._whole)
        return sum(len(text) * times for text, times in self._runs)

    def text(self) -> str | None:
        """Return the text so far, "" if there was none, or None if the pieces do not show what their text is."""
        if self._whole is None and not self._is_joined:
            worded = [times for text, times in self._runs if _has_words(text)]
            if worded == [2] or self._is_chained():  # a copy, or a stammer
                return None
        kept = self._max_chars - self._room
        if self.is_contradictory or self._copied_at == kept or self._weak_at not in (-1, kept):
            return None
        return self._so_far()[: self._max_chars]

    def rest(self) -> str:
        """Return what has not been returned as new, at the end of the stream."""
        text = "" if self._is_joined else self.text() or ""
        rest, self._told = text[self._told :], len(text)
        return rest

    def _so_far(self) -> str:
        if self._whole is not None:
            return self._before + self._whole
        return self._text.getvalue() if self._is_joined else "".join(text * times for text, times in self._runs)

    def _tell(self) -> str:
        """Return what is new in the whole text so far, but for marks at its end, which the next piece may replace."""
        text = self._so_far()
        new = text[self._told : len(text) - _marks_at_end(text)]
        self._told += len(new)
        return new

    def _write(self, text: str) -> None:
        if len(text) > self._room:
            self._cut += len(text) - self._room
            text = text[: self._room]
        self._room -= len(text)
        self._text.write(text)

    def _first(self, text: str) -> str:
        """Add one of the first pieces, which may be parts of the text or hold all of it."""
        runs = self._runs
        if not runs:
            runs.append((text, 1))
            return self._tell() if _has_words(text) else ""
        last, times = runs[-1]
        worded = sum(_has_words(each) for each, _ in runs)
        if text == last and worded == 1 and _is_long(text):
            self.is_repeated = True
            return ""
        if text == last and times < _MOST_TIMES:
            runs[-1] = (text, times + 1)
            return ""
        if len(runs) < _MOST_RUNS and text != last and (not worded or _continues(last, text)):
            if worded and (_is_long(last) or worded > 1):
                self._whole = text
                return self._tell()
            runs.append((text, 1))
            return ""
        # Marks that begin alike show nothing, as those of a fence in two pieces, unless all pieces so far do.
        said = [each for each, _ in runs if _has_words(each)] or [*(each for each, _ in runs), text]
        self.is_contradictory = self.is_repeated or _are_chained(said) or _continues(last, text, perhaps=True)
        self._is_joined = True
        for each, times in (*runs, (text, 1)):
            for _ in range(times):
                self.add_text(each)
        return self._text.getvalue()[self._told :]

    def _is_chained(self) -> bool:
        """Return whether each of the first pieces may begin with the one before, or a long mark came again."""
        marks = [text.strip() for text, times in self._runs if times > 1 and not _has_words(text)]
        return any(len(mark) >= _SLACK for mark in marks) or _are_chained([text for text, _ in self._runs])

    def _repeated(self, text: str) -> str | None:
        """Return the new part of a piece that repeats the joined text and may go on; None: it is a part of the text."""
        latest, latest_end, kept = self._latest, self._latest_end, self._max_chars - self._room
        if len(text) >= LONG_CHARS:
            self._latest, self._latest_end = text, kept + len(text)
        for start in {self._since, 0}:
            if not 0 < kept - start <= 2 * len(text) + _MOST_SPACE:  # else it is too short to repeat it
                continue
            so_far, repeated = self._text.getvalue()[start:].strip(), text.strip()
            if not so_far or not (repeated == so_far or _continues(so_far, repeated)):
                continue
            if not _is_long(so_far):
                if repeated == so_far:
                    self._copied_at = kept + len(text)
                continue
            if repeated == so_far:
                self._since = kept
                if len(so_far) < LONG_CHARS or latest.strip() == so_far:  # of one piece, not of several
                    self._weak_at = kept
                self.is_repeated = self.is_repeated or latest == text
                return ""
            self._before, self._whole, self._is_joined = self._text.getvalue()[:start], text, False
            self._told = start + len(text) - len(text.lstrip()) + len(so_far)
            return self._tell()
        # Of two pieces in a row: "implementation" and, further on, "implementations" are words of a text.
        is_next = latest_end == kept and len(latest) >= LONG_CHARS
        self.is_contradictory = self.is_contradictory or (is_next and _continues(latest, text))
        return None

    def _next_whole(self, text: str) -> str:
        last = self._whole or ""
        if _continues(last, text):
            self._whole = text
            return self._tell()
        so_far, repeated = (self._before + last).strip(), text.strip()
        if repeated == so_far or repeated == last.strip() or not repeated:
            return ""
        if last.startswith(text.rstrip()) and len(last) - len(text) <= _SLACK:  # the mark at its end is gone
            self._whole = text
            return ""
        self.is_contradictory = True
        return text


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _is_long(text: str) -> bool:
    """Return whether a piece that begins with *text*, that of a piece before, repeats it on purpose."""
    text = text.strip()
    return len(text) >= LONG_CHARS or (len(text) >= LONG_CHARS // 2 and len(text.split(None, 1)) > 1)


def _marks_at_end(text: str) -> int:
    """Return how many characters at the end of *text* may be a mark that the next piece replaces: no words."""
    if not text or text[-1].isalnum() or text[-1].isspace():
        return 0
    return next((at for at in range(min(len(text), _SLACK)) if text[-1 - at].isalnum()), min(len(text), _SLACK))


def _are_chained(texts: list[str]) -> bool:
    """Return whether each of *texts*, which are short, may be the one before and more, but for a cursor at its end.

    Of one character that is repeated, as in a fence or a line, none is a cursor.
    """
    said = [text.strip() for text in texts if not text.isspace()]
    for earlier, later in pairwise(said):
        cursor = 0 if len(set(earlier)) == 1 else min(_marks_at_end(earlier), len(earlier) - 1)
        if not any(later.startswith(earlier[: len(earlier) - cut]) for cut in range(cursor + 1)):
            return False
    return len(set(said)) > 1 or len(said) > 2


def _continues(last: str, text: str, *, perhaps: bool = False) -> bool:
    """Return whether *text* is *last* and more, except perhaps for a mark at its end.

    Args:
        last: the piece before.
        text: the piece.
        perhaps: whether that may be by chance: *last* is short, and *text* does not have the mark.
    """
    kept = last[: len(last) - _marks_at_end(last)]
    mark = last[len(kept) :].strip()
    if not _has_words(kept) or not (perhaps or _is_long(last) or text.endswith(mark)):
        kept = last
    return len(text) > len(kept) and text != last and text.startswith(kept)
