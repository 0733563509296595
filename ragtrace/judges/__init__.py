"""Judges: evaluators that label statements and retrieved chunks of a RAG call, so that metrics can compute scores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.core.errors import JudgeError
    from ragtrace.core.labels import Claim
    from ragtrace.core.price import Price
    from ragtrace.core.types import Judge, Judgement
    from ragtrace.judges.decision.decision_judge import DecisionJudge
    from ragtrace.judges.lexical.embedded import EmbeddedJudge
    from ragtrace.judges.llm.embedder import OpenAIEmbedder
    from ragtrace.judges.llm.llm_judge import RequestOptions
    from ragtrace.judges.llm.openai import OpenAIJudge
    from ragtrace.judges.local.hhem import HHEM
    from ragtrace.judges.local.scorer import ScorerJudge

__all__ = [
    "Claim",
    "DecisionJudge",
    "EmbeddedJudge",
    "HHEM",
    "Judge",
    "JudgeError",
    "Judgement",
    "OpenAIEmbedder",
    "OpenAIJudge",
    "Price",
    "RequestOptions",
    "ScorerJudge",
]

# Where each name is. Loaded on first use, as most applications need few of them.
_HOME = {
    "Claim": "ragtrace.core.labels",
    "DecisionJudge": "ragtrace.judges.decision.decision_judge",
    "EmbeddedJudge": "ragtrace.judges.lexical.embedded",
    "HHEM": "ragtrace.judges.local.hhem",
    "Judge": "ragtrace.core.types",
    "JudgeError": "ragtrace.core.errors",
    "Judgement": "ragtrace.core.types",
    "OpenAIEmbedder": "ragtrace.judges.llm.embedder",
    "OpenAIJudge": "ragtrace.judges.llm.openai",
    "Price": "ragtrace.core.price",
    "RequestOptions": "ragtrace.judges.llm.llm_judge",
    "ScorerJudge": "ragtrace.judges.local.scorer",
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
