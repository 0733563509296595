"""Scores calls for faithfulness by one library with a model behind any OpenAI-compatible server.

    faithfulness_peer.py NAME CALLS.jsonl RAW.jsonl BASE_URL MODEL SECONDS

Each call is judged as the library's documentation has it, by its defaults, one call at a time and with a time limit for
a request, of which none is sent again: a small model may repeat itself until its context is full. A line is added to
RAW for each call, so that a run that was cut off goes on where it was. The file imports nothing of ragtrace, as the
environments of the others do not have it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

Call = dict[str, Any]
VERSIONS = {"ragas": ("ragas", "instructor", "openai"), "phoenix": ("arize-phoenix-evals", "openai")}


class Usage:
    """Requests of a client of the openai package, and the tokens that the server counted."""

    def __init__(self) -> None:
        self.requests = self.input_tokens = self.output_tokens = 0

    def add(self, response: Any) -> None:
        """Add the usage of a reply that was read."""
        self.requests += 1
        if response.is_success:
            usage = response.json().get("usage") or {}
            self.input_tokens += usage.get("prompt_tokens", 0)
            self.output_tokens += usage.get("completion_tokens", 0)

    def note(self, response: Any) -> None:
        """Hook of the client of openai's `OpenAI`."""
        response.read()
        self.add(response)

    async def anote(self, response: Any) -> None:
        """Hook of the client of `AsyncOpenAI`."""
        await response.aread()
        self.add(response)


def ragas(usage: Usage, url: str, model: str, seconds: float) -> Callable[[Call], float]:
    """Ragas' metric of collections: statements from the answer, then a verdict on each of them."""
    os.environ["RAGAS_DO_NOT_TRACK"] = "true"
    openai, llms = import_module("openai"), import_module("ragas.llms")
    http = openai.DefaultAsyncHttpxClient(event_hooks={"response": [usage.anote]}, timeout=seconds)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", timeout=seconds, max_retries=0, http_client=http)
    metric = import_module("ragas.metrics.collections").Faithfulness(llm=llms.llm_factory(model, client=client))
    loop = asyncio.new_event_loop()

    def score(call: Call) -> float:
        asked = metric.ascore(user_input=call["query"], response=call["answer"], retrieved_contexts=call["contexts"])
        return float(loop.run_until_complete(asked).value)

    return score


def phoenix(usage: Usage, url: str, model: str, seconds: float) -> Callable[[Call], float]:
    """Phoenix' evaluator: one label for the whole answer."""
    openai, evals = import_module("openai"), import_module("phoenix.evals")
    http = openai.DefaultHttpxClient(event_hooks={"response": [usage.note]}, timeout=seconds)
    llm = evals.LLM(
        provider="openai", client="openai", model=model, base_url=url, api_key="none", timeout=seconds,
        sync_client_kwargs={"http_client": http},
    )  # fmt: skip
    evaluator = import_module("phoenix.evals.metrics").FaithfulnessEvaluator(llm=llm)

    def score(call: Call) -> float:
        given = {"input": call["query"], "output": call["answer"], "context": "\n".join(call["contexts"])}
        (found,) = evaluator.evaluate(given)
        return float(found.score)

    return score


def main(name: str, calls: Path, raw: Path, url: str, model: str, seconds: float) -> None:
    """Judge the calls that *raw* has no line for."""
    usage = Usage()
    score = {"ragas": ragas, "phoenix": phoenix}[name](usage, url, model, seconds)
    versions = " ".join(f"{each} {version(each)}" for each in VERSIONS[name])
    done = {json.loads(line)["line"] for line in raw.read_text().splitlines()} if raw.exists() else set[int]()
    for number, text in enumerate(calls.read_text().splitlines()):
        if number in done:
            continue
        before, began = (usage.requests, usage.input_tokens, usage.output_tokens), time.monotonic()
        try:
            value, error = score(json.loads(text)), ""
        except Exception as caught:
            value, error = math.nan, f"{type(caught).__name__}: {caught}"[:500]
        row = {
            "line": number, "score": None if math.isnan(value) else value, "error": error,
            "seconds": time.monotonic() - began, "requests": usage.requests - before[0],
            "input_tokens": usage.input_tokens - before[1], "output_tokens": usage.output_tokens - before[2],
            "versions": versions,
        }  # fmt: skip
        with raw.open("a") as file:
            file.write(f"{json.dumps(row)}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5], float(sys.argv[6]))
