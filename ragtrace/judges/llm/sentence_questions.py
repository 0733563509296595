"""One short question for each sentence of an answer: how models are asked that lose track of lists.

Of a list of sentences such a model gives all the same label. So the sentences are those of our own splitter, which also
tells which of them state something and whether the answer declines: nothing of the answer can be left out, and the
model labels support alone. A question is in plain words, behind the examples and the passages, which are the same for
all questions of a call and come first, so that a server reads them once: the questions follow one another.

Texts of the call are JSON strings at fixed places, so that none can end its own quotation. The reply is one label. That
a sentence is supported is not believed if it has a number or name that no passage has: then it counts as not found, and
as unverified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Support
from ragtrace.judges.lexical.closest_passages import PassageSearch
from ragtrace.judges.lexical.embedded import EmbeddedJudge
from ragtrace.judges.llm.chat import JudgeSession
from ragtrace.judges.llm.label_collector import Labels
from ragtrace.judges.llm.label_reply import UNJUDGED, ExtractedStatement, LabelReply, SourceTerms, Verdict
from ragtrace.judges.llm.merging import merge_verifications
from ragtrace.judges.llm.prompt import Prompt, chars_of_turns, enum, group_by_size, object_with
from ragtrace.judges.llm.prompt_input import PromptChunk, PromptInput
from ragtrace.judges.llm.prompts import Label, example_messages
from ragtrace.judges.llm.reply_reader import ReplyReader
from ragtrace.system.event_loops import beside_loop

SENTENCE_LABELS: Final[frozenset[Label]] = frozenset({"statements", "support", "answer_label"})
"""Labels that a call has in this mode."""
_SUPPORTS: Final[Mapping[str, Support]] = {"all": "supported", "some": "not_found"}
"""Label of support by that of the reply. The second says that not all is stated, and so no more than `not_found`."""
_SCHEMA: Final = object_with(stated=enum(list(_SUPPORTS)))
_ASKED: Final = "Do the passages state all of this sentence, or only some of it?"
_MOST_CLOSEST: Final = 2
_TOKENS: Final = 50
"""More than the reply has, which is one label in JSON."""
_SPLITTER: Final = EmbeddedJudge()


@dataclass(slots=True)
class SentenceReply:
    """Label of one sentence in the reply to its question."""

    support: Support | None
    """None if the reply has no valid label."""
    defects: list[str] = field(default_factory=list[str])


async def label_sentences(session: JudgeSession, source: PromptInput, *, max_chars: int) -> Labels:
    """Ask the LLM about each sentence of a call that states something, and return the labels.

    A sentence whose reply has no label is unjudged.

    Args:
        session: sends the requests.
        source: the call as the model is shown it.
        max_chars: most characters of passages in one request; of more, each sentence is asked about with each part.

    Raises:
        JudgeError: asking again may help, no sentence has a label, or the answer is longer than is ever read.
    """
    labels = Labels("sentences", await _statements(source))
    statements = labels.extraction.statements or []
    verdicts: list[tuple[int, Verdict]] = []
    failed: JudgeError | None = None
    try:
        for chunks in group_by_size(source.chunks, max_chars):
            questions = await beside_loop(source.chars, partial(_Questions, source, chunks))
            for index, statement in enumerate(statements):
                if not statement.checkable:
                    continue
                try:
                    verdict = await questions.ask(session, statement.text)
                except JudgeError as error:
                    if error.retryable:
                        raise
                    verdict, failed = UNJUDGED, error
                verdicts.append((index, verdict))
        if failed is not None and all(verdict.support is None for _, verdict in verdicts):
            raise failed
    finally:
        del failed  # its traceback has this frame
    labels.verification = merge_verifications([], verdicts)
    return labels


async def _statements(source: PromptInput) -> LabelReply:
    """Return the sentences of the answer as statements, and whether it declines, as the splitter has them."""
    split = await _SPLITTER.split_cooperatively(source.answer, source.chunks[0].text if source.chunks else "")
    if not split.whole:
        raise JudgeError("truncated", "the answer has more sentences than are read", retryable=False)
    checkable = [each for each in split.statements if each.checkable]
    found = [
        ExtractedStatement(
            unit.text,
            (index,),
            checkable=any(each.start < unit.end and unit.start < each.end for each in checkable),
            relevant=None,
        )
        for index, unit in enumerate(source.sentences)
    ]
    declines = not checkable and any(each.declines for each in split.statements)
    return LabelReply(statements=found, answer_label="abstained" if declines else "answered")


class _Questions:
    """Questions about the sentences of one call, with the same *chunks* in front of each."""

    def __init__(self, source: PromptInput, chunks: Sequence[PromptChunk]) -> None:
        self._chunks, self._turn_chars = chunks, chars_of_turns(source.earlier_turns)
        turns = "\n".join(f"{turn.role}: {_quoted(turn.text)}" for turn in source.earlier_turns)
        before = f"Earlier turns of the conversation:\n{turns}\n\n" if turns else ""
        shown = "".join(f"Passage {number}: {_quoted(chunk.text)}\n\n" for number, chunk in enumerate(chunks, 1))
        self._state = f"{shown}{before}The question was: {_quoted(source.query)}"
        self._search = PassageSearch([chunk.text for chunk in chunks], source.answer)
        self._terms = SourceTerms(
            source.query, source.earlier_turns, [unit.text for unit in source.sentences], source.chunks
        )
        self._system, *self._examples = example_messages("one_sentence")

    async def ask(self, session: JudgeSession, sentence: str) -> Verdict:
        """Ask the LLM whether the chunks state all of *sentence*."""
        closest = self._search.closest(sentence, _MOST_CLOSEST)
        beside = "".join(f"\n- {_quoted(each.text)}" for each in closest)
        beside = f"\n\nThe parts of the passages closest to it are:{beside}" if beside else ""
        prompt = Prompt(
            "ragtrace_sentence",
            self._system,
            f"{self._state}\n\nOne sentence of the answer is: {_quoted(sentence)}{beside}\n\n{_ASKED}",
            _SCHEMA,
            read_sentence_reply,
            _TOKENS,
            turn_chars=self._turn_chars,
            examples=tuple(self._examples),
        )
        support = (await session.ask(prompt)).reply.support
        if support == "supported" and self._terms.absent(sentence, self._chunks):
            return Verdict("not_found", unverified=True, unfounded=True)
        ranks = () if support in (None, "not_found") else tuple(self._chunks[each.rank - 1].rank for each in closest)
        return Verdict(support, tuple(dict.fromkeys(ranks)))


def read_sentence_reply(data: dict[str, Any]) -> SentenceReply:
    """Read the label from *data*, the JSON object in the LLM's reply, which may have any form."""
    reader = ReplyReader(data)
    label = reader.label(reader.data.get("stated"), tuple(_SUPPORTS), "stated")
    return SentenceReply(None if label is None else _SUPPORTS[label], reader.defects)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
