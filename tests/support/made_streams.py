"""Streams made at random, each with the texts that a reader of the documentation may expect of it.

The expectation comes from how the pieces were made, and never from the code that reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random
from types import SimpleNamespace
from typing import Final

Form = Callable[[str], object]

_WORDS: Final = (
    "the a is of Rome tower tall old 330 metres built in and it was Paris , . ! "
    "\u00e9t\u00e9 \u5854 \U0001f5fc ha no 1 \n - ** tool status answer source done messages"
).split(" ")
_MARKS: Final = " \n.,!=-*\u258c|"
_SHORT: Final = ("a", "ha", "1", "11", " ", "\n", ".", "ab", "a ", "no", "no ", "the", "=", "==", "ha ha")


@dataclass
class MadeStream:
    """Pieces of a stream, and what its text may be."""

    mode: str
    pieces: list[object]
    expected: set[str]
    """Texts that it may have; empty: it is not to be known."""
    is_certain: bool = False
    """Whether the text is to be found: no reader would doubt it."""


@dataclass
class Piece:
    """A piece of an application's own."""

    content: str


@dataclass
class Token:
    """Another."""

    token: str


@dataclass
class Message:
    """A message as those of frameworks."""

    role: str
    content: str


class Mystery:
    """A piece that has no field with a well-known name."""

    def __init__(self, odd: str) -> None:
        self.odd = odd


def _choice(**delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "model": "tiny"}


FORMS: Final[dict[str, Form]] = {
    "text": str,
    "bytes": str.encode,
    "dict": lambda text: {"answer": text},
    "content": lambda text: {"content": text},
    "message": lambda text: {"role": "assistant", "content": text},
    "object": Piece,
    "token": Token,
    "message object": lambda text: Message("assistant", text),
    "nested": lambda text: {"message": {"role": "assistant", "content": text}, "done": False},
    "parts": lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]},
    "typed": lambda text: {"type": "token", "content": text},
    "pair": lambda text: (Message("assistant", text), {"langgraph_node": "model"}),
    "mode": lambda text: ("messages", (Message("assistant", text), {"langgraph_node": "model"})),
    "subgraph": lambda text: (("graph:1",), ("messages", (Message("assistant", text), {}))),
    "with metadata": lambda text: (text, {"step": 1}),
    "kind": lambda text: ("token", text),
    "envelope": lambda text: {"event": "message", "data": text},
    "chat completion": lambda text: _choice(content=text),
    "chat completion object": lambda text: SimpleNamespace(
        choices=[SimpleNamespace(index=0, delta=SimpleNamespace(content=text))]
    ),
    "text completion": lambda text: {"choices": [{"index": 0, "text": text}]},
    "responses": lambda text: {"type": "response.output_text.delta", "delta": text},
    "anthropic": lambda text: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}},
    "cohere": lambda text: {"type": "content-delta", "delta": {"message": {"content": {"text": text}}}},
    "bedrock": lambda text: {"contentBlockDelta": {"delta": {"text": text}, "contentBlockIndex": 0}},
    "events of a chain": lambda text: {"event": "on_chat_model_stream", "data": {"chunk": {"content": text}}},
}
"""Forms of a piece with a text, each used for a whole stream."""

