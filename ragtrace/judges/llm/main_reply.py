"""Reads the main reply: any JSON to labels and a list of defects. Never raises, and never fills in a default.

Items that the request enumerates (sentences, chunks, citations, given statements) are looked up by id: an id without
exactly one valid label is unjudged, an id that is not in the request is a defect and nothing else. Statements that the
model wrote are numbered by their place; an entry that is no statement is an unjudged statement without a text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar, cast

from ragtrace.core.labels import AnswerLabel, CitationSupport, Relevance, SentenceRelevance, Support
from ragtrace.judges.lexical.text import language
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.main_prompt import (
    ANSWER_LABELS,
    CITATION_SUPPORTS,
    LEVELS,
    NAMES,
    RELEVANCES,
    SCHEMAS,
    SENTENCE_RELEVANCES,
    SUPPORTS,
    LabelTask,
)
from ragtrace.judges.llm.prompt import Prompt, user_message
from ragtrace.judges.llm.prompt_input import Chunk, Unit
from ragtrace.judges.llm.prompts import system_message
from ragtrace.judges.llm.quotes import TextTerms, absent_terms, occurs, overlaps, too_short
from ragtrace.judges.llm.schemas import YES_NO

MOST_STATEMENTS: Final = 1_000
"""Entries of a list; a longer one is no judgement of one answer."""
_TEXT_CHARS: Final = 500
_QUOTE_CHARS: Final = 1_000
_SHOWN_CHARS: Final = 40
_SAMPLE_CHARS: Final = 500
"""Characters that are enough to tell a language."""

L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Label of a statement: how the chunks support it, with the evidence."""

    support: Support | None
    evidence: tuple[int, ...] = ()
    """Ranks of chunks, best first."""
    quote: str | None = None
    """Words of a chunk that decide; None: they do not occur in a chunk that the model named."""
    unverified: bool = False
    """Nothing shows the label: evidence is missing, or the quote does not occur where it should."""


UNJUDGED: Final = Verdict(None)


@dataclass(frozen=True, slots=True)
class ExtractedStatement:
    """Statement that the model extracted from the answer, with its labels."""

    text: str
    """"" if the entry was no statement: it counts as an unjudged one."""
    sentences: tuple[int, ...]
    """Indices of the sentences that make the statement, ascending."""
    checkable: bool
    relevant: Relevance | None
    verdict: Verdict = UNJUDGED


@dataclass(slots=True)
class MainReply:
    """Labels in one main reply. A part that is None was missing or no list."""

    sentences: dict[str, SentenceRelevance | None] | None = None
    statements: list[ExtractedStatement] | None = None
    given: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    contradicted: dict[str, bool | None] | None = None
    grades: dict[str, int | None] | None = None
    citations: dict[str, CitationSupport | None] | None = None
    answer_rating: int | None = None
    answer_label: AnswerLabel | None = None
    defects: list[str] = field(default_factory=list[str])
    """Broken rules that make items unjudged: worth a repair."""
    unproven: list[str] = field(default_factory=list[str])
    """Evidence that is missing or does not occur where it should, which makes statements unverified."""


def main_prompt(task: LabelTask, *, prove: bool = False) -> Prompt[MainReply]:
    """Return the prompt of *task*.

    Args:
        prove: whether missing evidence, or a quote that does not occur where it should, is a defect of the reply.
    """

    def read_reply(data: dict[str, object]) -> MainReply:
        reply = read_main_reply(data, task)
        if prove:
            reply.defects += reply.unproven
        return reply

    message = user_message(task.data())
    schema = SCHEMAS[task.kind]
    return Prompt(NAMES[task.kind], system_message(task.kind), message, schema, read_reply, task.ample_tokens)


def read_main_reply(data: object, task: LabelTask) -> MainReply:
    """Return the labels in *data*, which may be anything that JSON can say."""
    return _Reader(data if isinstance(data, dict) else {}, task).reply  # pyright: ignore[reportUnknownArgumentType]


