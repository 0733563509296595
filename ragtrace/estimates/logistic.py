"""Logistic regression by maximum a posteriori, for one weighted sample or for many simulated ones at once.

The fit maximises, over coefficients b with normal priors of mean m and precision k,
    sum of v (z ln g + (1 - z) ln (1 - g)) - 0.5 sum of k (b - m)^2,  g = 1 / (1 + exp(-sum of b times feature)),
by Newton's method with step halving: the objective must not fall. An undamped step overshoots where scores are
saturated, near 0 and 1 alone, and never comes back: the regression then ranks calls the wrong way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]

_STEPS: Final = 60
_HALVINGS: Final = 40
_SMALL_STEP: Final = 1e-6
_ROUNDING: Final = 1e-12


def fit_logistic(features: Array, vz: Array, v: Array, means: Sequence[float], precisions: Sequence[float]) -> Array:
    """Return the coefficients of the maximum a posteriori logistic regression of each sample, on the last axis.

    Args:
        features: (n, k) features of each place, the constant 1 among them.
        vz: sum of weight times label at each place; the last axis is that of the places, other axes are samples.
        v: sum of the weights at each place.
        means: prior mean of each coefficient, at which the search begins.
        precisions: prior precision of each, above 0.
    """
    shape, (count, size) = vz.shape[:-1], features.shape
    vz, v = vz.reshape(-1, count), v.reshape(-1, count)
    mean, precision = np.array(means, dtype=np.float64), np.array(precisions, dtype=np.float64)
    squares = (features[:, :, None] * features[:, None, :]).reshape(count, size * size)
    found = np.tile(mean, (len(vz), 1))
    going = np.arange(len(vz))
    for _ in range(_STEPS):
        at, of_bad, of_all = found[going], vz[going], v[going]
        g = sigmoid(at @ features.T)
        gradient = (of_bad - of_all * g) @ features - precision * (at - mean)
        hessian = ((of_all * g * (1.0 - g)) @ squares).reshape(-1, size, size) + np.diag(precision)
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        reached = _objective(at, features, of_bad, of_all, mean, precision)
        share = np.ones((len(going), 1))
        for _ in range(_HALVINGS):
            # Rounding may make the objective fall a little where nothing is left to gain.
            new = _objective(at + share * step, features, of_bad, of_all, mean, precision)
            fallen = new < reached - _ROUNDING * (1.0 + np.abs(reached))
            if not fallen.any():
                break
            share[fallen] /= 2.0
        found[going] = at + share * step
        going = going[np.abs(share * step).max(1) > _SMALL_STEP]
        if not len(going):
            break
    return found.reshape(*shape, size)


def _objective(at: Array, features: Array, vz: Array, v: Array, mean: Array, precision: Array) -> Array:
    """Return the logarithm of the posterior density of coefficients *at*, up to a constant."""
    eta = at @ features.T
    likelihood = vz * eta - v * (np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta))))
    found: Array = likelihood.sum(-1) - 0.5 * ((at - mean) ** 2) @ precision
    return found


def sigmoid(eta: Array) -> Array:
    """Return 1 / (1 + exp(-eta)) without overflow."""
    tail = np.exp(-np.abs(eta))
    found: Array = np.where(eta >= 0.0, 1.0, tail) / (1.0 + tail)
    return found
