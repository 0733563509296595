"""Formulas of estimated mean scores and their intervals, written once for floats and for PromQL expressions.

**Symbols.** The screen is the evaluator that scores every call; the judge scores a sample of the calls. A judged call
has its inclusion probability p, weight 1/p, the judge's score y and the screen's score f, both scores in [0, 1]. The
inputs are sums over calls, named for the products that they sum (see `Moments`):
    w, ww, www     sums of the weights, of their squares and of their cubes, over the judged calls
    wy, wwf ...    sums of products of weights and scores, over the judged calls
    c, cy, cf ...  sums without weights over the judged calls: their number, their scores ...
    n, f, ff       sums over all calls, judged or not: their number, the screen's scores and the squares of these
    r, ry, rf ...  sums over the calls that an `always` rule had judged
"Traffic" is the calls that happened; "rate" is the long-run rate behind them, of which the traffic itself is a sample.

**Mean.** t = wy / w, the weighted (Hajek) mean.

**Spread.** With m = (wy + kW) / (w + 2kW) and W = ww / w (the mean weight of a call of the traffic), the sum over the
judged calls of w^2 (y - m)^2, to which two imagined calls are added, one with y = 1 and one with y = 0, both of weight
W and counted k times:
    S2 = wwyy - 2m wwy + m^2 ww + k W^2 ((1 - m)^2 + m^2),  S1 the same with w for w^2 and W for W^2.
They stand for the bad (or good) call of full weight that the sample happens to lack: with unequal weights the plain
variance is far too small exactly then. How likely such a call is depends on how well the screen tells bad from good.
That must not be estimated from the calls of large weight: a sample that lacks their bad call makes any screen look
perfect. So it is estimated from the calls that were more likely to be judged; a judged call counts
    u = (1 - w/H)^2 + w/W ALIKE / (ALIKE + sum of (1 - w/H)^2),  H = www / ww (about the heaviest weight),
which is almost 0 for calls of large weight, and equal for all calls where all weights are equal. IMAGINED calls of y =
1 and as many of y = 0 are added at the mean of the screen's scores, so that a few calls do not look separated by chance
or because all of them are bad. The separation is the squared distance, in standard deviations, of the screen's scores
of bad and of good calls:
    d2 = b^2 / (v_y (v_y v_f - b^2)), v_y, v_f, b the variances and covariance of y and f, each call counting u,
    k = max(FLOOR, PSEUDO / (1 + (d2 / SEPARATED)^2)), and PSEUDO where nothing varies.
Older versions did not record c and www: without them u = w/W, SEPARATED_BLIND takes the place of SEPARATED, and the
estimate for the traffic takes UNSEEN for k.

**Plain interval.** A Wilson score interval with continuity correction on the effective number of judged calls
    e = m (1 - m) w (w + 2kW) / S2  (the number itself where all weights are equal and y is 0 or 1)
and z = 1.96 (1 + SMALL / e). It has two arms (half-widths), t - low and high - t.

**Prediction-powered mean.** g = t + L (f/n - wf/w), all traffic seen by the screen, corrected by the judged sample. The
part of S2 that is due to sampling is S2 - S1; L f takes 2 L C - L^2 F off it, where
    C = sum of (w^2 - w)(y - t)(f - f'), F = sum of (w^2 - w)(f - f')^2, f' = wf / w.
L = C / F is the best, but few judged calls estimate it badly. So it is shrunk towards 0, L = C / F x^2 / (x^2 +
SHRINK), and the remaining variance is increased, A = (S2 - S1 - (2 L C - L^2 F)) (1 + PENALTY / x^2). Both depend on x,
the number of judged calls of the rarer kind (good or bad) that C and F are computed from: x = min(e, q) m (1 - m)
sqrt(q / c), with q the effective number of judged calls where each has the weight w^2 - w,
    q = (ww - w)^3 / ((www - ww) (www - 2 ww + w))  (c itself where all weights are equal, w/W if c is not known).

**Its interval** has the arms of the plain one, scaled by the root of V / S2, with V = A + S1 for the rate behind the
traffic and V = A for the mean of the traffic itself (which has no error where all calls were judged). A is the variance
that sampling leaves, at most S2 - S1 with the tuned L: so the interval is never wider than the plain one. With a fixed
L = 1 it may be wider; there both arms have the length of the longer one, because its errors do not end at t = 0. For
the traffic the imagined calls count more, k = max(FLOOR, UNSEEN / (1 + (d2 / SEPARATED_UNSEEN)^2)), because calls that
were not judged are its only error; and while n > w, V is at least S2 SPARSE W / w.

**Calls that an `always` rule had judged** (r of them, each of weight 1) are a stratum of their own, because they say
nothing about calls that were sampled. Everything above is computed from the sums without theirs, which gives t' and g'.
The other calls are n - r in number, judged or not, so the share of the ruled calls in the traffic is known: h = r / n.
With a = ry / r and a Wilson interval for a as above (W = k = 1; no error for the traffic),
    mean h a + (1 - h) g',  arms^2 = (h arm_a)^2 + ((1 - h) arm_g')^2 + Z^2 (a - t')^2 var(h)
(square-and-add), where var(h) = h (1 - h) / n for the rate behind the traffic, and 0 for the traffic itself. Where the
calls that were not judged are not counted (n is not above c), the number of other calls is estimated by w' = w - r:
then h = r / w, and var(h) is h (1 - h) / w for the rate, plus (h (1 - h))^2 (ww' - w') / w'^2 by sampling.
Where no other call was judged although there are some (n above c = r), nothing is known about these: their mean may be
anything from 0 to 1. The value is a, as if they were like the judged calls, and the interval ends where they all have
the score 0, and where they all have the score 1:
    low h a - arm(a),  high h a + (1 - h) + arm(1 - a),  arm(x)^2 = (h arm_a)^2 + Z^2 x^2 var(h).

**Sources.** Hajek 1971 (weighted mean); Wilson 1927 and Newcombe 1998 (score interval with continuity correction); Fay
and Feuer 1997, Statistics in Medicine 16:791 (an added observation of high weight in intervals for weighted sums);
Angelopoulos et al. 2023, arXiv:2301.09633, and Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453 (prediction-powered
mean, tuned weight); Newcombe 1998, Statistics in Medicine 17:873, and Zou and Donner 2008, 27:1693 (square-and-add).
The constants were chosen by simulation, and confirmed on other seeds and populations: `tests/benchmarks/coverage.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

Method: TypeAlias = Literal["weighted", "fixed", "tuned"]
Target: TypeAlias = Literal["rate", "traffic"]

Z: Final = 1.959963984540054
"""Number of standard errors on each side in a two-sided 95 % interval."""
CONTINUITY: Final = 0.5
"""Continuity correction of an interval, as a number of judged calls."""
SMALL: Final = 1.0
"""Widening of the interval for few judged calls, as by a quantile of Student's t: z is multiplied by 1 + SMALL / e."""
PSEUDO: Final = 1.0
SEPARATED: Final = 1.0
SEPARATED_BLIND: Final = 5.5
UNSEEN: Final = 1.3
SEPARATED_UNSEEN: Final = 3.0
FLOOR: Final = 0.05
IMAGINED: Final = 0.5
ALIKE: Final = 0.005
SHRINK: Final = 3.0
PENALTY: Final = 0.7
SPARSE: Final = 3.0
"""Number of judged calls that may all have p = 1 by chance, so that their spread says nothing about other calls."""
_NOTHING: Final = 1e-9
"""Share of a whole variance below which a part of the variance counts as 0, as it is rounding error."""
_WHOLE: Final = 1.001
"""Tolerance, as a factor, of the inequalities that show whether a sum was recorded."""
_RULED_ONLY: Final = 1e-6
"""Share of the weight below which sampled calls are rounding error: an `always` rule had all judged calls judged."""
_PRODUCTS: Final = ("", "y", "f", "yy", "yf", "ff")
_ROUNDING: Final = 1e-30
"""Value below which a product of several variances counts as 0, as it is rounding error."""


