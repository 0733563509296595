"""What all families of replies share: how they ask, read labels by id, and keep what was found and spent.

A family asks for labels that the main reply does not have. The texts it shows are hostile: they stand as data under a
random key, without hidden characters; instructions stand in the system message alone.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Metric, Plain, RagCall
from ragtrace.judges.llm.invisible_chars import without_hidden
from ragtrace.judges.llm.prompt import MOST_TOKENS
from ragtrace.judges.local.embedder import Embedder, embed

if TYPE_CHECKING:
    from ragtrace.judges.llm.chat_types import Answer, Chat
    from ragtrace.judges.llm.prompt_input import Sheet
    from ragtrace.judges.llm.shapes import Schema

MOST_ITEMS: Final = 200
"""A list with more is no reply to one call."""
TEXT_CHARS: Final = 500
MOST_UNJUDGED: Final = 0.2
"""Of items that the model wrote, the share that may be invalid."""
LONGEST_CHARS: Final = 32_000
"""Of an answer or a reference that is shown; what is longer is cut, and marked."""
_SHOWN_CHARS: Final = 40
_MOST_DEFECTS: Final = 1_000

T = TypeVar("T")
L = TypeVar("L", bound=str)


@dataclass(frozen=True, slots=True)
class Case:
    """One call, and with whom and for what it is judged."""

    chat: Chat
    call: RagCall
    sheet: Sheet
    judgement: Judgement
    """The labels there are already."""
    metrics: Sequence[Metric]
    embedder: Embedder | None
    wanted: frozenset[str]
    """Fields of the judgement that the metrics need."""

    @property
    def declined(self) -> bool:
        """Whether the answer is known to decline and to state nothing."""
        said = any(claim.checkable for claim in self.judgement.claims or ())
        return self.judgement.answer_label == "abstained" and not said


@dataclass(slots=True)
class Found:
    """What a family found, and what that cost; kept up to the moment something fails."""

    labels: dict[str, Any] = field(default_factory=dict[str, Any])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    attributes: dict[str, Plain] = field(default_factory=dict[str, Plain])
    spent: Cost = field(default_factory=Cost)
    error: JudgeError | None = None

    async def ask(self, case: Case, request: Request) -> Answer:
        """Put *request* to the judge, and count what that costs, also if it fails."""
        from ragtrace.judges.llm.chat_types import Ask

        ask = Ask(
            system=request.system,
            user=user_message(request.data, secrets.token_hex(4)),
            name=f"ragtrace_{request.kind}",
            schema=request.schema,
            logprobs=request.logprobs,
            temperature=request.temperature,
            samples=request.samples,
            ample_tokens=_ample_tokens(request.data),
        )
        try:
            answer = await case.chat.ask(ask, request.check)
        except JudgeError as error:
            self.charge(Cost.of(error))
            raise
        self.charge(answer.spent)
        if answer.input_truncated:
            self.attributes["judge_input_truncated"] = True
        return answer

    async def embed(self, embedder: Embedder, texts: Sequence[str]) -> object:
        """What *embedder* makes of *texts*, unchecked; its cost is counted, also if it fails."""
        try:
            vectors, spent = await embed(embedder, texts)
        except JudgeError as error:
            self.charge(Cost.of(error))
            raise
        self.charge(spent)
        return vectors

    def charge(self, spent: Cost) -> None:
        """Add *spent*."""
        self.spent = self.spent + spent

    def failed(self, error: JudgeError, fields: Iterable[str]) -> None:
        """Note why those of *fields* that are still missing are."""
        self.error = self.error or error
        for name in fields:
            if name not in self.labels:
                self.reasons.setdefault(name, error.reason)

    def shown(self, name: str, text: str | None) -> str:
        """*text* as the judge is shown it; a cut is marked in the attributes."""
        cleaned = without_hidden(text or "").strip()
        if len(cleaned) > LONGEST_CHARS:
            self.attributes[f"truncated_{name}"] = True
        return cleaned[:LONGEST_CHARS]


def _ample_tokens(data: Mapping[str, object]) -> int:
    """Return more tokens than an honest reply about *data* has: restated texts, or a label for every pair of items."""
    lists = {name: len(cast("list[object]", value)) for name, value in data.items() if isinstance(value, list)}
    chars = sum(len(value) for value in data.values() if isinstance(value, str))
    items = sum(count for name, count in lists.items() if name != "chunks")
    return min(MOST_TOKENS, 2_000 + 3 * chars + 30 * items * max(1, lists.get("chunks", 1)))


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a family."""

    kind: str
    system: str
    data: Mapping[str, object]
    schema: Schema
    check: Callable[[dict[str, Any]], list[str]]
    logprobs: bool = False
    temperature: float = 0.0
    samples: int = 1


