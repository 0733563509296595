"""Libraries that take seconds to import: the tests that need them import them when they run."""

from __future__ import annotations

import warnings
from typing import Any

import pytest


def library(name: str) -> Any:
    """Return the module *name*; where it is missing, skip the test."""
    with warnings.catch_warnings():  # older versions do not go with every pydantic
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)
