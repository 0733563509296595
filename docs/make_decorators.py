"""`python -m docs.make_decorators`: writes the table of well-known names in docs/decorators.md anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ragtrace.capture import field_names
from ragtrace.capture.arguments import CONTEXT_ARGUMENTS, QUERY_ARGUMENTS, RANKED_ARGUMENTS

PAGE: Final = Path(__file__).with_name("decorators.md")
_HEAD: Final = "| What | Names, most likely first |\n|---|---|\n"
_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "the question: an argument": QUERY_ARGUMENTS,
    "the contexts: an argument of `@generate`": CONTEXT_ARGUMENTS,
    "the documents that a re-ranking is given": RANKED_ARGUMENTS,
    "the answer: a field of what is returned": field_names.ANSWER,
    "the text of a piece of a stream": field_names.PIECE,
    "contexts beside a returned answer": field_names.ANSWER_DOCUMENTS,
    "a list of passages in what a retrieval returns": field_names.SEVERAL,
    "the text of a passage": field_names.TEXT,
    "the id of a passage": (*field_names.ID, *field_names.NAME),
    "the score of a passage, where more is better": field_names.SCORE,
}


def render(page: str) -> str:
    """Return the text of *page*, docs/decorators.md, with its table written anew."""
    before, _, rest = page.partition(_HEAD)
    after = rest.partition("\n\n")[2]
    rows = (
        f"| {what} | {', '.join(f'`{name}`' for name in dict.fromkeys(names))} |\n" for what, names in _NAMES.items()
    )
    return before + _HEAD + "".join(rows) + "\n" + after


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
