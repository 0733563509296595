"""Logistic regression: the maximum is found, also where an undamped Newton step overshoots."""

from __future__ import annotations

import numpy as np

from ragtrace.estimates.logistic import fit_logistic, sigmoid

MEANS, PRECISIONS = (0.0, 1.0), (0.05, 1.0)
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def objective(at: Array, x: Array, z: Array, v: Array) -> float:
    g = np.clip(sigmoid(at[0] + at[1] * x), 1e-300, 1.0)
    likelihood = float((v * (z * np.log(g) + (1.0 - z) * np.log(np.clip(1.0 - g, 1e-300, 1.0)))).sum())
    return likelihood - 0.025 * float(at[0]) ** 2 - 0.5 * (float(at[1]) - 1.0) ** 2


def fitted(x: Array, z: Array, v: Array) -> Array:
    found: Array = fit_logistic(np.stack((np.ones_like(x), x), 1), v * z, v, MEANS, PRECISIONS)
    return found


def undamped(x: Array, z: Array, v: Array, steps: int = 60) -> Array:
    """The same search with whole Newton steps."""
    at, features = np.array(MEANS), np.stack((np.ones_like(x), x), 1)
    for _ in range(steps):
        g = sigmoid(features @ at)
        gradient = features.T @ (v * (z - g)) - np.array(PRECISIONS) * (at - np.array(MEANS))
        hessian = (features * (v * g * (1.0 - g))[:, None]).T @ features + np.diag(PRECISIONS)
        at = np.clip(at + np.linalg.solve(hessian, gradient), -1e6, 1e6)
    return at


def test_saturated_scores_are_fitted_to_the_maximum() -> None:
    """Scores near 0 and 1 alone, with some labels the other way round: whole steps go astray, halved ones do not."""
    x = np.repeat([-6.9, 6.9], 200)
    z = np.concatenate((np.arange(200) < 2, np.arange(200) < 40)).astype(float)
    v = np.ones(400)
    found = fitted(x, z, v)
    best = max(objective(np.array([b0, b1]), x, z, v) for b0 in np.linspace(-4, 0, 81) for b1 in np.linspace(0, 1, 81))
    assert objective(found, x, z, v) >= best - 1e-6
    assert found[1] > 0.0
    assert objective(undamped(x, z, v), x, z, v) < best - 10.0


def test_without_labels_the_score_is_its_own_probability() -> None:
    """Only the priors count."""
    x = np.array([-1.0, 2.0])
    assert fitted(x, np.zeros(2), np.zeros(2)).tolist() == [0.0, 1.0]


def test_many_samples_are_fitted_as_each_alone() -> None:
    """The samples do not influence each other."""
    random = np.random.default_rng(1)
    x, v = random.normal(size=50), np.ones((3, 50))
    z = (random.random((3, 50)) < sigmoid(x)).astype(float)
    together = fit_logistic(np.stack((np.ones_like(x), x), 1), v * z, v, MEANS, PRECISIONS)
    for at in range(3):
        assert np.allclose(together[at], fitted(x, z[at], v[at]), atol=1e-6)


def test_large_exponents_do_not_overflow() -> None:
    """Warnings are errors."""
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]
