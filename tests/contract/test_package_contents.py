"""The rule by which `.ci/run` checks what wheel and source distribution contain (tests/smoke/contents.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.smoke.contents import compare, source_files, wheel_files

FILES: Final = {
    *("ragtrace/__init__.py", "ragtrace/py.typed", "ragtrace/cli/llms-full.txt", "ragtrace_pytest/__init__.py"),
    *("exporters/ragtrace_exporters/otlp.py", "exporters/make_kits/__init__.py", "tests/conftest.py", "docs/open.md"),
    *("README.md", "SECURITY.md", "CHANGELOG.md", ".ci/run"),
}


def test_the_wheel_has_the_packages_and_nothing_else() -> None:
    """Data files included; no test, no page, no program that makes files of the repository."""
    wanted = wheel_files(FILES, Path("ragtrace_otel-9.9-py3-none-any.whl"))
    assert {name for name in wanted if ".dist-info/" not in name} == {
        *("ragtrace/__init__.py", "ragtrace/py.typed", "ragtrace/cli/llms-full.txt", "ragtrace_pytest/__init__.py"),
        "ragtrace_exporters/otlp.py",
    }
    assert "ragtrace_otel-9.9.dist-info/licenses/LICENSE" in wanted


def test_the_source_distribution_has_what_a_developer_needs() -> None:
    """Tests, pages and documents; not the scripts of continuous integration."""
    wanted = source_files(FILES)
    assert wanted >= FILES - {".ci/run"} | {"pyproject.toml", "PKG-INFO"}
    assert ".ci/run" not in wanted


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    """Both stop the release."""
    assert compare("x.whl", {"a", "tests/b"}, {"a", "py.typed"}) == [
        "x.whl lacks py.typed",
        "x.whl has tests/b, which does not belong there",
    ]
