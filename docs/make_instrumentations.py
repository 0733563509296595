"""`python -m docs.make_instrumentations`: writes docs/instrumentations.md, what ragtrace reads from recorded spans.

The recordings are those of real applications under real instrumentations (tests/integration/frameworks/README.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ragtrace.core.types import Document, RagCall
from ragtrace.span_reading.assembler import CallAssembler
from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.span_file import SpanFile

ROUTES: Final = Path(__file__).parents[1] / "tests" / "files" / "routes.json"
RECORDED: Final = Path(__file__).parents[1] / "tests" / "files" / "recorded"
MODES: Final = ("sync", "async", "stream", "astream")
RIGHT: Final = "right"
WRONG: Final = "WRONG"
_VERDICTS: Final[Mapping[str, str]] = {
    RIGHT: "query, contexts (texts and order) and answer are those that the application logged",
    "right, contexts as one text": "the same, but the documents are one text: the result of a tool",
    "right, tokens in part": "the same, but some model calls have no tokens on their spans",
    "contexts without text": "the spans have ids of the documents only: `Unscored`, reason `contexts_without_text`",
    "no contexts": "no document is on the spans: metrics that need contexts are `Unscored` (`contexts_missing`)",
    "no answer": "the answer is not on the spans: `Unscored`, reason `answer_not_captured`",
    "no call": "the spans have no root and no texts: nothing is scored",
    "texts truncated": "the limit of the provider cut the texts: `Unscored`, reason `texts_truncated`",
    "ambiguous": "generations at the same time under one span: `Unscored`, reason `contexts_ambiguous`",
}
_DEFECTS: Final[Mapping[str, str]] = {
    "contexts_without_text": "contexts without text",
    "contexts_ambiguous": "ambiguous",
    "texts_truncated": "texts truncated",
}
_INTRO: Final = """\
# Instrumentations that ragtrace reads

`evaluate_spans` scores the calls in spans that other instrumentations make. What is on these spans differs. The table
shows what ragtrace read from recordings of small applications, each under every instrumentation there is for it, with
the capture of contents switched on (`-default`, `-textless`: not switched on; `-events`: contents go to log events).
Three requests were compared with what the application itself had logged: one call for each request, the query, the
contexts, the answer, the session and the tokens. A session or tokens that are not on the spans are unknown, which the
table does not show; none was wrong. Names with a plus sign are two instrumentations at once. `ragtrace` is
`ragtrace.instrument`, whose own spans are read here.

This page is generated from the recordings by `python -m docs.make_instrumentations`; the versions of the packages are
in tests/integration/frameworks/environments.toml.
"""
_OF_ROUTES: Final = """\
## Several routes at once

