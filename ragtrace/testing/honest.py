"""What an honest model would say, by rule: a passage supports what has its words, numbers and names.

It knows what the fields of ragtrace's replies mean, and reads from a request's schema which of them are wanted. Any
other schema gets the smallest instance that is valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ragtrace.judges.lexical.sentences import sentences
from ragtrace.judges.llm.quotes import TextTerms, absent_terms
from ragtrace.testing.instances import arguments_of, instance, schema_in
from ragtrace.testing.replies import Request

_WORDS: Final = re.compile(r"\w{3,}")
_ENOUGH: Final = 0.6
"""Share of a statement's words that a passage must have."""
_ABSTENTIONS: Final = (
    *("i don't know", "i do not know", "cannot answer", "can't answer", "no information"),
    *("could not find", "couldn't find", "cannot find", "can't find"),
)
_NUGGET_WORDS: Final = 12
_QUESTIONS: Final = 3

Record = dict[str, Any]


def honest_answer(request: Request) -> str:
    """What the model writes."""
    schema, data = request.schema, request.data
    if schema is not None:
        return json.dumps(instance(schema) if data is None else _Honest(data).reply(schema))
    found = schema_in(request.body) or arguments_of(request.body)
    return json.dumps(instance(found)) if found is not None else "Yes."


class _Honest:
    """One request's data, and what is true of it."""

    def __init__(self, data: Record) -> None:
        self._data = data
        self._texts = {entry["id"]: str(entry.get("text", "")) for entry in self._all_entries()}
        self._words = {id_: _words(text) for id_, text in self._texts.items()}
        self._chunks = [entry["id"] for entry in self._listed("chunks")]
        self._said = {id_: TextTerms(self._texts[id_]) for id_ in self._chunks}

    def reply(self, schema: Mapping[str, Any]) -> Record:
        """A reply with every field that *schema* has."""
        return {name: self._field(name, part) for name, part in schema.get("properties", {}).items()}

    def _field(self, name: str, schema: Record) -> Any:
        items: Record = schema.get("items", {})
        if items.get("type") == "object":
            return [self._record(items, entry, name) for entry in self._entries(name)]
        whole = {"text": self._answer, "id": ""}
        return self._value(name, schema, whole, "")

    def _record(self, schema: Record, entry: Record, of: str) -> Record:
        read = {"side": of, **entry}
        return {name: self._value(name, part, read, of) for name, part in schema.get("properties", {}).items()}

    def _value(self, name: str, schema: Record, entry: Record, of: str) -> Any:
        items: Record = schema.get("items", {})
        if items.get("type") == "object":  # a matrix: for each chunk, the claims of that side
            inside = [{**claim, "chunk": entry["id"]} for claim in self._listed(f"{name}_claims")]
            return [self._record(items, claim, name) for claim in inside]
        rule = _RULES.get(name)
        value = rule(self, entry) if rule else None
        allowed = schema.get("enum")
        if value is None or (allowed and value not in allowed):
            return instance(schema) if allowed is None or value is None else self._nearest(str(value), allowed)
        return value

    def _nearest(self, value: str, allowed: list[Any]) -> Any:
        """The same in the words of another scale."""
        good = value in ("supported", "full", "support", "yes", "entailment")
        scale = [label for label in ("full", "support", "supported", "yes", "entailment") if label in allowed]
        bad = [label for label in ("none", "not_support", "not_found", "no", "neutral") if label in allowed]
        found = scale if good else bad
        return found[0] if found else allowed[-1 if good else 0]

    # --- what the reply lists ----------------------------------------------------------------------------------------

    def _all_entries(self) -> list[Record]:
        lists = [self._listed(name) for name in self._data]
        return [entry for found in lists for entry in found]

    def _listed(self, name: str) -> list[Record]:
        found = self._data.get(name)
        entries = cast("list[object]", found) if isinstance(found, list) else []
        return [cast("Record", entry) for entry in entries if isinstance(entry, dict) and "id" in entry]

    def _entries(self, name: str) -> list[Record]:
        """What the reply has an entry for under *name*."""
        if name == "statements":
            stated = [{**s, "id": f"t{n}", "sentences": [s["id"]]} for n, s in enumerate(self._sentences, 1)]
            return self._listed("given_statements") + stated
        if name == "intentions":
            users = [turn for turn in self._listed("turns") if turn.get("role") == "user"]
            return [{**turn, "id": f"i{n}", "turns": [turn["id"]]} for n, turn in enumerate(users, 1)]
        known = {"assignments": "nuggets", "sentences": "answer_sentences"}.get(name, name)
        listed = self._listed(known) or self._listed(f"{name}_claims")
        return listed or [{"id": f"{name[0]}{n}", "text": text} for n, text in enumerate(self._written(name), 1)]

    def _written(self, name: str) -> list[str]:
        """The texts of a list that the model writes itself."""
        source = self._data.get(name)
        if isinstance(source, str):
            return _sentences(source)
        if name == "nuggets":
            found = [text for id_ in self._chunks for text in _sentences(self._texts[id_])]
            return list(dict.fromkeys(" ".join(text.split()[:_NUGGET_WORDS]) for text in found))[:20]
        return []

    @property
    def _sentences(self) -> list[Record]:
        return self._listed("answer_sentences")

    @property
    def _answer(self) -> str:
        whole = self._data.get("answer")
        return whole if isinstance(whole, str) else " ".join(str(s.get("text", "")) for s in self._sentences)

    # --- what is true ------------------------------------------------------------------------------------------------

    def best(self, text: str) -> tuple[str, float]:
        """The chunk that has most of the words of *text*, and the share it has; none if it lacks a number or name."""
        words = _words(text)
        shares = {
            id_: 0.0 if absent_terms(text, [self._said[id_]]) else _share(words, self._words[id_])
            for id_ in self._chunks
        }
        id_ = max(shares, key=shares.__getitem__, default="")
        return id_, shares.get(id_, 0.0)

    def evidence(self, entry: Record) -> list[str]:
        chunk, share = self.best(str(entry.get("text", "")))
        return [chunk] if share >= _ENOUGH else []

    def quote(self, entry: Record) -> str:
        """The sentence of the chunk that shows the support."""
        words = _words(str(entry.get("text", "")))
        found = [text for id_ in self.evidence(entry) for text in _sentences(self._texts[id_])]
        return max(found, key=lambda text: _share(words, _words(text)), default="")

    def support(self, entry: Record) -> str:
        if "chunk_id" in entry:  # a citation: that chunk alone
            words = self._words.get(entry.get("sentence_id", ""), set())
            cited = self._words.get(entry["chunk_id"], set())
            return "full" if _share(words, cited) >= _ENOUGH else "none"
        return "supported" if self.evidence(entry) else "not_found"

    def grade(self, entry: Record) -> str:
        share = _share(_words(str(self._data.get("query", ""))), _words(str(entry.get("text", ""))))
        return "3" if share >= _ENOUGH else "2" if share >= _ENOUGH / 2 else "1" if share else "0"

    def entails(self, entry: Record) -> str:
        words, chunk = _words(str(entry.get("text", ""))), self._words.get(entry.get("chunk", ""), set())
        return "yes" if _share(words, chunk) >= _ENOUGH else "no"

    def label(self, entry: Record) -> str:
        """How a claim of one side stands to the text of the other."""
        other = self._data.get("reference" if entry["side"] == "answer" else "answer")
        same = _share(_words(str(entry.get("text", ""))), _words(str(other))) >= _ENOUGH
        return "entailment" if same else "neutral"

    def assignment(self, entry: Record) -> str:
        share = _share(_words(str(entry.get("text", ""))), _words(self._answer))
        return "support" if share >= _ENOUGH else "partial_support" if share >= _ENOUGH / 2 else "not_support"

    def answer_label(self) -> str:
        low = self._answer.lower()
        return "abstained" if any(words in low for words in _ABSTENTIONS) else "answered"

    def score(self) -> str:
        """Of a free criterion: high if the answer has words at all."""
        return "9" if self.answer_label() == "answered" else "1"

    def questions(self) -> list[str]:
        heads = [" ".join(text.rstrip(".").split()[:6]) for text in _sentences(self._answer)[:_QUESTIONS]]
        return [f"What about {head}?" for head in heads]