class Quantity(Protocol):
    """Operand that supports +, -, * and /: a float, an array, or an expression of a query language."""

    def __add__(self: Q, other: Q | float, /) -> Q: ...
    def __radd__(self: Q, other: float, /) -> Q: ...
    def __sub__(self: Q, other: Q | float, /) -> Q: ...
    def __rsub__(self: Q, other: float, /) -> Q: ...
    def __mul__(self: Q, other: Q | float, /) -> Q: ...
    def __rmul__(self: Q, other: float, /) -> Q: ...
    def __truediv__(self: Q, other: Q | float, /) -> Q: ...
    def __rtruediv__(self: Q, other: float, /) -> Q: ...


Q = TypeVar("Q", bound=Quantity)


class Arithmetic(Protocol[Q]):
    """Interface of the operations, on floats or PromQL expressions, that formulas need besides +, -, * and /."""

    def define(self, name: str, value: Q) -> Q:
        """Return *value* as a named step of the computation, which becomes a recording rule in PromQL."""
        ...

    def sqrt(self, value: Q) -> Q: ...
    def minimum(self, a: Q, b: Q | float) -> Q: ...
    def maximum(self, a: Q, b: Q | float) -> Q: ...
    def ratio(self, a: Q, b: Q, least: Q, otherwise: float) -> Q:
        """Return a / b if b is greater than *least*, else the value *otherwise*."""
        ...


