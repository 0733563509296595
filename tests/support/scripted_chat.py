"""A chat with a script, and honest replies of all families for one call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import ChunkLabel, Turn
from ragtrace.core.types import Document, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.judges.llm.chat import JudgeSession, ModelReply
from ragtrace.judges.llm.completions import TokenChoice
from ragtrace.judges.llm.embedder import Embedder
from ragtrace.judges.llm.families import add_extra_labels
from ragtrace.judges.llm.prompt import Prompt, R
from ragtrace.judges.llm.prompt_input import prepare_input
from ragtrace.metrics import registry

ZERO_WIDTH = "\u200b"
CALL = RagCall(
    "Where is the depot?",
    (Document("The depot is in Ghent."), Document("The port is in Antwerp."), Document(" ")),
    "The depot is in Ghent.",
    reference="The depot lies in Ghent.",
    turns=(Turn("user", "Where is the depot?"), Turn("assistant", "The depot is in Ghent.")),
)
GRADED = Judgement(chunks=(ChunkLabel(3, False), ChunkLabel(0, False), ChunkLabel(0, False)), n_calls=1)
Reply = Mapping[str, Any] | JudgeError
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class Scripted:
    """A `ChatClient` that replies from a script by the kind of request; the last reply of a kind is repeated."""

    replies: Mapping[str, Sequence[Reply] | Reply | Callable[[dict[str, Any]], Reply]]
    tokens: Callable[[str], tuple[TokenChoice, ...]] | None = None
    model: str = "scripted"
    asked: list[Prompt[Any]] = field(default_factory=list)
    defects: list[list[str]] = field(default_factory=list)

    async def ask(self, prompt: Prompt[R]) -> ModelReply[R]:
        self.asked.append(prompt)
        kind = prompt.name.removeprefix("ragtrace_")
        script = self.replies[kind]
        if callable(script):
            script = script(self.data(-1))
        if isinstance(script, Sequence):
            script = script[min(self.kinds().count(kind), len(script)) - 1]
        if isinstance(script, JudgeError):
            raise script
        data = dict(script)
        reply = prompt.read(data)
        self.defects.append(list(reply.defects))
        text = json.dumps(data)
        samples = (reply,) * prompt.samples if not reply.defects else ()
        tokens = self.tokens(text) if self.tokens else None
        return ModelReply(reply, text, 1, self.model, Cost(1, 10, 2, 0.5), tokens, samples)

    def kinds(self) -> list[str]:
        return [ask.name.removeprefix("ragtrace_") for ask in self.asked]

    def data(self, index: int) -> dict[str, Any]:
        """What was shown in a request."""
        message: dict[str, dict[str, Any]] = json.loads(self.asked[index].user)
        (data,) = message.values()
        return data


def letters(texts: Sequence[str]) -> list[list[float]]:
    """Vectors by the letters of a text."""
    return [[float(text.casefold().count(letter)) for letter in LETTERS] for text in texts]


def labelled(
    chat: Scripted,
    *metrics: str | Metric,
    call: RagCall = CALL,
    judgement: Judgement = GRADED,
    embedder: Embedder | None = None,
) -> Judgement:
    found: tuple[Metric, ...] = registry.resolve(metrics)
    spoken: Any = chat  # a Chat by its methods

    async def run() -> Judgement:
        session = JudgeSession(spoken, embedder)
        session.cost = Cost.from_report(judgement) if judgement.n_calls else Cost()
        try:
            return session.with_cost(await add_extra_labels(session, prepare_input(call), call, judgement, found))
        except JudgeError as error:
            raise session.cost.set_on_error(error) from error

    return asyncio.run(run())


def result(name: str, judgement: Judgement, call: RagCall = CALL) -> Result:
    return registry.get(name)(call, judgement)


def value(name: str, judgement: Judgement, call: RagCall = CALL) -> float:
    found = result(name, judgement, call)
    assert isinstance(found, Score), found
    return found.value


def reason(name: str, judgement: Judgement, call: RagCall = CALL) -> str:
    found = result(name, judgement, call)
    assert isinstance(found, Unscored), found
    return found.reason


NUGGETS = {"nuggets": [{"id": "n1", "text": "depot in Ghent", "importance": "vital"}]}
ASSIGNED = {"assignments": [{"id": "n1", "assignment": "support"}]}
QUESTIONS = {"noncommittal": "no", "questions": ["Where is the depot?", "Which city has the depot?", "Is it in Ghent?"]}
CLAIMS = {"answer": [{"id": "x", "text": "The depot is in Ghent."}], "reference": [{"id": "y", "text": "It is there."}]}
FACTS = {"answer": [{"id": "a1", "label": "entailment"}], "reference": [{"id": "r1", "label": "neutral"}]}
ROWS = {
    "chunks": [
        {"id": "c1", "answer": [{"id": "a1", "entails": "yes"}], "reference": [{"id": "r1", "entails": "yes"}]},
        {"id": "c2", "answer": [{"id": "a1", "entails": "no"}], "reference": [{"id": "r1", "entails": "no"}]},
    ]
}
INTENTIONS = {"intentions": [{"id": "i1", "turn_ids": ["t1"], "text": "where it is", "state": "satisfied"}]}

RATING = {"reason": "It is 9 out of 10.", "score": "7"}


def tokens_of(text: str) -> tuple[TokenChoice, ...]:
    """One token a character; at every digit the model could have written others."""
    top = (("7", log(0.6)), ("8", log(0.3)), ("x", log(0.05)), ("1", log(0.004)))
    return tuple(TokenChoice(c, log(0.6), top if c.isdigit() else ()) for c in text)
