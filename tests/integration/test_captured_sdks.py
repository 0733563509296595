"""What ragtrace captures of real SDKs is what docs/captured.md says."""

from __future__ import annotations

import json

import pytest

from tests.integration.frameworks.environment import CAPTURED, capture, captures

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("environment", captures())
def test_the_sdks_are_captured_as_recorded(environment: str) -> None:
    """Every form of every package, with the texts that are judged; record_all.py records what is to be otherwise."""
    recorded = json.loads(CAPTURED.read_text(encoding="utf-8"))[environment]

    assert {(row["package"], row["form"]): row for row in capture(environment)} == {
        (row["package"], row["form"]): row for row in recorded
    }
