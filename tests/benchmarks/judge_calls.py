"""What the RAG triad of one call costs at the model: requests, prompt characters, CPU; ours beside other libraries.

    python tests/benchmarks/judge_calls.py [--calls 20] [--chunks 5] [--peers PYTHON] [--json]

The triad is faithfulness, answer relevancy and context relevance. Every subject runs in a process of its own, against
one local server that answers by rule whatever is asked; requests and characters are counted where they arrive, the CPU
time is that of the subject's process, without its start and its first call. Prompt characters are those of all
messages, of the JSON schema and of tools.

- *ours*: `OpenAIJudge` with all metrics of its one reply, of which the triad is a part.
- *deepeval*: `FaithfulnessMetric`, `AnswerRelevancyMetric`, `ContextualRelevancyMetric`.
- *ragas*: `Faithfulness`, `ResponseRelevancy` (with embeddings), `ContextRelevance`.

--peers names an interpreter that has the other libraries (`peers_judge.txt`); without it there are only ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from time import process_time
from typing import Any, Final

SENTENCES: Final = (
    "The harbour bridge was opened in 1932 after eight years of work.",
    "It is 1149 metres long and carries eight lanes of road.",
    "The arch is made of steel and stands 134 metres above the water.",
    "Two railway tracks cross it on the western side.",
    "A crew of eight painters keeps the steel from rusting all year.",
)
QUERY: Final = "How long is the harbour bridge and what is it made of?"
ANSWER: Final = " ".join(SENTENCES[:3])

Scorer = Callable[[str, str, list[str]], Awaitable[dict[str, Any]]]
"""From a query, an answer and chunks to what each metric says."""


def main() -> int:
    """Measure every subject, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--peers", default="", metavar="PYTHON")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--subject", choices=sorted(SUBJECTS), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.subject:
        print(json.dumps(asyncio.run(_run(SUBJECTS[options.subject](options.url), options.calls, options.chunks))))
        return 0
    found = {"ours": _measure(sys.executable, "ours", options)}
    for subject in ("deepeval", "ragas") if options.peers else ():
        found[subject] = _measure(options.peers, subject, options)
    print(json.dumps(found) if options.json else _table(found))
    return 0


# --- the server's side -----------------------------------------------------------------------------------------------


