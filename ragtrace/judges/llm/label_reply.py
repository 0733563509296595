"""Requests for the labels of a call (`LabelTask`), and the labels in the JSON that the LLM replies (`LabelReply`).

Statements that the model wrote are numbered by their place; an entry that is no statement is an unjudged statement
without a text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

from ragtrace.core.labels import AnswerLabel, CitationSupport, Relevance, SentenceRelevance, Support, Turn
from ragtrace.judges.lexical.lexicon import detect_language
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.prompt import (
    MOST_TOKENS,
    YES_NO,
    Prompt,
    Schema,
    chars_of_turns,
    enum,
    id_text_list,
    object_with,
    objects,
    string,
    strings,
    turn_list,
    user_message,
)
from ragtrace.judges.llm.prompt_input import AnswerUnit, DistinctCitation, PromptChunk
from ragtrace.judges.llm.prompts import LABELS, Kind, Label, request_parts, system_message
from ragtrace.judges.llm.quotes import (
    TextTerms,
    absent_terms,
    quote_nearly_occurs,
    quote_occurs,
    quote_too_short,
    shares_word,
)
from ragtrace.judges.llm.reply_reader import MOST_ENTRIES, ReplyReader, one_line, shorten_value

_QUOTE_CHARS: Final = 1_000
_DIGITS: Final = re.compile(r"\d+")
_SAMPLE_CHARS: Final = 500
"""Number of characters from which the language is detected."""

SENTENCE_RELEVANCES: Final[tuple[SentenceRelevance, ...]] = ("yes", "background", "no", "filler")
RELEVANCES: Final[tuple[Relevance, ...]] = ("yes", "background", "no")
SUPPORTS: Final[tuple[Support, ...]] = ("supported", "partial", "contradicted", "not_found")
LEVELS: Final = ("0", "1", "2", "3")
CITATION_SUPPORTS: Final[tuple[CitationSupport, ...]] = ("full", "partial", "none")
ANSWER_LABELS: Final[tuple[AnswerLabel, ...]] = ("answered", "abstained")

# Evidence stands before the label that depends on it: a model decides while it writes.
_SENTENCES: Final = objects(id=string(), relevant=enum(SENTENCE_RELEVANCES))
_STATEMENT: Final[Mapping[str, Schema]] = {
    "sentence_ids": strings(),
    "text": string(),
    "checkable": enum(YES_NO),
    "relevant": enum(RELEVANCES),
}
_VERDICT: Final[Mapping[str, Schema]] = {"evidence_chunk_ids": strings(), "quote": string(), "support": enum(SUPPORTS)}
_CHUNK_LABELS: Final[Mapping[str, tuple[str, ...]]] = {"contradicted": YES_NO, "grade": LEVELS}
_CITATIONS: Final = objects(id=string(), support=enum(CITATION_SUPPORTS))
_ANSWER: Final[Mapping[str, Schema]] = {"answer_rating": enum(LEVELS), "answer_label": enum(ANSWER_LABELS)}

NAMES: Final[Mapping[Kind, str]] = {
    "full": "ragtrace_judgement",
    "extract": "ragtrace_extraction",
    "verify": "ragtrace_verification",
    "contradicted": "ragtrace_contradiction",
}


@lru_cache(maxsize=256)
def reply_schema(kind: Kind, parts: frozenset[str] | None = None) -> Schema:
    """Return the JSON schema of the reply to a request, with a key for each of its *parts*.

    Args:
        parts: of the request, from `request_parts`; None: those with all labels.
    """
    parts = request_parts(kind) if parts is None else parts
    fields: dict[str, Schema] = {}
    if "sentences" in parts:
        fields["sentences"] = _SENTENCES
    verdict = _VERDICT if "support" in parts else {}
    if parts & {"rated", "bare"}:
        numbered = {"id": string()} if parts & {"rated", "given"} else {}
        left_out = () if "rated" in parts else ("checkable", "relevant")
        stated = {name: part for name, part in _STATEMENT.items() if name not in left_out}
        fields["statements"] = objects(**numbered, **stated, **verdict)
    elif verdict:
        fields["statements"] = objects(id=string(), **verdict)
    if "bare" in parts:
        fields["no_statement_ids"] = strings()
    if chunk := {name: enum(labels) for name, labels in _CHUNK_LABELS.items() if name in parts}:
        fields["chunks"] = objects(id=string(), **chunk)
    if "citations" in parts:
        fields["citations"] = _CITATIONS
    return object_with(**fields, **{name: part for name, part in _ANSWER.items() if name in parts})


@dataclass(frozen=True, slots=True)
class LabelTask:
    """Sentences, statements, chunks and citations that one request asks the LLM to label.

    The reply must name exactly their ids.
    """

    kind: Kind
    query: str = ""
    sentences: tuple[AnswerUnit, ...] = ()
    """Sentences to label or, in a request of kind `contradicted`, to compare the chunks with."""
    chunks: tuple[PromptChunk, ...] = ()
    citations: tuple[DistinctCitation, ...] = ()
    parts: tuple[AnswerUnit, ...] = ()
    """Parts of the answer with citations: those that the application gave, or sentences that are not to be labelled."""
    given: Mapping[str, str] | None = None
    """Text of each statement to verify, by id, gold checks included; None if the model extracts the statements."""
    gold_checks: frozenset[str] = frozenset()
    """Ids of statements with a known label: the request for a repair must not reveal defects of their evidence."""
    earlier_turns: tuple[Turn, ...] = ()
    """Turns of the conversation before the query, which help to understand the query."""
    labels: frozenset[Label] = LABELS
    """Labels that are wanted, as far as this kind of request can ask for them."""

    @property
    def parts_asked(self) -> frozenset[str]:
        """Parts of this request, as `request_parts` says."""
        return request_parts(self.kind, self.labels, given=bool(self.given))

    @property
    def ample_tokens(self) -> int:
        """Token limit for the LLM's reply, well above what labels of all items need."""
        items = len(self.sentences) + len(self.chunks) + len(self.citations)
        # A statement restates a sentence, in any script, with names for pronouns, and has a quote and a dozen fields.
        extracts = not self.parts_asked.isdisjoint({"rated", "bare"})
        statements = sum(250 + 5 * len(unit.text) for unit in self.sentences) if extracts else 0
        return min(MOST_TOKENS, 500 + 30 * items + 250 * len(self.given or ()) + statements)

    def data(self) -> dict[str, object]:
        """Return the data that the user message shows the LLM, such as query, sentences and chunks."""
        data: dict[str, object] = {}
        if self.earlier_turns:
            data["earlier_turns"] = turn_list(self.earlier_turns)
        data["query"] = self.query
        if self.kind != "verify":
            data["answer_sentences"] = id_text_list({unit.id: unit.text for unit in self.sentences})
        if self.parts:
            data["answer_parts"] = id_text_list({unit.id: unit.text for unit in self.parts})
        if self.kind != "extract":
            data["chunks"] = id_text_list({chunk.id: chunk.text for chunk in self.chunks})
        if "citations" in self.parts_asked:
            data["citations"] = [
                {"id": cited.id, "sentence_id": cited.unit_id, "chunk_id": cited.chunk_id} for cited in self.citations
            ]
        if "given" in self.parts_asked:
            data["given_statements"] = id_text_list(self.given or {})
        return data