The same applications, run live: seen by ragtrace's decorators, by `ragtrace.instrument` (`ragtrace`), by
instrumentations whose spans are evaluated, and by all of these at once, with and without the listener. `right`: each
of the three requests was one call, counted once, with the query, the contexts and the answer that the application
logged, and with the scores that the decorators alone give. `no call`: nothing was scored. There is no listener for
Pydantic AI, whose own spans are `native`, and for OpenAI's client. For Haystack OpenLLMetry's instrumentation is that
of the client. OpenLLMetry's for the Agents SDK does not show the answer, so that of the client is on as well.
"""


@dataclass(frozen=True)
class Cell:
    """What was read of one application under one instrumentation in one mode."""

    application: str
    instrumentation: str
    mode: str
    verdict: str
    """One of the verdicts above, or `WRONG` with what differs."""


def cells(folder: Path = RECORDED) -> Iterator[Cell]:
    """Yield the cells of all recordings in *folder*, in the order of their names."""
    for path in sorted(folder.glob("*.calls.json")):
        name = path.name.removesuffix(".calls.json")
        application, rest = name.split("-", 1)
        instrumentation, mode = rest.rsplit("-", 1)
        logged = json.loads(path.read_text(encoding="utf-8"))["calls"]
        yield Cell(application, instrumentation, mode, verdict(assembled(folder / f"{name}.spans.jsonl.gz"), logged))


def assembled(path: Path) -> list[RagCall]:
    """Return the calls that are assembled from the file of spans at *path*."""
    assembler = CallAssembler()
    for span in SpanFile(path):
        if isinstance(span, FinishedSpan):
            assembler.add(span)
    return [call.builder.build() for call in assembler.take_complete(everything=True)]


def verdict(calls: Sequence[RagCall], logged: Sequence[Mapping[str, Any]]) -> str:
    """Compare *calls* with what the application has *logged* of each request, and return the verdict.

    Nothing may be other than it was logged. What was not captured makes a call unscored, which the verdict says.
    """
    if not calls:
        return "no call"
    if len(calls) != len(logged):
        return f"{WRONG}: {len(calls)} calls for {len(logged)} requests"
    found = [_of_call(call, _request(call, logged, at)) for at, call in enumerate(calls)]
    wrong = [each for each in found if each.startswith(WRONG)]
    return wrong[0] if wrong else next((each for each in found if each != RIGHT), RIGHT)


def _request(call: RagCall, logged: Sequence[Mapping[str, Any]], at: int) -> Mapping[str, Any]:
    """Return the request with the answer of *call*; requests at the same time may end in any order."""
    same = [each for each in logged if each["answer"] == call.answer]
    return same[0] if len(same) == 1 else logged[at]


def _of_call(call: RagCall, logged: Mapping[str, Any]) -> str:
    if call.defect == "texts_truncated":  # nothing of it is judged
        return _DEFECTS[call.defect]
    contexts = None if call.contexts is None else [document.text for document in call.contexts]
    usage = call.total_usage or call.usage
    # A generation without a root is one of perhaps several model calls: the tokens are those of that one alone.
    tokens = (None, None) if call.total_usage is None else (usage.input_tokens, usage.output_tokens)
    pairs = (
        ("query", call.query, logged["query"]),
        ("answer", call.answer, logged["answer"]),
        ("session", call.conversation_id, logged.get("session")),
    )
    for what, count, right in zip(("in", "out"), tokens, _tokens(logged), strict=True):
        if count is not None and right is not None and count > right:  # fewer, where a model call has no tokens
            return f"{WRONG}: {count} tokens {what}, not {right}"
    for what, value, right in pairs:
        if value is not None and value != right:
            return f"{WRONG}: {what} {str(value)[:60]!r}, not {str(right)[:60]!r}"
    is_right = contexts == logged["contexts"]
    if contexts is not None and not (is_right or _is_one_text(call.contexts or (), logged["contexts"])):
        return f"{WRONG}: contexts {str(contexts)[:120]}"
    if call.answer is None:
        return "no answer"
    if call.defect:
        return _DEFECTS[call.defect]
    if contexts is None:
        return "no contexts"
    if not is_right:
        return "right, contexts as one text"
    return RIGHT if tokens in ((None, None), _tokens(logged)) else "right, tokens in part"


def _tokens(logged: Mapping[str, Any]) -> tuple[int | None, int | None]:
    return logged.get("input_tokens"), logged.get("output_tokens")


def _is_one_text(found: Sequence[Document], logged: Sequence[str]) -> bool:
    """Return whether *found* is one document with all *logged* texts in it, in order, and little else."""
    if len(found) != 1:
        return False
    text, at = found[0].text, 0
    for each in logged:
        place = text.find(each, at)
        if place < 0:
            return False
        at = place + len(each)
    return len(text) <= sum(map(len, logged)) + 100 * len(logged)


def render(found: Sequence[Cell]) -> str:
    """Return the page as Markdown: a table for each application, modes with equal verdicts in one row."""
    lines = [_INTRO, "| verdict | meaning |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in _VERDICTS.items()]
    for application in dict.fromkeys(cell.application for cell in found):
        lines += ["", f"## {application}", "", "| instrumentation | mode | verdict |", "|---|---|---|"]
        rows: dict[tuple[str, str], list[str]] = {}
        for cell in found:
            if cell.application == application:
                rows.setdefault((cell.instrumentation, cell.verdict), []).append(cell.mode)
        for (instrumentation, result), modes in rows.items():
            shown = ", ".join(mode for mode in MODES if mode in modes)
            lines.append(f"| {instrumentation} | {shown} | {result} |")
    return "\n".join((*lines, "", *_routes())) + "\n"


def _routes() -> Iterator[str]:
    """Yield the lines of the table of applications that are seen by several routes."""
    yield _OF_ROUTES
    yield "| application | route | mode | verdict |"
    yield "|---|---|---|---|"
    for application, routes in json.loads(ROUTES.read_text(encoding="utf-8")).items():
        for route, verdicts in routes.items():
            for result in dict.fromkeys(verdicts.values()):
                shown = ", ".join(mode for mode in MODES if verdicts.get(mode) == result)
                yield f"| {application} | {route} | {shown} | {result} |"


if __name__ == "__main__":
    sys.stdout.write(render(list(cells())))
