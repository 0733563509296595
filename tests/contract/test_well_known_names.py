"""The table of names in docs/decorators.md is that of the source."""

from __future__ import annotations

from docs.make_decorators import PAGE, render


def test_the_table_of_names_is_made_from_the_source() -> None:
    """By `python -m docs.make_decorators`."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(page)
    assert page.count("`page_content`") == 1
