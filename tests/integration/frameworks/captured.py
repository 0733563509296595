"""Record what ragtrace captures of real SDKs: `captured.py MODULE` prints a JSON list of rows.

Each function of MODULE that `@form` marks is a small application of one package. It runs in an environment with that
package against `captured_server.py`; the row holds what the application said and the texts that ragtrace judged.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from captured_server import ANSWER, DOCUMENTS, QUESTION, CapturedServer
from framework_tracers import import_ragtrace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_ALONE: Final = {
    "RAGTRACE_EXPORTER": "none",
    "ANONYMIZED_TELEMETRY": "False",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
"""Environment variables with which no package asks the network for anything."""


@dataclass(frozen=True)
class Form:
    """A way to use a package: a generation, or a retrieval, with what it said."""

    package: str
    name: str
    function: Callable[..., Any]
    retrieves: bool
    pieces: int | None
    """Number of pieces after which the reader leaves; None: it reads to the end."""
    answer: str
    error: bool
    read: Callable[[Any], Any] | None
    """How the caller reads what the function returns; None: it iterates over a stream."""


FORMS: Final[list[Form]] = []


def form(
    package: str,
    name: str,
    *,
    retrieves: bool = False,
    pieces: int | None = None,
    answer: str = ANSWER,
    error: bool = False,
    read: Callable[[Any], Any] | None = None,
) -> Callable[[Any], Any]:
    """Mark a function that generates from (question, docs), or retrieves by the question."""

    def mark(function: Any) -> Any:
        FORMS.append(Form(package, name, function, retrieves, pieces, answer, error, read))
        return function

    return mark


def main(module: str) -> None:
    """Run the forms of *module* and print their rows."""
    os.environ.update(_ALONE)
    ragtrace = import_ragtrace()
    from ragtrace.judges.lexical.embedded import EmbeddedJudge

    judged: list[Any] = []

    class Judge(EmbeddedJudge):
        """Judge by words that keeps the calls it was asked about."""

        def steps(self, call: Any) -> Any:
            judged.append(call)
            return super().steps(call)

    exporter = InMemorySpanExporter()
    ragtrace.configure(exporter=exporter, screen=Judge(extractive=True))
    rows = []
    with CapturedServer() as server:
        os.environ.update(
            OPENAI_BASE_URL=server.url, OPENAI_API_BASE=server.url, OPENAI_API_KEY="none", CAPTURED_ROOT=server.root
        )
        import_module(module)
        for each in FORMS:
            judged.clear()
            exporter.clear()
            problem = _run(ragtrace, each)
            ragtrace.flush()
            rows.append(_row(each, judged, exporter, problem))
    sys.stdout.write(json.dumps(rows) + "\n")


def _run(ragtrace: Any, each: Form) -> str | None:
    """Run *each* decorated, as an application does, and return what went wrong in the application itself."""
    try:
        if each.retrieves:
            search = ragtrace.retrieve(each.function)

            @ragtrace.trace
            def handle(question: str) -> str:
                found = search(question)
                if each.read is not None:
                    each.read(found)
                return each.answer

            handle(QUESTION)
        else:
            result = ragtrace.generate(each.function)(QUESTION, DOCUMENTS)
            if each.read is not None:
                _read_as(each.read, result)
            elif inspect.isawaitable(result) or hasattr(result, "__aiter__"):
                asyncio.run(_read_async(result, each.pieces))
            else:
                _read(result, each.pieces)
    except Exception as error:
        return None if each.error else f"{type(error).__name__}: {error}"[:300]
    return None


def _read_as(read: Callable[[Any], Any], result: Any) -> None:
    reading = read(result)
    if inspect.isawaitable(reading):
        asyncio.run(reading)  # type: ignore[arg-type]


def _read(result: Any, pieces: int | None) -> None:
    if not hasattr(result, "__next__") and "Stream" not in result.__class__.__name__:
        return
    for at, _ in enumerate(result, 1):
        if at == pieces:
            break
    if pieces is not None:
        with suppress(AttributeError):
            result.close()


async def _read_async(result: Any, pieces: int | None) -> None:
    if inspect.isawaitable(result):
        result = await result
    if not hasattr(result, "__aiter__") or hasattr(result, "model_dump"):
        return
    at = 0
    async for _ in result:
        at += 1
        if at == pieces:
            break
    if pieces is not None:
        for name in ("aclose", "close"):
            with suppress(AttributeError):
                await getattr(result, name)()
                return


def _row(each: Form, judged: list[Any], exporter: InMemorySpanExporter, problem: str | None) -> dict[str, Any]:
    attributes = [span.attributes or {} for span in exporter.get_finished_spans()]
    ends = (".reason", ".status")
    said = {str(value) for found in attributes for name, value in found.items() if name.endswith(ends)}
    calls = [
        {
            "query": call.query,
            "contexts": None if call.contexts is None else [document.text for document in call.contexts],
            "answer": call.answer,
        }
        for call in judged
    ]
    return {
        "package": each.package,
        "version": version(each.package),
        "form": each.name,
        "said": {"query": QUESTION, "contexts": DOCUMENTS, "answer": None if each.error else each.answer},
        "judged": calls,
        "reasons": sorted(said - {"ok", "no_baseline"}),
        **({"problem": problem} if problem else {}),
    }


if __name__ == "__main__":
    sys.modules["captured"] = sys.modules["__main__"]  # the forms import `form` from here
    main(*sys.argv[1:])
