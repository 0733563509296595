"""`ragtrace docs`: where the documentation is, and the text for coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import ragtrace
from ragtrace.cli import main
from ragtrace.system.installation import documentation_url
from ragtrace.system.terminal import OK

ROOT: Final = Path(__file__).parents[3]


def test_the_text_for_agents_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands in the package, and nothing else."""
    assert main(["docs", "--for-agents"]) == OK
    printed = capsys.readouterr()
    assert printed.out == (ROOT / "ragtrace" / "cli" / "llms-full.txt").read_text(encoding="utf-8")
    assert printed.out.startswith("# ragtrace\n")
    assert printed.err == ""


def test_the_pages_of_a_checkout_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With the file for agents, and where names and commands are explained."""
    assert main(["docs"]) == OK
    printed = capsys.readouterr().out
    assert f"documentation      {ROOT / 'docs'}\n" in printed
    assert "ragtrace docs --for-agents" in printed
    assert "llms-full.txt" in printed


def test_an_installed_package_leads_to_its_address_or_to_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is that of the metadata; without one, the source distribution has the pages."""
    monkeypatch.setattr(ragtrace, "__file__", str(tmp_path / "ragtrace" / "__init__.py"))
    folder = tmp_path / "ragtrace_otel-9.9.dist-info"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    head = "Metadata-Version: 2.4\nName: ragtrace-otel\nVersion: 9.9\n"
    metadata = folder / "METADATA"
    metadata.write_text(f"{head}\nProject-URL: Documentation, https://not-a-field.example\n", encoding="utf-8")
    assert main(["docs"]) == OK
    assert capsys.readouterr().out.startswith(
        "ragtrace 9.9\ndocumentation      the folder docs/ of the source distribution\n"
    )
    metadata.write_text(f"{head}Project-URL: Documentation, https://docs.example/ragtrace\n", encoding="utf-8")
    assert documentation_url() == "https://docs.example/ragtrace"
    assert main(["docs"]) == OK
    assert "documentation      https://docs.example/ragtrace\n" in capsys.readouterr().out
