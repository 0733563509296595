"""`python -m docs.make_captured`: writes docs/captured.md, what ragtrace captures of the objects of real SDKs.

The rows are recorded by tests/integration/frameworks/captured.py (tests/integration/frameworks/README.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

CAPTURED: Final = Path(__file__).parents[1] / "tests" / "files" / "captured.json"
RIGHT: Final = "right"
NOT_CAPTURED: Final = "not captured"
WRONG: Final = "WRONG"
_UNSCORED: Final = ("answer_not_captured", "contexts_missing")
"""Reasons that say that a text was not found."""
_INTRO: Final = """\
# What ragtrace captures of SDKs

Each row is a small application on a real package, run against a local server that speaks the wire format of its
provider. Its function is decorated with `@ragtrace.generate` or `@ragtrace.retrieve`, without any argument that says
where the texts are, and returns what the SDK gives. The query, the contexts and the answer that were judged were
compared with what the server and the documents said.

| verdict | meaning |
|---|---|
| right | one call was judged, with exactly the query, the contexts and the answer; if the call failed, none |
| not captured | the metrics are `Unscored` with this reason, and the log says what to do |
| WRONG | another text was judged |

What is not captured is found by an argument, such as `answer=` or `documents=`: [decorators](decorators.md) shows them.
`left early`: the reader leaves after some pieces, and the answer is what was read. `passed on`: the function is a
generator that yields the pieces.

This page is generated from a recording by `python -m docs.make_captured`; the versions are those of the recording, and
`make newest` records again with the newest ones.
"""


def rows(path: Path = CAPTURED) -> list[dict[str, Any]]:
    """Return the recorded rows of all environments."""
    recorded: dict[str, list[dict[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    return [row for environment in recorded.values() for row in environment]


def verdict(row: Mapping[str, Any]) -> str:
    """Compare what was judged with what was said, and return the verdict."""
    said, judged, reasons = row["said"], row["judged"], row["reasons"]
    if row.get("problem"):
        return f"{WRONG}: the application failed with {row['problem']}"
    found = [reason for reason in _UNSCORED if reason in reasons]
    if said["answer"] is None:
        return RIGHT if not judged and "call_failed" in reasons else f"{WRONG}: a call that failed was judged"
    if not judged:
        return f"{NOT_CAPTURED} (`{found[0]}`)" if found else f"{WRONG}: nothing was judged, and no reason says why"
    if len(judged) != 1:
        return f"{WRONG}: {len(judged)} calls for one"
    for name, value in judged[0].items():
        if value != said[name] and (value is not None or not found):
            return f"{WRONG}: {name} {_shown(value)}"
    return f"{NOT_CAPTURED} (`{found[0]}`)" if found else RIGHT


def _shown(value: object) -> str:
    return f"`{str(value)[:100]}`".replace("\n", " ").replace("|", "/")


def render(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the page as Markdown, packages in the order of their names."""
    return "\n".join((_INTRO, *_table(found))) + "\n"


def _table(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| package | version | form | verdict |"
    yield "|---|---|---|---|"
    for row in sorted(found, key=lambda each: each["package"].lower()):
        yield f"| {row['package']} | {row['version']} | {row['form']} | {verdict(row)} |"


if __name__ == "__main__":
    sys.stdout.write(render(rows()))