NONE: Final[tuple[Callable[[str], object], ...]] = (
    lambda _: None,
    lambda _: "",
    lambda _: b"",
    lambda _: {},
    lambda _: {"type": "ping"},
    lambda text: {"type": "status", "content": text},
    lambda text: {"type": "tool_result", "content": text},
    lambda text: {"type": "thinking", "content": text},
    lambda text: {"type": "progress", "message": text},
    lambda text: {"role": "tool", "content": text},
    lambda text: {"role": "user", "content": text},
    lambda text: Message("tool", text),
    lambda text: ("status", text),
    lambda _: {"usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    lambda _: {"type": "message_stop"},
    lambda text: {"event": "on_tool_end", "data": {"output": text}},
    lambda _: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    lambda _: {"type": "response.created"},
    lambda _: {"messageStop": {"stopReason": "end_turn"}},
    lambda _: {"done": True, "total_duration": 9},
    lambda _: 3,
)
"""Pieces that are known to be none of the answer."""

UNKNOWN: Final[tuple[Callable[[str], object], ...]] = (
    lambda text: {"odd": text},
    Mystery,
    lambda text: [text],
    lambda text: {"odd": {"odder": [text]}},
    lambda text: (Message("assistant", text), Message("assistant", text)),
)
"""Pieces that may have a part of the answer, which nobody can know."""


def _tokens(random: Random) -> list[str]:
    """Tokens of a text: mostly as a model's, sometimes short ones that repeat each other."""
    if random.random() < 0.2:
        return [random.choice(_SHORT) for _ in range(random.randint(1, 12))]
    found = [random.choice(_WORDS) for _ in range(random.randint(1, 30))]
    return [f" {token}" if random.random() < 0.8 else token for token in found]


def _parts(random: Random) -> list[str]:
    """Parts of a text: tokens, several of them, single characters, or cuts anywhere."""
    tokens = _tokens(random)
    how = random.randrange(4)
    if how == 1:
        return list("".join(tokens))
    if how == 2:
        text, parts = "".join(tokens), list[str]()
        while text:
            size = random.randint(1, 20)
            parts.append(text[:size])
            text = text[size:]
        return parts
    if how == 3:
        size = random.randint(2, 6)
        return ["".join(tokens[at : at + size]) for at in range(0, len(tokens), size)]
    return tokens


def _expected_of_parts(parts: Sequence[str]) -> set[str]:
    """Texts that pieces may mean: joined; the last, if each holds the one before; what the last one is a copy of."""
    said = [part for part in parts if part]
    found = {"".join(said)}
    if len(said) > 1 and all(later.startswith(earlier) for earlier, later in pairwise(said)):
        found.add(said[-1])
    before = "".join(said[:-1])
    if before.strip() and before.strip() == said[-1].strip():
        found |= {before, said[-1]}
    return found


def _natural(parts: Sequence[str]) -> bool:
    """Whether parts show what they are: none is the beginning of the next, and the last repeats nothing."""
    said = [part for part in parts if part.strip()]
    text = "".join(said)
    bare = [(part.strip(_MARKS) or part.strip(), part.strip()) for part in said]
    return (
        len(said) > 2
        and not any(later.startswith(earlier) for (earlier, _), (_, later) in pairwise(bare))
        and all(text.count(part) == 1 for part in said if len(part) > 11)
        and not text.startswith(("data:", "event:", "id:", "retry:", ":"))
    )


def _with_none(random: Random, pieces: list[object], share: float = 0.3) -> list[object]:
    """The pieces with some between them that are none of the answer."""
    mixed: list[object] = []
    for piece in pieces:
        while random.random() < share:
            mixed.append(random.choice(NONE)("".join(_tokens(random))))
        mixed.append(piece)
    return mixed


def _form(random: Random) -> tuple[str, Form]:
    return random.choice(list(FORMS.items()))


def parts(random: Random) -> MadeStream:
    texts = _parts(random)
    _, make = _form(random)
    return MadeStream("parts", [make(text) for text in texts], _expected_of_parts(texts), _natural(texts))


def parts_with_none(random: Random) -> MadeStream:
    texts = _parts(random)
    _, make = _form(random)
    pieces = _with_none(random, [make(text) for text in texts])
    return MadeStream("parts with others", pieces, _expected_of_parts(texts), _natural(texts))


def so_far(random: Random) -> MadeStream:
    """Each piece is the whole text so far, perhaps with a cursor, some of them twice, the last once more."""
    texts = list(accumulate(_parts(random)))
    whole = texts[-1]
    cursor = random.choice(["", "", "\u258c", " |", "..."])
    shown = [f"{text}{cursor}" for text in texts[:-1]] + [whole]
    if random.random() < 0.3:
        shown = [text for text in shown for _ in range(random.choice([1, 1, 2]))]
    _, make = _form(random)
    expected = {whole} if len(set(shown)) > 1 else {whole, "".join(shown)}
    if len(texts) <= 2 or len(whole) < 12:  # nobody can tell a few letters from parts
        expected |= {"".join(shown)}
    return MadeStream("so far", [make(text) for text in shown], expected)


def so_far_with_none(random: Random) -> MadeStream:
    made = so_far(random)
    return MadeStream("so far with others", _with_none(random, made.pieces), made.expected)


def final_copy(random: Random) -> MadeStream:
    """Parts, and at the end the whole text once more, perhaps without the white space around it."""
    texts = _parts(random)
    whole = "".join(texts)
    last = whole.strip() if random.random() < 0.5 else whole
    _, make = _form(random)
    # If the copy is short, it may be a part, as "no" is of "no no".
    expected = {whole, last} | ({whole + last} if len(whole.strip()) < 12 else set())
    return MadeStream("final copy", [make(text) for text in (*texts, last)], expected | {whole.strip()})


def helper(random: Random) -> MadeStream:
    """The events of an SDK's helper: raw ones, their snapshots, and copies at the end."""
    texts = [text for text in _parts(random) if text]
    whole = "".join(texts)
    pieces: list[object] = []
    kind = random.choice(["anthropic", "openai", "responses", "pydantic"])
    for text, so_far in zip(texts, accumulate(texts), strict=True):
        if kind == "anthropic":
            raw = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
            extra = {"type": "text", "text": text, "snapshot": so_far}
        elif kind == "openai":
            raw = {"type": "chunk", "chunk": _choice(content=text), "snapshot": {}}
            extra = {"type": "content.delta", "delta": text, "snapshot": so_far}
        elif kind == "responses":
            raw = {"type": "response.output_text.delta", "delta": text}
            extra = {"type": "response.in_progress"}
        else:
            raw = {"event_kind": "part_delta", "delta": {"part_delta_kind": "text", "content_delta": text}}
            extra = {"event_kind": "final_result"}
        pieces += [raw, extra]
    if kind == "openai":
        pieces.append({"type": "content.done", "content": whole})
    elif kind == "responses":
        pieces.append({"type": "response.output_text.done", "text": whole})
        output = [{"type": "message", "content": [{"type": "output_text", "text": whole}]}]
        pieces.append({"type": "response.completed", "response": {"output": output, "status": "completed"}})
    return MadeStream(f"helper of {kind}", pieces, {whole}, _natural(texts))


def whole_message(random: Random) -> MadeStream:
    """Steps of a graph, of which the last has the answer."""
    whole = "".join(_tokens(random)).strip() or "yes"
    asked = {"role": "user", "content": "How tall is it?"}
    said = {"role": "assistant", "content": whole}
    if random.random() < 0.5:
        pieces: list[object] = [{"ask": {"messages": [asked]}}, {"model": {"messages": [said]}}]
    else:
        pieces = [{"messages": [asked]}, {"messages": [asked, said]}]
    return MadeStream("states", pieces, {whole}, True)


def unknown(random: Random) -> MadeStream:
    """Parts, and one piece that nobody can know: of it any text would be a part or a guess."""
    texts = _parts(random)
    _, make = _form(random)
    pieces = [make(text) for text in texts]
    pieces.insert(random.randint(0, len(pieces)), random.choice(UNKNOWN)("".join(_tokens(random)).strip() or "x"))
    return MadeStream("with one that is unknown", pieces, set())


def framed(random: Random) -> MadeStream:
    """Parts in a format of transport."""
    texts = [text for text in _parts(random) if text.strip()] or ["yes"]
    frame: Callable[[str], str] = random.choice(
        [
            lambda text: f"data: {json.dumps({'token': text})}\n\n",
            lambda text: f"event: token\ndata: {json.dumps(text)}\n\n",
            lambda text: json.dumps({"token": text}) + "\n",
            lambda text: f"0:{json.dumps(text)}\n",
        ]
    )
    lines = [frame(text) for text in (texts * 3 if len(texts) < 3 else texts)]
    if random.random() < 0.3:
        lines = list("".join(lines))
    as_bytes = random.random() < 0.5
    return MadeStream("framed", [line.encode() if as_bytes else line for line in lines], set())


def split_bytes(random: Random) -> MadeStream:
    """A text in bytes that are cut anywhere, inside of characters, too."""
    whole = "".join(_tokens(random))
    data, pieces = whole.encode(), list[object]()
    while data:
        size = random.randint(1, 9)
        pieces.append(data[:size])
        data = data[size:]
    texts = [str(piece, "utf-8", "ignore") for piece in pieces if type(piece) is bytes]
    return MadeStream("bytes", pieces, {whole} | (_expected_of_parts(texts) if whole.isascii() else set()))


def several(random: Random) -> MadeStream:
    """The texts of two nodes or types, of which nobody can say which is the answer."""
    one, other = _parts(random), _parts(random)
    if random.random() < 0.5:
        pair = (
            [(text, {"langgraph_node": "plan"}) for text in one],
            [(text, {"langgraph_node": "write"}) for text in other],
        )
        pieces: list[object] = [(Message("assistant", text), node) for text, node in (*pair[0], *pair[1]) if text]
    else:
        pieces = [{"type": "alpha", "content": text} for text in one if text]
        pieces += [{"type": "beta", "content": text} for text in other if text]
    return MadeStream("several", pieces, set() if any(one) and any(other) else {"".join((*one, *other))})


def replaced(random: Random) -> MadeStream:
    """A text so far, and then another one: a note that the answer replaces, or a second message."""
    first, second = list(accumulate(_parts(random))), list(accumulate(["Then", *_parts(random)]))
    _, make = _form(random)
    whole = {second[-1], first[-1] + second[-1]}
    shown = (*first, *second)
    if len(first) < 4 or len(second) < 4:
        whole |= {"".join(shown)}
    return MadeStream("replaced", [make(text) for text in shown], whole | _expected_of_parts(shown))


def mixed(random: Random) -> MadeStream:
    """Parts in several forms."""
    texts = _parts(random)
    # A word beside metadata is the name of a kind where nothing shows that such pairs have texts.
    forms = random.sample([make for name, make in FORMS.items() if name != "with metadata"], 2)
    return MadeStream("several forms", [random.choice(forms)(text) for text in texts], _expected_of_parts(texts))


def nothing(random: Random) -> MadeStream:
    """No piece, or none that is of the answer."""
    return MadeStream("nothing", [random.choice(NONE)("x") for _ in range(random.randint(0, 4))], {""})


MODES: Final = (
    parts, parts_with_none, so_far, so_far_with_none, final_copy, helper, whole_message, unknown, framed, split_bytes,
    several, replaced, mixed, nothing,
)  # fmt: skip


def made_stream(seed: int) -> MadeStream:
    """Make the stream of the number *seed*."""
    random = Random(seed)
    return MODES[seed % len(MODES)](random)
