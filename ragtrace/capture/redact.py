"""Takes what must not leave the process out of texts, before any span, event or judge sees them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from sys import maxsize
from typing import Any, Final, NamedTuple, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.text import encodable
from ragtrace.core.types import Document, RagCall
from ragtrace.system.faults import faults

FAILED: Final = "[redaction failed]"
"""Stands for a text that a user's function could not redact: better no text than the wrong one."""
MARGIN_CHARS: Final = 4_096
"""How far beyond `max_chars` patterns look, to find a match that starts before the cut."""


class Redacted(NamedTuple):
    """A text that may leave the process, and what was done to it."""

    text: str
    cut_chars: int = 0
    """Characters taken off its end."""
    hits: int = 0
    """Matches of the patterns that were replaced."""


@dataclass(frozen=True, slots=True)
class Redact:
    """What is taken out of every query, context, answer and reference.

    Args:
        patterns: regular expressions; whatever one matches is replaced. All of them see the original text, and matches
            that touch are replaced together.
        max_chars: longer texts are cut there, and the cut is counted; None: never. It also bounds the work: a pattern
            with catastrophic backtracking is run on `max_chars + MARGIN_CHARS` characters at most.
        replacement: stands in for each match, literally.
        function: takes a text, patterns already applied, and returns what may be kept of it. It runs in the background.
        ids: takes a conversation or user id and returns what may be kept of it, for instance a keyed hash. Patterns and
            `function` leave these ids alone, since they tie calls together; None: ids are kept as they are.

    Raises:
        SettingsError: if a pattern is no regular expression, or another argument makes no sense.

    A match longer than `MARGIN_CHARS` that reaches beyond `max_chars + MARGIN_CHARS` cannot be seen whole and stays.
    """

    patterns: Sequence[str | re.Pattern[str]] = ()
    max_chars: int | None = 20_000
    replacement: str = "[redacted]"
    function: Callable[[str], str] | None = None
    ids: Callable[[str], str] | None = None
    _compiled: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = _compile_all(self.patterns)
        object.__setattr__(self, "patterns", tuple(self.patterns))
        object.__setattr__(self, "_compiled", compiled)
        _check_limit(self.max_chars)
        _check_replacement(self.replacement)
        _check_callable("function", self.function)
        _check_callable("ids", self.ids)

    def text(self, text: str) -> Redacted:
        """*text* as it may leave the process: encodable as UTF-8, redacted, cut. Never raises.

        If anything fails the text becomes `FAILED` and the failure is counted.
        """
        if self.leaves((text,)):
            return Redacted(text)
        try:
            return self._redacted(text)
        except Exception as error:
            faults.record("redaction", error)
            return Redacted(FAILED, cut_chars=len(text))

    def tail(self, text: str, limit: int) -> str:
        """Return the last *limit* characters of *text*, redacted before they are cut. Never raises.

        A longer *text* should come with `MARGIN_CHARS` before those characters: they are dropped, as the first of them
        may be the rest of a match.
        """
        if self.leaves((text,)):
            return text[-limit:]
        try:
            kept, _ = self._without_matches(encodable(text))
            if self.function is not None:
                kept = _checked(self.function(kept))
        except Exception as error:
            faults.record("redaction", error)
            return FAILED
        return kept if len(text) <= limit and len(kept) <= limit else kept[max(MARGIN_CHARS, len(kept) - limit) :]

    def id(self, value: str) -> str:
        """Return what may be kept of the conversation or user id *value*. Never raises."""
        if self.ids is None:
            return encodable(value)
        try:
            return _checked(self.ids(value))
        except Exception as error:
            faults.record("redaction", error)
            return FAILED

    def message(self, error: BaseException) -> str:
        """Return what may be logged of the message of *error*: it may carry the texts of a call."""
        if not self._compiled and self.function is None:
            return str(error)
        return self._redacted(str(error)).text

    def documents(self, found: Sequence[Document]) -> tuple[Document, ...]:
        """*found* with text and id redacted, and the characters cut off the text added to `cut_chars`."""
        return tuple([self._document(document) for document in found])

    def call(self, call: RagCall) -> RagCall:
        """*call* with query, contexts, answer and reference redacted, and all cut characters added to `cut_chars`."""
        fields = {"query": call.query, "answer": call.answer, "reference": call.reference}
        redacted = {name: self.text(value) for name, value in fields.items() if value is not None}
        contexts = None if call.contexts is None else self.documents(call.contexts)
        cut = sum(part.cut_chars for part in redacted.values())
        cut += sum(new.cut_chars - old.cut_chars for new, old in zip(contexts or (), call.contexts or (), strict=True))
        texts: Any = {name: part.text for name, part in redacted.items()}
        return replace(call, contexts=contexts, cut_chars=call.cut_chars + cut, **texts)

    def leaves(self, texts: Sequence[str]) -> bool:
        """Whether all of *texts* may leave the process as they are: the usual case, seen at little cost."""
        if self._compiled or self.function is not None or self.ids is not None:
            return False
        most = maxsize if self.max_chars is None else self.max_chars
        for text in texts:  # noqa: SIM110  # all() over a generator takes twice as long, on the request path
            if not text.isascii() or "\0" in text or len(text) > most:
                return False
        return True

    def _document(self, document: Document) -> Document:
        if self.leaves((document.text,) if document.id is None else (document.text, document.id)):
            return document
        text, cut, _ = self.text(document.text)
        id_ = None if document.id is None else self.text(document.id).text
        if text == document.text and id_ == document.id:
            return document
        return replace(document, text=text, id=id_, cut_chars=document.cut_chars + cut)

    def _redacted(self, text: str) -> Redacted:
        limit = self.max_chars
        seen = text if limit is None else text[: limit + MARGIN_CHARS]
        beyond = len(text) - len(seen)
        kept, hits = self._without_matches(encodable(seen))
        if self.function is not None:
            kept = _checked(self.function(kept))
        if limit is None or (not beyond and len(kept) <= limit):
            return Redacted(kept, 0, hits)
        # Where the text goes on unseen, its last stretch may hold the beginning of a match: that is never kept.
        whole = len(kept) - (MARGIN_CHARS if beyond else 0)
        end = max(0, min(limit, whole))
        return Redacted(kept[:end], beyond + len(kept) - end, hits)

    def _without_matches(self, text: str) -> tuple[str, int]:
        """*text* with the matches of all patterns replaced, and how many replacements that took."""
        spans = sorted(
            match.span()
            for pattern in self._compiled
            for match in pattern.finditer(text)
            if match.start() < match.end()
        )
        if not spans:
            return text, 0
        parts: list[str] = []
        position = hits = 0
        for start, end in spans:
            if start > position or not hits:
                parts += (text[position:start], self.replacement)
                hits += 1
            position = max(position, end)
        parts.append(text[position:])
        return "".join(parts), hits


