"""Instructions for the LLM: text files on one subject each, combined for each kind of request.

`VERSION` is part of every judge's version, and so of every score: it changes with any file outside `own`.
The file `turns.txt` is at the end of the instructions of requests that show earlier turns of a conversation.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["full", "extract", "verify", "contradicted"]
"""Kind of request: all labels; labels that need no chunk; labels that need the chunks; which chunks the answer
contradicts."""

VERSION: Final = "2"

PARTS: Final[dict[Kind, str]] = {
    "full": "frame sentences statements support given_full chunks citations answer",
    "extract": "frame sentences statements answer",
    "verify": "frame given support chunks citations",
    "contradicted": "frame contradicted",
}


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


@cache
def system_message(kind: Kind, *, with_turns: bool = False) -> str:
    """Return the system message for one kind of labelling request: the instructions for the LLM.

    It is equal for all calls, so that servers cache it. The instructions on earlier turns come last.
    """
    names = [*PARTS[kind].split(), *(["turns"] if with_turns else [])]
    return "\n".join(f"{_read_prompt(name)}\n" for name in names)


@cache
def turns_instructions() -> str:
    """Return the instructions that tell the LLM how to use earlier turns of a conversation."""
    return _read_prompt("turns")


@cache
def own_instructions(name: str) -> str:
    """Return the instructions for additional labels of the judge from the file `own/<name>.txt`."""
    return _read_prompt(f"own/{name}")


def _read_prompt(name: str) -> str:
    return files(__name__).joinpath(*f"{name}.txt".split("/")).read_text(encoding="utf-8").strip()
