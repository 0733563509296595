"""Splitting of a prompt that has question and documents in one text, as applications without a framework write it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ragtrace.core.types import Document

_MOST_CHARS: Final = 400_000
_MOST_DOCUMENTS: Final = 200
_LABEL: Final = r"(?:^|\n)[ \t]*(?:[#>*\-]+[ \t]*)?(?:\*\*)?(?:{})(?:\*\*)?[ \t]*:(?:\*\*)?[ \t]*"
_QUESTION: Final = re.compile(
    _LABEL.format(r"(?:the |user(?:'s)? |current |final |input )?(?:question|query|request)|user (?:input|message)"),
    re.IGNORECASE,
)
_CONTEXT: Final = re.compile(
    _LABEL.format(
        r"(?:the |retrieved |relevant |given |provided |reference |background )*"
        r"(?:context(?: information)?|contexts|documents?|passages|sources|excerpts|search results|knowledge"
        r"|references)"
    ),
    re.IGNORECASE,
)
_TAGGED_QUESTION: Final = re.compile(
    r"<(question|query|user_query|user_question)>(.*?)</\1>", re.IGNORECASE | re.DOTALL
)
_TAGGED_CONTEXT: Final = re.compile(
    r"<(context|contexts|documents|passages|sources|search_results)>(.*?)</\1>", re.IGNORECASE | re.DOTALL
)
_TAGGED_DOCUMENT: Final = re.compile(
    r"<(document|doc|passage|source|chunk|context)(?:\s[^<>]*)?>(.*?)</\1>", re.IGNORECASE | re.DOTALL
)
_ANSWER: Final = re.compile(_LABEL.format(r"(?:(?:your |helpful |the )?answer|response|assistant)"), re.IGNORECASE)
_NUMBERED: Final = re.compile(
    r"(?:^|\n)[ \t]*(?:\[(?:doc(?:ument)?|source|passage)?[ \t]*#?\d{1,3}\][ \t]*:?|\(\d{1,3}\)|"
    r"(?:document|doc|passage|source|chunk|context|excerpt)[ \t]*#?\d{1,3}[ \t]*[:.)]|\d{1,3}[.)](?=\s))[ \t]*",
    re.IGNORECASE,
)
_BULLET: Final = re.compile(r"(?:^|\n)[ \t]*[-*•][ \t]+")
_RULE: Final = re.compile(r"\n[ \t]*(?:-{3,}|={3,}|\*{3,}|#{3,})[ \t]*(?=\n|$)")


class PromptParts(NamedTuple):
    """Question and documents of one prompt."""

    question: str
    documents: tuple[Document, ...]


def split_prompt(text: str) -> PromptParts | None:
    """Return the question and the documents in the prompt *text*; None if it is not marked which part is which.

    Marked are parts behind a label on a line of its own ("Context:", "Question:") or in tags. The documents are split
    where each begins with a number, a tag or a bullet, or where rules or blank lines stand between them.
    """
    if len(text) > _MOST_CHARS:
        return None
    tagged_question, tagged_context = _TAGGED_QUESTION.search(text), _TAGGED_CONTEXT.search(text)
    question = None if tagged_question is None else tagged_question[2].strip()
    context = None if tagged_context is None else tagged_context[2]
    labels = sorted(
        [(found.start(), found.end(), "question") for found in _QUESTION.finditer(text)][-1:]
        + [(found.start(), found.end(), "context") for found in _CONTEXT.finditer(text)][:1]
        + [(found.start(), found.end(), "answer") for found in _ANSWER.finditer(text)][-1:]
    )
    for number, (_, end, what) in enumerate(labels):
        until = labels[number + 1][0] if number + 1 < len(labels) else len(text)
        if what == "question" and question is None:
            question = text[end:until].strip()
        elif what == "context" and context is None:
            context = text[end:until]
    if not question or context is None:
        return None
    return PromptParts(question, split_documents(context))


def split_documents(text: str) -> tuple[Document, ...]:
    """Return the documents in *text*, the part of a prompt that holds them, in order."""
    tagged = [found[2].strip() for found in _TAGGED_DOCUMENT.finditer(text)]
    if tagged:
        return _documents(tagged)
    for mark in (_NUMBERED, _RULE, _BULLET):
        parts = mark.split(text)
        if len(parts) > 2 or (len(parts) == 2 and mark is not _BULLET and not parts[0].strip()):
            return _documents(parts)
    return _documents(re.split(r"\n[ \t]*\n", text))


def _documents(texts: list[str]) -> tuple[Document, ...]:
    return tuple(Document(text.strip()) for text in texts if text.strip())[:_MOST_DOCUMENTS]
