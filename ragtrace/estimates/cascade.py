"""Rate of bad calls from a cascade of four stages, each a sample of the one before with recorded probabilities.

**Stages.** A free screen scores every call (f), a decision judge a share of the calls (g, its score), a chat judge a
sample of these (y, its verdict), a person a sample of those (z, the label). p1, p2 and p3 are the probabilities with
which a call entered each stage, given that it was in the one before. So a call counts with w1 = 1/p1 in the decision
judge's stage, w2 = w1/p2 in the chat judge's and w3 = w2/p3 in the people's. Without these weights the rate would be
wrong by several points, because suspicious calls go further.

**Estimate.** h is the probability of a label by score and verdict, h = sigma(b0 + b1 logit s + b2 (2y - 1)), fitted to
the labels and cross-fitted. With means over a stage weighted by its weights, f_N the mean of f over all N calls:
    D = g_1 + l0 (f_N - f_1),   E = h_2 + l1 (D - g_2),   rate = z_3 + l2 (E - h_3),
so each stage corrects the mean of the one before it. l0, l1 and l2 are the slopes of the regressions of g on f, h on g
and z on h in stages 1, 2 and 3, with squared weights. l2 is then multiplied with x^2 / (x^2 + SHRINK), x the effective
number of labels of the rarer kind, as few labels estimate it badly.

**Interval.** The influence of a call on the estimate is, with 1[k] = 1 if it is in stage k,
    psi = l2 l1 l0 (f - f_N) + 1[1] w1 l2 l1 ((g - g_1) - l0 (f - f_1)) + 1[2] w2 l2 ((h - h_2) - l1 (g - g_2))
          + 1[3] w3 ((z - z_3) - l2 (h - h_3)),
and the variance V = sum of psi^2 / N^2. With W the mean weight of a label and w the sum of the weights, the interval
has the arms of the Wilson interval of the labels alone, scaled by the root of
    (V + DISAGREEING (W / w)^2) (1 + PENALTY / x^2) / S2, at most 1,
with S2 the variance of the labels' mean. The arm towards 0 also counts the imagined calls (`corrected`) that S2 has:
without them, one bad label of a great weight made the low end too high at rates of 0.2 %. It then grows to the root of
its square and of U^2, with
    U = UNSEEN l2 (sum of w3 h^2 / sum of w3 h) (sum of w3^2 h / sum of w3 h) / w
for good calls with a high h of which the labels may have shown none. The interval never becomes wider than that of the
labels alone.

**Sums.** All of it is computed from sums over the calls of a stage, named by their weights and by what is multiplied:
`n`, `f`, `ff` over all calls, then with `a` for w1, `b` for w2 and `d` for w3 the powers `a` and `aa` in stage 1, `b`,
`bb` and `ab` in stage 2, `d`, `dd`, `ad` and `bd` in stage 3. `bb_gh` is the sum of w2^2 g h over stage 2. Sums of
processes and of periods add up, and the same formulas compute with floats, arrays and PromQL expressions.

Sources: Sarndal, Swensson and Wretman 1992, "Model Assisted Survey Sampling", chapter 9 (multi-phase sampling);
Angelopoulos et al. 2023, arXiv:2301.09633 (prediction-powered mean). By simulation: `tests/benchmarks/cascade.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ragtrace.core.errors import SettingsError
from ragtrace.estimates.agreement import PARTS, parts_of_questions
from ragtrace.estimates.corrected import DISAGREEING, IMAGINED, NOTHING_LABELLED, PENALTY, SHRINK, UNSEEN
from ragtrace.estimates.curve_fitting import logits
from ragtrace.estimates.estimate import Estimate, missing_estimate
from ragtrace.estimates.formulas import Arithmetic, Floats, IntervalBounds, Q, wilson_interval
from ragtrace.estimates.logistic import fit_logistic, sigmoid

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

STAGES: Final[tuple[tuple[tuple[str, ...], str], ...]] = ((("a", "aa"), "fg"), (("b", "bb", "ab"), "fgh"),
                                                          (("d", "dd", "ad", "bd"), "fghz"))  # fmt: skip
"""Powers of the weights, and factors of the products, whose sums are kept of stages 1, 2 and 3."""
_NOTHING: Final = 1e-9
_PRIOR_MEANS: Final = (0.0, 1.0, 0.0)
_PRIOR_PRECISIONS: Final = (0.05, 1.0, 0.25)


def products(factors: str) -> Iterator[str]:
    """Yield the names of all products of up to two of *factors*, that of none first: for "fg", "", f, g, ff, fg, gg."""
    yield ""
    yield from factors
    for pair in combinations_with_replacement(factors, 2):
        yield "".join(pair)


SUMS: Final = (
    "n", "f", "ff",
    *(f"{power}_{product}" for powers, factors in STAGES for power in powers for product in products(factors)),
)  # fmt: skip
"""Names of all sums."""


def stage_columns(stage: int, weights: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summands of the sums of one stage, as arrays with one element for each of its calls.

    Args:
        stage: 1, 2 or 3.
        weights: cumulative weights by the letters a, b and d, as far as the stage has them.
        values: scores by the letters f, g, h and z, as far as the stage has them.
    """
    powers, factors = STAGES[stage - 1]
    terms: dict[str, Any] = {}
    for power in powers:
        weight = 1.0
        for letter in power:
            weight = weight * weights[letter]
        for product in products(factors):
            term = weight
            for letter in product:
                term = term * values[letter]
            terms[f"{power}_{product}"] = term
    return terms


