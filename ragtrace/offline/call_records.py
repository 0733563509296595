"""Builds calls from keyword arguments, from dicts, and from the lines of a JSON Lines file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from ragtrace.capture import find_documents, mark_duplicates
from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import CitedPart, Turn
from ragtrace.core.reasoning import without_reasoning
from ragtrace.core.tags import MOST_TAGS, MOST_VALUE_CHARS, TagValue, check_tag_name, tag_value, valid_tags
from ragtrace.core.types import Document, RagCall
from ragtrace.judges.llm.json_reading import object_without_duplicates, parse_finite, reject_constant

T = TypeVar("T")

KEYS: Final = (
    *("query", "contexts", "answer", "reference", "reference_contexts"),
    *("turns", "runs", "parts", "conversation_id", "workflow", "model", "tags"),
)
"""Keys of a record that describe a call."""
ALIASES: Final[Mapping[str, str]] = {
    "user_input": "query",
    "retrieved_contexts": "contexts",
    "response": "answer",  # RAGAS
    "question": "query",
    "ground_truth": "reference",  # RAGAS before 0.2
    "input": "query",
    "retrieval_context": "contexts",
    "actual_output": "answer",
    "expected_output": "reference",
}
"""Keys of other evaluation libraries (RAGAS, DeepEval), each with the key of `KEYS` that means the same."""
OF_A_CASE: Final = ("release", "at", "error", "scores", "labels", "feedback", "duplicates", "selected_by")
"""Further keys in the test cases that `ragtrace dataset` writes."""
_DEEPEVAL: Final = ("actual_output", "retrieval_context", "expected_output")
_ROLES: Final = ("user", "assistant")
MOST_LINE_BYTES: Final = 64 * 2**20
_BOM: Final = b"\xef\xbb\xbf"
_MOST_KEYS: Final = 100


def build_call(
    *,
    answer: object,
    contexts: object = None,
    query: object = None,
    reference: object = None,
    reference_contexts: object = None,
    turns: object = None,
    runs: object = None,
    parts: object = None,
    conversation_id: object = None,
    workflow: object = None,
    model: object = None,
    tags: object = None,
) -> RagCall:
    """Build a `RagCall` from arguments in any form that users may pass, such as strings, lists and dicts.

    The reasoning at the beginning of an answer is left out (`RagCall.reasoning_chars`).

    Raises:
        SettingsError: a part cannot be understood; the message says which, what was seen and what to pass.
    """
    call = RagCall(
        query=_text("query", query),
        contexts=_passages("contexts", contexts, query),
        answer=_text("answer", answer),
        reference=_text("reference", reference),
        reference_contexts=_passages("reference_contexts", reference_contexts, query),
        turns=_each("turns", turns, _turn),
        runs=_each("runs", runs, lambda item: item if isinstance(item, str) else None),
        parts=_each("parts", parts, _part),
        conversation_id=_text("conversation_id", conversation_id),
        workflow=_text("workflow", workflow) or "",
        model=_text("model", model),
        tags=_tags(tags),
    )
    return without_reasoning(call)


def call_from_record(record: Mapping[str, object]) -> RagCall:
    """Build a call from a dict with the key `answer` and others such as `query` and `contexts`.

    Its keys are those in `KEYS` and `ALIASES`; other keys are ignored.

    Raises:
        SettingsError: there is no `answer`, a value cannot be understood, or two keys mean the same.
    """
    record = rename_aliases(record)
    if "answer" not in record:
        seen = ", ".join(str(key) for key in list(record)[:8]) or "none"
        raise SettingsError(f"a call needs the key 'answer' (null if there was none), got the keys: {seen}")
    return build_call(**{key: record[key] for key in KEYS if key in record})


def rename_aliases(record: Mapping[str, object]) -> dict[str, object]:
    """Rename keys of other evaluation libraries (RAGAS, DeepEval) in *record* to ragtrace's keys.

    Raises:
        SettingsError: two keys mean the same.
    """
    # `context` is DeepEval's name for the passages a right answer rests on; elsewhere it may be anything.
    aliases = {**ALIASES, "context": "reference_contexts"} if any(key in record for key in _DEEPEVAL) else ALIASES
    found: dict[str, object] = {}
    for key, value in record.items():
        name = aliases.get(key, key)
        if name in found:
            raise SettingsError(f"{key!r} and another key both mean {name!r}; leave one of them out")
        found[name] = value
    return found


def as_call(call: RagCall | Mapping[str, object]) -> RagCall:
    """Return *call* as a `RagCall` without the reasoning of its model, converting it if it is a dict.

    Raises:
        SettingsError: it is neither a call nor a record, or cannot be understood.
    """
    if isinstance(call, RagCall):
        return without_reasoning(call)
    if isinstance(call, Mapping):
        return call_from_record(call)
    raise SettingsError(
        f"a call must be a ragtrace.RagCall or a dict, got {type(call).__name__}; "
        "write for instance {'query': ..., 'contexts': [...], 'answer': ...}"
    )


def _text(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise SettingsError(f"{name}= must be a string or None, got {type(value).__name__}; pass its text")


def _tags(given: object) -> dict[str, TagValue]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SettingsError(f"tags= must be a dict of names and values, got {type(given).__name__}")
    named = {check_tag_name(name): value for name, value in cast("Mapping[object, object]", given).items()}
    for name, value in named.items():
        if tag_value(value) is None:
            raise SettingsError(
                f"the value of the tag {name!r} must be a text of 1 to {MOST_VALUE_CHARS} characters, a boolean or a "
                f"finite number, got {value!r:.80}"
            )
    if len(named) > MOST_TAGS:
        raise SettingsError(f"a call has at most {MOST_TAGS} tags, got {len(named)}; leave some out")
    return valid_tags(cast("Mapping[object, object]", named))


def _passages(name: str, value: object, query: object) -> tuple[Document, ...] | None:
    if value is None:
        return None
    found = find_documents(value, query=query if isinstance(query, str) else None)
    if found is None:
        raise SettingsError(
            f"{name}= cannot be read, got {type(value).__name__}; pass a list of strings or of documents"
        )
    return mark_duplicates(found)


def _each(name: str, value: object, read: Callable[[object], T | None]) -> tuple[T, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SettingsError(f"{name}= must be a list, got {type(value).__name__}; {_FORMS[name]}")
    items: list[T] = []
    for number, item in enumerate(cast("Sequence[object]", value)):
        one = read(item)
        if one is None:
            raise SettingsError(f"{name}[{number}] cannot be read, got {item!r:.80}; {_FORMS[name]}")
        items.append(one)
    return tuple(items)


_FORMS: Final[Mapping[str, str]] = {
    "turns": "write {'role': 'user' or 'assistant', 'text': ...} for each",
    "runs": "write the answer of each run as a string",
    "parts": "write {'text': ..., 'cited': [ids of documents, or numbers from 1]} for each",
}


def _turn(item: object) -> Turn | None:
    if isinstance(item, Turn):
        return item
    if not isinstance(item, Mapping):
        return None
    turn = cast("Mapping[str, object]", item)
    role, text = turn.get("role"), turn.get("text", turn.get("content"))
    if role not in _ROLES or not isinstance(text, str):
        return None
    return Turn("user" if role == "user" else "assistant", text)


def _part(item: object) -> CitedPart | None:
    if isinstance(item, CitedPart):
        return item
    if not isinstance(item, Mapping):
        return None
    part = cast("Mapping[str, object]", item)
    text, cited = part.get("text"), part.get("cited")
    if not isinstance(text, str) or isinstance(cited, str) or not isinstance(cited, Sequence):
        return None
    names = tuple(str(each) for each in cast("Sequence[object]", cited) if isinstance(each, (str, int)))
    return CitedPart(text, names) if len(names) == len(cast("Sequence[object]", cited)) else None


# --- files of calls ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallLine:
    """Line of a JSON Lines file that describes a call."""

    number: int
    """Number of the line, from 1."""
    id: str | int | float | None
    """Value of the key `id`."""
    call: RagCall
    key: bytes
    """Hash of 16 bytes that is equal for lines that describe the same call."""
    part: str = "line"
    """Noun for messages: the kind of part that `number` counts."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """Line of a JSON Lines file that cannot be read as a call."""

    number: int
    error: str
    part: str = "line"
    """Noun for messages: the kind of part that cannot be read, before `number`."""


class CallFile:
    """JSON Lines file of calls, which is read line by line during iteration.

    It can be iterated once; blank lines are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = max(1, path.stat().st_size)
        self._read = 0
        self.unread_keys: Counter[str] = Counter()
        """Number of lines with each unknown key, which may be misspelt."""

    @property
    def share_read(self) -> float:
        """Share of the file of calls that has been read so far, from 0 to 1."""
        return min(1.0, self._read / self._size)

    def __iter__(self) -> Generator[CallLine | BadLine, None, None]:
        with self._path.open("rb") as file:
            number = 0
            while raw := file.readline(MOST_LINE_BYTES):
                number += 1
                self._read += len(raw)
                if number == 1:
                    raw = raw.removeprefix(_BOM)
                if len(raw) == MOST_LINE_BYTES and not raw.endswith(b"\n"):
                    while (more := file.readline(MOST_LINE_BYTES)) and not more.endswith(b"\n"):
                        self._read += len(more)
                    yield BadLine(number, f"longer than {MOST_LINE_BYTES} bytes; split it")
                elif raw.strip():
                    try:
                        line: CallLine | BadLine = self._parse(number, raw)
                    except SettingsError as error:
                        line = BadLine(number, str(error))
                    yield line

    def _parse(self, number: int, raw: bytes) -> CallLine:
        record = rename_aliases(_record(raw))
        call = call_from_record(record)
        name = record.get("id")
        if not (name is None or isinstance(name, (str, int, float))):
            raise SettingsError(f"id must be a string or a number, got {type(name).__name__}")
        for key in record:
            if key not in (*KEYS, *OF_A_CASE, "id") and (key in self.unread_keys or len(self.unread_keys) < _MOST_KEYS):
                self.unread_keys[key] += 1
        description = json.dumps({key: record[key] for key in KEYS if key in record}, sort_keys=True)
        return CallLine(number, name, call, hashlib.blake2b(description.encode(), digest_size=16).digest())


def _record(raw: bytes) -> dict[str, object]:
    try:
        text = raw.decode("utf-8")
        record: object = json.loads(
            text, parse_constant=reject_constant, parse_float=parse_finite, object_pairs_hook=object_without_duplicates
        )
    except UnicodeDecodeError as error:
        raise SettingsError(f"not UTF-8 at byte {error.start}; save the file as UTF-8") from None
    except RecursionError:
        raise SettingsError("nested too deeply to be read") from None
    except ValueError as error:
        raise SettingsError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise SettingsError(f"not a JSON object, got {type(record).__name__}")
    return cast("dict[str, object]", record)
