"""Families of labels that only some metrics need, each by LLM requests of its own: key facts, claims, questions ..."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Metric, RagCall
from ragtrace.judges.llm import facts, intentions, questions, ratings
from ragtrace.judges.llm.chat import JudgeSession
from ragtrace.judges.llm.extra_labels import ExtraLabels, LabelFamily
from ragtrace.judges.llm.prompt_input import PromptInput

FAMILIES: Final[tuple[LabelFamily, ...]] = (
    questions.QUESTIONS,
    questions.REFERENCE_COSINE,
    facts.NUGGETS,
    ratings.RATINGS,
    intentions.INTENTIONS,
    facts.CLAIMS,
)
FIELDS: Final = frozenset[str]().union(*(family.fields for family in FAMILIES))
"""Fields of a judgement that `add_extra_labels` can fill."""


async def add_extra_labels(
    session: JudgeSession, source: PromptInput, call: RagCall, judgement: Judgement, metrics: Sequence[Metric]
) -> Judgement:
    """Ask the LLM for the further labels that *metrics* need, and return *judgement* with these labels added.

    A group of labels that fails has its reason in `reasons`, under its fields; the others keep their labels.

    Args:
        source: what the judge is shown of *call*.
        judgement: labels of statements and chunks; the nuggets need its grades.

    Raises:
        JudgeError: every request of the session failed, so that the call can be tried again as a whole.
    """
    wanted = frozenset[str]().union(*(metric.needs for metric in metrics)) & FIELDS
    families = [family for family in FAMILIES if family.fields & wanted]
    if not families:
        return judgement
    begun = session.cost.n_calls
    extra = ExtraLabels(session, call, source, judgement, metrics, wanted)

    async def find(family: LabelFamily) -> None:
        try:
            await family.find(extra)
        except JudgeError as error:
            extra.note_failure(error, family.fields & wanted)

    try:
        await asyncio.gather(*map(find, families))
        failed = all(family.fields & extra.errors.keys() for family in families)
        if not begun and failed and not any(extra.labels.values()):
            # The first one that a retry may help, if there is any.
            raise min(extra.errors.values(), key=lambda error: not error.retryable)
    finally:
        extra.errors.clear()  # the frames in their tracebacks have *extra*
    attributes = {**judgement.attributes, **extra.attributes}
    if "injection_suspected" in extra.input.attributes:
        attributes["injection_suspected"] = True
    return replace(judgement, **extra.labels, reasons={**judgement.reasons, **extra.reasons}, attributes=attributes)
