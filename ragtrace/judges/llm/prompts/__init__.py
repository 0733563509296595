"""The prompts: text files of one subject each, put together for each kind of request.

`VERSION` is part of every judge's version, and so of every score: it changes with any of these files.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["full", "extract", "verify", "contradicted", "verdict"]
"""What is asked for: everything; what needs no chunk; what needs the chunks; which chunks are denied; a single word."""

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
    """The instructions for one kind of request: the same for every call, so that servers can keep them cached."""
    return "\n".join(_read(name) for name in PARTS[kind].split())


@cache
def _read(name: str) -> str:
    return files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8").rstrip("\n") + "\n"
