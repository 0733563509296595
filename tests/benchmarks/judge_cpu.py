"""What asking a model costs us: CPU time and rate of judging one call, beside the bare openai client in the same run.

    python tests/benchmarks/judge_cpu.py [--rounds 7] [--calls 200] [--json]

A server in a process of its own gives every request the same reply. In each round every subject makes its calls, in an
order that turns; a ratio is taken within a round, and the median over the rounds is reported.

- *bare*: `chat.completions.create` of `openai.AsyncOpenAI`, as its documentation shows it, with the very request that
  we send; its text is not even parsed.
- *ask*: `Chat.ask`: the same request, the reply read and checked against nothing.
- *judge*: `OpenAIJudge.judge`: the request is built, the reply read and validated.
- *evaluate*: the same through `scoring.evaluate`, with every metric the judge has labels for.

For a decision model, with a call of 12 statements and 8 chunks:

- *bare*: `decisions.create` of `openai.AsyncOpenAI` (`client.post` where the package has no decisions) with the very
  request that we send.
- *judge*, *evaluate*: `DecisionJudge`, as above.

Its rates are by a clock that other work on the machine does not move: the CPU time of this process, the server in it
included, and whatever it would have waited, which is skipped. So they are those of a process with a core of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import selectors
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple, cast

import openai

from ragtrace.core.types import Document, RagCall
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges.decision.decision_judge import DecisionJudge
from ragtrace.judges.llm.chat import ChatClient
from ragtrace.judges.llm.openai import OpenAIJudge
from ragtrace.judges.llm.prompt import Prompt
from ragtrace.metrics import registry
from ragtrace.testing import DecisionServer, OpenAIServer

LATENCY_S: Final = 0.2
CONCURRENCIES: Final = (16, 64)
MOST_CPU_MS: Final = 2.5
LEAST_RATE: Final = 0.9
MOST_DECISION_CPU: Final = 1.1
"""Most CPU time of judging one call by a decision model, of that of the bare client."""
LEAST_DECISION_RATE: Final = 0.95
"""Least rate of calls, of the ideal rate: all that are in flight every 200 ms."""
_ROUNDS_WITH_A_CORE: Final = 40
"""Calls of each slot, 8 s of them: the calls begin together, and take some rounds to spread over the 200 ms."""
_DECISIONS_IN_FLIGHT: Final = 64
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

_MORE: Final = (
    "The bridge was designed by an engineering office in the north of the country.",
    "Its granite pylons carry no load and were added for the look of it.",
    "The last rivet was driven on 21 January 1932 by the oldest foreman.",
    "Some 53000 tonnes of steel went into the arch and the approach spans.",
    "Ships of up to 49 metres pass below it at high tide.",
    "Tolls paid for the loans that financed it until 1988.",
    "On clear days the summit walk takes visitors up 1332 steps.",
    "A tunnel opened in 1992 takes half of the traffic.",
)
DECISION_CALL: Final = RagCall(
    query="How long is the harbour bridge and what is it made of?",
    contexts=tuple(Document(" ".join([*_SENTENCES, *_MORE][n : n + 5])) for n in range(8)),
    answer=" ".join([*_SENTENCES[:4], *_MORE]),
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
    asked, answered = asyncio.run(_decision_exchange())
    decisions = asyncio.run(_decision_cpu(asked, answered, options.rounds, options.calls))
    for concurrency in CONCURRENCIES:
        for name, share in _rates_with_a_core(asked, answered, concurrency).items():
            decisions[name][f"rate_{concurrency}"] = share
    if options.json:
        print(json.dumps({"cpu_ms": cpu, "rates": rates, "decisions": decisions}))
    else:
        _show(cpu, rates, decisions)
    kept = cpu["judge"]["ms"] <= MOST_CPU_MS and all(rate["ratio"] >= LEAST_RATE for rate in rates)
    kept &= decisions["evaluate"]["ratio"] <= MOST_DECISION_CPU
    kept &= all(decisions["evaluate"][f"rate_{each}"] >= LEAST_DECISION_RATE for each in CONCURRENCIES)
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


class _FixedReply(asyncio.Protocol):
    """Connection of a server that gives every request the same reply after a while, and takes next to no time itself.

    A server that read the requests would take as long as the clients, and be what limits their rate.

    Args:
        body: body of the reply.
        latency: seconds from the end of a request to its reply.
    """

    def __init__(self, body: bytes, latency: float) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._reply, self._latency, self._received = head.encode() + body, latency, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: *(\d+)", self._received[:end], re.IGNORECASE)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            self._received = self._received[whole:]
            asyncio.get_running_loop().call_later(self._latency, self._transport.write, self._reply)


def _serve(latency: float) -> int:
    asyncio.run(_serve_until_told(sys.stdin.readline().strip().encode(), latency))
    return 0


async def _serve_until_told(body: bytes, latency: float) -> None:
    """Serve *body* on a free port, whose URL is printed, until a line is read or the input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _FixedReply(body, latency), "127.0.0.1", 0)
    async with server:
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)


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


# --- decision models --------------------------------------------------------------------------------------------------


