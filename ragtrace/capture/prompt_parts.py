"""Splits prompts that hold question and documents in one text, as applications without a framework write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ragtrace.core.types import Document

_MOST_CHARS: Final = 400_000
_MOST_DOCUMENTS: Final = 200
_LABEL: Final = r"(?:^|\n)[ \t]*(?:[#>*\-]+[ \t]*)?(?:\*\*)?(?:{})(?:\*\*)?[ \t]*[:\n](?:\*\*)?[ \t]*"
_QUESTION: Final = re.compile(
    _LABEL.format(r"(?:the |user(?:'s)? |current |final |input )?(?:question|query|request)|user (?:input|message)"),
    re.IGNORECASE,
)
_CONTEXT: Final = re.compile(
    _LABEL.format(
        r"(?:here (?:are|is) )?(?:the |retrieved |relevant |given |provided |reference |background )*"
        r"(?:context(?: information)?|contexts|documents?|passages|sources|excerpts|search results|knowledge"
        r"|references)(?: for the context| is below\.| are below\.)?"
    ),
    re.IGNORECASE,
)
_QUESTION_TAG: Final = re.compile(r"<(question|query|user_query|user_question)>", re.IGNORECASE)
_CONTEXT_TAG: Final = re.compile(r"<(context|contexts|documents|passages|sources|search_results)>", re.IGNORECASE)
_DOCUMENT_TAG: Final = re.compile(r"<(document|doc|passage|source|chunk|context)(?:\s[^<>]*)?>", re.IGNORECASE)
_ANSWER: Final = re.compile(
    _LABEL.format(r"(?:(?:your |helpful |the |final )?answer|response|assistant)") + r"\n?\Z", re.IGNORECASE
)
"""Label after which the model is to write, at the end of the prompt alone: documents may have such lines, too."""
_INSTRUCTION: Final = re.compile(_LABEL.format(r"instructions?"), re.IGNORECASE)
_NUMBERED: Final = re.compile(
    r"(?:^|\n)[ \t]*(?:\[(?:doc(?:ument)?|source|passage)?[ \t]*#?\d{1,3}\][ \t]*:?|\(\d{1,3}\)|"
    r"(?:document|doc|passage|source|chunk|context|excerpt)[ \t]*#?\d{1,3}[ \t]*[:.)]|\d{1,3}[.)](?=\s))[ \t]*",
    re.IGNORECASE,
)
_BULLET: Final = re.compile(r"(?:^|\n)[ \t]*[-*•][ \t]+")
_BETWEEN_RULES: Final = re.compile(r"\s*[-=*#]{3,}[ \t]*\n(.*?)\n[ \t]*[-=*#]{3,}[ \t]*(?:\n|$)", re.DOTALL)
_RULE: Final = re.compile(r"\n[ \t]*(?:-{3,}|={3,}|\*{3,}|#{3,})[ \t]*(?=\n|$)")


class PromptParts(NamedTuple):
    """Question and documents that were found in the text of one prompt."""

    question: str | None
    """Question of the prompt; None if the prompt marks none."""
    documents: tuple[Document, ...]


def split_prompt(text: str) -> PromptParts | None:
    """Return the question and the documents in the prompt *text*, or None if no documents are marked in it.

    Marked are parts behind a label on a line of its own ("Context:", "Question:") or in tags. The documents are split
    where each begins with a number, a tag or a bullet, or where rules or blank lines stand between them.
    """
    if len(text) > _MOST_CHARS:
        return None
    question, context = next(_tagged(text, _QUESTION_TAG), None), next(_tagged(text, _CONTEXT_TAG), None)
    question = None if question is None else question.strip()
    answer = _ANSWER.search(_with_short_end(text))
    starts = _CONTEXT.search(text)
    if context is None and starts is not None:
        asked = _question_label(text, starts)
        ends = [asked.start()] if asked is not None and asked.start() > starts.start() else []
        ends += [found.start() for found in (_INSTRUCTION.search(text, starts.end()), answer) if found]
        context = text[starts.end() : min((end for end in ends if end >= starts.end()), default=len(text))]
        if question is None and asked is not None:
            until = [starts.start()] if asked.start() < starts.start() else []
            until += [] if answer is None else [answer.start()]
            question = text[asked.end() : min((end for end in until if end >= asked.end()), default=len(text))].strip()
    if context is None:
        return None
    ruled = _BETWEEN_RULES.match(context)
    return PromptParts(question or None, split_documents(context if ruled is None else ruled[1]))


def _tagged(text: str, opening: re.Pattern[str]) -> Iterator[str]:
    """Yield each part of *text* between an XML-like tag that matches *opening* and the matching closing tag."""
    unclosed: set[str] = set()
    tag = opening.search(text)
    while tag is not None:
        name, end = tag[1].lower(), None
        if name not in unclosed:  # without this, many opening tags would each search the rest of the text
            end = re.compile(f"</{name}>", re.IGNORECASE).search(text, tag.end())
        if end is None:
            unclosed.add(name)
        else:
            yield text[tag.end() : end.start()]
        tag = opening.search(text, tag.end() if end is None else end.end())


def _with_short_end(text: str) -> str:
    """Return *text* with the blank lines at its end replaced by one newline."""
    stripped = text.rstrip()
    return stripped + "\n" if "\n" in text[len(stripped) :] else stripped


def _question_label(text: str, context: re.Match[str]) -> re.Match[str] | None:
    """Find the question's label in a prompt, such as "Question:".

    The first label before the documents is taken, or else the last label of all. A document may hold questions and
    answers, too.
    """
    found = list(_QUESTION.finditer(text))
    before = [label for label in found if label.start() < context.start()]
    return before[0] if before else found[-1] if found else None


def split_documents(text: str) -> tuple[Document, ...]:
    """Split the document section of a prompt into its documents."""
    tagged = [found.strip() for found in _tagged(text, _DOCUMENT_TAG)]
    if tagged:
        return _documents(tagged)
    for mark in (_NUMBERED, _RULE, _BULLET):
        parts = mark.split(text)
        if len(parts) > 2 or (len(parts) == 2 and (mark is _RULE or (mark is _NUMBERED and not parts[0].strip()))):
            return _documents(parts)
    return _documents(re.split(r"\n[ \t]*\n", text))


def _documents(texts: list[str]) -> tuple[Document, ...]:
    return tuple(Document(text.strip()) for text in texts if text.strip())[:_MOST_DOCUMENTS]
