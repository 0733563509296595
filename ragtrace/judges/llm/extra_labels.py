"""`ExtraLabels`: labels of a call beside those of the main reply, and what their replies have in common.

The texts that a prompt shows are hostile: they stand as data under a random key, without invisible characters;
instructions stand in the system message alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall
from ragtrace.judges.llm.chat import Answer
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.llm.judge_session import JudgeSession, in_halves
from ragtrace.judges.llm.prompt import MOST_TOKENS, Prompt, R, user_message
from ragtrace.judges.llm.prompt_input import PromptInput
from ragtrace.judges.llm.prompts import extra_instructions
from ragtrace.judges.llm.schemas import Schema

MOST_ITEMS: Final = 200
"""Entries of a list; a longer one is no reply to one call."""
TEXT_CHARS: Final = 500
MOST_UNJUDGED: Final = 0.2
"""Share of the items that the model wrote that may be invalid."""
LONGEST_CHARS: Final = 32_000
"""Characters shown of an answer or a reference; a longer one is cut, and an attribute says so."""
_SHOWN_CHARS: Final = 40
_MOST_DEFECTS: Final = 1_000

T = TypeVar("T")
L = TypeVar("L", bound=str)


@dataclass(slots=True)
class ExtraLabels:
    """Labels of one call beside those of the main reply: what they are found with, and those found so far."""

    session: JudgeSession
    call: RagCall
    input: PromptInput
    judgement: Judgement
    """Labels of the main reply."""
    metrics: Sequence[Metric]
    wanted: frozenset[str]
    """Fields of the judgement that the metrics need."""
    labels: dict[str, Any] = field(default_factory=dict[str, Any])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    """By field, why a label is missing."""
    attributes: dict[str, Plain] = field(default_factory=dict[str, Plain])
    errors: dict[str, JudgeError] = field(default_factory=dict[str, JudgeError])
    """By field, the failure of a request that should have given it."""

    @property
    def declined(self) -> bool:
        """Whether the answer is known to decline and to state nothing."""
        states = any(claim.checkable for claim in self.judgement.claims or ())
        return self.judgement.answer_label == "abstained" and not states

    async def ask(
        self,
        name: str,
        data: Mapping[str, object],
        schema: Schema,
        read: Callable[[dict[str, Any]], R],
        *,
        system: str | None = None,
        **options: Any,
    ) -> Answer[R]:
        """Ask the model about *data* with the instructions `prompts/own/<name>.txt`.

        Args:
            system: in place of these instructions.
            options: of the `Prompt`: logprobs, temperature, samples.

        Raises:
            JudgeError: there is no reply that can be read.
        """
        system = extra_instructions(name) if system is None else system
        tokens = _ample_tokens(data)
        prompt = Prompt(f"ragtrace_{name}", system, user_message(data), schema, read, tokens, **options)
        return await self.session.ask(prompt)

    def fail(self, error: JudgeError, fields: Iterable[str]) -> None:
        """Note *error* as the reason for those of *fields* that have no label."""
        for name in fields:
            self.errors.setdefault(name, error)
            if name not in self.labels:
                self.reasons.setdefault(name, error.reason)

    def shown(self, name: str, text: str | None) -> str:
        """Return *text* as the model is shown it; an attribute says if it was cut."""
        cleaned = without_invisible(text or "").strip()
        if len(cleaned) > LONGEST_CHARS:
            self.attributes[f"truncated_{name}"] = True
        return cleaned[:LONGEST_CHARS]


class LabelFamily(NamedTuple):
    """Labels that are found together: their fields of the judgement, and the function that finds them."""

    fields: frozenset[str]
    find: Callable[[ExtraLabels], Awaitable[None]]


class LabelsById(NamedTuple):
    """The label of each item by its id (None: unjudged), and the defects of the reply they were read from."""

    labels: dict[str, Any]
    defects: list[str]


def _ample_tokens(data: Mapping[str, object]) -> int:
    """Return more tokens than an honest reply about *data* has: restated texts, or a label for every pair of items."""
    lists = {name: len(cast("list[object]", value)) for name, value in data.items() if isinstance(value, list)}
    chars = sum(len(value) for value in data.values() if isinstance(value, str))
    items = sum(count for name, count in lists.items() if name != "chunks")
    return min(MOST_TOKENS, 2_000 + 3 * chars + 30 * items * max(1, lists.get("chunks", 1)))


async def in_batches(
    items: Sequence[T], size: int, ask: Callable[[Sequence[T]], Awaitable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return the labels of all *items*, asked for *size* at a time; a batch whose reply is cut off, in halves."""
    merged: dict[str, Any] = {}
    for start in range(0, len(items), size):
        for labels in await in_halves(ask, items[start : start + size]):
            merged |= labels
    return merged


# --- reading replies -------------------------------------------------------------------------------------------------


def records(data: Mapping[str, Any], key: str, defects: list[str]) -> list[Mapping[str, Any]] | None:
    """Return the objects in the list *key* of a reply; None if there is no such list.

    An entry that is no object is a defect, and an empty object: it counts as one that cannot be used.
    """
    found: object = data.get(key)
    if not isinstance(found, list):
        defects.append(f"{key} is missing or not a list")
        return None
    items = cast("list[object]", found)
    if len(items) > MOST_ITEMS:
        defects.append(f"{key} has {len(items)} entries; give at most {MOST_ITEMS}")
    if not all(isinstance(item, Mapping) for item in items[:MOST_ITEMS]):
        defects.append(f"{key} has entries that are no objects")
    return [cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {} for item in items[:MOST_ITEMS]]


def labels_by_id(
    data: Mapping[str, Any], key: str, field_name: str, ids: Collection[str], labels: Sequence[L], defects: list[str]
) -> dict[str, L | None]:
    """Return the label of each of *ids*; None, and a defect, if it has none, an unknown one, or two that differ."""
    given: dict[str, set[Any]] = {name: set() for name in ids}
    for record in records(data, key, defects) or ():
        name, label = record.get("id"), record.get(field_name)
        if not isinstance(name, str) or name not in given:
            note(defects, f"{key}: no id {shown(name)} was asked for")
        elif not isinstance(label, str) or label not in labels:
            given[name].add(None)
            note(defects, f"{key}: {field_name} of {name} must be one of {', '.join(labels)}, got {shown(label)}")
        else:
            given[name].add(label)
    for name, found in given.items():
        if len(found) != 1:
            note(defects, f"{key}: {name} {'has different labels' if found else 'is missing'}")
    return {name: next(iter(found)) if len(found) == 1 else None for name, found in given.items()}


def one_line(value: object) -> str:
    """Return a text that the model wrote, on one line, without invisible characters; "" if *value* is no text."""
    return " ".join(without_invisible(value).split())[:TEXT_CHARS] if isinstance(value, str) else ""


def note(defects: list[str], defect: str) -> None:
    """Add *defect* up to a limit; the number of defects decides which of two replies is better."""
    if len(defects) < _MOST_DEFECTS:
        defects.append(defect)


def shown(value: object) -> str:
    """Return a value of the reply for a defect, short enough to be sent back."""
    return repr(value)[:_SHOWN_CHARS] if isinstance(value, (str, int, float, bool, type(None))) else "no text"