@dataclass(frozen=True, slots=True)
class Verdict:
    """Label of a statement: whether the retrieved chunks support it, with the chunks and the quote that show it."""

    support: Support | None
    evidence: tuple[int, ...] = ()
    """Ranks of the chunks that show the label, best chunk first."""
    quote: str | None = None
    """Words of a chunk that decide the label; None if they do not occur in a chunk that the model named."""
    unverified: bool = False
    """Whether nothing shows the label: evidence is missing, or the quote does not occur in the chunk named."""
    unfounded: bool = False
    """Whether it is unverified and its quote is no honest attempt, such as one of two words or with a word changed."""


UNJUDGED: Final = Verdict(None)
MOST_UNVERIFIED: Final = 0.2
"""Largest share of unverified statements with which the labels of `fast` are believed.

If none of these labels is true, a share such as `faithfulness` is off by this much. Uncovered sentences and unjudged
statements have the same limit. One of five statements is tolerated, none of a shorter answer; those that are not
`unfounded` do not count.
"""
_SLACK: Final = 1e-9


def too_many_unverified(verdicts: Iterable[Verdict]) -> bool:
    """Return whether more than `MOST_UNVERIFIED` of *verdicts* have a label that nothing shows."""
    judged = [verdict.unfounded for verdict in verdicts if verdict.support is not None]
    return sum(judged) > MOST_UNVERIFIED * len(judged) + _SLACK