def uncovered(
    sentences: Mapping[int, SentenceRelevance | None],
    statements: Sequence[ExtractedStatement],
    label: AnswerLabel | None,
) -> list[int]:
    """Return the indices of the sentences that are not filler and that no statement covers.

    An answer that declines and states nothing has none: there was nothing to extract.
    """
    if label == "abstained" and not any(statement.checkable for statement in statements):
        return []
    covered = {index for statement in statements for index in statement.sentences}
    return [index for index, relevant in sentences.items() if relevant != "filler" and index not in covered]


def omitted(
    units: Sequence[Unit], sentences: Mapping[str, SentenceRelevance | None], statements: Sequence[ExtractedStatement]
) -> dict[int, list[str]]:
    """Return the numbers and names of the answer's sentences that no statement of the sentence has, by its index.

    A sentence that is filler or in no statement is left out.
    """
    names = has_names(unit.text for unit in units)
    texts: dict[int, list[str]] = {}
    for statement in statements:
        for index in statement.sentences:
            texts.setdefault(index, []).append(statement.text)
    found = {
        int(unit.id[1:]) - 1: unit for unit in units if sentences.get(unit.id) != "filler" and unit.id.startswith("s")
    }
    absent = {i: _omitted_from(unit.text, " ".join(texts[i]), names) for i, unit in found.items() if i in texts}
    return {index: list(texts) for index, texts in absent.items() if texts}


@lru_cache(maxsize=128)  # a reply is read, and concluded from right behind
def _omitted_from(sentence: str, statements: str, names: bool) -> tuple[str, ...]:
    return tuple(absent_terms(sentence, [TextTerms(statements)], with_names=names))


def has_names(texts: Iterable[str]) -> bool:
    """Return whether capitals tell names in *texts*: in German all nouns have them."""
    return _language_of(_sample(texts)) != "de"


def _sample(texts: Iterable[str]) -> str:
    taken: list[str] = []
    chars = 0
    for text in texts:
        if chars > _SAMPLE_CHARS:
            break
        taken.append(text)
        chars += len(text) + 1
    return " ".join(taken)[:_SAMPLE_CHARS]


# The same answer and chunks are looked at for a reply, its repair and the conclusion.
_language_of = lru_cache(maxsize=64)(language)


