"""The API reference: every public name is in it, with an example, and its docstring can be read by the generator."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import griffe
import pytest

from tests.support.api_examples import MODULES, ROOT, examples, loaded, members, public_objects

PAGES: Final = ROOT / "docs" / "api"
DIRECTIVE: Final = re.compile(r"^::: (\S+)$", re.MULTILINE)
AS_OF: Final = {"ragtrace.ascore": "ragtrace.score"}
"""Functions whose arguments are described at another one, as their docstring says."""


@pytest.fixture(scope="module")
def public() -> dict[str, griffe.Object]:
    """Every public name with what it names; what has two names is found twice."""
    loader = loaded()
    return {name: found for module in MODULES for name, found in public_objects(loader, module)}


def _described(function: griffe.Object) -> set[str]:
    sections = function.docstring.parse("google") if function.docstring else []
    return {
        argument.name.lstrip("*")
        for section in sections
        if isinstance(section, griffe.DocstringSectionParameters)
        for argument in section.value
    }


def _complaints(found: griffe.Object, log: pytest.LogCaptureFixture) -> list[str]:
    """Return what the parser says about the docstrings of *found* and of its public members."""
    log.clear()
    with log.at_level(logging.WARNING):
        for each in members(found):
            if each.docstring:
                each.docstring.parse("google")
    return [record.getMessage() for record in log.records]


def test_every_public_name_has_an_example(public: dict[str, griffe.Object]) -> None:
    """They are run by tests/process/test_api_examples.py."""
    assert [name for name, found in public.items() if ">>> " not in examples(found)] == []


def test_every_example_uses_what_it_is_an_example_of(public: dict[str, griffe.Object]) -> None:
    """By its name, or by the name of what makes it."""
    made_by = {
        "ragtrace.types.Calibration": "ragtrace.calibrate(", "ragtrace.types.CallBlock": "ragtrace.call(",
        "ragtrace.types.Diagnosis": "ragtrace.doctor(", "ragtrace.types.Estimate": "ragtrace.estimate(",
        "ragtrace.types.Evaluations": "ragtrace.evaluate(", "ragtrace.types.GuardTally": "stats().guards",
        "ragtrace.types.Stats": "ragtrace.stats(", "ragtrace.types.Tally": "stats().evaluators",
        "ragtrace.Claim": ".claims", "ragtrace.Score": "score.value", "ragtrace.Unscored": "unscored.reason",
        "ragtrace.judges.Judge": "judge=Quoting()", "ragtrace.metrics.Metric": "metrics=[AnswerWords()]",
        "ragtrace.metrics.Formula": "ragtrace.metrics.registry.get(", "ragtrace.testing.Request": "server.requests",
    }  # fmt: skip
    homes = {found.path: name for name, found in reversed(public.items())}
    wanted = {name: made_by.get(homes[found.path], f".{name.rpartition('.')[2]}") for name, found in public.items()}
    assert [name for name, use in wanted.items() if use not in examples(public[name])] == []


def test_the_parser_of_the_reference_reads_every_docstring(
    public: dict[str, griffe.Object], caplog: pytest.LogCaptureFixture
) -> None:
    """A section that it cannot read, or an argument that there is not, would be left out of the page."""
    assert [complaint for found in public.values() for complaint in _complaints(found, caplog)] == []


@pytest.mark.parametrize("docstring", ["Do.\n\nArgs:\n    times: often.", "Do.\n\nArgs:\n    once\n"])
def test_what_the_parser_cannot_read_is_noticed(docstring: str, caplog: pytest.LogCaptureFixture) -> None:
    """An argument that the function does not have, and a line that is none."""
    module = griffe.visit("some", Path("some.py"), f'def do(once: int) -> None:\n    """{docstring}"""\n')
    assert len(_complaints(module["do"], caplog)) >= 1


def test_every_argument_of_a_public_function_is_described(public: dict[str, griffe.Object]) -> None:
    """And those of a class that says anything about its arguments."""
    wrong: dict[str, set[str]] = {}
    for name, found in public.items():
        described = _described(public[AS_OF.get(name, name)])
        if isinstance(found, griffe.Class) and described:
            given = {each.name for each in found.parameters} - {"self"}
        elif isinstance(found, griffe.Function):
            given = {each.name for each in found.parameters}
        else:
            continue
        if missing := given - described:
            wrong[name] = missing
    assert wrong == {}


def _in_reference(page: Path) -> Iterator[str]:
    for name in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
        module, _, last = name.rpartition(".")
        yield module if module.endswith(f".{last}") else name  # an object of its module's name


def test_the_reference_has_every_public_name_once(public: dict[str, griffe.Object]) -> None:
    """On the page of its module; what has two names is on the page of the first, which the second one's page names."""
    pages = {page.stem: list(_in_reference(page)) for page in PAGES.glob("*.md")}
    first: dict[str, str] = {}
    expected: dict[str, list[str]] = {module.rpartition(".")[2]: [] for module in MODULES}
    for name, found in public.items():
        module = name.rpartition(".")[0].rpartition(".")[2]
        if first.setdefault(found.path, name) == name:
            expected[module].append(name)
        else:
            link = f"(ragtrace.md#{first[found.path]})"
            assert link in (PAGES / f"{module}.md").read_text(encoding="utf-8"), name
    assert {page: sorted(names) for page, names in pages.items()} == {
        page: sorted(names) for page, names in expected.items()
    }