@dataclass(frozen=True, slots=True)
class ExtractedStatement:
    """Statement that the LLM extracted from the answer, with the labels that the LLM gave it."""

    text: str
    """Text of the statement; "" for an entry that is no statement, which counts as an unjudged one."""
    sentences: tuple[int, ...]
    """Ascending indices of the sentences that make the statement."""
    checkable: bool
    relevant: Relevance | None
    verdict: Verdict = UNJUDGED

    @property
    def labels(self) -> tuple[bool, Relevance | None, Support | None]:
        """Labels of the statement: checkability, relevance and support.

        They must agree if the LLM lists the statement twice.
        """
        return self.checkable, self.relevant, self.verdict.support


@dataclass(slots=True)
class LabelReply:
    """Labels read from the LLM's reply to one `LabelTask`, a request for labels.

    A part that is None was missing or no list.
    """

    sentences: dict[str, SentenceRelevance | None] | None = None
    skipped: frozenset[str] = frozenset()
    """Ids of sentences of which no statement is wanted: they are filler, or hold nothing that can be checked."""
    statements: list[ExtractedStatement] | None = None
    given: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    contradicted: dict[str, bool | None] | None = None
    grades: dict[str, int | None] | None = None
    citations: dict[str, CitationSupport | None] | None = None
    answer_rating: int | None = None
    answer_label: AnswerLabel | None = None
    defects: list[str] = field(default_factory=list[str])
    """Broken rules that make items unjudged, in words for the model, which is asked for a repair."""
    unproven: list[str] = field(default_factory=list[str])
    """Defects that make statements unverified: evidence is missing, or a quote does not occur in the chunk named."""


def label_prompt(task: LabelTask, *, prove: bool = False) -> Prompt[LabelReply]:
    """Return the prompt that asks the LLM for the labels of *task*.

    Args:
        prove: whether missing evidence, or a quote that does not occur where it should, is a defect of the reply. It
            always is if there are too many.
    """

    def read_reply(data: dict[str, object]) -> LabelReply:
        reply = read_label_reply(data, task)
        if prove or too_many_unverified(one.verdict for one in reply.statements or () if one.checkable):
            reply.defects += reply.unproven
        return reply

    message = user_message(task.data())
    system = system_message(task.kind, task.parts_asked, with_turns=bool(task.earlier_turns))
    turn_chars = chars_of_turns(task.earlier_turns)
    schema = reply_schema(task.kind, task.parts_asked)
    return Prompt(NAMES[task.kind], system, message, schema, read_reply, task.ample_tokens, turn_chars=turn_chars)


def read_label_reply(data: object, task: LabelTask) -> LabelReply:
    """Read the labels from *data*, the JSON object in the LLM's reply to the request *task*.

    The object may have any form.
    """
    return _LabelReplyReader(data, task).reply


def uncovered_sentences(
    units: Sequence[AnswerUnit],
    skipped: Collection[str],
    statements: Sequence[ExtractedStatement],
    label: AnswerLabel | None,
) -> list[int]:
    """Return the indices of the sentences, except those *skipped*, from which the LLM extracted no statement.

    An answer that declines and states nothing has none: there was nothing to extract.
    """
    if label == "abstained" and not any(statement.checkable for statement in statements):
        return []
    covered = {index for statement in statements for index in statement.sentences}
    meant = [int(unit.id[1:]) - 1 for unit in units if unit.id not in skipped]
    return [index for index in meant if index not in covered]


