"""What pyproject.toml declares about the package agrees with its source."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from ragtrace.system.installation import built_in_exporters

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parents[2]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


def test_exporters_that_are_found_without_metadata_are_the_declared_ones() -> None:
    """Where the package's metadata are missing, each exporter has the same name and function as elsewhere."""
    declared = _project()["entry-points"]["ragtrace.exporters"]
    assert {point.name: point.value for point in built_in_exporters()} == declared
