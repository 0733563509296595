"""Instructions for the LLM: text files of one subject each, joined for each kind of request.

`VERSION` is part of every judge's version, and so of every score: it changes with any file outside `own`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["full", "extract", "verify", "contradicted", "verdict"]
"""What a request asks for: everything; what needs no chunk; what needs the chunks; which chunks the answer contradicts;
a verdict in one word."""

VERSION: Final = "2"

PARTS: Final[dict[Kind, str]] = {
    "full": "frame sentences statements support given_full chunks citations answer",
    "extract": "frame sentences statements answer",
    "verify": "frame given support chunks citations",
    "contradicted": "frame contradicted",
    "verdict": "verdict",
}


@cache
def system_message(kind: Kind) -> str:
    """Return the system message for one kind of labelling request: the instructions for the LLM.

    It is equal for all calls, so that servers cache it.
    """
    return "\n".join(f"{_read_prompt(name)}\n" for name in PARTS[kind].split())


@cache
def own_instructions(name: str) -> str:
    """Return the LLM's instructions in the file `own/<name>.txt`; those in `own/frame.txt` precede every request."""
    return _read_prompt(f"own/{name}")


def _read_prompt(name: str) -> str:
    return files(__name__).joinpath(*f"{name}.txt".split("/")).read_text(encoding="utf-8").strip()
