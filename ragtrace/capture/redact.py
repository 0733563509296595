"""Redacts the texts of calls and evaluations before they reach a span, an event or a judge."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

from ragtrace.capture.tags import kept_tags
from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import Claim
from ragtrace.core.reasoning import split_reasoning
from ragtrace.core.step import Message, Prompt, Step
from ragtrace.core.text import encodable
from ragtrace.core.types import Document, DocumentsInPart, Evaluation, Result, Score
from ragtrace.system.faults import faults, is_failure

FAILED: Final = "[redaction failed]"
"""Replacement of a text that a user's function could not redact."""
MARGIN_CHARS: Final = 4_096
"""Number of characters beyond `max_chars` in which patterns look for a match that starts before the cut."""
STACKTRACE_CHARS: Final = 20_000
"""Number of characters of a stack trace that are kept: the last ones, where the error is."""
_NAMES: Final = ("request_model", "response_model", "response_id")
_IDS: Final = ("conversation_id", "user_id")


class Redacted(NamedTuple):
    """Text after redaction, and the number of characters cut off its end."""

    text: str
    cut_chars: int = 0
    """Number of characters cut off the end of the original text."""


@dataclass(frozen=True, slots=True)
class Redact:
    """Redaction rules: what is removed from every query, context, answer and reference of a call.

    Examples:
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(answer_label="answered"))  # or yours
        >>> redact = ragtrace.Redact([r"[a-z.]+@[a-z.]+", r"[0-9]{16}"])
        >>> ragtrace.configure(exporter="none", screen=judge, redact=redact)
        >>> with ragtrace.call("My address is ada@example.org.") as call:
        ...     call.answered("Thank you.")
        >>> ragtrace.flush()
        True
        >>> judge.calls[0].query
        'My address is [redacted]'

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

    @property
    def has_rules(self) -> bool:
        """Whether any pattern or user-supplied function rewrites the texts.

        Without them texts are only cut and made encodable.
        """
        return bool(self._compiled) or self.function is not None

    def text(self, text: str) -> Redacted:
        """Return *text* redacted, cut to the maximum length and encodable as UTF-8. Never raises.

        If anything fails the text becomes `FAILED` and the failure is counted.
        """
        try:
            return self._redacted(text)
        except BaseException as error:
            _record(error)
            return Redacted(FAILED, cut_chars=len(text))

    def tail(self, text: str, limit: int) -> str:
        """Return the last *limit* characters of *text*, with the redaction done before the cut. Never raises.

        A longer *text* should come with `MARGIN_CHARS` before those characters: if there are rules these are dropped,
        as the first of them may be the rest of a match.
        """
        try:
            kept = self._rewritten(text)
        except BaseException as error:
            _record(error)
            return FAILED
        if not self.has_rules:
            return kept[-limit:]
        return kept if len(text) <= limit and len(kept) <= limit else kept[max(MARGIN_CHARS, len(kept) - limit) :]

    def id(self, value: str) -> str:
        """Return the conversation or user id *value* as rewritten by the user-supplied function `ids`. Never raises."""
        try:
            return encodable(value) if self.ids is None else _checked(self.ids(value))
        except BaseException as error:
            _record(error)
            return FAILED

    def message(self, error: BaseException) -> str:
        """Return the redacted message of the exception *error*, which may quote texts of a call, for the log."""
        return self._redacted(str(error)).text if self.has_rules else str(error)

    def documents(self, found: Sequence[Document]) -> tuple[Document, ...]:
        """Return the documents *found* with their texts and ids redacted.

        The number of characters cut off a text is added to its `cut_chars`.
        """
        redacted: list[Document] = []
        for document in found:
            text, cut = self.text(document.text)
            id_ = None if document.id is None else self.text(document.id).text
            is_same = text == document.text and id_ == document.id
            cut_chars = document.cut_chars + cut
            redacted.append(document if is_same else replace(document, text=text, id=id_, cut_chars=cut_chars))
        return DocumentsInPart(redacted) if isinstance(found, DocumentsInPart) else tuple(redacted)

    def _redacted(self, text: str) -> Redacted:
        limit = self.max_chars
        seen = text if limit is None else text[: limit + MARGIN_CHARS]
        beyond = len(text) - len(seen)
        kept = self._rewritten(seen)
        if limit is None or (not beyond and len(kept) <= limit):
            return Redacted(kept)
        # Of a text that is not read to its end, the last stretch may begin a match, so it is never kept.
        end = max(0, min(limit, len(kept) - (MARGIN_CHARS if beyond else 0)))
        return Redacted(kept[:end], beyond + len(kept) - end)

    def _rewritten(self, text: str) -> str:
        """Return *text* with all matches of the patterns replaced, and then rewritten by the user's function.

        Matches that touch are replaced together.
        """
        text = encodable(text)
        matches = (match.span() for pattern in self._compiled for match in pattern.finditer(text))
        parts: list[str] = []
        position = 0
        for start, end in sorted(span for span in matches if span[0] < span[1]):
            if start > position or not parts:
                parts += (text[position:start], self.replacement)
            position = max(position, end)
        text = "".join((*parts, text[position:]))
        return text if self.function is None else _checked(self.function(text))


def _record(error: BaseException) -> None:
    """Count *error* as a failure of the user's redaction, or raise it again if it is the application's own."""
    if not is_failure(error):  # else a `sys.exit()` in a redaction would end the thread that scores all calls
        raise error
    faults.record("redaction", error)


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
    """Redact all texts captured in *step*, one run of a decorated function.

    This happens once, before the texts reach a span, an event or a judge.
    """
    if step.redacted:
        return
    step.redacted = True

    def redacted(text: str) -> str:
        kept = redact.text(text)
        step.cut_chars += kept.cut_chars
        return kept.text

    for name in (*_NAMES, *_IDS):
        text = getattr(step, name)
        if text is not None:  # a lone surrogate would make the export of a whole batch of spans fail
            setattr(step, name, redact.id(text) if name in _IDS else encodable(text))
    texts = {name: getattr(step, name) for name in ("query", "answer", "reference")}
    documents, reranked, error, prompt = step.documents, step.reranked, step.error, step.prompt
    prompt_documents, previews, tags = step.prompt_documents, step.previews, step.tags
    # If redaction raises below, no unredacted text is left in the step.
    step.query = step.answer = step.reference = step.documents = step.reranked = step.prompt = None
    step.prompt_documents = step.previews = step.tags = None
    if tags is not None:
        values = {name: redacted(tag) if isinstance(tag, str) else tag for name, tag in tags.items()}
        step.tags = kept_tags(values, "values that Redact has changed")
    for name, text in texts.items():
        if text is not None:
            reasoning, mark, _ = split_reasoning(text if name == "answer" else "")
            thought = reasoning.removesuffix(mark)  # however long it is, it takes no room from the answer
            before_answer = redacted(thought) + mark if thought else mark
            before = step.cut_chars
            setattr(step, name, before_answer + redacted(text[len(reasoning) :]))
            step.answer_cut_chars += step.cut_chars - before if name == "answer" else 0
    if prompt is not None:
        # The characters cut off the question have been counted above.
        query = step.query or ""
        messages = [
            Message(role, query if text is texts["query"] else redacted(text)) for role, text in prompt.messages
        ]
        step.prompt = Prompt(tuple(messages), prompt.is_cut)
    if documents is not None:
        step.documents = redact.documents(documents)
        step.cut_chars += sum([document.cut_chars for document in step.documents])
    if previews is not None:
        step.previews = redact.documents(previews)
        step.cut_chars += sum([document.cut_chars for document in step.previews])
    if prompt_documents is not None:  # their cut characters have been counted as those of the prompt
        step.prompt_documents = redact.documents(prompt_documents)
    if reranked is not None:  # their cut characters have been counted in the earlier retrieval
        step.reranked = redact.documents(reranked)
    if error is not None:
        kept = min(STACKTRACE_CHARS, redact.max_chars or STACKTRACE_CHARS)
        message = None if error.message is None else redact.text(error.message).text
        step.error = replace(error, message=message, stacktrace=redact.tail(error.stacktrace, kept))


def redact_evaluation(evaluation: Evaluation, redact: Redact) -> Evaluation:
    """Return a copy of *evaluation* with all its texts redacted.

    What a model wrote may repeat what was to be taken out.
    """
    claims_by_id: dict[int, tuple[Claim, ...]] = {}

    def redacted_result(result: Result) -> Result:
        changes: dict[str, Any] = {}
        if result.explanation and (text := redact.text(result.explanation).text) != result.explanation:
            changes["explanation"] = text  # else the same object, which may be an `OwnText`
        attributes: object = result.attributes  # a user's metric may have set attributes of any type
        if isinstance(attributes, Mapping):
            given = cast("Mapping[str, object]", attributes)
            changes["attributes"] = {name: _redact_value(value, redact) for name, value in given.items()}
        if isinstance(result, Score) and result.label:
            changes["label"] = redact.text(result.label).text
        if isinstance(result, Score) and result.claims:
            key = id(result.claims)  # several metrics may share one tuple of claims, which is redacted once
            if key not in claims_by_id:
                claims_by_id[key] = tuple(
                    replace(claim, text=redact.text(claim.text).text, quote=_redact_value(claim.quote, redact))
                    for claim in result.claims
                )
            changes["claims"] = claims_by_id[key]
        return replace(result, **changes)

    return replace(evaluation, results={name: redacted_result(each) for name, each in evaluation.results.items()})


def _redact_value(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact.text(value).text
    if isinstance(value, (tuple, list)):
        return tuple(_redact_value(item, redact) for item in cast("tuple[object, ...]", value))
    return value
