"""Conversion of text to valid UTF-8, repeated texts, numbers as text, and patterns compiled at their first use."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, cast

if TYPE_CHECKING:
    from ragtrace.core.types import RagCall


class OwnText(str):
    """Text that ragtrace has put together from fixed words, numbers and names, so that it quotes no text of a call."""

    __slots__ = ()


def encodable(text: str) -> str:
    """Return *text* without the characters that UTF-8 or a backend cannot store: surrogates and NUL.

    Surrogate pairs are joined; lone surrogates and NUL become U+FFFD. Protocol buffers refuse surrogates, and a backend
    on PostgreSQL refuses NUL; one such character would lose a whole batch of spans. Other control characters do no harm
    in either.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encodable_name(name: str) -> str:
    """Return a *name* from the application's code as `encodable` does, and what is no text as it is."""
    return encodable(name) if isinstance(cast("object", name), str) else name


def format_plainly(value: float, digits: int) -> str:
    """Format a number with about *digits* significant digits, and never in scientific notation.

    All digits before the decimal point are kept. Less than 1e-12 is rounding error, and becomes 0. A number that is not
    finite is formatted as `str` does.
    """
    if not math.isfinite(value):
        return str(value)
    value = round(value, 12) + 0.0
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    decimals = max(0, digits - 1 - exponent)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def first_ranks(texts: Iterable[str]) -> dict[int, int]:
    """Map the rank of each text to the rank of the first text with the same words. Blank texts are left out."""
    seen: dict[str, int] = {}
    return {rank: seen.setdefault(words, rank) for rank, text in enumerate(texts) if (words := " ".join(text.split()))}


def chars_of(call: RagCall) -> int:
    """Return the number of characters of all texts of *call* that a judge is shown."""
    texts = [call.query, call.answer, call.reference, *(each.text for each in call.contexts or ())]
    texts += [turn.text for turn in call.earlier_turns or ()]
    return sum(len(text or "") for text in texts)


class LazyPattern:
    """Regular expression that is compiled when it is first used.

    Compiling the patterns of the embedded judge at import took a quarter of the CPU time of `configure`; now the
    background thread compiles them when it scores the first call.
    """

    _uncompiled: ClassVar[list[LazyPattern]] = []

    if TYPE_CHECKING:
        match: Callable[..., re.Match[str] | None]
        fullmatch: Callable[..., re.Match[str] | None]
        search: Callable[..., re.Match[str] | None]
        finditer: Callable[..., Iterator[re.Match[str]]]
        findall: Callable[..., list[str]]

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._pattern, self._flags = pattern, flags
        self._uncompiled.append(self)

    @classmethod
    def compile_all(cls) -> Iterator[None]:
        """Compile all patterns, one a step, for a first text beyond ASCII, which needs most of the expensive ones.

        Together they take more than 20 ms, for which no event loop may stop.
        """
        while cls._uncompiled:
            with suppress(IndexError):  # another thread has just taken the last one
                cls._uncompiled.pop().compile()
            yield

    def compile(self) -> None:
        """Compile the pattern now."""
        for name in ("match", "fullmatch", "search", "finditer", "findall"):
            getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        # As an attribute of the instance, the method is found without another call of `__getattr__`.
        method = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, method)
        return method
