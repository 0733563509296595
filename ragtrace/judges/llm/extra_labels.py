"""`ExtraLabels`: collector of labels that need further LLM requests, such as key facts, questions and ratings.

The texts that a prompt shows are hostile: they stand as data under a random key, without invisible characters;
instructions stand in the system message alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall
from ragtrace.judges.llm.chat import JudgeSession, ModelReply, ask_in_halves
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.prompt import MOST_TOKENS, Prompt, R, Schema, chars_of_turns, turn_list, user_message
from ragtrace.judges.llm.prompt_input import PromptInput
from ragtrace.judges.llm.prompts import own_instructions, turns_instructions

MOST_UNJUDGED: Final = 0.2
"""Highest share, from 0 to 1, of items written or graded by the model that may be invalid or missing."""
LONGEST_CHARS: Final = 32_000
"""Most characters of a text in a prompt. A longer one is cut, and an attribute says so."""

T = TypeVar("T")


@dataclass(slots=True)
class ExtraLabels:
    """Collector of the labels of one call that need further LLM requests, such as key facts and ratings."""

    session: JudgeSession
    call: RagCall
    input: PromptInput
    judgement: Judgement
    """Judgement from the main reply: labels of statements, chunks and citations."""
    metrics: Sequence[Metric]
    wanted: frozenset[str]
    """Judgement fields that the metrics need."""
    labels: dict[str, Any] = field(default_factory=dict[str, Any])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """Reason for each judgement field whose label is missing."""
    attributes: dict[str, Plain] = field(default_factory=dict[str, Plain])
    errors: dict[str, JudgeError] = field(default_factory=dict[str, JudgeError])
    """First failure, by judgement field, of a request for the label of that field."""

    @property
    def declined(self) -> bool:
        """Whether the LLM labelled the answer as one that declines to answer and states no fact."""
        states = any(claim.checkable for claim in self.judgement.claims or ())
        return self.judgement.answer_label == "abstained" and not states

    async def ask(
        self,
        name: str,
        data: Mapping[str, object],
        schema: Schema,
        read: Callable[[dict[str, Any]], R],
        *,
        instructions: str | None = None,
        **options: Any,
    ) -> ModelReply[R]:
        """Ask the LLM about *data*, and return the reply with the labels that *read* found in it.

        Args:
            name: name of the prompt.
            data: texts to be labelled, which the LLM must not take for instructions.
            schema: JSON schema of the reply.
            read: reads any reply; never raises.
            instructions: what the LLM is to do; None: the text of the file `prompts/own/<name>.txt`.
            options: of the `Prompt`: logprobs, temperature, samples.

        Raises:
            JudgeError: there is no reply that can be read.
        """
        instructions = own_instructions(name) if instructions is None else instructions
        system = f"{own_instructions('frame')}\n{instructions}"
        tokens = _ample_tokens(data)
        # Earlier turns serve to understand the query alone; a rating may already be shown the whole conversation.
        turns = self.input.earlier_turns if "query" in data and "turns" not in data else ()
        if turns:
            system = f"{system}\n{turns_instructions()}"
            data = {"earlier_turns": turn_list(turns), **data}
        chars = chars_of_turns(turns)
        prompt = Prompt(
            f"ragtrace_{name}", system, user_message(data), schema, read, tokens, turn_chars=chars, **options
        )
        return await self.session.ask(prompt)

    def note_failure(self, error: JudgeError, fields: Iterable[str]) -> None:
        """Record *error* as the reason why labels of *fields* are missing."""
        for name in fields:
            self.errors.setdefault(name, error)
            if name not in self.labels:
                self.reasons.setdefault(name, error.reason)

    def text_for_prompt(self, name: str, text: str | None) -> str:
        """Return *text* as a prompt shows it to the LLM: without invisible characters, and cut if too long.

        If it was cut, an attribute says so.
        """
        cleaned = without_invisible(text or "").strip()
        if len(cleaned) > LONGEST_CHARS:
            self.attributes[f"truncated_{name}"] = True
        return cleaned[:LONGEST_CHARS]


class LabelFamily(NamedTuple):
    """Group of judgement fields, with the function that asks the LLM for the labels in these fields."""

    fields: frozenset[str]
    find: Callable[[ExtraLabels], Awaitable[None]]


def _ample_tokens(data: Mapping[str, object]) -> int:
    """Return a token limit for the LLM's reply about *data*, well above what a correct reply needs.

    A proper reply restates texts, or has a label for every pair of items.
    """
    lists = {name: len(cast("list[object]", value)) for name, value in data.items() if isinstance(value, list)}
    chars = sum(len(value) for value in data.values() if isinstance(value, str))
    items = sum(count for name, count in lists.items() if name != "chunks")
    return min(MOST_TOKENS, 2_000 + 3 * chars + 30 * items * max(1, lists.get("chunks", 1)))


async def ask_in_batches(
    items: Sequence[T], size: int, ask: Callable[[Sequence[T]], Awaitable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Ask the LLM to label all *items*, in requests of at most *size* items, and return the labels merged.

    A batch whose reply is cut off is asked about in halves.
    """
    merged: dict[str, Any] = {}
    for start in range(0, len(items), size):
        for labels in await ask_in_halves(ask, items[start : start + size]):
            merged |= labels
    return merged