class Floats:
    """Arithmetic on plain floats for the formulas of estimates."""

    def define(self, name: str, value: float) -> float:
        return value

    def sqrt(self, value: float) -> float:
        return math.sqrt(value)

    def minimum(self, a: float, b: float) -> float:
        return min(a, b)

    def maximum(self, a: float, b: float) -> float:
        return max(a, b)

    def ratio(self, a: float, b: float, least: float, otherwise: float) -> float:
        return a / b if b > least else otherwise


class RecordedFloats(Floats):
    """Arithmetic on floats that keeps the value of every named step, for tests of the Prometheus rules."""

    def __init__(self) -> None:
        self.named: dict[str, float] = {}

    def define(self, name: str, value: float) -> float:
        self.named[name] = value
        return value


@dataclass(frozen=True, slots=True)
class IntervalBounds(Generic[Q]):
    """Estimated mean with the ends of its 95 % interval, as floats or as PromQL expressions."""

    value: Q
    low: Q
    high: Q
    weight: Q
    """Weight of the screen's scores in the estimate (L); 0: the estimate does not use them."""


@dataclass(frozen=True, slots=True)
class _Strata(Generic[Q]):
    """Sums over two parts of the traffic: calls that an `always` rule had judged, and all other calls."""

    ruled: Mapping[str, Q]
    """Sums over the ruled calls (fields from `r` on, without the `r`); all 0 where there is one stratum."""
    rest: Mapping[str, Q]
    """Sums over the other calls; over all calls where there is one stratum, or where no other call was judged."""
    number: Q
    """Number of the other calls, judged or not."""
    counted: Q
    """1 if that number is known, 0 if it is estimated from the weights of the judged calls."""
    blind: Q
    """1 if there are other calls and none of them was judged, else 0."""


@dataclass(frozen=True, slots=True)
class _SampleStatistics(Generic[Q]):
    """Statistics of the judged calls from which the confidence interval of a mean score is computed."""

    mean: Q
    """Weighted mean of the judge's scores (t)."""
    screen: Q
    """Weighted mean of the screen's scores (f')."""
    unit: Q
    """Mean weight of a call of the traffic (W)."""
    pseudo: Q
    """Number of imagined calls of each kind (good and bad) for the target `rate` (k)."""
    unseen: Q
    """Number of imagined calls of each kind for the target `traffic` (k)."""
    centre: Q
    """Weighted mean of the judge's scores with the imagined calls (m)."""
    effective: Q
    """Effective number of judged calls (e)."""
    rarer: Q
    """Effective number of judged calls of the rarer kind, good or bad (x)."""
    spread: Q
    """Sum over judged and imagined calls of (weight * deviation from m)^2 (S2)."""


