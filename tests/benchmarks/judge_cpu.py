"""What asking a model costs us: CPU time and rate of judging one call, beside the bare openai client in the same run.

    python tests/benchmarks/judge_cpu.py [--rounds 7] [--calls 200] [--json]

A server in a process of its own gives every request the same reply. In each round every subject makes its calls, in an
order that turns; a ratio is taken within a round, and the median over the rounds is reported.

- *bare*: `chat.completions.create` of `openai.AsyncOpenAI`, as its documentation shows it, with the very request that
  we send; its text is not even parsed.
- *ask*: `Chat.ask`: the same request, the reply read and checked against nothing.
- *judge*: `OpenAIJudge.judge`: the request is built, the reply read and validated.
- *evaluate*: the same through `scoring.evaluate`, with every metric the judge has labels for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import openai

from ragtrace.core.types import Document, RagCall
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges.llm.chat import ChatClient
from ragtrace.judges.llm.openai import OpenAIJudge
from ragtrace.judges.llm.prompt import Prompt
from ragtrace.metrics import registry
from ragtrace.testing import OpenAIServer, Reply

LATENCY_S: Final = 0.2
CONCURRENCIES: Final = (16, 64)
MOST_CPU_MS: Final = 2.5
LEAST_RATE: Final = 0.9
_SENTENCES: Final = (
    "The harbour bridge was opened in 1932 after eight years of work.",
    "It is 1149 metres long and carries eight lanes of road.",
    "The arch is made of steel and stands 134 metres above the water.",
    "Two railway tracks cross it on the western side.",
    "A crew of eight painters keeps the steel from rusting all year.",
)
CALL: Final = RagCall(
    query="How long is the harbour bridge and what is it made of?",
    contexts=tuple(Document(f"{sentence} {_SENTENCES[n - 1]}") for n, sentence in enumerate(_SENTENCES)),
    answer=" ".join(_SENTENCES[:3]),
)

Subject = Callable[[int], Awaitable[object]]


def main() -> int:
    """Measure, print a table, and return 1 if a bound is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        return _serve(options.serve)
    request, reply = _exchange()
    cpu = asyncio.run(_cpu(request, reply, options.rounds, options.calls))
    rates = asyncio.run(_rates(request, reply, options.rounds, options.calls))
    if options.json:
        print(json.dumps({"cpu_ms": cpu, "rates": rates}))
    else:
        _show(cpu, rates)
    kept = cpu["judge"]["ms"] <= MOST_CPU_MS and all(rate["ratio"] >= LEAST_RATE for rate in rates)
    return 0 if kept else 1


def _exchange() -> tuple[dict[str, Any], dict[str, Any]]:
    """The request that a judge sends for `CALL`, and an honest completion."""
    with OpenAIServer() as server:
        asyncio.run(_judge(server.url).judge(CALL))  # type: ignore[arg-type]
        request = server.chats[0].body
    with OpenAIServer() as server:
        client = openai.OpenAI(base_url=server.url, api_key="any")
        answer = client.chat.completions.create(**request)
        client.close()
    return request, answer.model_dump()


def _judge(url: str) -> OpenAIJudge:
    return OpenAIJudge("judge", base_url=url, api_key="any")


# --- the server ------------------------------------------------------------------------------------------------------


def _serve(latency: float) -> int:
    body = sys.stdin.readline().encode()
    with OpenAIServer(Reply(body=body), latency=latency) as server:
        print(server.url, flush=True)
        sys.stdin.readline()
    return 0


@contextmanager
def _server(reply: dict[str, Any], latency: float) -> Iterator[str]:
    argv = [sys.executable, "-W", "ignore", __file__, "--serve", str(latency)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(reply) + "\n")
        process.stdin.flush()
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(20)


# --- the subjects ----------------------------------------------------------------------------------------------------


class _Unchecked(NamedTuple):
    """A reply as it is."""

    data: dict[str, Any]
    defects: tuple[str, ...] = ()


