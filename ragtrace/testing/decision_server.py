"""Local server of a decision model for tests, with both wire forms, chosen error rates and failures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast
from zlib import crc32

from ragtrace.judges.llm.quotes import TextTerms, absent_terms
from ragtrace.testing.openai_server import OpenAIServer, Rule
from ragtrace.testing.replies import Reply, Request

Questions = dict[str, str]
"""Texts of the questions of a request by name, in order."""

_OPENAI: Final = "/decisions"
_SYSTEM_ONE: Final = "/systemone"
_ENOUGH: Final = 0.6
"""Lowest share of a statement's words that a supporting text has, from 0 to 1."""
_WORDS: Final = re.compile(r"\w{3,}")
_ABOUT_PART: Final = re.compile(r"(part|[Cc]hunk|claim) (\d+)\b")
_ABSTENTIONS: Final = (
    *("don't know", "do not know", "cannot answer", "can't answer", "no information", "not mention"),
    *("could not find", "couldn't find", "cannot find", "can't find"),
)
_TOKENS: Final = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_")
"""Pattern of the pieces that count as a token: six letters, three digits, a mark. Spaces belong to the next piece."""


class DecisionServer(OpenAIServer):
    """Local server of a decision model for tests, which runs on a free port inside a `with` block.

    It serves `POST /decisions` and `POST /systemone`. Without a script it answers ragtrace's questions by rule: a
    statement is supported, with a probability of at least 0.9, if a chunk has its words, numbers and names. Questions
    of others are answered by the words that they share with the state.

    Examples:
        >>> tower = ["The tower is in Paris."]
        >>> with ragtrace.testing.DecisionServer({"s1": 0.2}) as server:  # that statement 1 is supported
        ...     judge = ragtrace.DecisionJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(contexts=tower, answer="The tower is in Paris.", judge=judge)
        >>> scores["hallucinated"].value
        0.8

    Args:
        *script: replies to the requests in order, the last one repeated; or one function that returns the reply. A
            mapping holds answers by name of the question: a probability, whatever it is; "refusal"; or None.
        latency: seconds that a reply takes.
        false_alarms: share of the supported statements that get a low probability.
        misses: share of the unsupported statements that get a high probability.
        refused: share of the questions that the model declines to answer.
        model: exact model that the replies name.
        most_questions: most questions in a request; with more, the server answers with status 400.
        most_tokens: size of the model's window; a longer request is answered with status 400. None: no limit.
        seed: seed of the errors, which are the same for the same text.
    """

    def __init__(
        self,
        *script: Reply | Mapping[str, object] | Rule,
        latency: float = 0.0,
        false_alarms: float = 0.0,
        misses: float = 0.0,
        refused: float = 0.0,
        model: str = "decision-local-1",
        most_questions: int = 400,
        most_tokens: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(*script, latency=latency)
        self._false_alarms, self._misses, self._refused = false_alarms, misses, refused
        self.model = model
        """Exact model that the replies name. It may be changed while the server runs."""
        self._most_questions, self._most_tokens, self._seed = most_questions, most_tokens, seed
        self._asked = 0

    @property
    def decisions(self) -> list[Request]:
        """Requests for decisions that the server has received, in the order of arrival."""
        return [request for request in self.requests if request.path.endswith((_OPENAI, _SYSTEM_ONE))]

    def _reply(self, request: Request) -> Reply:
        if not request.path.endswith((_OPENAI, _SYSTEM_ONE)):
            return super()._reply(request)
        number, self._asked = self._asked, self._asked + 1
        if len(_questions(request)) > self._most_questions:
            return Reply.failing(400, f"questions: at most {self._most_questions} for this model")
        if self._most_tokens is not None and count_tokens(request.body) > self._most_tokens:
            return Reply.failing(400, f"This model's maximum context length is {self._most_tokens} tokens.")
        given = self._rule(replace(request, number=number))
        return given if isinstance(given, Reply) else Reply(content=given)

    def _content(self, request: Request, reply: Reply) -> tuple[bytes, str]:
        if reply.body is not None or not request.path.endswith((_OPENAI, _SYSTEM_ONE)):
            return super()._content(request, reply)
        scripted: Mapping[str, object] = reply.content if isinstance(reply.content, Mapping) else {}
        answers: dict[str, object] = {
            name: scripted[name] if name in scripted else self._by_rule(request, text)
            for name, text in _questions(request).items()
        }
        tokens = count_tokens(request.body)
        body: dict[str, object] = {"model": self.model, "usage": {"input_tokens": tokens, "output_tokens": 0}}
        if request.path.endswith(_OPENAI):
            body["answers"] = [_predicate(name, value) for name, value in answers.items() if value is not None]
            body["usage"] = {
                "input_tokens": tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens,
            }
        else:
            body["answers"] = {
                name: {"type": "noul", "noul": value}
                for name, value in answers.items()
                if value is not None and value != "refusal"
            }
        return json.dumps(body).encode(), "application/json"

    # --- answers by rule ----------------------------------------------------------------------------------------------

    def _by_rule(self, request: Request, question: str) -> object:
        state = _state(request)
        about = _ABOUT_PART.search(question)
        if state is None or not isinstance(state.get("answer"), dict):
            given = request.body.get("input", request.body.get("state"))
            text = question
            is_true = _shared(question, given if isinstance(given, str) else json.dumps(given)) >= _ENOUGH
        else:
            text, is_true = _judge(state, question, about)
        if self._chance("refused", text) < self._refused:
            return "refusal"
        if about is not None and about[1] == "part":
            rate = self._false_alarms if is_true else self._misses
            is_true ^= self._chance("error", text) < rate
        tenth = 0.09 * self._chance("degree", text) + 0.01
        return 1.0 - tenth if is_true else tenth

    def _chance(self, of: str, text: str) -> float:
        """Return a number in [0, 1) that is the same for the same text and seed."""
        return crc32(f"{self._seed}\0{of}\0{text}".encode("utf-8", "replace")) / 2**32


def count_tokens(body: Mapping[str, object]) -> int:
    """Estimate the tokens of a request: pieces of words, digits and marks of all texts and keys."""
    texts = [body.get("input", body.get("state", "")), body.get("questions", ())]
    return sum(len(_TOKENS.findall(text if isinstance(text, str) else json.dumps(text))) for text in texts)


def _questions(request: Request) -> Questions:
    given: Any = request.body.get("questions")
    if isinstance(given, dict):
        return {name: _instructions(asked) for name, asked in cast("dict[str, Any]", given).items()}
    listed = cast("Sequence[Any]", given) if isinstance(given, list) else ()
    return {str(asked.get("name") or at): _instructions(asked) for at, asked in enumerate(listed)}


def _instructions(asked: Any) -> str:
    given = asked.get("instructions", "")
    return given if isinstance(given, str) else json.dumps(given)


def _predicate(name: str, value: object) -> dict[str, object]:
    if value == "refusal":
        return {"type": "refusal", "name": name}
    return {"type": "predicate", "name": name, "probability": value}


def _state(request: Request) -> dict[str, Any] | None:
    """Return the state of a request of ragtrace's, or None for any other request."""
    given = request.body.get("input", request.body.get("state"))
    try:
        parsed: Any = json.loads(given) if isinstance(given, str) else None
    except ValueError:
        return None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else None


def _judge(state: Mapping[str, Any], question: str, about: re.Match[str] | None) -> tuple[str, bool]:
    """Return the text of the state that a question of ragtrace's is about, and whether its answer is yes by rule."""
    parts: Mapping[str, str] = state["answer"]
    answer = " ".join(parts.values())
    chunks: Mapping[str, str] = state.get("chunks", {})
    query = str(state.get("question", ""))
    declines = any(words in answer.lower() for words in _ABSTENTIONS)
    if about is None:
        return answer, declines if "declines" in question else not declines
    if about[1] == "part":
        statement = parts.get(about[2], "")
        return statement, any(_supports(chunk, statement) for chunk in chunks.values())
    if about[1] == "claim":
        claim = str(state.get("reference_claims", {}).get(about[2], ""))
        return claim, _shared(claim, answer) >= _ENOUGH
    chunk = chunks.get(about[2], "")
    return chunk, _shared(query, chunk) >= _ENOUGH / 2


def _supports(chunk: str, statement: str) -> bool:
    return _shared(statement, chunk) >= _ENOUGH and not absent_terms(statement, [TextTerms(chunk)])


def _shared(text: str, other: str) -> float:
    words = set(_WORDS.findall(text.lower()))
    return len(words & set(_WORDS.findall(other.lower()))) / len(words) if words else 0.0
