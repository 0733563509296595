"""Reads one call for the embedded judge, step by step: statements, distinct chunks, and whether words can tell at all.

Every generator here yields the number of characters it has just dealt with, so that its driver can hand back control.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from ragtrace.core.types import Document, Plain
from ragtrace.judges.lexical.lexicon import Lexicon, tokens
from ragtrace.judges.lexical.statements import Statement, statements
from ragtrace.judges.lexical.support import Finding
from ragtrace.judges.lexical.text import function_words, language, one_line, pieces, scripts

MAX_ANSWER_CHARS: Final = 50_000
MAX_STATEMENTS: Final = 1_000
MAX_CONTEXT_CHARS: Final = 2_000_000
MAX_QUERY_CHARS: Final = 10_000
"""What is read at most; `truncated_answer_chars` and `truncated_chunks` in the attributes tell of anything left out."""
STEP_CHARS: Final = 1_500
"""Work between two points at which other tasks of the event loop run: about 0.3 ms."""
SAMPLE_CHARS: Final = 400
_SAMPLED_CHUNKS: Final = 3
# Up to the rest, letters outside the chunks' scripts may be names and terms; beyond, the answer is in another script.
_SHARED_SCRIPT: Final = 0.6
# English text has 35 to 45 % function words, a sentence of twelve words practically never none.
_ENOUGH_WORDS: Final = 12
_FOREIGN_SHARE: Final = 0.04
_FEWEST_WORDS: Final = 3


def _numbering() -> dict[str, int]:
    return defaultdict(count().__next__)


@dataclass(slots=True)
class Reading:
    """What is read of one call."""

    answer: str
    statements: list[Statement] = field(default_factory=list[Statement])
    numbers: dict[str, int] = field(default_factory=_numbering)
    """A number for each stem of the answer, in order of appearance: who looks up a new one gives it the next."""
    followers: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """For stems of checkable statements, the stems right behind it there, or next but one."""
    chunks: dict[int, str] = field(default_factory=dict[int, str])
    """Distinct chunks that are not blank, by their first rank."""
    attributes: dict[str, Plain] = field(default_factory=dict[str, Plain])

    @property
    def prose(self) -> list[Statement]:
        return [statement for statement in self.statements if not statement.code]

    @property
    def checkable(self) -> list[Statement]:
        return [statement for statement in self.statements if statement.checkable]

    @property
    def abstained(self) -> bool:
        """It declines to answer, and says less that could be an attempt at answering."""
        declined = sum(len(statement.words) + 1 for statement in self.statements if statement.declines)
        told = sum(len(s.words) for s in self.prose if s.checkable and not s.declines)
        return declined > told


def read_answer(reading: Reading, lexicon: Lexicon) -> Iterator[int]:
    """Split the answer into statements; number its stems and pairs."""
    end = min(len(reading.answer), MAX_ANSWER_CHARS)
    numbers = reading.numbers
    for statement in statements(reading.answer, end, lexicon):
        if len(reading.statements) == MAX_STATEMENTS:
            end = statement.start
            break
        statement.stems = [numbers[word.stem] for _, _, word in statement.words]
        if statement.checkable:
            _note_followers(statement.stems, reading.followers)
        reading.statements.append(statement)
        yield statement.end - statement.start
    if len(reading.answer) > end:
        reading.attributes["truncated_answer_chars"] = len(reading.answer) - end


def _note_followers(stems: Sequence[int], noted: dict[int, set[int]]) -> None:
    for one, second, third in zip(stems, stems[1:], stems[2:], strict=False):
        if one in noted:
            noted[one].update((second, third))
        else:
            noted[one] = {second, third}
    if len(stems) > 1:
        noted.setdefault(stems[-2], set()).add(stems[-1])


def choose_chunks(reading: Reading, contexts: Iterable[Document]) -> Iterator[int]:
    """Keep each distinct chunk once as far as the limit goes, and count what is not read."""
    seen: set[bytes | str] = set()
    duplicates = truncated = chars = 0
    for rank, document in enumerate(contexts):
        key = yield from _without_spacing(document.text)
        if not key:
            continue
        if key in seen:
            duplicates += 1
            continue
        seen.add(key)
        kept = document.text[: MAX_CONTEXT_CHARS - chars]
        truncated += len(kept) < len(document.text)
        chars += len(kept)
        if kept:
            reading.chunks[rank] = kept
    reading.attributes.update({"chunks": len(seen), "duplicate_chunks": duplicates, "truncated_chunks": truncated})


def _without_spacing(text: str) -> Generator[int, None, bytes | str]:
    """Equal for two chunks that differ in white space only; empty for a blank one."""
    if len(text) <= STEP_CHARS:
        yield len(text) // 8 + 1
        return one_line(text)
    digest, blank = hashlib.blake2b(digest_size=16), True
    for start, end in pieces(text, 4 * STEP_CHARS, len(text)):
        if words := one_line(text[start:end]):
            digest.update((words + " ").encode("utf-8", "surrogatepass"))
            blank = False
        yield (end - start) // 4
    return b"" if blank else digest.digest()


def read_query(query: str, lexicon: Lexicon) -> Generator[int, None, frozenset[str]]:
    """The stems the user asked with."""
    found: set[str] = set()
    for start, end in pieces(query, STEP_CHARS, min(len(query), MAX_QUERY_CHARS)):
        found.update([word.stem for _, _, word in tokens(query, lexicon, start, end)])
        yield end - start
    return frozenset(found)


def shares_script(reading: Reading) -> Generator[int, None, bool]:
    """Whether the answer has words at all, and most of its letters belong to scripts that the chunks use too."""
    if not reading.numbers and not any(map(str.isalnum, reading.answer[:SAMPLE_CHARS])):
        return False
    letters = scripts(reading.answer[:SAMPLE_CHARS])
    known: set[str] = set()
    for text in reading.chunks.values():
        if known.issuperset(letters):
            break
        known.update(scripts(text[:SAMPLE_CHARS]))
        yield SAMPLE_CHARS
    shared = sum(count for name, count in letters.items() if name in known)
    return shared >= _SHARED_SCRIPT * sum(letters.values())


def choose_language(answer: str, chunk: str) -> str:
    """Return the code of the language to read both with; empty where neither text says."""
    spoken, written = language(answer[:SAMPLE_CHARS]), ""
    if spoken != "en":
        written = language(chunk[:SAMPLE_CHARS])
        if written and spoken and written != spoken:
            _, own, other = function_words(answer[:SAMPLE_CHARS], (written,))
            return written if own >= other else spoken
    return spoken or written


def shares_language(reading: Reading, findings: Sequence[Finding]) -> bool:
    """Return False if answer and chunks are in different languages, so that words cannot tell what supports what.

    Where most words are found in the chunks anyway they do tell, whatever the languages look like.
    """
    if sum((2 * finding.deficit - 1) * finding.weight for finding in findings) < 0:
        return True
    known = {language(text[:SAMPLE_CHARS], 2) for text in list(reading.chunks.values())[:_SAMPLED_CHUNKS]} - {""}
    if not known:
        return True
    count, own, other = function_words(reading.answer[: 4 * SAMPLE_CHARS], known)
    if own >= other and own:
        return count < _ENOUGH_WORDS or own > _FOREIGN_SHARE * count
    return count < _FEWEST_WORDS or (not other and count < _ENOUGH_WORDS)