class _Line(NamedTuple):
    """Deviation of a call: the sum of coefficients times (score - mean), by the letter of the score."""

    coefficients: Mapping[str, Any]
    means: Mapping[str, Any]


def cascade_bounds(
    sums: Mapping[str, Q], a: Arithmetic[Q]
) -> tuple[IntervalBounds[Q], IntervalBounds[Q], tuple[Q, Q, Q]]:
    """Return the rate by all stages, the rate by the labels alone, and the slopes l0, l1 and l2.

    Args:
        sums: `SUMS` by name; there must be calls in each stage.
        a: arithmetic that computes with them.
    """
    s, n = sums, sums["n"]

    def mean(power: str, letter: str) -> Q:
        return a.define(f"{power}_mean_{letter}", s[f"{power}_{letter}"] / s[f"{power}_"])

    of_all = {"f": a.define("all_mean_f", s["f"] / n)}
    first, second = {x: mean("a", x) for x in "fg"}, {x: mean("b", x) for x in "gh"}
    third = {x: mean("d", x) for x in "hz"}

    def slope(power: str, of: str, on: str, means: Mapping[str, Q]) -> Q:
        both = _product_sum(s, power, _Line({of: 1.0}, means), _Line({on: 1.0}, means))
        square = _product_sum(s, power, _Line({on: 1.0}, means), _Line({on: 1.0}, means))
        least = s[f"{power}_"] * _NOTHING
        return a.define(f"slope_{of}_{on}", a.ratio(both, square, least, 0.0))

    l0, l1 = slope("aa", "g", "f", first), slope("bb", "h", "g", second)
    w, unit = s["d_"], a.define("unit", s["dd_"] / s["d_"])
    everything = w + 2.0 * IMAGINED * unit
    m = a.define("centre", (s["d_z"] + IMAGINED * unit) / everything)
    label = _Line({"z": 1.0}, {"z": m})
    imagined = IMAGINED * unit * unit * ((1.0 - m) * (1.0 - m) + m * m)
    spread = a.define("spread", (_product_sum(s, "dd", label, label) + imagined) / (w * w))
    e = a.define("effective", m * (1.0 - m) * everything / w / spread)
    rarer = a.define("rarer", e * m * (1.0 - m) * (e * m * (1.0 - m)))
    l2 = a.define("slope", slope("dd", "z", "h", third) * rarer / (rarer + SHRINK))
    by_decisions = first["g"] + l0 * (of_all["f"] - first["f"])
    by_verdicts = second["h"] + l1 * (by_decisions - second["g"])
    value = a.define("value", a.minimum(a.maximum(third["z"] + l2 * (by_verdicts - third["h"]), 0.0), 1.0))
    lines = (
        _Line({"f": l2 * l1 * l0}, of_all),
        _Line({"g": l2 * l1, "f": 0.0 - l2 * l1 * l0}, first),
        _Line({"h": l2, "g": 0.0 - l2 * l1}, second),
        _Line({"z": 1.0, "h": 0.0 - l2}, third),
    )
    variance = a.define("variance", _sum_of_squares(s, lines) / (n * n))
    left = a.maximum(variance, 0.0) + DISAGREEING * unit * unit / (w * w)
    scale, towards_0 = (
        a.define(name, a.sqrt(a.minimum(each * (1.0 + PENALTY / rarer) / spread, 1.0)))
        for name, each in (("scale", left), ("towards_0", left + imagined / (w * w)))
    )
    low, high = wilson_interval(third["z"], e, a)
    below, above = a.define("below", towards_0 * (third["z"] - low)), a.define("above", scale * (high - third["z"]))
    height, weight = (a.ratio(s[name], s["d_h"], w * _NOTHING, 0.0) for name in ("d_hh", "dd_h"))
    unseen = a.define("unseen", UNSEEN * l2 * height * weight / w)
    below = a.minimum(a.sqrt(below * below + unseen * unseen), high - low - above)
    ends = a.maximum(value - below, 0.0), a.minimum(value + above, 1.0)
    found = IntervalBounds(value, a.define("low", ends[0]), a.define("high", ends[1]), l2)
    return found, IntervalBounds(third["z"], low, high, l2 * 0.0), (l0, l1, l2)


