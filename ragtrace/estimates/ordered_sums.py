"""Sums over scores in order of time, from which changes of their mean are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]


class OrderedSums(NamedTuple):
    """Sums over blocks of scores in order of time, as arrays with one element per block; a block may be one score."""

    w: Floats
    """Sum of the weights."""
    wy: Floats
    """Sum of weight * score."""
    ww: Floats
    """Sum of weight^2."""
    wwy: Floats
    wwyy: Floats

    @classmethod
    def of(cls, weights: Floats, scores: Floats) -> OrderedSums:
        """Return the sums of blocks of one score each."""
        square = weights * weights
        return cls(weights, weights * scores, square, square * scores, square * scores * scores)

    def part(self, first: int, end: int) -> OrderedSums:
        """Return the blocks from *first* to before *end*."""
        return OrderedSums(*(each[first:end] for each in self))

    def less(self, expected: Floats) -> OrderedSums:
        """Return the sums of the scores less a number for each block."""
        w, wy, ww, wwy, wwyy = self
        return OrderedSums(
            w, wy - w * expected, ww, wwy - ww * expected, wwyy - 2.0 * wwy * expected + ww * expected * expected
        )