@cache
def instructions(kind: str) -> str:
    """The system message for one kind of request."""
    texts = files("ragtrace.judges.llm.prompts").joinpath("own")
    return "\n".join(texts.joinpath(f"{name}.txt").read_text(encoding="utf-8").strip() for name in ("frame", kind))


def user_message(data: Mapping[str, object], key: str) -> str:
    """One JSON object, {"data_<key>": ...}: no text in it can end its string or know the key."""
    return json.dumps({f"data_{key}": data}, ensure_ascii=False, separators=(",", ":"))


def numbered(prefix: str, texts: Iterable[str]) -> dict[str, str]:
    """Texts by id: prefix1, prefix2 ..."""
    return {f"{prefix}{number}": text for number, text in enumerate(texts, 1)}


def listed(texts: Mapping[str, str]) -> list[dict[str, str]]:
    """Texts by id as the judge is shown them."""
    return [{"id": name, "text": text} for name, text in texts.items()]


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
    """The label of each of *ids*; None where there is none, an unknown one, or two that differ: each a defect."""
    given: dict[str, set[object]] = {name: set() for name in ids}
    for record in records(data, key, defects) or ():
        name, label = record.get("id"), record.get(field_name)
        if not isinstance(name, str) or name not in given:
            note(defects, f"{key}: no id {shown(name)} was asked for")
        elif not isinstance(label, str) or label not in labels:
            given[name].add(None)
            note(defects, f"{key}: {field_name} of {name} must be one of {', '.join(labels)}, got {shown(label)}")
        else:
            given[name].add(label)
    return {name: _only(key, name, found, defects) for name, found in given.items()}


def _only(key: str, name: str, found: set[object], defects: list[str]) -> Any:
    if not found:
        note(defects, f"{key}: {name} is missing")
    elif len(found) > 1:
        note(defects, f"{key}: {name} has different labels")
    return next(iter(found)) if len(found) == 1 else None


def text_of(record: Mapping[str, Any], name: str = "text") -> str:
    """A text that the model wrote, on one line, without hidden characters; "" if it has none."""
    found: object = record.get(name)
    return " ".join(without_hidden(found).split())[:TEXT_CHARS] if isinstance(found, str) else ""


def note(defects: list[str], defect: str) -> None:
    """Add *defect*, unless there are very many: their number tells which of two replies is better."""
    if len(defects) < _MOST_DEFECTS:
        defects.append(defect)


def shown(value: object) -> str:
    """A value of the reply, short enough to be sent back."""
    return repr(value)[:_SHOWN_CHARS] if isinstance(value, (str, int, float, bool, type(None))) else "no text"


async def in_batches(
    items: Sequence[T], size: int, ask: Callable[[Sequence[T]], Awaitable[Mapping[str, Any]]]
) -> dict[str, Any]:
    """The labels of all *items*, asked for *size* at a time; one whose reply is cut off is asked again in halves."""
    merged: dict[str, Any] = {}
    for start in range(0, len(items), size):
        merged.update(await _batch(items[start : start + size], ask))
    return merged


async def _batch(items: Sequence[T], ask: Callable[[Sequence[T]], Awaitable[Mapping[str, Any]]]) -> dict[str, Any]:
    try:
        return dict(await ask(items))
    except JudgeError as error:
        if error.reason != "truncated" or len(items) < 2:
            raise
    half = len(items) // 2
    return {**await ask(items[:half]), **await ask(items[half:])}
