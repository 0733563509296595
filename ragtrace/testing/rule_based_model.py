"""Rule-based model that answers ragtrace's prompts by comparing the words of statements and passages.

The model knows the meaning of the fields in ragtrace's replies, and reads from a request's schema which of them are
wanted. For any other schema it writes the smallest valid instance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ragtrace.judges.lexical.statements import sentences
from ragtrace.judges.llm.quotes import TextTerms, absent_terms
from ragtrace.testing.replies import Request

_WORDS: Final = re.compile(r"\w{3,}")
_ENOUGH: Final = 0.6
"""Lowest share of a statement's words that a supporting passage has, from 0 to 1."""
_ABSTENTIONS: Final = (
    *("i don't know", "i do not know", "cannot answer", "can't answer", "no information"),
    *("could not find", "couldn't find", "cannot find", "can't find"),
)
_SENTENCE: Final = re.compile(r'^One sentence of the answer is: (".*")$', re.MULTILINE)
_PASSAGE: Final = re.compile(r'^Passage \d+: (".*")$', re.MULTILINE)
_DEEPEST: Final = 12
_MOST_BRACES: Final = 50
_VALUES: Final[Mapping[str, Any]] = {"string": "", "boolean": True, "null": None}
_NUGGET_WORDS: Final = 12
_QUESTIONS: Final = 3

Record = dict[str, Any]


def answer_by_rule(request: Request) -> str:
    """Return the text with which the rule-based model answers *request*."""
    schema, data = request.schema, request.data
    data = _data_of_question(request.body) if data is None else data
    if schema is not None:
        return json.dumps(instance(schema) if data is None else _RuleBasedModel(data).reply(schema))
    found = schema_from_prompt(request.body) or tool_schema(request.body)
    return json.dumps(instance(found)) if found is not None else "Yes."


def _data_of_question(body: Mapping[str, Any]) -> Record | None:
    """Return the passages and the sentence of a question about one sentence, or None for other prompts."""
    texts = [str(message.get("content", "")) for message in body.get("messages", [])]
    text = next((text for text in reversed(texts) if _SENTENCE.search(text)), "")
    sentence = _SENTENCE.search(text)
    if sentence is None:
        return None
    chunks = [{"id": f"c{n}", "text": json.loads(found)} for n, found in enumerate(_PASSAGE.findall(text), 1)]
    return {"chunks": chunks, "sentence": json.loads(sentence[1])}


class _RuleBasedModel:
    """Stand-in for a language model that answers one of ragtrace's prompts by comparing words.

    Args:
        data: data of the prompt.
    """

    def __init__(self, data: Record) -> None:
        self._data = data
        entries = [entry for name in data for entry in self._listed(name)]
        self._texts = {entry["id"]: str(entry.get("text", "")) for entry in entries}
        self._words = {id_: _words(text) for id_, text in self._texts.items()}
        self._chunks = [entry["id"] for entry in self._listed("chunks")]
        self._said = {id_: TextTerms(self._texts[id_]) for id_ in self._chunks}

    def reply(self, schema: Mapping[str, Any]) -> Record:
        """Return the model's reply as a dict with a value for every field of the JSON schema *schema*."""
        return {name: self._field(name, part) for name, part in schema.get("properties", {}).items()}

    def _field(self, name: str, schema: Record) -> Any:
        items: Record = schema.get("items", {})
        if items.get("type") == "object":
            entries = self._entries(name)
            if name == "statements" and "checkable" not in items["properties"] and self.answer_label() == "abstained":
                entries = self._listed("given_statements")  # only what can be checked is stated
            return [self._record(items, entry, name) for entry in entries]
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
        """Return the allowed label that is closest in meaning to the label *value*."""
        good = value in ("supported", "full", "support", "yes", "entailment")
        scale = [label for label in ("full", "support", "supported", "yes", "entailment") if label in allowed]
        bad = [label for label in ("none", "not_support", "not_found", "no", "neutral") if label in allowed]
        found = scale if good else bad
        return found[0] if found else allowed[-1 if good else 0]

    def _listed(self, name: str) -> list[Record]:
        found = self._data.get(name)
        entries = cast("list[object]", found) if isinstance(found, list) else []
        return [cast("Record", entry) for entry in entries if isinstance(entry, dict) and "id" in entry]

    def _entries(self, name: str) -> list[Record]:
        """Return the entries for the reply's list *name*, made from the items in the prompt."""
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
        """Return the texts for the reply's list *name*, such as facts from the chunks."""
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

    def best(self, text: str) -> tuple[str, float]:
        """Return the chunk that shares most words with *text*, and the share of the text's words in that chunk.

        The share is 0 if the chunk lacks a number or a name of the text.
        """
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
        """Return the sentence of the supporting chunk that shares most words with the statement *entry*."""
        words = _words(str(entry.get("text", "")))
        found = [text for id_ in self.evidence(entry) for text in _sentences(self._texts[id_])]
        return max(found, key=lambda text: _share(words, _words(text)), default="")

    def support(self, entry: Record) -> str:
        if "chunk_id" in entry:  # a citation: that chunk alone
            words = self._words.get(entry.get("sentence_id", ""), set())
            cited = self._words.get(entry["chunk_id"], set())
            return "full" if _share(words, cited) >= _ENOUGH else "none"
        return "supported" if self.evidence(entry) else "not_found"

    def stated(self) -> str:
        """Return how much of the sentence of a question the passages state: all or only some of it."""
        return "all" if self.evidence({"text": self._data.get("sentence", "")}) else "some"

    def grade(self, entry: Record) -> str:
        share = _share(_words(str(self._data.get("query", ""))), _words(str(entry.get("text", ""))))
        return "3" if share >= _ENOUGH else "2" if share >= _ENOUGH / 2 else "1" if share else "0"

    def entails(self, entry: Record) -> str:
        words, chunk = _words(str(entry.get("text", ""))), self._words.get(entry.get("chunk", ""), set())
        return "yes" if _share(words, chunk) >= _ENOUGH else "no"

    def label(self, entry: Record) -> str:
        """Return "entailment" if the reference or the answer contains the words of a claim, else "neutral".

        Claims of the answer are compared with the reference, claims of the reference with the answer.
        """
        other = self._data.get("reference" if entry["side"] == "answer" else "answer")
        same = _share(_words(str(entry.get("text", ""))), _words(str(other))) >= _ENOUGH
        return "entailment" if same else "neutral"

    def assignment(self, entry: Record) -> str:
        share = _share(_words(str(entry.get("text", ""))), _words(self._answer))
        return "support" if share >= _ENOUGH else "partial_support" if share >= _ENOUGH / 2 else "not_support"

    def answer_label(self) -> str:
        low = self._answer.lower()
        return "abstained" if any(words in low for words in _ABSTENTIONS) else "answered"

    def no_statement_ids(self) -> list[str]:
        return [one["id"] for one in self._sentences] if self.answer_label() == "abstained" else []

    def score(self) -> str:
        """Return the answer's score for a user-defined criterion: high unless the answer says "I don't know"."""
        return "9" if self.answer_label() == "answered" else "1"

    def questions(self) -> list[str]:
        heads = [" ".join(text.rstrip(".").split()[:6]) for text in _sentences(self._answer)[:_QUESTIONS]]
        return [f"What about {head}?" for head in heads]