_RULES: Final[Mapping[str, Callable[[_Honest, Record], Any]]] = {
    "id": lambda honest, entry: entry["id"],
    "text": lambda honest, entry: str(entry.get("text", "")),
    "sentence_ids": lambda honest, entry: entry.get("sentences", []),
    "turn_ids": lambda honest, entry: entry.get("turns", []),
    "checkable": lambda honest, entry: "yes" if honest.answer_label() == "answered" else "no",
    "relevant": lambda honest, entry: "yes",
    "evidence_chunk_ids": lambda honest, entry: honest.evidence(entry),
    "quote": lambda honest, entry: honest.quote(entry),
    "support": lambda honest, entry: honest.support(entry),
    "contradicted": lambda honest, entry: "no",
    "grade": lambda honest, entry: honest.grade(entry),
    "answer_rating": lambda honest, entry: "3" if honest.answer_label() == "answered" else "0",
    "answer_label": lambda honest, entry: honest.answer_label(),
    "noncommittal": lambda honest, entry: "no" if honest.answer_label() == "answered" else "yes",
    "questions": lambda honest, entry: honest.questions(),
    "steps": lambda honest, entry: [f"Step {n}: read the answer and hold it against the criteria." for n in (1, 2, 3)],
    "reason": lambda honest, entry: "By rule.",
    "score": lambda honest, entry: honest.score(),
    "importance": lambda honest, entry: "vital",
    "assignment": lambda honest, entry: honest.assignment(entry),
    "state": lambda honest, entry: "satisfied",
    "label": lambda honest, entry: honest.label(entry),
    "entails": lambda honest, entry: honest.entails(entry),
}


def _words(text: str) -> set[str]:
    return set(_WORDS.findall(text.lower()))


def _share(words: set[str], others: set[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]
