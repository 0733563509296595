"""Redacts the texts of calls and evaluations before they reach a span, an event or a judge."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import maxsize
from typing import Any, Final, NamedTuple, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import Claim
from ragtrace.core.step import Message, Prompt, Step
from ragtrace.core.text import encodable
from ragtrace.core.types import Document, Evaluation, RagCall, Result, Score
from ragtrace.system.faults import faults

FAILED: Final = "[redaction failed]"
"""Replaces a text that a user's function could not redact: better no text than the wrong one."""
MARGIN_CHARS: Final = 4_096
"""How far beyond `max_chars` patterns look, to find a match that starts before the cut."""
STACKTRACE_CHARS: Final = 20_000
"""Characters of a stack trace that are kept: the last ones, where the error is."""
_NAMES: Final = ("request_model", "response_model", "response_id")
_IDS: Final = ("conversation_id", "user_id")


class Redacted(NamedTuple):
    """Text that may leave the process."""

    text: str
    cut_chars: int = 0
    """Characters taken off its end."""


@dataclass(frozen=True, slots=True)
class Redact:
    """Rules for what is taken out of every query, context, answer and reference.

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
        patterns: Any = self.patterns
        if not isinstance(patterns, (list, tuple)):
            raise SettingsError(
                f"Redact(patterns=...) must be a list of regular expressions, got {type(patterns).__name__}; "
                "for a single one write patterns=[...]"
            )
        compiled = tuple(_compile(pattern) for pattern in cast("Sequence[object]", patterns))
        object.__setattr__(self, "patterns", tuple(cast("Sequence[str]", patterns)))
        object.__setattr__(self, "_compiled", compiled)
        limit: object = self.max_chars
        if limit is not None and (type(limit) is not int or limit <= 0):
            raise SettingsError(
                f"Redact(max_chars=...) must be a whole number above 0, or None for no limit; got {limit!r}"
            )
        if type(self.replacement) is not str:
            raise SettingsError(
                f"Redact(replacement=...) must be a str, got {self.replacement!r}; for nothing write ''"
            )
        for name, function in (("function", self.function), ("ids", self.ids)):
            if function is not None and not callable(cast(object, function)):
                raise SettingsError(
                    f"Redact({name}=...) must take and return a str, got {type(function).__name__}; write a function"
                )

    def text(self, text: str) -> Redacted:
        """Return *text* as it may leave the process: encodable as UTF-8, redacted, cut. Never raises.

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
            kept = self._without_matches(encodable(text))
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
        """Return *found* with text and id redacted, and the characters cut off the text added to `cut_chars`."""
        return tuple([self._document(document) for document in found])

    def call(self, call: RagCall) -> RagCall:
        """Return *call* with query, contexts, answer and reference redacted, its cut characters counted."""
        fields = {"query": call.query, "answer": call.answer, "reference": call.reference}
        redacted = {name: self.text(value) for name, value in fields.items() if value is not None}
        contexts = None if call.contexts is None else self.documents(call.contexts)
        cut = sum(part.cut_chars for part in redacted.values())
        cut += sum(new.cut_chars - old.cut_chars for new, old in zip(contexts or (), call.contexts or (), strict=True))
        texts: Any = {name: part.text for name, part in redacted.items()}
        return replace(call, contexts=contexts, cut_chars=call.cut_chars + cut, **texts)

    def leaves(self, texts: Sequence[str]) -> bool:
        """Return whether all of *texts* may leave the process unchanged: the usual case, found at little cost."""
        if self._compiled or self.function is not None or self.ids is not None:
            return False
        most = maxsize if self.max_chars is None else self.max_chars
        for text in texts:  # noqa: SIM110  # all() over a generator takes twice as long, on the request path
            if not text.isascii() or "\0" in text or len(text) > most:
                return False
        return True

    def _document(self, document: Document) -> Document:
        if self.leaves((document.text, document.id or "")):
            return document
        text, cut = self.text(document.text)
        id_ = None if document.id is None else self.text(document.id).text
        if text == document.text and id_ == document.id:
            return document
        return replace(document, text=text, id=id_, cut_chars=document.cut_chars + cut)

    def _redacted(self, text: str) -> Redacted:
        limit = self.max_chars
        seen = text if limit is None else text[: limit + MARGIN_CHARS]
        beyond = len(text) - len(seen)
        kept = self._without_matches(encodable(seen))
        if self.function is not None:
            kept = _checked(self.function(kept))
        if limit is None or (not beyond and len(kept) <= limit):
            return Redacted(kept)
        # Where the text goes on unseen, its last stretch may hold the beginning of a match: that is never kept.
        whole = len(kept) - (MARGIN_CHARS if beyond else 0)
        end = max(0, min(limit, whole))
        return Redacted(kept[:end], beyond + len(kept) - end)

    def _without_matches(self, text: str) -> str:
        """Return *text* with the matches of all patterns replaced; matches that touch are replaced together."""
        spans = sorted(
            match.span()
            for pattern in self._compiled
            for match in pattern.finditer(text)
            if match.start() < match.end()
        )
        parts: list[str] = []
        position = 0
        for start, end in spans:
            if start > position or not parts:
                parts += (text[position:start], self.replacement)
            position = max(position, end)
        return "".join((*parts, text[position:]))


