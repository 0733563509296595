"""Judges: evaluators that label statements and retrieved chunks of a RAG call, so that metrics can compute scores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.judges.lexical.embedded import EmbeddedJudge
    from ragtrace.judges.llm.llm_judge import RequestOptions

__all__ = ["EmbeddedJudge", "RequestOptions"]

# Where each name is. Loaded on first use, as most applications need one judge only.
_HOME = {
    "EmbeddedJudge": "ragtrace.judges.lexical.embedded",
    "RequestOptions": "ragtrace.judges.llm.llm_judge",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
