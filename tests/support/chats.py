"""A stand-in for the transport of a judge: a script or a rule answers, one repair is asked for, everything is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.chat import ModelReply
from ragtrace.judges.llm.prompt import Prompt, R

Data = dict[str, Any]
Rule = Callable[[Prompt[Any], Data], "Data | JudgeError"]
"""From a request and the data in its user message to the reply."""


class ScriptedChat:
    """Answers by *rule*; the cost of a request is 100 tokens in, 10 out and a thousandth of a dollar."""

    model = "scripted-1"

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.asks: list[Prompt[Any]] = []
        """Every request, repairs included."""
        self.repairs: list[list[str]] = []
        """The defects of every reply that was asked for again."""
        self.closed = 0

    @property
    def kinds(self) -> list[str]:
        """The name of the schema of every request."""
        return [ask.name for ask in self.asks]

    def data(self, index: int = -1) -> Data:
        """What the user message of a request holds."""
        return data_of(self.asks[index])

    async def ask(self, prompt: Prompt[R]) -> ModelReply[R]:
        """The reply of the rule, asked for once more if it has defects."""
        data = self._reply(prompt, 1)
        reply = prompt.read(data)
        if not reply.defects:
            return ModelReply(reply, json.dumps(data), 1, self.model, Cost(1, 100, 10, 0.001))
        self.repairs.append(list(reply.defects))
        data = self._reply(prompt, 2)
        again = prompt.read(data)
        best = again if len(again.defects) <= len(reply.defects) else reply
        return ModelReply(best, json.dumps(data), 1, self.model, Cost(2, 200, 20, 0.002))

    def _reply(self, ask: Prompt[Any], n_calls: int) -> Data:
        self.asks.append(ask)
        reply = self._rule(ask, data_of(ask))
        if isinstance(reply, JudgeError):
            spent = JudgeError(
                reply.reason,
                retryable=reply.retryable,
                n_calls=n_calls,
                input_tokens=100 * n_calls,
                cost_usd=0.001 * n_calls,
            )
            raise spent
        return reply

    async def probe(self) -> str:
        """What answers."""
        return "scripted-1 answers"

    async def aclose(self) -> None:
        """Count that it was closed."""
        self.closed += 1


def data_of(ask: Prompt[Any]) -> Data:
    """What stands under the random key of the user message."""
    message = json.loads(ask.user)
    (key,) = message
    assert key.startswith("data_")
    data: Data = message[key]
    return data


def honest(ask: Prompt[Any], data: Data) -> Data:
    """A judge that takes every sentence for a statement and a chunk that has its words for support."""
    reply: Data = {}
    wanted = ask.schema["properties"]
    assert isinstance(wanted, Mapping)
    sentences = data.get("answer_sentences", [])
    given = data.get("given_statements", [])
    chunks = data.get("chunks", [])
    if "sentences" in wanted:
        reply["sentences"] = [{"id": one["id"], "relevant": "yes"} for one in sentences]
    if "statements" in wanted:
        entry = wanted["statements"]["items"]["properties"]
        stated = [{"id": one["id"], "sentence_ids": [], "relevant": "no", **one} for one in given]
        if "sentence_ids" in entry:
            stated += [
                {**one, "id": f"t{number}", "sentence_ids": [one["id"]], "relevant": "yes"}
                for number, one in enumerate(sentences, 1)
            ]
        every = [{"checkable": "yes", **one, **_found(one["text"], chunks)} for one in stated]
        reply["statements"] = [{name: value for name, value in one.items() if name in entry} for one in every]
    if "chunks" in wanted:
        labels = wanted["chunks"]["items"]["properties"]
        every = [{"id": one["id"], "contradicted": "no", "grade": "2"} for one in chunks]
        reply["chunks"] = [{name: value for name, value in one.items() if name in labels} for one in every]
    if "citations" in wanted:
        reply["citations"] = [{"id": one["id"], "support": "full"} for one in data["citations"]]
    single = {"no_statement_ids": [], "answer_rating": "3", "answer_label": "answered"}
    return reply | {name: value for name, value in single.items() if name in wanted}


def _found(text: str, chunks: list[Data]) -> Data:
    for chunk in chunks:
        if text.strip() and text.strip() in chunk["text"]:
            return {"evidence_chunk_ids": [chunk["id"]], "quote": text.strip(), "support": "supported"}
    return {"evidence_chunk_ids": [], "quote": "", "support": "not_found"}


def failing(name: str, error: JudgeError, times: int = 1_000) -> Rule:
    """Honest, except that the first *times* requests of one kind fail."""
    left = [times]

    def rule(ask: Prompt[Any], data: Data) -> Data | JudgeError:
        if ask.name == name and left[0] > 0:
            left[0] -= 1
            return error
        return honest(ask, data)

    return rule