async def _decision_exchange() -> tuple[dict[str, Any], Any]:
    """The request that a decision judge sends for `DECISION_CALL`, and an honest reply."""
    with DecisionServer() as server:
        judge = DecisionJudge("judge", base_url=server.url, api_key="any")
        await judge.judge(DECISION_CALL)
        await judge.aclose()
        request = server.decisions[0].body
        client = openai.AsyncOpenAI(base_url=server.url, api_key="any")
        reply: Any = await client.post("/decisions", cast_to=object, body=request)
        await client.close()
    return request, reply


async def _decision_cpu(request: dict[str, Any], reply: Any, rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds of this process for a call, 64 at a time and without latency, and of the bare client's."""
    with _server(reply, 0.0) as url:
        subjects = _DecisionSubjects(url, request)
        seen: dict[str, list[float]] = {name: [] for name in subjects.all}
        for turn in range(rounds + 1):
            for name in _turned(list(subjects.all), turn):
                began = process_time()
                await _calls(subjects.all[name], calls, _DECISIONS_IN_FLIGHT)
                if turn:  # the first round warms up
                    seen[name].append((process_time() - began) / calls * 1e3)
        await subjects.close()
    ratios = {name: statistics.median(o / b for o, b in zip(seen[name], seen["bare"], strict=True)) for name in seen}
    return {name: {"ms": statistics.median(times), "ratio": ratios[name]} for name, times in seen.items()}


class _SkippingSelector(selectors.DefaultSelector):
    """Selector that does not wait for a time, but counts it."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # A busy kernel takes its time to hand what was written to a socket over to its reader.
        found = super().select(0) or super().select(0.005 if timeout is None or timeout > 0 else 0)
        if not found and timeout is not None:
            self.skipped += max(0.0, timeout)
        return found


class _CpuTimeLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock is the CPU time of the process and what the loop would have waited."""

    def __init__(self) -> None:
        self._selecting = _SkippingSelector()
        super().__init__(self._selecting)

    def time(self) -> float:
        return process_time() + self._selecting.skipped


def _rates_with_a_core(request: dict[str, Any], reply: Any, concurrency: int) -> dict[str, float]:
    """Rates of the subjects at 200 ms latency, as a share of the ideal one, by a `_CpuTimeLoop`."""
    loop = _CpuTimeLoop()

    async def measured() -> dict[str, float]:
        answer = json.dumps(reply).encode()
        server = await loop.create_server(lambda: _FixedReply(answer, LATENCY_S), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        subjects, found = _DecisionSubjects(url, request), dict[str, float]()
        for name, subject in subjects.all.items():
            await _calls(subject, concurrency, concurrency)  # opens the connections
            began = loop.time()
            await _calls(subject, _ROUNDS_WITH_A_CORE * concurrency, concurrency)
            found[name] = _ROUNDS_WITH_A_CORE * LATENCY_S / (loop.time() - began)
        await subjects.close()
        server.close()
        return found

    try:
        return loop.run_until_complete(measured())
    finally:
        loop.close()


class _DecisionSubjects:
    """Who asks a decision model, all the same server."""

    def __init__(self, url: str, request: dict[str, Any]) -> None:
        self._request = request
        self._bare = openai.AsyncOpenAI(base_url=url, api_key="any")
        self._judge = DecisionJudge("judge", base_url=url, api_key="any")
        metrics = tuple(metric for metric in registry.every() if metric.needs and self._judge.offers(metric))
        self._evaluator = Evaluator(self._judge.asking(metrics), metrics, 60.0, concurrency=1024)
        self.all: dict[str, Subject] = {"bare": self._create, "judge": self._label, "evaluate": self._evaluate}

    async def _create(self, number: int) -> object:
        if hasattr(self._bare, "decisions"):
            return (await self._bare.decisions.create(**self._request)).answers
        return await self._bare.post("/decisions", cast_to=object, body=self._request)

    async def _label(self, number: int) -> object:
        return await self._judge.judge(DECISION_CALL)

    async def _evaluate(self, number: int) -> object:
        call = replace(DECISION_CALL, query=f"{DECISION_CALL.query} ({number})")
        evaluation = await evaluate(self._evaluator, call)
        assert evaluation.error is None, evaluation
        return evaluation

    async def close(self) -> None:
        await self._bare.close()
        await self._judge.aclose()


def _turned(names: list[str], turn: int) -> list[str]:
    cut = turn % len(names)
    return names[cut:] + names[:cut]


def _show(cpu: dict[str, Any], rates: list[dict[str, Any]], decisions: dict[str, Any]) -> None:
    print("| CPU of one call, 16 at a time | ms | of bare |\n|---|--:|--:|")
    for name, seen in cpu.items():
        print(f"| {name} | {seen['ms']:.2f} | {seen['ratio']:.2f} |")
    print("\n| calls a second at 200 ms latency | bare | ours | ratio |\n|---|--:|--:|--:|")
    for rate in rates:
        print(
            f"| {rate['concurrency']} at a time | {rate['bare']:.1f} | {rate['evaluate']:.1f} | {rate['ratio']:.3f} |"
        )
    print("\nRates are shares of the ideal one at 200 ms, with a core of its own.\n")
    print("| decision model | CPU ms, 64 at a time | of bare | rate, 16 at a time | 64 |\n|---|--:|--:|--:|--:|")
    for name, seen in decisions.items():
        print(f"| {name} | {seen['ms']:.2f} | {seen['ratio']:.2f} | {seen['rate_16']:.3f} | {seen['rate_64']:.3f} |")


if __name__ == "__main__":
    sys.exit(main())