def _sum_of_squares(s: Mapping[str, Any], lines: tuple[_Line, _Line, _Line, _Line]) -> Any:
    """Return the sum of the squared influences of all calls, from the deviations of each stage."""
    screened, decided, judged, labelled = lines
    total = _product_sum(s, "", screened, screened)
    for power, line, earlier in (
        ("a", decided, (("a", screened),)),
        ("b", judged, (("b", screened), ("ab", decided))),
        ("d", labelled, (("d", screened), ("ad", decided), ("bd", judged))),
    ):
        total = total + _product_sum(s, power * 2, line, line)
        for powers, other in earlier:
            total = total + 2.0 * _product_sum(s, powers, other, line)
    return total


def _product_sum(s: Mapping[str, Any], power: str, one: _Line, other: _Line) -> Any:
    """Return the weighted sum of the products of two deviations over the calls of a stage."""
    total: Any = None
    for x, of_x in one.coefficients.items():
        for y, of_y in other.coefficients.items():
            mean_x, mean_y, both = one.means[x], other.means[y], "".join(sorted(x + y))
            centred = _sum(s, power, both) - mean_x * _sum(s, power, y) - mean_y * _sum(s, power, x)
            term = of_x * of_y * (centred + mean_x * mean_y * _sum(s, power, ""))
            total = term if total is None else total + term
    return total


def _sum(s: Mapping[str, Any], power: str, product: str) -> Any:
    return s[f"{power}_{product}"] if power else s[product or "n"]


class CascadeCall(NamedTuple):
    """Call with its score or label from each stage of a cascade: screen, decision judge, chat judge and person."""

    screen: float = 0.0
    """Score by the screen, in [0, 1]; high is bad; 0 where there is no screen."""
    decision: float | None = None
    """Score by the decision judge, in [0, 1]; None: the call was not in its stage."""
    verdict: float | None = None
    """Score by the chat judge, in [0, 1]; None: the call was not in its stage."""
    label: float | None = None
    """Label by a person, in [0, 1]; 1 is bad; None: the call was not in that stage."""
    p1: float = 1.0
    """Probability of the decision judge's stage."""
    p2: float = 1.0
    """Probability of the chat judge's stage, for a call in the decision judge's."""
    p3: float = 1.0
    """Probability of being labelled, for a call that the chat judge saw."""
    question: Hashable = None
    """What is alike for calls with the same question; None: unlike all others."""


