"""A real model for the demo's generation: any server that speaks the OpenAI protocol."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragtrace.demo.application import Hit
from ragtrace.demo.passages import DemoError

if TYPE_CHECKING:
    from openai import OpenAI

_INSTRUCTION = (
    "Answer the question from the passages alone, in one to three plain sentences without any markup."
    " If they do not hold the answer, say that you could not find it in the documentation."
)
_TIMEOUT = 60.0


class ServedModel:
    """Streams answers of the model *name* behind OPENAI_BASE_URL.

    Raises:
        DemoError: if neither OPENAI_BASE_URL nor OPENAI_API_KEY is set.
    """

    def __init__(self, name: str) -> None:
        if not (os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")):
            raise DemoError(
                f"--model {name} needs a server, but neither OPENAI_BASE_URL nor OPENAI_API_KEY is set;"
                " set OPENAI_BASE_URL for a server of your own (and OPENAI_API_KEY if it wants one),"
                " or leave --model out for the built-in generator"
            )
        self.name = name
        self._client = _client()

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str]:
        """The answer's text as the server sends it."""
        passages = "\n\n".join(f"[{rank}] {hit.text}" for rank, hit in enumerate(hits, start=1))
        reply = self._client.chat.completions.create(
            model=self.name,
            messages=[
                {"role": "system", "content": _INSTRUCTION},
                {"role": "user", "content": f"Passages:\n{passages}\n\nQuestion: {question}"},
            ],
            stream=True,
        )
        for chunk in reply:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


def _client() -> OpenAI:
    from openai import OpenAI

    # Servers of one's own seldom want a key, but the client refuses to start without one.
    return OpenAI(api_key=os.environ.get("OPENAI_API_KEY") or "not-needed", timeout=_TIMEOUT, max_retries=1)