def interval_bounds(sums: Mapping[str, Q], a: Arithmetic[Q], method: Method, target: Target) -> IntervalBounds[Q]:
    """Return an estimated mean score and its 95 % interval from sums over the calls.

    Args:
        sums: `Moments` by name; the sum of the weights w must be positive.
        a: arithmetic that computes with them.
        method: `weighted`, `fixed` or `tuned`: how the screen's scores are used.
        target: what the mean is of: `rate` or `traffic`.
    """
    strata = _split_by_rule(sums, a)
    rest, seen = strata.rest, 1.0 - strata.blind
    sample = _sample_statistics(rest, a)
    low, high = wilson_interval(sample.mean, sample.effective, a, "plain")
    if method == "weighted":
        weight, saved = rest["w"] * 0.0, rest["w"] * 0.0
    else:
        weight, saved = _screen_weight(rest, sample, a, tuned=method == "tuned")
    scale = _interval_scale(rest, sample, saved, a, tuned=method != "fixed", rate=target == "rate")
    # Without a sampled call that the screen has scored, there is no correction.
    correction = a.ratio(rest["f"] - rest["n"] * sample.screen, rest["n"], rest["n"] * 0.0, 0.0)
    value = a.define("rest_value", _clamped(sample.mean + seen * weight * correction, a))
    below, above = sample.mean - low, high - sample.mean
    if method == "fixed":
        below = above = a.maximum(below, above)
    below = a.define("rest_below", value - seen * _clamped(value - scale * below, a))
    above = a.define("rest_above", strata.blind + seen * _clamped(value + scale * above, a) - value)
    other = IntervalBounds(value, below, above, seen * weight)
    return _combine_strata(strata, sample.mean, other, a, rate=target == "rate")


def _split_by_rule(sums: Mapping[str, Q], a: Arithmetic[Q]) -> _Strata[Q]:
    """Split sums over calls into two strata: calls that an `always` sampling rule selected, and all other calls."""
    w, r, n = sums["w"], sums["r"], sums["n"]
    weight = w - r
    judged = a.define("rest_judged", a.ratio(weight, weight, w * _RULED_ONLY, 0.0))
    counted = a.define("counted", a.ratio(n, n, sums["c"] * _WHOLE, 0.0))
    # With no ruled call at all, `judged` is 1: there are two strata, of which one is empty.
    split = a.maximum(judged, counted)
    ruled = {name: a.define(f"ruled_r{name}", split * sums[f"r{name}"]) for name in _PRODUCTS}
    taken = {name: judged * value for name, value in ruled.items()}
    rest = {name: sums[name] - taken[product] for name, product in (("n", ""), ("f", "f"), ("ff", "ff"))}
    for product in _PRODUCTS:
        for power in ("w", "ww", "c"):
            rest[power + product] = sums[power + product] - taken[product]
    rest["www"] = sums["www"] - taken[""]
    # Older versions that record no c record no r either, so only rounding can make a difference negative.
    rest = {name: a.define(f"rest_{name}", a.maximum(value, 0.0)) for name, value in rest.items()}
    number = a.define("others", a.maximum(counted * (n - ruled[""]) + (1.0 - counted) * rest["w"], 0.0))
    return _Strata(ruled, rest, number, counted, a.define("blind", split - judged))


