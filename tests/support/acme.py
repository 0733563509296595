"""A GenAI library and its instrumentations, as distributions that a test installs into a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LIBRARY: Final = '''
"""Answers from two passages."""

PASSAGES = ("Lake Baikal is 1,642 metres deep.", "It lies in Siberia.")

def answer(question):
    return " ".join(PASSAGES)
'''

_INSTRUMENTATION: Final = """
import json

import acme_llm
from opentelemetry import trace


class AcmeInstrumentor:
    def instrument(self, **options):
        {fault}
        inner = acme_llm.answer
        tracer = trace.get_tracer("acme.instrumentation")

        def answer(question):
            with tracer.start_as_current_span("invoke_workflow acme") as root:
                asked = [{{"role": "user", "parts": [{{"type": "text", "content": question}}]}}]
                root.set_attribute("gen_ai.operation.name", "invoke_workflow")
                root.set_attribute("gen_ai.input.messages", json.dumps(asked))
                with tracer.start_as_current_span("retrieval acme") as span:
                    found = [{{"id": str(number), "content": text}} for number, text in enumerate(acme_llm.PASSAGES)]
                    span.set_attribute("gen_ai.operation.name", "retrieval")
                    span.set_attribute("gen_ai.retrieval.query.text", question)
                    span.set_attribute("gen_ai.retrieval.documents", json.dumps(found))
                text = inner(question)
                said = [{{"role": "assistant", "parts": [{{"type": "text", "content": text}}], "finish_reason": ""}}]
                root.set_attribute("gen_ai.output.messages", json.dumps(said))
                return text

        acme_llm.answer = answer
"""


def install(folder: Path, *, fault: str = "pass", library: str = "acme-llm") -> Path:
    """Install the library, if *library* names it, and an instrumentation of *library* into *folder*.

    Args:
        fault: statement that the instrumentation runs first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "acme_llm.py").write_text(_LIBRARY, encoding="utf-8")
    (folder / "acme_instrumentation.py").write_text(_INSTRUMENTATION.format(fault=fault), encoding="utf-8")
    distribution(folder, "acme-llm", "")
    declared = "".join(
        f"[{group}]\nacme = acme_instrumentation:AcmeInstrumentor\n\n"
        for group in ("openinference_instrumentor", "opentelemetry_instrumentor")
    )
    needs = ("opentelemetry-util-genai>=1", f'{library}>=1; extra == "instruments"')
    distribution(folder, "opentelemetry-instrumentation-genai-acme", declared, *needs)
    return folder


def distribution(folder: Path, name: str, entry_points: str, *requirements: str) -> None:
    """Write the metadata of an installed distribution."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", "Provides-Extra: instruments"]
    lines += [f"Requires-Dist: {each}" for each in requirements]
    (metadata / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(entry_points, encoding="utf-8")
