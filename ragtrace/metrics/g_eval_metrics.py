"""`g_eval`: makes a metric for which a judge rates calls by the user's own criteria or steps."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, get_args

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import RatingMethod
from ragtrace.core.text import LazyPattern, OwnText
from ragtrace.core.types import Judgement, Plain, RagCall, Result, Score, Unscored
from ragtrace.metrics.formula import SLACK, Formula, unmet, why_missing

_METHODS: Final[tuple[str, ...]] = get_args(RatingMethod)
_REQUIRED: Final = {
    "query": ("empty_query",),
    "answer": ("empty_answer",),
    "contexts": ("contexts_missing", "no_contexts"),
    "reference": ("needs_reference",),
    "turns": ("needs_conversation",),
}
FIELDS: Final = tuple(_REQUIRED)
_MOST_GRADES: Final = 101
_MOST_SAMPLES: Final = 20
# Usual names of the fields in prompts of this kind, without words that also mean something else.
_FIELD_NAMES: Final = {
    "answer": r"actual[ _]output",
    "contexts": r"retrieval[ _]context|retrieved[ _]contexts?",
    "reference": r"expected[ _](?:output|answer)|ground[ _]truth|reference[ _]answer",
    "turns": r"conversation[ _]history|previous[ _]turns",
}
_NAMES: Final = {field: LazyPattern(rf"\b(?:{names})\b", re.IGNORECASE) for field, names in _FIELD_NAMES.items()}


@dataclass(frozen=True, slots=True)
class GEval:
    """Metric for which a judge rates calls by the user's own criteria. Made by `g_eval`.

    The fields are explained there.
    """

    name: str
    criteria: str | None
    steps: tuple[str, ...]
    """Evaluation steps; if empty, the judge writes them once from the criteria."""
    fields: tuple[str, ...]
    low: int
    high: int
    method: RatingMethod
    samples: int
    higher_is_better: bool
    threshold: float | None
    version: str
    opt_in: bool = True
    computes: bool = True

    @property
    def range(self) -> tuple[float, float]:
        """Range of the metric's score: always 0 to 1, whatever the scale of the judge's ratings."""
        return 0.0, 1.0

    @property
    def needs(self) -> frozenset[str]:
        """Names of the `Judgement` fields that the metric reads."""
        return frozenset({"ratings"})

    def __call__(self, call: RagCall, judgement: Judgement) -> Result:
        up, threshold = self.higher_is_better, self.threshold
        return Formula(self.name, self.version, self._score_from_rating, self.needs, up, threshold=threshold)(
            call, judgement
        )

    def missing_input(self, call: RagCall) -> str:
        """Return the reason why the judge cannot rate *call*, such as `empty_query`, or "" if there is none."""
        return unmet(call, Judgement(), *(reason for field in self.fields for reason in _REQUIRED[field]))

    def unseen_fields(self) -> tuple[str, ...]:
        """Return the names of call fields that the criteria or steps mention but the judge is not shown.

        The fields are found by the words usual for them in such prompts. The judge is shown those in `fields`.
        """
        text = "\n".join((self.criteria or "", *self.steps))
        found = (_NAMES[field].search(text) for field in _NAMES if field not in self.fields)
        return tuple(match[0] for match in found if match)

    def _score_from_rating(self, call: RagCall, judgement: Judgement) -> Result:
        if reason := self.missing_input(call):
            return Unscored(reason)
        rating = judgement.ratings.get(self.name)
        if rating is None:
            return Unscored(judgement.reasons.get(f"ratings.{self.name}") or why_missing(judgement, "ratings"))
        if not math.isfinite(rating.value):
            return Unscored("non_finite")
        if not self.low - SLACK <= rating.value <= self.high + SLACK:
            return Unscored("out_of_range", explanation=OwnText(f"{rating.value!r} is outside {self.low}..{self.high}"))
        value = (rating.value - self.low) / (self.high - self.low)
        attributes: dict[str, Plain] = {"method": rating.method, "rating": rating.value, "samples": rating.samples}
        if missing := self.unseen_fields():
            attributes["fields_missing"] = missing
        if self.threshold is not None:
            worse = self.threshold - value if self.higher_is_better else value - self.threshold
            attributes["passes_threshold"] = worse <= SLACK
        return Score(value, explanation=rating.reason or None, attributes=attributes)


def g_eval(
    name: str,
    *,
    criteria: str | None = None,
    steps: Sequence[str] = (),
    needs: Sequence[str] = ("query", "answer"),
    low: int = 0,
    high: int = 10,
    method: RatingMethod = "logprobs",
    samples: int = 5,
    higher_is_better: bool = True,
    threshold: float | None = None,
) -> GEval:
    """Make a metric for which the judge rates calls by criteria in plain words.

    Inputs: the fields declared in *needs*.
    Formula: (rating - low) / (high - low).
    Range: [0, 1]; higher is better unless declared otherwise.
    Judge calls: 1; *samples* of them by the method `samples`; one more, once, to write steps from criteria.
    Unscored: `empty_query`, `empty_answer`, `contexts_missing`, `no_contexts`, `needs_reference`,
        `needs_conversation` (a declared field that the call lacks); `unparsable` (no rating on the scale).
    Source: Liu et al. 2023, "G-Eval", arXiv:2303.16634.

    The attribute `method` says how the rating came about: they are distributed differently and should not be mixed.
    `logprobs` is the mean of the possible ratings weighted by their probability, where the server tells a distribution
    and each rating is one token, else the plain rating, which is then published as `single` (a tokenizer that splits
    digits writes "1" for the first half of "10": choose a scale such as 0..9 or 1..5 for it); `samples` the mean of
    several replies; `single` one reply. An attribute `fields_missing` names fields that the steps speak of and *needs*
    lacks.

    Examples:
        >>> polite = ragtrace.metrics.g_eval("politeness", criteria="Is the answer polite?", needs=("answer",))
        >>> judge = ragtrace.OpenAIJudge("gpt-4o-mini", api_key="...")
        >>> ragtrace.configure(exporter="none", judge=judge, metrics=["faithfulness", polite])

    Args:
        name: of the metric; in lower case, as it becomes part of attribute names.
        criteria: what to rate; the judge makes 3 to 4 steps of it, once. Give these or *steps*.
        steps: what to do, in order.
        needs: fields of the call shown to the judge: query, answer, contexts, reference, turns.
        low: the worst rating (the best, if lower is better).
        high: the best rating; ratings are whole numbers.
        method: where a score comes from, as above: "logprobs", "samples" or "single".
        samples: replies for the method `samples`, 2 to 20.
        higher_is_better: the direction; False turns it round, and *low* is the best rating.
        threshold: of the score, in [0, 1]: a score strictly on the wrong side of it is labelled `fail`.

    Raises:
        SettingsError: something of this does not fit together.
    """
    texts = (steps,) if isinstance(steps, str) else tuple(steps)
    _check(name, criteria, texts, needs, (low, high), method, samples, threshold)
    what = (criteria, texts, sorted(needs), low, high, method, samples, higher_is_better)
    digest = hashlib.blake2b(json.dumps(what).encode(), digest_size=4).hexdigest()
    fields = tuple(field for field in FIELDS if field in needs)
    return GEval(
        name, criteria, texts, fields, low, high, method, samples, higher_is_better, threshold, version=f"2-{digest}"
    )


def _check(
    name: str,
    criteria: str | None,
    steps: tuple[str, ...],
    needs: Sequence[str],
    scale: tuple[int, int],
    method: str,
    samples: int,
    threshold: float | None,
) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise SettingsError(f"name must be letters, digits and _, got {name!r}; for instance 'politeness'")
    if not (criteria or "").strip() and not steps:
        raise SettingsError(f"g_eval {name!r} has neither criteria= nor steps=; give one of them")
    if any(not step.strip() for step in steps):
        raise SettingsError(f"steps= of g_eval {name!r} has a blank step; leave it out")
    if isinstance(needs, str) or not needs or set(needs) - set(FIELDS):
        raise SettingsError(f"needs must name some of {', '.join(FIELDS)}, got {needs!r}")
    if any(isinstance(end, bool) or not isinstance(end, int) for end in scale) or scale[1] <= scale[0]:
        raise SettingsError(f"low and high must be whole numbers with low < high, got {scale[0]!r} and {scale[1]!r}")
    if scale[1] - scale[0] >= _MOST_GRADES:
        raise SettingsError(
            f"a scale has at most {_MOST_GRADES} ratings, got {scale[0]}..{scale[1]}; use a coarser one"
        )
    if method not in _METHODS:
        raise SettingsError(f"method must be one of {', '.join(_METHODS)}, got {method!r}")
    if not 2 <= samples <= _MOST_SAMPLES:
        raise SettingsError(f"samples must be 2 to {_MOST_SAMPLES}, got {samples!r}; for one reply use method='single'")
    if threshold is not None and not 0 <= threshold <= 1:
        raise SettingsError(f"threshold is of the score, so in [0, 1], got {threshold!r}; for 7 of 0..10 write 0.7")


METRICS: Final = ()
FACTORIES: Final = (g_eval,)
