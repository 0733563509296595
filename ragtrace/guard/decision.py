"""Decision of a guard: the verdict on an answer from its evaluation, and the action from the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ragtrace.core.step import CHECKED
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.evaluation.scoring import JUDGE_INPUT_TRUNCATED, TRUNCATED_ANSWER, TRUNCATED_CHUNKS
from ragtrace.guard.outcomes import Check, Verdict
from ragtrace.guard.settings import Guard
from ragtrace.judges.llm.injection_signals import has_injection_signal
from ragtrace.judges.llm.invisible_chars import remove_invisible

INJECTION: Final = "injection_suspected"
TRUNCATED: Final = "truncated"
"""Reason of an answer of which the judge did not see enough for a verdict."""


def check_of(guard: Guard, call: RagCall, evaluation: Evaluation) -> Check:
    """Return the verdict on the answer of *call*, whose texts may attack the judge.

    An answer of which the judge saw a part never passes, nor does a call with a signal of a prompt injection: they are
    unscored, unless they fail. Where the judge saw a part of a chunk, the answer cannot fail: the rest may support it.
    """
    if evaluation.error is not None:
        return Check(_verdict_of_error(evaluation), reason=evaluation.error)
    result = evaluation.results.get(guard.metric)
    if result is None:
        return Check("error", reason="not_computed")
    if not isinstance(result, Score):
        if result.reason == "timeout":
            return Check("timeout", reason=result.reason)
        return Check("unscored" if result.status == "not_applicable" else "error", reason=result.reason)
    given: object = result.attributes  # a user's metric may have set attributes of any type
    attributes: Mapping[object, object] = cast("Any", given) if isinstance(given, Mapping) else {}
    fails = guard.fails(result.value)
    if attributes.get(JUDGE_INPUT_TRUNCATED) or attributes.get(TRUNCATED_CHUNKS if fails else TRUNCATED_ANSWER):
        return Check("unscored", reason=TRUNCATED)
    if fails:
        return Check("fail", result.value)
    if attributes.get(INJECTION) is True or _has_signal(call):
        return Check("unscored", reason=INJECTION)
    return Check("pass", result.value)


def blocks(guard: Guard, verdict: Verdict) -> bool:
    """Return whether an answer with this *verdict* is treated as failed."""
    return verdict == "fail" or (verdict not in CHECKED and guard.on_error == "closed")


def _verdict_of_error(evaluation: Evaluation) -> Verdict:
    if evaluation.error == "timeout":
        return "timeout"
    return "circuit_open" if evaluation.deferred else "error"


def _has_signal(call: RagCall) -> bool:
    texts = [call.query or "", call.answer or "", call.reference or ""]
    texts += [document.text for document in call.contexts or ()]
    texts += [turn.text for turn in (*(call.turns or ()), *(call.earlier_turns or ()))]
    cleaned = [remove_invisible(text) for text in texts]
    return has_injection_signal((each.text for each in cleaned), sum(each.removed for each in cleaned))
