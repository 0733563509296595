"""Fixtures of the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The history file that the function `fill` of the test's module makes, which takes longer than most tests."""
    path = tmp_path_factory.mktemp("filled") / "history.db"
    request.module.fill(path)
    return path.read_bytes()


@pytest.fixture
def history(tmp_path: Path, filled: bytes) -> Path:
    """A copy of that file."""
    path = tmp_path / "history.db"
    path.write_bytes(filled)
    return path