def _combine_strata(
    strata: _Strata[Q], plain: Q, other: IntervalBounds[Q], a: Arithmetic[Q], *, rate: bool
) -> IntervalBounds[Q]:
    """Combine the estimates of two strata into one: calls that an `always` rule selected, and other calls.

    Args:
        strata: the sums over the calls of each stratum.
        plain: weighted mean score of the judged calls of the second stratum.
        other: estimate of the second stratum; its `low` and `high` are distances from its value.
        rate: whether the estimate is of the rate behind the traffic, rather than of the traffic itself.
    """
    ruled, rest, blind = strata.ruled, strata.rest, strata.blind
    number = ruled[""] + strata.number
    share = a.define("ruled", ruled[""] / number)
    rest_share = 1.0 - share
    mean = a.define("ruled_mean", a.ratio(ruled["y"], ruled[""], number * 0.0, 0.0))
    apart = mean - plain
    varies = a.maximum(rest["ww"] - rest["w"], 0.0) / (rest["w"] * rest["w"])
    spread = (1.0 - strata.counted) * share * share * rest_share * rest_share * varies
    below = above = number * 0.0
    if rate:
        spread = spread + share * rest_share / number
        centre = a.define("ruled_centre", (ruled["y"] + PSEUDO) / (ruled[""] + 2.0 * PSEUDO))
        about = ruled["yy"] - 2.0 * centre * ruled["y"] + centre * centre * ruled[""]
        size = a.maximum(ruled[""], 1.0) * (ruled[""] + 2.0 * PSEUDO)
        effective = centre * (1.0 - centre) * size / (about + _pseudo_spread(centre, ruled[""] * 0.0 + PSEUDO))
        low, high = wilson_interval(mean, a.define("ruled_effective", effective), a, "ruled")
        below, above = share * (mean - low), share * (high - mean)
    value = a.define("value", share * mean + rest_share * other.value)

    def distance(name: str, ruled_arm: Q, arm: Q) -> Q:
        # The mean of calls of which none was judged is bounded, not random: its distance is added, not its square.
        bound, rest_arm = blind * rest_share * arm, (1.0 - blind) * rest_share * arm
        squared = a.maximum(apart * apart, blind * arm * arm)
        between = a.define(f"between_{name}", (Z * Z) * squared * spread)
        return bound + a.sqrt(ruled_arm * ruled_arm + rest_arm * rest_arm + between)

    below = distance("below", below, other.low)
    above = distance("above", above, other.high)
    return IntervalBounds(
        value, a.define("low", _clamped(value - below, a)), a.define("high", _clamped(value + above, a)), other.weight
    )


def _clamped(value: Q, a: Arithmetic[Q]) -> Q:
    return a.minimum(a.maximum(value, 0.0), 1.0)


def _sample_statistics(sums: Mapping[str, Q], a: Arithmetic[Q]) -> _SampleStatistics[Q]:
    """Return the statistics of the judged calls that the confidence interval of a mean score is computed from."""
    w = sums["w"]
    mean, screen = a.define("mean", sums["wy"] / w), a.define("screen", sums["wf"] / w)
    unit, known = a.define("unit", sums["ww"] / w), _sums_are_complete(sums, a)
    pseudo, unseen = _pseudo_counts(known, _sums_of_oversampled(sums, unit, known, a), a)
    imagined = pseudo * unit
    all_weight = w + 2.0 * imagined
    centre = a.define("centre", (sums["wy"] + imagined) / all_weight)
    squares = a.define("squares", _pseudo_spread(centre, pseudo))
    spread = a.define("spread", _squared_deviations(sums, "w", centre) + unit * unit * squares)
    variance = a.define("variance", centre * (1.0 - centre))
    effective = a.define("effective", variance * w * all_weight / spread)
    sampled = _effective_sampled(sums, unit, known, a)
    even = a.minimum(a.ratio(sampled, sums["c"], w * 0.0, 1.0), 1.0)
    rarer = a.define("rarer", a.minimum(effective, sampled) * variance * a.sqrt(even))
    return _SampleStatistics(mean, screen, unit, pseudo, unseen, centre, effective, rarer, spread)


def _sums_are_complete(sums: Mapping[str, Q], a: Arithmetic[Q]) -> Q:
    """Return 1 if the number of judged calls (c) and the sum of their cubed weights (www) are complete, else 0.

    Versions of ragtrace that did not record these sums leave the totals too small.
    By the Cauchy-Schwarz inequality complete sums satisfy c * ww >= w^2 and www * w >= ww^2.
    """
    w, ww = sums["w"], sums["ww"]
    count = sums["c"] * ww * _WHOLE
    third = sums["www"] * w * _WHOLE
    return a.define("known", a.ratio(count, count, w * w, 0.0) * a.ratio(third, third, ww * ww, 0.0))