class _Reader:
    def __init__(self, data: Mapping[str, object], task: LabelTask) -> None:
        self._data, self._task = data, task
        self._fields = task.fields
        self._chunks = {chunk.id: chunk for chunk in task.chunks}
        self._indices = {unit.id: int(unit.id[1:]) - 1 for unit in task.sentences}
        self._query_terms = TextTerms(task.query)
        self._has_names, self._translates = True, False
        if task.kind in ("full", "verify"):
            written = _language_of(_sample([*(unit.text for unit in task.sentences), *(task.given or {}).values()]))
            read = _language_of(_sample(chunk.text for chunk in task.chunks))
            # Other words, and other forms of names, than the statements: only quotes and numbers can be compared.
            self._translates = bool(written and read and written != read)
            self._has_names = written != "de"
        self.reply = reply = MainReply()
        if "sentences" in self._fields:
            reply.sentences = self._labels("sentences", "relevant", SENTENCE_RELEVANCES, self._indices)
        if "citations" in self._fields:
            cited = [citation.id for citation in task.citations]
            reply.citations = self._labels("citations", "support", CITATION_SUPPORTS, cited)
        if "chunks" in self._fields:
            self._read_chunks()
        if "answer_rating" in self._fields:
            level = self._label(data.get("answer_rating"), LEVELS, "answer_rating")
            reply.answer_rating = None if level is None else int(level)
            reply.answer_label = self._label(data.get("answer_label"), ANSWER_LABELS, "answer_label")
        if "statements" in self._fields:
            self._read_statements()

    # --- labels by id ------------------------------------------------------------------------------------------------

    def _labels(self, part: str, name: str, allowed: tuple[L, ...], ids: Collection[str]) -> dict[str, L | None] | None:
        """Return the label called *name* of each of *ids*; None where there is none, an unknown one or two."""
        items = self._items(part)
        if items is None:
            for wanted in ids:  # the number of defects tells which of two replies is better
                self._defect(f"{part}: {wanted} is missing")
            return None
        found: dict[str, L | None] = {}
        for index, item in items:
            key = item.get("id")
            if not isinstance(key, str) or key not in ids:
                self._defect(f"{part}[{index}]: unknown id {_shown(key)}")
                continue
            label = self._label(item.get(name), allowed, f"{part}[{index}].{name}")
            if key in found and found[key] != label:
                self._defect(f"{part}: two different labels {name} for {key}")
                label = None
            found[key] = label
        for key in ids:
            if key not in found:
                self._defect(f"{part}: {key} is missing")
        return {key: found.get(key) for key in ids}

    def _read_chunks(self) -> None:
        denied = self._labels("chunks", "contradicted", YES_NO, self._chunks)
        if denied is not None:
            self.reply.contradicted = {key: None if label is None else label == "yes" for key, label in denied.items()}
        if self._task.kind != "contradicted":
            before = len(self.reply.defects)
            grades = self._labels("chunks", "grade", LEVELS, self._chunks)
            if grades is not None:
                self.reply.grades = {key: None if level is None else int(level) for key, level in grades.items()}
            # The second pass finds the same wrong ids again.
            known = set(self.reply.defects[:before])
            self.reply.defects[before:] = [defect for defect in self.reply.defects[before:] if defect not in known]

    # --- statements --------------------------------------------------------------------------------------------------

    def _read_statements(self) -> None:
        items = self._items("statements")
        given = self._task.given or {}
        statements: dict[str, ExtractedStatement] | None = None if items is None or self._task.kind == "verify" else {}
        seen: dict[str, Verdict] = {}
        for index, item in items or ():
            key, where = item.get("id"), f"statements[{index}]"
            if isinstance(key, str) and key in given:
                self._add_given(seen, key, item, where)
            elif statements is None:
                self._defect(f"{where}: unknown id {_shown(key)}")
            else:
                self._add_stated(statements, key if isinstance(key, str) else where, self._stated(item, where), where)
        for key in given:
            if key not in seen:
                self._defect(f"statements: {key} is missing")
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
            self._defect(f"statements: two different labels support for {key}")
            verdict = UNJUDGED
        seen[key] = verdict

    def _add_stated(
        self, statements: dict[str, ExtractedStatement], key: str, statement: ExtractedStatement, where: str
    ) -> None:
        """Add *statement*; an equal one counts once, with other labels it is unjudged; an id used twice numbers two."""
        other = statements.get(key)
        if other is None:
            statements[key] = statement
        elif (other.text, other.sentences) != (statement.text, statement.sentences):
            self._defect(f"{where}: id {_shown(key)} is used twice")
            statements[f"{where} {key}"] = statement
        elif _labels_of(other) != _labels_of(statement):
            self._defect(f"{where}: two different labels for {_shown(key)}")
            statements[key] = ExtractedStatement(statement.text, statement.sentences, checkable=True, relevant=None)

    def _stated(self, item: Mapping[str, object], where: str) -> ExtractedStatement:
        text = item.get("text")
        text = " ".join(without_invisible(text).split())[:_TEXT_CHARS] if isinstance(text, str) else ""
        if not text:
            self._defect(f"{where}.text is missing or empty")
            return ExtractedStatement("", (), checkable=True, relevant=None)
        sentences = sorted({self._indices[name] for name in self._known(item, "sentence_ids", self._indices, where)})
        if not sentences:
            self._defect(f"{where}.sentence_ids names no sentence")
            # Nothing shows that the answer says so.
            return ExtractedStatement(text, (), checkable=True, relevant=None)
        checkable = self._label(item.get("checkable"), YES_NO, f"{where}.checkable")
        relevant: Relevance | None = self._label(item.get("relevant"), RELEVANCES, f"{where}.relevant")
        verdict = UNJUDGED
        if self._task.kind == "full" and checkable == "yes":
            verdict = self._verdict(item, where, text)
        return ExtractedStatement(text, tuple(sentences), checkable != "no", relevant, verdict)

    def _verdict(self, item: Mapping[str, object], where: str, text: str) -> Verdict:
        support: Support | None = self._label(item.get("support"), SUPPORTS, f"{where}.support")
        named = self._known(item, "evidence_chunk_ids", self._chunks, where)
        chunks = [self._chunks[name] for name in dict.fromkeys(named)]
        if support is None or support == "not_found":
            return Verdict(support)
        quote = item.get("quote")
        quote = without_invisible(quote[: 2 * _QUOTE_CHARS])[:_QUOTE_CHARS].strip() if isinstance(quote, str) else ""
        source = _source(quote, chunks)
        wrong = f"{support} needs an id in evidence_chunk_ids" if not chunks else ""
        if chunks and support == "supported":
            wrong = self._unproven(text, quote, source, chunks)
        if wrong:
            self.reply.unproven.append(f"{where}: {wrong}")
        return Verdict(support, tuple(chunk.rank for chunk in chunks), quote if source else None, bool(wrong))

    def _unproven(self, text: str, quote: str, source: Chunk | None, chunks: Sequence[Chunk]) -> str:
        """Return why *quote* and *chunks* do not show that the statement *text* is supported; "" if they may."""
        names = ", ".join(chunk.id for chunk in chunks)
        if source is None:
            return f"quote does not occur in {names}"
        if too_short(quote, source.folded):
            return "quote must have at least three words"
        if not self._translates and not overlaps(quote, text):
            return "quote has no word of the statement: quote what supports it"
        evidence = [self._query_terms, *(chunk.terms for chunk in chunks)]
        absent = absent_terms(text, evidence, with_names=self._has_names and not self._translates)
        return f"{_shown(absent[0])} is not in {names}: name the chunk that has it, or label anew" if absent else ""

    def _check_coverage(self) -> None:
        labels = self.reply.sentences or {}
        relevance: dict[int, SentenceRelevance | None] = {i: labels.get(name) for name, i in self._indices.items()}
        statements = self.reply.statements or ()
        for index in uncovered(relevance, statements, self.reply.answer_label):
            self._defect(f"statements: s{index + 1} is not filler, but no statement has it in its sentence_ids")
        for index, absent in omitted(self._task.sentences, labels, statements).items():
            self.reply.unproven.append(f"statements: no statement of s{index + 1} has its {_shown(absent[0])}")

    # --- shapes ------------------------------------------------------------------------------------------------------

    def _items(self, part: str) -> list[tuple[int, Mapping[str, object]]] | None:
        """Return the entries of the list *part*, with their places; None if there is no such list, or it is endless.

        An entry that is no object is a defect, and an empty object.
        """
        value = self._data.get(part)
        if not isinstance(value, list):
            self._defect(f"{part} is missing or no list")
            return None
        items = cast("list[object]", value)
        if len(items) > MOST_STATEMENTS:
            self._defect(f"{part} has {len(items)} items, more than {MOST_STATEMENTS}")
            return None
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                self._defect(f"{part}[{index}] is no object")
        objects = [cast("dict[str, object]", item) if isinstance(item, dict) else {} for item in items]
        return list(enumerate(objects))

    def _known(self, item: Mapping[str, object], name: str, ids: Collection[str], where: str) -> list[str]:
        """Return the ids in the list called *name* that are among *ids*."""
        value = item.get(name)
        if not isinstance(value, list):
            self._defect(f"{where}.{name} is missing or no list")
            return []
        found: list[str] = []
        for one in cast("list[object]", value)[: len(ids) + MOST_STATEMENTS]:
            if isinstance(one, str) and one in ids:
                found.append(one)
            else:
                self._defect(f"{where}.{name}: unknown id {_shown(one)}")
        return found

    def _label(self, value: object, allowed: tuple[L, ...], where: str) -> L | None:
        if isinstance(value, str):
            for label in allowed:
                if value == label:
                    return label
        self._defect(f"{where}: {_shown(value)} is not one of {', '.join(map(str, allowed))}")
        return None

    def _defect(self, text: str) -> None:
        self.reply.defects.append(text)


def _labels_of(statement: ExtractedStatement) -> tuple[bool, Relevance | None, Support | None]:
    return statement.checkable, statement.relevant, statement.verdict.support


def _source(quote: str, chunks: Sequence[Chunk]) -> Chunk | None:
    """Return the first of *chunks* in which *quote* occurs."""
    return next((chunk for chunk in chunks if quote and occurs(quote, chunk.folded)), None)


def _shown(value: object) -> str:
    """Return *value* for a list of defects: short, and on one line."""
    if not isinstance(value, str):
        return "nothing" if value is None else f"a {type(value).__name__}"
    return repr(without_invisible(value[:_SHOWN_CHARS]))
