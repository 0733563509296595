"""Fixtures of the listeners in frameworks: each test begins and ends without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ragtrace


@pytest.fixture(autouse=True)
def _no_listener_left() -> Iterator[None]:
    yield
    ragtrace.uninstrument()
