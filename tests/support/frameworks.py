"""Libraries that take seconds to import: the tests that need them import them when they run."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

import pytest


def library(name: str) -> Any:
    """Return the module *name*; where it is missing, skip the test."""
    if name in sys.modules:
        return sys.modules[name]
    with warnings.catch_warnings():  # older versions do not go with every pydantic
        warnings.simplefilter("ignore")
        module = pytest.importorskip(name)
    gc.collect()
    gc.freeze()  # each full collection would walk through a million objects
    return module