_RULES: Final[Mapping[str, Callable[[_RuleBasedModel, Record], Any]]] = {
    "id": lambda model, entry: entry["id"],
    "text": lambda model, entry: str(entry.get("text", "")),
    "sentence_ids": lambda model, entry: entry.get("sentences", []),
    "turn_ids": lambda model, entry: entry.get("turns", []),
    "checkable": lambda model, entry: "yes" if model.answer_label() == "answered" else "no",
    "no_statement_ids": lambda model, entry: model.no_statement_ids(),
    "relevant": lambda model, entry: "yes",
    "evidence_chunk_ids": lambda model, entry: model.evidence(entry),
    "quote": lambda model, entry: model.quote(entry),
    "support": lambda model, entry: model.support(entry),
    "contradicted": lambda model, entry: "no",
    "stated": lambda model, entry: model.stated(),
    "grade": lambda model, entry: model.grade(entry),
    "answer_rating": lambda model, entry: "3" if model.answer_label() == "answered" else "0",
    "answer_label": lambda model, entry: model.answer_label(),
    "noncommittal": lambda model, entry: "no" if model.answer_label() == "answered" else "yes",
    "questions": lambda model, entry: model.questions(),
    "steps": lambda model, entry: [f"Step {n}: read the answer and hold it against the criteria." for n in (1, 2, 3)],
    "reason": lambda model, entry: "By rule.",
    "score": lambda model, entry: model.score(),
    "importance": lambda model, entry: "vital",
    "assignment": lambda model, entry: model.assignment(entry),
    "state": lambda model, entry: "satisfied",
    "label": lambda model, entry: model.label(entry),
    "entails": lambda model, entry: model.entails(entry),
}


def _words(text: str) -> set[str]:
    return set(_WORDS.findall(text.lower()))


def _share(words: set[str], others: set[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def instance(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Return the smallest value that is valid for the JSON schema *schema*.

    It has as few items as the schema allows, and the first of alternatives.
    """
    root = schema if root is None else root
    if depth > _DEEPEST:
        return None
    if "$ref" in schema:
        return instance(_resolve_reference(str(schema["$ref"]), root), root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return instance(schema[key][0], root, depth + 1)
    return _instance_of_type(schema, root, depth)


def _instance_of_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    given: object = schema.get("type", "object" if "properties" in schema else "string")
    kinds = cast("list[object]", given) if isinstance(given, list) else [given]
    kind = str(kinds[0]) if kinds else ""
    if kind == "object":
        properties: Mapping[str, Any] = schema.get("properties", {})
        return {name: instance(part, root, depth + 1) for name, part in properties.items()}
    if kind == "array":
        return [instance(schema.get("items", {}), root, depth + 1)] * int(schema.get("minItems", 0))
    if kind in ("number", "integer"):
        return schema.get("minimum", schema.get("maximum", 1))
    return _VALUES.get(kind, "")


def _resolve_reference(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step, {})
    return cast("Mapping[str, Any]", found)


def tool_schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema for the arguments of the first tool in a request, or None if it offers no tool."""
    tools: Any = body.get("tools")
    return tools[0].get("function", {}).get("parameters") if tools else None


def schema_from_prompt(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first JSON schema in the text of a request's messages, or None if there is none.

    Libraries that do not use structured output write their schema into the prompt.
    """
    decoder = json.JSONDecoder()
    for message in body.get("messages", []):
        text = str(message.get("content", ""))
        at = text.find("{")
        for _ in range(_MOST_BRACES):
            if at < 0:
                break
            try:
                found: Any = decoder.raw_decode(text, at)[0]
            except ValueError:
                found = None
            if isinstance(found, dict) and "properties" in found:
                return cast("Mapping[str, Any]", found)
            at = text.find("{", at + 1)
    return None
