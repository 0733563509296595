"""Servers that several files test against: each is started once a run, as that takes ten seconds of processor time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.services import Phoenix, mlflow, phoenix


@pytest.fixture(scope="session")
def phoenix_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """One Phoenix for all tests; each writes to a project of its own."""
    with phoenix(tmp_path_factory.mktemp("phoenix")) as running:
        yield running


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One MLflow for all tests; each writes to an experiment of its own."""
    with mlflow(tmp_path_factory.mktemp("mlflow")) as base:
        yield base
