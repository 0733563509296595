"""`completeness`: how many of the user's intentions in a conversation were satisfied."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import MAX_UNJUDGED, blank, formula, too_many, why_missing

_COUNTED: Final = ("satisfied", "unsatisfied", "pending", "blocked")
_STATES: Final = (*_COUNTED, "withdrawn")


@formula(needs=frozenset({"intentions"}), opt_in=True)
def completeness(call: RagCall, judgement: Judgement, *, max_unjudged: float = MAX_UNJUDGED) -> Result:
    """Share of the user's intentions in the conversation so far that are satisfied.

    Inputs: the turns of one conversation, gathered by its id or given.
    Formula: satisfied / (intentions - withdrawn). Only `satisfied` counts; unsatisfied, pending and blocked do not.
    Judge calls: 1.
    Unscored: `needs_conversation` (no turn of a user is known); `no_intentions` (none, or all withdrawn);
        `too_many_unjudged` (over 20 % of the intentions have no valid state).
    Source: the conversation completeness of the deepeval framework, with two differences: a conversation without
        intentions is unscored instead of 1, and intentions have states instead of yes/no verdicts.
    """
    if not any(turn.role == "user" and not blank(turn.text) for turn in call.turns or ()):
        return Unscored("needs_conversation")
    if judgement.intentions is None:
        return Unscored(why_missing(judgement, "intentions"))
    counts = Counter(intention.state for intention in judgement.intentions)
    judged = sum(counts[state] for state in _STATES)
    unjudged = len(judgement.intentions) - judged
    attributes: dict[str, Plain] = {"intentions": judged, "unjudged": unjudged}
    attributes |= {state: counts[state] for state in _STATES}
    if judgement.intentions and too_many(unjudged, len(judgement.intentions), max_unjudged):
        return Unscored("too_many_unjudged", attributes=attributes)
    counted = sum(counts[state] for state in _COUNTED)
    if not counted:
        return Unscored("no_intentions", attributes=attributes)
    return Score(counts["satisfied"] / counted, attributes=attributes)


METRICS: Final = (completeness,)