def cascade_rate(calls: Sequence[CascadeCall], *, metric: str = "", workflow: str | None = None) -> Estimate:
    """Estimate the rate of bad calls, with a 95 % interval, from the calls of a cascade of judges and people.

    Args:
        calls: all calls, with the probabilities with which they entered each stage that they are in.
        metric: name of the metric.
        workflow: name of the workflow; None: all.

    Returns:
        The estimate, whose interval is never wider than that of the labels alone. Its value is None, with a reason,
        if there are no labels.

    Raises:
        SettingsError: a score or a probability is outside its range, or a call is in a stage but not in the one before.

    Source: the text at the top of this module.
    """
    if not any(each.label is not None for each in calls):
        return missing_estimate(NOTHING_LABELLED, "tuned", "rate", metric=metric, workflow=workflow)
    columns = np.array([each[:7] for each in calls], dtype=np.float64).T  # None becomes NaN
    f, g, y, z = columns[:4]
    reached = ~np.isnan(columns[1:4])
    if (reached[1] & ~reached[0]).any() or (reached[2] & ~reached[1]).any():
        raise SettingsError(
            "a call is in a stage of the cascade but not in the one before; each verdict needs the decision judge's "
            "score, and each label a verdict"
        )
    scores = columns[:4][~np.isnan(columns[:4])]
    used = [columns[4 + stage][reached[stage]] for stage in range(3)]
    if not ((scores >= 0.0) & (scores <= 1.0)).all() or not all(((p > 0.0) & (p <= 1.0)).all() for p in used):
        raise SettingsError("scores and labels must be in [0, 1] and probabilities in (0, 1], got other numbers")
    one, two, three = (np.flatnonzero(each) for each in reached)
    weight_a = 1.0 / columns[4]
    weight_b, weight_d = weight_a / columns[5], weight_a / columns[5] / columns[6]
    questions = [calls[at].question if calls[at].question is not None else ("", at) for at in three.tolist()]
    h, h_of_labelled = _label_probabilities(g, y, z, weight_d, two, three, questions)
    sums: dict[str, Any] = {"n": float(len(f)), "f": f.sum(), "ff": f @ f}
    for stage, rows, at_h in ((1, one, None), (2, two, h), (3, three, h_of_labelled)):
        weights = {"a": weight_a[rows], "b": weight_b[rows], "d": weight_d[rows]}
        terms = stage_columns(stage, weights, {"f": f[rows], "g": g[rows], "h": at_h, "z": z[rows]})
        sums |= {name: float(term.sum()) for name, term in terms.items()}
    found, _, slopes = cascade_bounds(sums, Floats())
    w = weight_d[three]
    return Estimate(
        found.value, found.low, found.high, len(calls), float(w.sum() ** 2 / (w @ w)), "tuned", "rate", slopes[2],
        metric, workflow, corrected="labels",
    )  # fmt: skip


def verdict_features(s: Array, y: Array) -> Array:
    """Return the features of the probability of a label: 1, the logit of the score *s*, and the verdict *y*."""
    return np.stack((np.ones_like(s), logits(s), 2.0 * y - 1.0), -1)


def fit_label_probability(features: Array, w: Array, bad: Array, good: Array) -> Array:
    """Fit the probability of a label by score and verdict (h), and return its coefficients, for each sample.

    Args:
        features: `verdict_features` of each place.
        w: weight of a label at each place.
        bad: number of labels of bad calls at each place, on the last axis.
        good: the same of good calls.
    """
    both = bad + good
    square = both @ (w * w)
    scale = np.where(square > 0.0, both @ w / np.where(square > 0.0, square, 1.0), 0.0)[..., None]
    return fit_logistic(features, scale * w * bad, scale * w * both, _PRIOR_MEANS, _PRIOR_PRECISIONS)


def _label_probabilities(
    g: Array, y: Array, z: Array, w: Array, judged: NDArray[np.int64], labelled: NDArray[np.int64],
    questions: Sequence[Hashable],
) -> tuple[Array, Array]:  # fmt: skip
    """Return the probability of a label (h) for each judged call, and for each labelled one without its own part."""
    labels, weights = z[labelled], w[labelled]
    part = np.array(parts_of_questions([bool(label > 0.5) for label in labels], questions))
    inside = part == np.arange(PARTS)[:, None]
    fitted = fit_label_probability(
        verdict_features(g[labelled], y[labelled]), weights, ~inside * labels, ~inside * (1.0 - labels)
    )
    shares = inside @ weights / weights.sum()
    own = sigmoid(fitted @ verdict_features(g[labelled], y[labelled]).T)
    of_judged = shares @ sigmoid(fitted @ verdict_features(g[judged], y[judged]).T)
    return of_judged, own[part, np.arange(len(labels))]