def _sums_of_oversampled(sums: Mapping[str, Q], unit: Q, known: Q, a: Arithmetic[Q]) -> dict[str, Q]:
    """Return sums over the judged calls in which calls with a high probability of being judged count more (u)."""
    inverse = a.define("inverse", a.ratio(sums["ww"], known * sums["www"], unit * 0.0, 0.0))

    def sum_of_light(product: str) -> Q:
        """Return the sum of a product of scores over the judged calls, in which calls of small weight count most.

        Each call counts with the factor (1 - weight / heaviest weight)^2.
        """
        both = sums[f"w{product}"] * 2.0 - inverse * sums[f"ww{product}"]
        return known * a.maximum(sums[f"c{product}"] - inverse * both, 0.0)

    number = a.define("unlike", sum_of_light(""))
    alike = a.define("alike", ALIKE / (number + ALIKE) / unit)
    found = {"": a.define("u", number + alike * sums["w"])}
    for product in _PRODUCTS[1:]:
        found[product] = a.define(f"u{product}", sum_of_light(product) + alike * sums[f"w{product}"])
    return found


def _pseudo_counts(known: Q, u: Mapping[str, Q], a: Arithmetic[Q]) -> tuple[Q, Q]:
    """Return how many imagined calls (pseudo-observations) a sample needs for a wide enough interval.

    There are two numbers, for the targets `rate` and `traffic`. The better the screen's scores separate good from bad
    calls, the fewer are needed.
    """
    number = u[""] + 2.0 * IMAGINED
    screen, mean = u["f"] / u[""], a.define("u_mean", (u["y"] + IMAGINED) / number)
    of_y = a.define("var_y", a.maximum((u["yy"] + IMAGINED) / number - mean * mean, 0.0))
    of_f = a.define("var_f", a.maximum(u["ff"] - screen * u["f"], 0.0) / number)
    both = a.define("covariance", (u["yf"] - screen * u["y"]) / number)
    squared = both * both
    unexplained = of_y * a.maximum(of_y * of_f - squared, 0.0)
    close, far = a.define("close", unexplained * unexplained), a.define("far", squared * squared)
    pseudo = _pseudo_count(close, far * _inverse_square(known, SEPARATED, SEPARATED_BLIND), PSEUDO, a)
    unseen = _pseudo_count(close, far * _inverse_square(known, SEPARATED_UNSEEN, None), UNSEEN, a)
    return a.define("pseudo", pseudo), a.define("unseen", unseen)


def _inverse_square(known: Q, distance: float, blind: float | None) -> Q:
    """Return 1 / *distance* squared, or 1 / *blind* squared if an older version recorded incomplete sums.

    Both are distances between the scores of good and bad calls at which half as many imagined calls are added. The
    inverse square of a *blind* of None is 0.
    """
    return known * (1.0 / (distance * distance)) + (1.0 - known) * (0.0 if blind is None else 1.0 / (blind * blind))


def _pseudo_count(close: Q, far: Q, most: float, a: Arithmetic[Q]) -> Q:
    """Return how many imagined calls (pseudo-observations) to add to a sample.

    The number is smaller where the screen's scores separate good from bad calls.
    """
    # Where no score varies, both are rounding errors, and nothing is known about the screen.
    return a.maximum(most * a.ratio(close, close + far, close * 0.0 + _ROUNDING, 1.0), FLOOR)


def _effective_sampled(sums: Mapping[str, Q], unit: Q, known: Q, a: Arithmetic[Q]) -> Q:
    """Return the effective number of judged calls that were chosen at random, with probability below 1 (q)."""
    once, twice = sums["ww"] - sums["w"], sums["www"] - sums["ww"]
    below = known * twice * (twice - once)
    least = sums["ww"] * sums["ww"] * _NOTHING
    any_sampled = a.ratio(below, below, least, 0.0)
    return a.define("sampled", a.ratio(once * once * once, below, least, 0.0) + (1.0 - any_sampled) * sums["w"] / unit)


def _pseudo_spread(centre: Q, count: Q) -> Q:
    """Return the sum of squared deviations from *centre* of *count* imagined scores of 0 and *count* scores of 1."""
    return count * ((1.0 - centre) * (1.0 - centre) + centre * centre)


