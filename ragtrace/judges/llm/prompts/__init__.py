"""Instructions for the LLM: text files on one subject each, combined for each kind of request.

`VERSION` is part of every judge's version, and so of every score: it changes with any file outside `own`.
The file `turns.txt` is at the end of the instructions of requests that show earlier turns of a conversation.

A request has only the files that speak of labels it asks for, and of them only the lines whose conditions hold: a line
that begins with `[name]` is for requests with that part, one with `[-name]` for those without.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["full", "extract", "verify", "contradicted"]
"""Kind of request: all labels; labels that need no chunk; labels that need the chunks; which chunks the answer
contradicts."""

Label: TypeAlias = Literal[
    "sentences", "statements", "relevant", "support", "denial", "contradicted", "grade", "citations", "answer_rating",
    "answer_label",
]  # fmt: skip
"""Kind of label that a request can ask for: of sentences (their relevance), of statements (which there are, their
relevance, their support, and whether the chunks deny those without it, which comes with the support), of chunks
(contradicted by the answer, and their grade), of citations and of the answer."""
LABELS: Final[frozenset[Label]] = frozenset(get_args(Label))

VERSION: Final = "3"

PARTS: Final[dict[Kind, str]] = {
    "full": "frame sentences statements support given_full chunks citations answer",
    "extract": "frame sentences statements answer",
    "verify": "frame given support chunks citations",
    "contradicted": "frame contradicted",
}
_SUBJECTS: Final[dict[str, frozenset[str]]] = {
    "sentences": frozenset({"sentences"}),
    "statements": frozenset({"statements"}),
    "support": frozenset({"support"}),
    "given": frozenset({"given"}),
    "given_full": frozenset({"given"}),
    "chunks": frozenset({"contradicted", "grade"}),
    "citations": frozenset({"citations"}),
    "answer": frozenset({"answer_rating", "answer_label"}),
}
"""Parts of a request of which at least one makes it need that file; other files are in every request."""
_CONDITION: Final = re.compile(r"\[(-?)([a-z_]+)\]")
_CONDITIONS: Final = re.compile(rf"(?:{_CONDITION.pattern})+ ")
_LABELS: Final[dict[Kind, frozenset[Label]]] = {
    "full": LABELS - {"denial"},
    "extract": frozenset({"sentences", "statements", "relevant", "answer_rating", "answer_label"}),
    "verify": frozenset({"support", "contradicted", "grade", "citations"}),
    "contradicted": frozenset({"contradicted"}),
}


@lru_cache(maxsize=256)
def request_parts(kind: Kind, labels: frozenset[Label] = LABELS, *, given: bool = True) -> frozenset[str]:
    """Return the parts of a request: those of *labels* that its kind can ask for, and how it has the statements.

    Statements that the model extracts are `rated` where their relevance is asked for: then each has an id, and says
    whether it can be checked. Else they are `bare`: only what can be checked is stated, and sentences without any such
    statement are listed. Statements are `given` where they are to be verified alone, or mixed in with those extracted.
    """
    parts = set[str](labels & _LABELS[kind])
    if "statements" in parts:
        parts.add("rated" if "relevant" in parts else "bare")
    if "support" in parts and (given or "bare" not in parts):
        parts.add("given")
    return frozenset(parts)


@cache
def prompt_hash() -> str:
    """Return the hash of all instructions for the LLM.

    Processes with equal hashes instruct an LLM in the same way.
    """
    folder = files(__name__)
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".txt"))
    texts = (f"{name}\0{folder.joinpath(name).read_text(encoding='utf-8')}\0" for name in names)
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


def prompt_hash_of(judge_version: str) -> str:
    """Return the hash of the instructions of an LLM judge, or "" for a judge without the current instructions.

    *judge_version* is the version of the judge.
    """
    return prompt_hash() if judge_version.endswith(f"/prompts-{VERSION}") else ""


@lru_cache(maxsize=256)
def system_message(kind: Kind, parts: frozenset[str] | None = None, *, with_turns: bool = False) -> str:
    """Return the system message for one kind of labelling request: the instructions for the LLM.

    It is equal for all calls of which the same is asked, so that servers cache it. The instructions on earlier turns
    come last.

    Args:
        parts: of the request, from `request_parts`; None: those with all labels.
    """
    parts = request_parts(kind, LABELS, given=True) if parts is None else parts
    names = [name for name in PARTS[kind].split() if name not in _SUBJECTS or parts & _SUBJECTS[name]]
    texts = ["\n".join(_lines(_read_prompt(name), parts)) for name in [*names, *(["turns"] if with_turns else [])]]
    return "\n".join(f"{text}\n" for text in texts)


def _lines(text: str, parts: frozenset[str]) -> Iterator[str]:
    """Yield the lines of a file that a request with *parts* has, without their conditions."""
    for line in text.splitlines():
        conditions = _CONDITIONS.match(line)
        names = _CONDITION.findall(conditions[0]) if conditions else []
        if all((name in parts) is not bool(minus) for minus, name in names):
            yield line[conditions.end() if conditions else 0 :]


@cache
def turns_instructions() -> str:
    """Return the instructions that tell the LLM how to use earlier turns of a conversation."""
    return _read_prompt("turns")


@cache
def own_instructions(name: str) -> str:
    """Return the instructions for additional labels of the judge from the file `own/<name>.txt`."""
    return _read_prompt(f"own/{name}")


@cache
def example_messages(name: str) -> tuple[str, ...]:
    """Return the system message and the example messages, of user and assistant in turn, of the file `<name>.txt`."""
    return tuple(part.strip() for part in _read_prompt(name).split("\n---\n"))


def _read_prompt(name: str) -> str:
    return files(__name__).joinpath(*f"{name}.txt".split("/")).read_text(encoding="utf-8").strip()
