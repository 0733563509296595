"""docs/attributes.md: made of the names in `semconv`, of the instruments and of a traced call, complete and current."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Final

from docs.make_attributes import PAGE, documented, metrics, render, shown, undocumented
from ragtrace.core import semconv

OTHER_NAMES: Final = {"ragtrace.exporters": "group of entry points", "ragtrace.dead_letters": "queue of a fleet"}
SOURCE: Final = Path(semconv.__file__).read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    """Whoever changes a name, its meaning or what a call has on its spans writes the page anew."""
    assert PAGE.read_text(encoding="utf-8") == render(SOURCE), (
        "docs/attributes.md is not current; write it anew: python -m docs.make_attributes > docs/attributes.md"
    )


def test_every_attribute_and_event_of_ragtrace_has_a_meaning() -> None:
    """The docstring of its constant; without, it would not be on the page."""
    assert undocumented(SOURCE) == []


def test_a_name_without_a_meaning_is_noticed() -> None:
    """Among documented ones, and not taken for one whose docstring follows later."""
    source = 'ONE: Final = "ragtrace.one"\nTWO: Final = "ragtrace.two"\n"""The second."""\n'
    assert undocumented(source) == ["ONE"]
    assert list(documented(source)) == [("TWO", "ragtrace.two", "The second.")]


def test_the_page_has_every_metric() -> None:
    """Those of applications, gateways and fleets: each name is that of an instrument that is made."""
    names = {value for constant, value in vars(semconv).items() if constant.startswith("METRIC_")}
    assert {each.name for each in metrics()} == names


def _is_in_python(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def test_every_name_in_the_documents_is_on_the_wire_or_in_python() -> None:
    """A guide that explains an attribute or a metric goes with its name."""
    documents = [PAGE.parents[1] / "README.md", *PAGE.parent.glob("*.md")]
    wire = {value for value in vars(semconv).values() if isinstance(value, str)}
    wire |= OTHER_NAMES.keys() | {shown(constant, name) for constant, name, _ in documented(SOURCE)}
    named = {
        (page.name, name)
        for page in documents
        if page != PAGE
        for name in re.findall(r"`((?:ragtrace|gen_ai)\.[a-z_.<>]*[a-z>])`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    details = re.compile(r"ragtrace\.eval\.(?:detail\.|\w+\.(?:score|label|reason|evaluator)$)")
    assert [
        (page, name)
        for page, name in sorted(named)
        if name not in wire and not details.match(name) and not _is_in_python(name)
    ] == []


def test_no_other_page_has_a_table_of_metrics_attributes_or_options() -> None:
    """What a name means is written once, so that two pages cannot differ about it."""
    generated = {page: page.read_text(encoding="utf-8") for page in (PAGE, PAGE.with_name("command-line.md"))}
    meanings = [
        (page.name, row)
        for page in set(PAGE.parent.glob("*.md")) - generated.keys()
        for row in re.findall(r"(?m)^\| (?:`[^`\n]+`,? ?)+\| [^|\n]+ \|$", page.read_text(encoding="utf-8"))
        for name in re.findall(r"`(ragtrace\.[a-z_.]+|--[a-z-]+)(?: [^`]*)?`", row.split("|")[1])
        if any(f"| `{name}" in text for text in generated.values()) and not _is_an_identity(row)
    ]
    assert meanings == []


def _is_an_identity(row: str) -> bool:
    """Whether a row says how counts add up, not what they count."""
    return " = " in f" {row.split('|')[2]}"