def _squared_deviations(sums: Mapping[str, Q], power: Literal["", "w"], centre: Q) -> Q:
    """Return the weighted sum of squared deviations of the judge's scores from *centre*.

    Args:
        power: "" to multiply with the weights, "w" to multiply with the squared weights.
    """
    return sums[f"{power}wyy"] - 2.0 * centre * sums[f"{power}wy"] + centre * centre * sums[f"{power}w"]


def wilson_interval(
    mean: Q, e: Q, a: Arithmetic[Q], name: str = "wilson", *, small: float = SMALL, continuity: float = CONTINUITY
) -> tuple[Q, Q]:
    """Return both ends of the Wilson score interval of *mean* for an effective sample size of *e*.

    Args:
        mean: mean of values in [0, 1].
        e: effective number of values.
        a: arithmetic that computes with them.
        name: prefix of the names of the steps.
        small: see `SMALL`; 0 for the interval as Wilson defined it.
        continuity: continuity correction, in values; 0 for none.
    """
    z = a.define(f"{name}_z", Z * (1.0 + small / e))
    z2 = a.define(f"{name}_z2", z * z)
    ends: list[Q] = []
    for sign, end in ((-1.0, f"{name}_low"), (1.0, f"{name}_high")):
        u = a.define(f"{end}_shifted", _clamped(mean + (sign * continuity) / e, a))
        half = z * a.sqrt(u * (1.0 - u) / e + z2 / (4.0 * e * e))
        ends.append(a.define(end, _clamped((u + z2 / (2.0 * e) + sign * half) / (1.0 + z2 / e), a)))
    return a.minimum(ends[0], mean), a.maximum(ends[1], mean)


def _screen_weight(
    sums: Mapping[str, Q], sample: _SampleStatistics[Q], a: Arithmetic[Q], *, tuned: bool
) -> tuple[Q, Q]:
    """Return the weight of the screen's scores in the estimate, and the variance that this weight removes.

    The screen scores all calls.
    """
    t, f = sample.mean, sample.screen
    second = sums["wwyf"] - t * sums["wwf"] - f * sums["wwy"] + t * f * sums["ww"]
    c = a.define("shared", second - (sums["wyf"] - t * sums["wf"]))
    of_f = sums["wwff"] - 2.0 * f * sums["wwf"] + f * f * sums["ww"]
    v = a.define("screened", a.maximum(of_f - (sums["wff"] - f * sums["wf"]), 0.0))
    least = sums["ww"] * _NOTHING
    squared = sample.rarer * sample.rarer
    best = a.ratio(c if tuned else v, v, least, 0.0)
    weight = a.define("weight", best * squared / (squared + SHRINK) if tuned else best)
    return weight, a.define("saved", weight * (2.0 * c - weight * v))


def _least_share(sums: Mapping[str, Q], unit: Q, a: Arithmetic[Q]) -> Q:
    """Return the smallest share of the variance that the interval must keep while some calls are not judged."""
    some = a.ratio(sums["w"] * 0.0 + 1.0, sums["n"] - sums["w"], sums["n"] * _NOTHING, 0.0)
    return a.define("unjudged", some * a.minimum(SPARSE * unit / sums["w"], 1.0))


def _interval_scale(
    sums: Mapping[str, Q], sample: _SampleStatistics[Q], saved: Q, a: Arithmetic[Q], *, tuned: bool, rate: bool
) -> Q:
    """Return the factor from the half-widths of the Wilson interval to those of the final interval."""
    m, unit = sample.centre, sample.unit
    squares = _pseudo_spread(m, sample.pseudo if rate else sample.unseen)
    first = a.define("behind", _squared_deviations(sums, "", m) + unit * squares)
    second = _squared_deviations(sums, "w", m) + unit * unit * squares
    sampling = a.define("sampling", a.minimum(a.maximum(second - first, 0.0), sample.spread))
    left = a.maximum(sampling - saved, 0.0)
    if tuned:
        left = a.minimum(left * (1.0 + PENALTY / (sample.rarer * sample.rarer)), sampling)
    share = (left + first) / sample.spread if rate else a.maximum(left / sample.spread, _least_share(sums, unit, a))
    return a.define("scale", a.sqrt(a.minimum(share, 1.0) if tuned else share))
