"""Moments: additive sums over calls, from which every estimate and interval is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import add, attrgetter
from typing import Final


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over the calls of one metric. The moments of two processes, or of two periods, add up with `+`.

    A judged call with inclusion probability p has the weight w = 1/p, the score y of the evaluator whose mean is
    estimated, and the screen's score f of the same metric, both in [0, 1]. A field is named for the product it sums.

    Plain float sums: after a billion calls their relative rounding error is below 1e-7 at worst and near 1e-12 in
    practice, against intervals whose relative width is above 1e-5; metrics backends are no more precise.
    """

    n: float = 0.0
    """Number of calls that could have been judged, judged or not."""
    f: float = 0.0
    """Sum of the screen's scores over these calls; 0 where no screen has the metric."""
    ff: float = 0.0
    w: float = 0.0
    """Sum of the weights, an estimate of n. This sum and all that follow are over the judged calls."""
    wy: float = 0.0
    wf: float = 0.0
    wyy: float = 0.0
    wyf: float = 0.0
    wff: float = 0.0
    ww: float = 0.0
    wwy: float = 0.0
    wwf: float = 0.0
    wwyy: float = 0.0
    wwyf: float = 0.0
    wwff: float = 0.0
    c: float = 0.0
    """Number of judged calls. This sum, the other sums without weights, and the sum of w^3 decide how wide the interval
    is and how much the screen counts; older versions did not record them, so they may be 0."""
    cy: float = 0.0
    cf: float = 0.0
    cyy: float = 0.0
    cyf: float = 0.0
    cff: float = 0.0
    www: float = 0.0
    r: float = 0.0
    """Number of calls that were judged because of an `always` rule and that the screen has scored. Each has weight 1,
    and is part of all sums above, too."""
    ry: float = 0.0
    rf: float = 0.0
    ryy: float = 0.0
    ryf: float = 0.0
    rff: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(*map(add, self.values(), other.values()))

    @classmethod
    def of(cls, sums: Mapping[str, float]) -> Moments:
        """Return moments from sums by name, as a backend returns them; a missing sum is 0.

        Raises:
            ValueError: a name is no moment.
        """
        unknown = sorted(set(sums) - set(NAMES))
        if unknown:
            raise ValueError(f"no moment is called {', '.join(unknown)}; known: {', '.join(NAMES)}")
        return cls(**sums)

    def values(self) -> tuple[float, ...]:
        """Return the sums in the order of `NAMES`."""
        values: tuple[float, ...] = _values(self)
        return values


NAMES: Final = tuple(field.name for field in fields(Moments))
"""Names of the moments, in order: the values of their attribute on the wire."""
OLDEST: Final = NAMES[: NAMES.index("c")]
"""Names of the moments that every version has recorded."""
_values: Final = attrgetter(*NAMES)


def of_seen(f: float = 0.0) -> Moments:
    """Return the moments of a call that could be judged; *f* is the screen's score in [0, 1]."""
    return Moments(1.0, f, f * f)


def of_judged(y: float, probability: float, f: float = 0.0, *, seen: float = 0.0, ruled: bool = False) -> Moments:
    """Return the moments that a judged call adds to those of `of_seen`.

    Args:
        y: score of the call, in [0, 1].
        probability: inclusion probability of the call, in (0, 1].
        f: the screen's score of the call, in [0, 1].
        seen: 1.0 to add the moments of `of_seen`, too.
        ruled: whether an `always` rule had the call judged; used only with probability 1 and seen = 1.

    Raises:
        ValueError: a value is outside its range.
    """
    if not (0.0 < probability <= 1.0 and 0.0 <= y <= 1.0 and 0.0 <= f <= 1.0):
        raise ValueError(f"scores must be in [0, 1] and the probability in (0, 1], got {y!r}, {f!r}, {probability!r}")
    w = 1.0 / probability
    v, yy, yf, ff = w * w, y * y, y * f, f * f
    return Moments(
        seen, seen * f, seen * ff,
        w, w * y, w * f, w * yy, w * yf, w * ff,
        v, v * y, v * f, v * yy, v * yf, v * ff,
        1.0, y, f, yy, yf, ff, v * w,
        *((1.0, y, f, yy, yf, ff) if ruled and probability == 1.0 else ()),
    )  # fmt: skip
