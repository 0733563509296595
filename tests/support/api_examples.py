"""Examples in the docstrings of the public names: found by griffe, which the site's reference is made with, and run.

`python -m tests.support.api_examples` runs them all in this process, as `doctest` does.
"""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path
from typing import Final

import griffe

import ragtrace

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = ("ragtrace", "ragtrace.judges", "ragtrace.metrics", "ragtrace.testing", "ragtrace.types")
NEEDS: Final = {"ragtrace.judges.HHEM": "torch", "ragtrace.metrics.BertScoreTokens": "bert_score"}
"""Library of local models without which an example cannot be run, and is only counted."""
_VARYING: Final = re.compile(r"\b\d\d:\d\d:\d\d\b")


class _Checker(doctest.OutputChecker):
    """Comparison of outputs that takes any time of the day for another."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(_VARYING.sub("TIME", want), _VARYING.sub("TIME", got), optionflags)


def loaded() -> griffe.GriffeLoader:
    """Return a loader that has read the sources of ragtrace, and imported nothing."""
    loader = griffe.GriffeLoader(search_paths=[str(ROOT)], allow_inspection=False)
    loader.load("ragtrace")
    return loader


def public_objects(loader: griffe.GriffeLoader, module: str) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the public names of *module* with what they name, in order."""
    for name in import_module(module).__all__:
        found = loader.modules_collection[f"{module}.{name}"]
        if found.is_module:  # of the same name as the object that the package has instead
            found = loader.modules_collection[f"{module}.{name}.{name}"]
        yield f"{module}.{name}", found.final_target if isinstance(found, griffe.Alias) else found


def members(found: griffe.Object) -> Iterator[griffe.Object]:
    """Yield *found* and the public members that it defines."""
    yield found
    if found.is_class:
        for name, member in found.members.items():
            if not name.startswith("_") and isinstance(member, griffe.Object):
                yield from members(member)


def examples(found: griffe.Object) -> str:
    """Return the examples of an object as text, empty where there are none."""
    sections = found.docstring.parse("google") if found.docstring else []
    given = [section for section in sections if isinstance(section, griffe.DocstringSectionExamples)]
    return "\n\n".join(text for section in given for kind, text in section.value if kind.value == "examples")


def run() -> tuple[int, int]:
    """Run all examples, print what fails, and return the numbers of objects whose examples were run, and failed."""
    runner = doctest.DocTestRunner(_Checker(), optionflags=doctest.ELLIPSIS)
    parser, loader, count, failed = doctest.DocTestParser(), loaded(), 0, 0
    once = {found.path: (name, found) for module in MODULES for name, found in public_objects(loader, module)}
    for name, public in once.values():
        if util.find_spec(NEEDS.get(name, "ragtrace")) is None:
            continue
        for found in members(public):
            if text := examples(found):
                place = str(found.filepath), found.docstring.lineno if found.docstring else 0
                result = runner.run(parser.get_doctest(text, {"ragtrace": ragtrace}, f"{name} ({found.path})", *place))
                count, failed = count + 1, failed + bool(result.failed)
                ragtrace.shutdown(timeout=10.0)
    return count, failed


if __name__ == "__main__":
    done, wrong = run()
    sys.stdout.write(f"examples of {done} objects, {wrong} of them failed\n")
    sys.exit(bool(wrong))