def _measure(python: str, subject: str, options: argparse.Namespace) -> dict[str, Any]:
    from ragtrace.testing import OpenAIServer

    argv = [python, __file__, "--subject", subject, "--calls", str(options.calls), "--chunks", str(options.chunks)]
    keys = {"OPENAI_API_KEY": "none", "DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "RAGAS_DO_NOT_TRACK": "true"}
    with OpenAIServer() as server:
        done = subprocess.run(
            [*argv, "--url", server.url],
            env={**os.environ, **keys, "OPENAI_BASE_URL": server.url},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
        calls = options.calls + 1  # the first one, whose time does not count, was asked all the same
        chars = [_characters(chat.body) for chat in server.chats]
        embeddings = sum(request.path.endswith("/embeddings") for request in server.requests)
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {
        "chats": len(chars) / calls,
        "embeddings": embeddings / calls,
        "prompt_chars": sum(chars) / calls - len(QUERY) - len(ANSWER) - sum(map(len, _chunks(options.chunks))),
        **said,
    }


def _characters(body: dict[str, Any]) -> int:
    schema = (body.get("response_format") or {}).get("json_schema")
    extra = [json.dumps(part) for part in (schema, body.get("tools"), body.get("functions")) if part]
    return sum(len(str(message.get("content") or "")) for message in body["messages"]) + sum(map(len, extra))


def _table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| subject | chat requests a call | embeddings | characters beyond the call's own | CPU ms | metrics |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for subject, one in found.items():
        if "error" in one:
            lines.append(f"| {subject} | failed: {one['error']} | | | | |")
            continue
        numbers = f"{one['chats']:.1f} | {one['embeddings']:.1f} | {one['prompt_chars']:,.0f} | {one['cpu_ms']:.2f}"
        lines.append(f"| {subject} | {numbers} | {one['metrics']} |")
    return "\n".join(lines)


# --- the subjects' side ----------------------------------------------------------------------------------------------


def _chunks(count: int) -> list[str]:
    return [f"{SENTENCES[n % 5]} {SENTENCES[(n + 4) % 5]}" for n in range(count)]


async def _run(score: Scorer, calls: int, chunks: int) -> dict[str, Any]:
    texts = _chunks(chunks)
    said = await score(QUERY, ANSWER, texts)
    began = process_time()
    for _ in range(calls):
        said = await score(QUERY, ANSWER, texts)
    return {"cpu_ms": (process_time() - began) / calls * 1e3, "metrics": len(said), "said": said}


def _ours(url: str) -> Scorer:
    from ragtrace.core.types import Document, RagCall, Score
    from ragtrace.judges.llm.openai import OpenAIJudge
    from ragtrace.metrics import registry

    judge = OpenAIJudge("local", base_url=url, api_key="none")
    metrics = [metric for metric in registry.defaults() if metric.needs and judge.offers(metric)]
    asked = judge.asking(metrics)

    async def score(query: str, answer: str, chunks: list[str]) -> dict[str, Any]:
        call = RagCall(query, tuple(map(Document, chunks)), answer)
        judgement = await asked.judge(call)
        results = {metric.name: metric(call, judgement) for metric in metrics}
        return {name: each.value if isinstance(each, Score) else each.reason for name, each in results.items()}

    return score


def _deepeval(url: str) -> Scorer:
    from deepeval.metrics import AnswerRelevancyMetric, ContextualRelevancyMetric, FaithfulnessMetric
    from deepeval.models import GPTModel
    from deepeval.test_case import LLMTestCase

    model = GPTModel(model="gpt-4o-mini", base_url=url, api_key="none")
    kinds = (FaithfulnessMetric, AnswerRelevancyMetric, ContextualRelevancyMetric)

    async def score(query: str, answer: str, chunks: list[str]) -> dict[str, Any]:
        case = LLMTestCase(input=query, actual_output=answer, retrieval_context=chunks)
        metrics = [kind(model=model, async_mode=True, include_reason=False) for kind in kinds]
        found = await asyncio.gather(*(metric.a_measure(case, _show_indicator=False) for metric in metrics))
        return {type(metric).__name__: value for metric, value in zip(metrics, found, strict=True)}

    return score


def _ragas(url: str) -> Scorer:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from ragas import SingleTurnSample
    from ragas.embeddings import LangchainEmbeddingsWrapper
    from ragas.llms import LangchainLLMWrapper
    from ragas.metrics import ContextRelevance, Faithfulness, ResponseRelevancy

    llm = LangchainLLMWrapper(ChatOpenAI(model="gpt-4o-mini", base_url=url, api_key="none"))
    embeddings = LangchainEmbeddingsWrapper(
        OpenAIEmbeddings(base_url=url, api_key="none", check_embedding_ctx_length=False)
    )
    metrics = (Faithfulness(llm=llm), ResponseRelevancy(llm=llm, embeddings=embeddings), ContextRelevance(llm=llm))

    async def score(query: str, answer: str, chunks: list[str]) -> dict[str, Any]:
        sample = SingleTurnSample(user_input=query, response=answer, retrieved_contexts=chunks)
        found = await asyncio.gather(*(metric.single_turn_ascore(sample) for metric in metrics))
        return {metric.name: float(value) for metric, value in zip(metrics, found, strict=True)}

    return score


SUBJECTS: Final[dict[str, Callable[[str], Scorer]]] = {"ours": _ours, "deepeval": _deepeval, "ragas": _ragas}

if __name__ == "__main__":
    sys.exit(main())
