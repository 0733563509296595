"""The replies beside the main one: asks for those that the metrics need, and adds them to the judgement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Metric, RagCall
from ragtrace.judges.lexical import intentions
from ragtrace.judges.llm import facts, nugget_replies, questions, rating
from ragtrace.judges.llm.family import Case, Found
from ragtrace.judges.llm.prompt_input import prepare
from ragtrace.judges.local import reference_similarity

if TYPE_CHECKING:
    from ragtrace.judges.llm.chat_types import Chat
    from ragtrace.judges.local.embedder import Embedder


class _Family(NamedTuple):
    fields: frozenset[str]
    find: Callable[[Case, Found], Awaitable[None]]


_FAMILIES: Final = (
    _Family(questions.FIELDS, questions.find),
    _Family(reference_similarity.FIELDS, reference_similarity.find),
    _Family(nugget_replies.FIELDS, nugget_replies.find),
    _Family(rating.FIELDS, rating.find),
    _Family(intentions.FIELDS, intentions.find),
    _Family(facts.FIELDS, facts.find),
)
FIELDS: Final = frozenset[str]().union(*(family.fields for family in _FAMILIES))
"""The fields of a judgement that `more` can fill."""


async def more(
    chat: Chat, call: RagCall, judgement: Judgement, metrics: Sequence[Metric], embedder: Embedder | None
) -> Judgement:
    """*judgement* with the labels that *metrics* need beside those of the main reply; asks nothing if they need none.

    A family of labels that fails has its reason in `reasons`, under its fields; the others stay as they are. The cost
    of all requests is added, those of failed ones included.

    Args:
        judgement: what the main reply gave; the nuggets need its grades.
        embedder: None: what needs embeddings is `no_embedder`.

    Raises:
        JudgeError: everything that was asked failed, and the judgement was empty: one failure, with the cost of all,
            so that the call can be tried again as a whole.
    """
    wanted = frozenset[str]().union(*(metric.needs for metric in metrics)) & FIELDS
    families = [family for family in _FAMILIES if family.fields & wanted]
    if not families:
        return judgement
    case = Case(chat, call, prepare(call), judgement, metrics, embedder, wanted)
    found = await asyncio.gather(*(_find(family, case) for family in families))
    if not judgement.n_calls and all(one.error is not None and not any(one.labels.values()) for one in found):
        raise _failure(found)
    merged = _merged(judgement, found)
    if "injection_suspected" in case.sheet.attributes:  # nobody looked, if the main reply was not asked for
        return replace(merged, attributes={**merged.attributes, "injection_suspected": True})
    return merged


async def _find(family: _Family, case: Case) -> Found:
    found = Found()
    try:
        await family.find(case, found)
    except JudgeError as error:
        found.failed(error, family.fields & case.wanted)
    return found


def _failure(found: Sequence[Found]) -> JudgeError:
    errors = [one.error for one in found if one.error is not None]
    error = next((one for one in errors if one.retryable), errors[0])
    return _sum(found).on_error(error)


def _sum(found: Sequence[Found]) -> Cost:
    return sum((one.spent for one in found), Cost())


def _merged(judgement: Judgement, found: Sequence[Found]) -> Judgement:
    labels: dict[str, Any] = {}
    reasons, attributes = dict(judgement.reasons), dict(judgement.attributes)
    for one in found:
        labels |= one.labels
        reasons |= one.reasons
        attributes |= one.attributes
    spent = Cost.of(judgement) + _sum(found)
    return spent.on_judgement(replace(judgement, **labels, reasons=reasons, attributes=attributes))