def _checked(text: object) -> str:
    if type(text) is not str:
        raise TypeError(f"a function given to Redact must return a str, it returned {type(text).__name__}")
    return encodable(text)


def _compile_all(patterns: Any) -> tuple[re.Pattern[str], ...]:
    if isinstance(patterns, (list, tuple)):
        return tuple(_compile(pattern) for pattern in cast("Sequence[object]", patterns))
    raise SettingsError(
        f"Redact(patterns=...) must be a list of regular expressions, got {type(patterns).__name__}; "
        "for a single one write patterns=[...]"
    )


def _compile(pattern: Any) -> re.Pattern[str]:
    try:
        compiled: re.Pattern[Any] = re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise SettingsError(f"Redact(patterns=...): {pattern!r} is no regular expression: {error}") from error
    if not isinstance(compiled.pattern, str):
        raise SettingsError(f"Redact(patterns=...): {pattern!r} matches bytes; write it without the b")
    return compiled


def _check_limit(limit: object) -> None:
    if limit is None or (type(limit) is int and limit > 0):
        return
    raise SettingsError(f"Redact(max_chars=...) must be a whole number above 0, or None for no limit; got {limit!r}")


def _check_replacement(replacement: object) -> None:
    if type(replacement) is not str:
        raise SettingsError(f"Redact(replacement=...) must be a str, got {replacement!r}; for nothing write ''")


def _check_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise SettingsError(
            f"Redact({name}=...) must take and return a str, got {type(value).__name__}; write a function"
        )
