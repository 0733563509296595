"""`Arrays`: the arithmetic of formulas on numpy arrays, to compute many estimates at once.

Simulations of the intervals use it, with one element of each array for each simulated sample; so do the formulas that
are computed with numpy anyway.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Numbers: TypeAlias = Any
"""A numpy float, the number of one estimate, or a numpy array with one element for each of many estimates."""


class Arrays:
    """Arithmetic on numpy arrays, one element for each estimate: implements `formulas.Arithmetic`."""

    def define(self, name: str, value: Numbers) -> Numbers:
        return value

    def sqrt(self, value: Numbers) -> Numbers:
        return np.sqrt(value)

    def minimum(self, a: Numbers, b: Numbers) -> Numbers:
        return np.minimum(a, b)

    def maximum(self, a: Numbers, b: Numbers) -> Numbers:
        return np.maximum(a, b)

    def ratio(self, a: Numbers, b: Numbers, least: Numbers, otherwise: float) -> Numbers:
        return np.where(b > least, a / np.where(b > least, b, 1.0), otherwise)