def omitted_terms(
    units: Sequence[AnswerUnit], skipped: Collection[str], statements: Sequence[ExtractedStatement]
) -> dict[int, list[str]]:
    """Return which numbers and names of each sentence the LLM omitted from the extracted statements.

    A sentence that is *skipped* or in no statement is left out.
    """
    names = _language_of(_language_sample(unit.text for unit in units)) != "de"  # in German, every noun has a capital
    texts: dict[int, list[str]] = {}
    for statement in statements:
        for index in statement.sentences:
            texts.setdefault(index, []).append(statement.text)
    found = {int(unit.id[1:]) - 1: unit for unit in units if unit.id not in skipped and unit.id.startswith("s")}
    absent = {i: _omitted_from(unit.text, " ".join(texts[i]), names) for i, unit in found.items() if i in texts}
    return {index: list(texts) for index, texts in absent.items() if texts}


@lru_cache(maxsize=128)  # asked for twice: when a reply is read, and when the judgement is built
def _omitted_from(sentence: str, statements: str, names: bool) -> tuple[str, ...]:
    return tuple(absent_terms(sentence, [TextTerms(statements)], with_names=names))


def _language_sample(parts: Iterable[str]) -> str:
    """Return the joined beginnings of *parts*, long enough to detect the language of the text."""
    return " ".join([part[:_SAMPLE_CHARS] for part in parts])[:_SAMPLE_CHARS]


# The same texts are asked about for a reply, for its repair, and when the judgement is built.
_language_of = lru_cache(maxsize=64)(detect_language)


class SourceTerms:
    """Numbers and names that statements may have: those of chunks, and of what the user asked.

    Args:
        query: the query.
        turns: earlier turns of the conversation.
        statements: texts of the answer, in whose language it is told what a name is.
        chunks: the chunks.
    """

    def __init__(
        self, query: str, turns: Sequence[Turn], statements: Iterable[str], chunks: Sequence[PromptChunk]
    ) -> None:
        said = " ".join(turn.text for turn in turns if turn.role == "user")
        # A pronoun of the query may stand for a name in an earlier turn; numbers, however, must be in a chunk.
        self._asked = (TextTerms(query), TextTerms(_DIGITS.sub(" ", said)))
        self._written = _language_of(_language_sample(statements)) if chunks else ""
        read = _language_of(_language_sample(chunk.text for chunk in chunks)) if chunks else ""
        self.translated: Final = bool(self._written and read and self._written != read)
        """Whether the statements have other words and forms of names than the chunks: only numbers are comparable."""

    def absent(self, text: str, chunks: Sequence[PromptChunk]) -> list[str]:
        """Return the numbers and names of the statement *text* that neither *chunks* nor the user's words have."""
        evidence = [*self._asked, *(chunk.terms for chunk in chunks)]
        return absent_terms(text, evidence, with_names=self._written != "de" and not self.translated)


