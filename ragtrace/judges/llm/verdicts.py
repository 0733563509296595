"""The lowest rung, for small local models that write no JSON: one statement a request, one word in reply.

The sentences of the answer are the statements; which of them state a fact at all is told by rule. The model gives
nothing but support, and no evidence for it: what it does not find missing counts as unverified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Support
from ragtrace.judges.lexical.lexicon import Lexicon
from ragtrace.judges.lexical.statements import statements
from ragtrace.judges.lexical.text import language
from ragtrace.judges.llm.jsonreading import ReadingError, parse_verdict
from ragtrace.judges.llm.judge_session import Inquiry, together
from ragtrace.judges.llm.merging import Extraction, Verification, verification
from ragtrace.judges.llm.prompt import Asked, user_message
from ragtrace.judges.llm.prompt_input import Chunk, Sheet
from ragtrace.judges.llm.prompts import system_message
from ragtrace.judges.llm.reply import UNJUDGED, Stated, Verdict

UNREADABLE: Final = frozenset({"unparsable", "ambiguous"})
"""What becomes of a JSON reply on this rung's models."""
_SAMPLE_CHARS: Final = 400
_AGAIN: Final = "\nYour last reply had no such line. Write that line and nothing else."


@dataclass(slots=True)
class Habit:
    """Whether a model has been seen to write JSON; None: neither seen to, nor seen to fail."""

    writes_json: bool | None = None


def stated(sheet: Sheet) -> Extraction:
    """Every sentence of the answer as a statement."""
    lexicon = Lexicon(language(sheet.answer[:_SAMPLE_CHARS]))
    found = [
        Stated(unit.text, (index,), any(one.checkable for one in statements(unit.text, len(unit.text), lexicon)), None)
        for index, unit in enumerate(sheet.sentences)
    ]
    return Extraction(statements=found)


async def one_by_one(inquiry: Inquiry, groups: Sequence[Sequence[Chunk]], texts: dict[int, str]) -> Verification:
    """The verdict on each of *texts*, by index, held against every group of chunks.

    Raises:
        JudgeError: on the first request that fails; of replies without a verdict, if there are no others.
    """
    pairs = [(index, group) for index in texts for group in groups]
    verdicts = await together([_verdict(inquiry, texts[index], group) for index, group in pairs])
    if verdicts and all(verdict.support is None for verdict in verdicts):
        raise JudgeError("unparsable", "no reply had a line with VERDICT: and one of its labels", retryable=False)
    return verification((), [(index, verdict) for (index, _), verdict in zip(pairs, verdicts, strict=True)])


async def _verdict(inquiry: Inquiry, text: str, chunks: Sequence[Chunk]) -> Verdict:
    asked = Asked("verdict", chunks=tuple(chunks), given={"g1": text})
    for repair in ("", _AGAIN):
        reply = await inquiry.text(system_message("verdict") + repair, user_message(asked))
        try:
            return _read(parse_verdict(reply), chunks)
        except ReadingError:
            continue
    return UNJUDGED


def _read(label: str, chunks: Sequence[Chunk]) -> Verdict:
    if label in ("not_supported", "not_found"):
        return Verdict("not_found")
    # With one chunk there is no doubt which one is meant; that it says so is not shown all the same.
    evidence = (chunks[0].rank,) if len(chunks) == 1 else ()
    return Verdict(cast("Support", label), evidence, unverified=True)