def _checked(text: object) -> str:
    if type(text) is not str:
        raise TypeError(f"a function given to Redact must return a str, it returned {type(text).__name__}")
    return encodable(text)


def _compile(pattern: Any) -> re.Pattern[str]:
    try:
        compiled: re.Pattern[Any] = re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise SettingsError(f"Redact(patterns=...): {pattern!r} is no regular expression: {error}") from error
    if not isinstance(compiled.pattern, str):
        raise SettingsError(f"Redact(patterns=...): {pattern!r} matches bytes; write it without the b")
    return compiled


def redact_step(step: Step, redact: Redact) -> None:
    """Redact every captured text of *step*, once: before it reaches a span, an event or a judge."""
    if step.redacted:
        return
    step.redacted = True
    if step.error is None and redact.leaves(_texts(step)):
        return
    for name in (*_NAMES, *_IDS):
        text = getattr(step, name)
        if text is not None:  # one lone surrogate would cost a whole batch of spans
            setattr(step, name, redact.id(text) if name in _IDS else encodable(text))
    texts = {name: getattr(step, name) for name in ("query", "answer", "reference")}
    documents, error, prompt = step.documents, step.error, step.prompt
    # If redaction itself fails, nothing unredacted may be left behind.
    step.query = step.answer = step.reference = step.documents = step.prompt = None
    for name, text in texts.items():
        if text is not None:
            setattr(step, name, _text(step, redact, text))
    if prompt is not None:
        messages = (
            # The cut characters of the question have been counted.
            Message(
                role, step.query if text is texts["query"] and step.query is not None else _text(step, redact, text)
            )
            for role, text in prompt.messages
        )
        step.prompt = Prompt(tuple(messages), prompt.is_cut)
    if documents is not None:
        step.documents = redact.documents(documents)
        step.cut_chars += sum([document.cut_chars for document in step.documents])
    if error is not None:
        kept = min(STACKTRACE_CHARS, redact.max_chars or STACKTRACE_CHARS)
        message = None if error.message is None else redact.text(error.message).text
        step.error = replace(error, message=message, stacktrace=redact.tail(error.stacktrace, kept))


def _texts(step: Step) -> list[str]:
    """Return all texts of the application in *step* that are not empty."""
    texts = list(
        filter(
            None,
            (
                *(step.query, step.answer, step.reference, step.conversation_id, step.user_id),
                *(step.request_model, step.response_model, step.response_id),
            ),
        )
    )
    if step.prompt is not None:
        texts += [message.text for message in step.prompt.messages]
    for document in step.documents or ():
        texts.append(document.text)
        if document.id is not None:
            texts.append(document.id)
    return texts


def _text(step: Step, redact: Redact, text: str) -> str:
    redacted = redact.text(text)
    step.cut_chars += redacted.cut_chars
    return redacted.text


def redact_evaluation(evaluation: Evaluation, redact: Redact) -> Evaluation:
    """Return *evaluation* with all its texts redacted: what a model wrote may repeat what was to be taken out."""
    if not (redact.patterns or redact.function):
        return evaluation
    seen: dict[int, tuple[Claim, ...]] = {}
    results = {name: _redact_result(result, redact, seen) for name, result in evaluation.results.items()}
    return replace(evaluation, results=results)


def _redact_result(result: Result, redact: Redact, seen: dict[int, tuple[Claim, ...]]) -> Result:
    changes: dict[str, Any] = {}
    if result.explanation:
        changes["explanation"] = redact.text(result.explanation).text
    attributes: object = result.attributes  # a user's metric may have put anything there
    if isinstance(attributes, Mapping):
        given = cast("Mapping[str, object]", attributes)
        changes["attributes"] = {name: _redact_value(value, redact) for name, value in given.items()}
    if isinstance(result, Score) and result.claims:
        key = id(result.claims)  # metrics share them
        if key not in seen:
            seen[key] = tuple(_redact_claim(claim, redact) for claim in result.claims)
        changes["claims"] = seen[key]
    return replace(result, **changes)


def _redact_value(value: object, redact: Redact) -> object:
    if isinstance(value, str):
        return redact.text(value).text
    if isinstance(value, (tuple, list)):
        return tuple(_redact_value(item, redact) for item in cast("tuple[object, ...]", value))
    return value


def _redact_claim(claim: Claim, redact: Redact) -> Claim:
    quote = None if claim.quote is None else redact.text(claim.quote).text
    return replace(claim, text=redact.text(claim.text).text, quote=quote)


def unredactable(call: RagCall) -> bool:
    """Return whether some text of *call* could not be redacted: then there is nothing to judge."""
    texts = [call.query, call.answer, call.reference, *(document.text for document in call.contexts or ())]
    texts += [turn.text for turn in call.turns or ()]
    return FAILED in texts