class _LabelReplyReader(ReplyReader):
    """Reader of the labels in the LLM's reply to a `LabelTask`, which is a request for labels."""

    def __init__(self, data: object, task: LabelTask) -> None:
        super().__init__(data)
        self._task = task
        self._chunks = {chunk.id: chunk for chunk in task.chunks}
        self._indices = {unit.id: int(unit.id[1:]) - 1 for unit in task.sentences}
        self._parts = parts = task.parts_asked
        stated = [*(unit.text for unit in task.sentences), *(task.given or {}).values()]
        self._terms = SourceTerms(task.query, task.earlier_turns, stated, task.chunks)
        self.reply = reply = LabelReply(defects=self.defects)
        if "sentences" in parts:
            reply.sentences = self._labels("sentences", "relevant", SENTENCE_RELEVANCES, self._indices)
        if "citations" in parts:
            cited = [citation.id for citation in task.citations]
            reply.citations = self._labels("citations", "support", CITATION_SUPPORTS, cited)
        if wanted := {name: labels for name, labels in _CHUNK_LABELS.items() if name in parts}:
            labels = self.labels("chunks", self._chunks, wanted) or {}
            if (denied := labels.get("contradicted")) is not None:
                reply.contradicted = {key: None if label is None else label == "yes" for key, label in denied.items()}
            if (grades := labels.get("grade")) is not None:
                reply.grades = {key: None if level is None else int(level) for key, level in grades.items()}
        if "answer_rating" in parts:
            level = self.label(self.data.get("answer_rating"), LEVELS, "answer_rating")
            reply.answer_rating = None if level is None else int(level)
        if "answer_label" in parts:
            reply.answer_label = self.label(self.data.get("answer_label"), ANSWER_LABELS, "answer_label")
        if "bare" in parts:
            reply.skipped = frozenset(self._known_ids(self.data, "no_statement_ids", self._indices, "the reply"))
        elif reply.sentences is not None:
            reply.skipped = frozenset(key for key, relevant in reply.sentences.items() if relevant == "filler")
        if parts & {"statements", "given"}:
            self._read_statements()

    def _labels(self, part: str, name: str, allowed: tuple[str, ...], ids: Collection[str]) -> dict[str, Any] | None:
        found = self.labels(part, ids, {name: allowed})
        return None if found is None else found[name]

    def _read_statements(self) -> None:
        items = self.entries("statements")
        given = self._task.given or {}
        statements: dict[str, ExtractedStatement] | None = None if items is None or self._task.kind == "verify" else {}
        seen: dict[str, Verdict] = {}
        for index, item in enumerate(items or ()):
            key, where = item.get("id"), f"statements[{index}]"
            if isinstance(key, str) and key in given:
                self._add_given(seen, key, item, where)
            elif statements is None:
                self.add_defect(f"{where}: unknown id {shorten_value(key)}")
            else:
                self._add_stated(
                    statements, key if isinstance(key, str) else where, self._read_statement(item, where), where
                )
        for key in given:
            if key not in seen:
                self.add_defect(f"statements: {key} is missing")
        self.reply.given = {key: seen.get(key, UNJUDGED) for key in given}
        if statements is not None:
            self.reply.statements = list(statements.values())
        if self._task.kind != "verify":
            self._check_coverage()

    def _add_given(self, seen: dict[str, Verdict], key: str, item: Mapping[str, object], where: str) -> None:
        before = len(self.reply.unproven)
        verdict = self._verdict(item, where, (self._task.given or {})[key])
        if key in self._task.gold_checks:
            del self.reply.unproven[before:]
        if key in seen and seen[key].support != verdict.support:
            self.add_defect(f"statements: two different labels support for {key}")
            verdict = UNJUDGED
        seen[key] = verdict

    def _add_stated(
        self, statements: dict[str, ExtractedStatement], key: str, statement: ExtractedStatement, where: str
    ) -> None:
        """Add *statement*, which the LLM extracted, to *statements* under the id *key*.

        A repeated statement counts once, and is unjudged if its labels differ. Two statements with one id count as two.
        """
        other = statements.get(key)
        if other is None:
            statements[key] = statement
        elif (other.text, other.sentences) != (statement.text, statement.sentences):
            self.add_defect(f"{where}: id {shorten_value(key)} is used twice")
            statements[f"{where} {key}"] = statement
        elif other.labels != statement.labels:
            self.add_defect(f"{where}: two different labels for {shorten_value(key)}")
            statements[key] = ExtractedStatement(statement.text, statement.sentences, checkable=True, relevant=None)

    def _read_statement(self, item: Mapping[str, object], where: str) -> ExtractedStatement:
        text = one_line(item.get("text"))
        if not text:
            self.add_defect(f"{where}.text is missing or empty")
            return ExtractedStatement("", (), checkable=True, relevant=None)
        sentences = sorted(
            {self._indices[name] for name in self._known_ids(item, "sentence_ids", self._indices, where)}
        )
        if not sentences:
            self.add_defect(f"{where}.sentence_ids names no sentence")
            # No sentence shows that the answer makes this statement.
            return ExtractedStatement(text, (), checkable=True, relevant=None)
        checkable: str | None = "yes"
        relevant: Relevance | None = None
        if "rated" in self._parts:
            checkable = self.label(item.get("checkable"), YES_NO, f"{where}.checkable")
            relevant = self.label(item.get("relevant"), RELEVANCES, f"{where}.relevant")
        verdict = UNJUDGED
        if "support" in self._parts and checkable == "yes":
            verdict = self._verdict(item, where, text)
        return ExtractedStatement(text, tuple(sentences), checkable != "no", relevant, verdict)

    def _verdict(self, item: Mapping[str, object], where: str, text: str) -> Verdict:
        support: Support | None = self.label(item.get("support"), SUPPORTS, f"{where}.support")
        named = self._known_ids(item, "evidence_chunk_ids", self._chunks, where)
        chunks = [self._chunks[name] for name in dict.fromkeys(named)]
        if support is None or support == "not_found":
            return Verdict(support)
        quote = item.get("quote")
        quote = without_invisible(quote[: 2 * _QUOTE_CHARS])[:_QUOTE_CHARS].strip() if isinstance(quote, str) else ""
        source = next((chunk for chunk in chunks if quote and quote_occurs(quote, chunk.folded)), None)
        wrong, unfounded = ("", False) if chunks else (f"{support} needs an id in evidence_chunk_ids", True)
        if chunks and support == "supported":
            wrong, unfounded = self._quote_defect(text, quote, source, chunks)
        if wrong:
            self.reply.unproven.append(f"{where}: {wrong}")
        ranks = tuple(chunk.rank for chunk in chunks)
        return Verdict(support, ranks, quote if source else None, bool(wrong), unfounded)

    def _quote_defect(
        self, text: str, quote: str, source: PromptChunk | None, chunks: Sequence[PromptChunk]
    ) -> tuple[str, bool]:
        """Return why the quoted passage cannot support the statement *text*, or "" if the passage can.

        Also returns whether that makes the label unfounded.
        """
        names = ", ".join(chunk.id for chunk in chunks)
        absent_quote = f"quote does not occur in {names}"
        if source is None and not any(quote_nearly_occurs(quote, chunk.folded) for chunk in chunks):
            return absent_quote, True
        if not self._terms.translated and not shares_word(quote, text):
            return "quote has no word of the statement: quote what supports it", True
        if absent := self._terms.absent(text, chunks):
            return f"{shorten_value(absent[0])} is not in {names}: name the chunk that has it, or label anew", True
        if source is None:
            return absent_quote, False
        return ("quote must have at least three words", False) if quote_too_short(quote, source.folded) else ("", False)

    def _check_coverage(self) -> None:
        units, skipped, statements = self._task.sentences, self.reply.skipped, self.reply.statements or ()
        left_out = "is not in no_statement_ids" if "bare" in self._parts else "is not filler"
        for index in uncovered_sentences(units, skipped, statements, self.reply.answer_label):
            self.add_defect(f"statements: s{index + 1} {left_out}, but no statement has it in its sentence_ids")
        for index, absent in omitted_terms(units, skipped, statements).items():
            self.reply.unproven.append(f"statements: no statement of s{index + 1} has its {shorten_value(absent[0])}")

    def _known_ids(self, item: Mapping[str, object], name: str, ids: Collection[str], where: str) -> list[str]:
        """Return the valid ids in the list *name* of *item*, and record all other entries as defects."""
        value = item.get(name)
        if not isinstance(value, list):
            self.add_defect(f"{where}.{name} is missing or no list")
            return []
        found: list[str] = []
        for one in cast("list[object]", value)[: len(ids) + MOST_ENTRIES]:
            if isinstance(one, str) and one in ids:
                found.append(one)
            else:
                self.add_defect(f"{where}.{name}: unknown id {shorten_value(one)}")
        return found