class _Subjects:
    """Who makes the calls, all to one server."""

    def __init__(self, url: str, request: dict[str, Any]) -> None:
        self._request = request
        self._bare = openai.AsyncOpenAI(base_url=url, api_key="any")
        self._chat = ChatClient("judge", base_url=url, api_key="any")
        system, user = request["messages"]
        wanted = request["response_format"]["json_schema"]
        texts = system["content"], user["content"]
        self._prompt: Prompt[_Unchecked] = Prompt(wanted["name"], *texts, wanted["schema"], _Unchecked)
        self._judge = _judge(url)
        metrics = tuple(metric for metric in registry.all() if metric.needs and self._judge.offers(metric))
        self._evaluator = Evaluator(self._judge, metrics, 60.0, concurrency=1024)
        self.all: dict[str, Subject] = {
            "bare": self._create,
            "ask": self._put,
            "judge": self._label,
            "evaluate": self._evaluate,
        }

    async def _create(self, number: int) -> object:
        return (await self._bare.chat.completions.create(**self._request)).choices[0].message.content

    async def _put(self, number: int) -> object:
        return (await self._chat.ask(self._prompt)).reply.data

    async def _label(self, number: int) -> object:
        return await self._judge.judge(CALL)

    async def _evaluate(self, number: int) -> object:
        call = RagCall(query=f"{CALL.query} ({number})", contexts=CALL.contexts, answer=CALL.answer)
        evaluation = await evaluate(self._evaluator, call)
        assert evaluation.error is None, evaluation
        return evaluation

    async def close(self) -> None:
        await self._bare.close()
        await self._chat.aclose()
        await self._judge.aclose()


_numbers = iter(range(10**9))


async def _calls(subject: Subject, count: int, concurrency: int) -> None:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await subject(next(_numbers))

    await asyncio.gather(*(work() for _ in range(concurrency)))


async def _cpu(request: dict[str, Any], reply: dict[str, Any], rounds: int, calls: int) -> dict[str, Any]:
    """CPU milliseconds of this process for a call, at 16 at a time and no latency."""
    seen: dict[str, list[float]] = {"bare": [], "ask": [], "judge": [], "evaluate": []}
    with _server(reply, 0.0) as url:
        subjects = _Subjects(url, request)
        for turn in range(rounds + 1):
            for name in _turned(list(subjects.all), turn):
                began = process_time()
                await _calls(subjects.all[name], calls, 16)
                if turn:  # the first round warms up
                    seen[name].append((process_time() - began) / calls * 1e3)
        await subjects.close()
    ratios = {name: statistics.median(o / b for o, b in zip(seen[name], seen["bare"], strict=True)) for name in seen}
    return {name: {"ms": statistics.median(times), "ratio": ratios[name]} for name, times in seen.items()}


async def _rates(request: dict[str, Any], reply: dict[str, Any], rounds: int, calls: int) -> list[dict[str, Any]]:
    """Calls a second when the server takes 200 ms, of the bare client and of the judge."""
    found: list[dict[str, Any]] = []
    with _server(reply, LATENCY_S) as url:
        for concurrency in CONCURRENCIES:
            subjects = _Subjects(url, request)
            seen: dict[str, list[float]] = {"bare": [], "evaluate": []}
            for turn in range(max(2, rounds // 2) + 1):
                for name in _turned(list(seen), turn):
                    began = perf_counter()
                    await _calls(subjects.all[name], max(calls, 6 * concurrency), concurrency)
                    if turn:
                        seen[name].append(max(calls, 6 * concurrency) / (perf_counter() - began))
            await subjects.close()
            ratio = statistics.median(o / b for o, b in zip(seen["evaluate"], seen["bare"], strict=True))
            medians = {name: statistics.median(rates) for name, rates in seen.items()}
            found.append({"concurrency": concurrency, **medians, "ratio": ratio})
    return found


def _turned(names: list[str], turn: int) -> list[str]:
    cut = turn % len(names)
    return names[cut:] + names[:cut]


def _show(cpu: dict[str, Any], rates: list[dict[str, Any]]) -> None:
    print("| CPU of one call, 16 at a time | ms | of bare |\n|---|--:|--:|")
    for name, seen in cpu.items():
        print(f"| {name} | {seen['ms']:.2f} | {seen['ratio']:.2f} |")
    print("\n| calls a second at 200 ms latency | bare | ours | ratio |\n|---|--:|--:|--:|")
    for rate in rates:
        print(
            f"| {rate['concurrency']} at a time | {rate['bare']:.1f} | {rate['evaluate']:.1f} | {rate['ratio']:.3f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
