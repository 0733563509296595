"""What `ragtrace score` reaches of the rate that a judge of 100 ms allows, 16 at a time, beside the bare client.

    python tests/benchmarks/offline.py [--rounds 5] [--rows 500] [--metrics all] [--mode careful]

A server in a process of its own takes 100 ms for a completion and answers like an honest model; what it answers is
worked out in a first round that is not measured. Every subject is a process of its own, started anew in each round, in
an order that turns. The ideal rate is 16 / 100 ms a request; medians over the rounds.

- *bare*: reads the very requests that we send from a file, `chat.completions.create` of `openai.AsyncOpenAI` at 16 at a
  time, and writes the texts of the replies to a file.
- *ragtrace score*: the command with `--judge openai:MODEL`, without aiohttp, which a plain installation lacks.

Columns: the share of the ideal rate with the start-up of the process and its end; the same between the first request
and the last reply, as the server sees them; seconds from the start of the process to the first request; and CPU time of
the process for a further row: what all rows take more than one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import IO, Any, Final

from ragtrace.testing import OpenAIServer, Reply
from ragtrace.testing.replies import Request, completion
from ragtrace.testing.rule_based_model import answer_by_rule

LATENCY_S: Final = 0.1
CONCURRENCY: Final = 16
_WITHOUT_AIOHTTP: Final = "import sys; sys.modules['aiohttp'] = None; from ragtrace.cli import main; sys.exit(main())"
_SUBJECTS: Final = ("bare", "ragtrace score")
_NOUNS: Final = (
    "archive basin boiler bridge canal cellar charter clinic convoy corridor council district engine factory ferry "
    "furnace gallery garden granary harbour hospital library licence lighthouse market meadow mill monastery museum "
    "orchard pipeline plateau quarry railway reservoir station terminal theatre tunnel turbine valley viaduct warehouse"
).split()
_NAMES: Final = "Aldridge Bexhill Corwen Dunmore Elsworth Farnham Galway Hexton Inverlea Kelston Lymm Marden".split()
_FORMS: Final = (
    "The {a} of {name} was opened in {year} and has {count} rooms for the {b}.",
    "In {year} the council of {name} bought {count} parts of the {a} from the owner of the {b}.",
    "A {a} that stands next to the {b} of {name} can take {count} people at a time.",
    "Since {year}, the {a} has paid {count} euros a month for repairs of its {b} (see the report of {name}).",
    "Nobody in {name} knows why the {a}, which is {count} metres long, was never joined to the {b}.",
)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--metrics")
    parser.add_argument("--mode", choices=("fast", "careful"), default="fast")
    parser.add_argument("--aiohttp", action="store_true", help="let ragtrace use aiohttp")
    parser.add_argument("--as", dest="part", choices=("server", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "server":
        return _serve()
    if options.part == "bare":
        url, requests, texts = options.arguments
        with Path(requests).open() as source, Path(texts).open("w") as written:
            asyncio.run(_ask_bare(url, iter(source), written))
        return 0
    extra = ["--mode", options.mode, *(["--metrics", options.metrics] if options.metrics else [])]
    with TemporaryDirectory() as folder, _server() as server:
        bench = _Bench(Path(folder), server, extra, ["-m", "ragtrace"] if options.aiohttp else ["-c", _WITHOUT_AIOHTTP])
        bench.write(options.rows)
        seen: dict[str, list[_Seen]] = {name: [] for name in _SUBJECTS}
        for turn in range(options.rounds + 1):
            for name in _SUBJECTS if turn % 2 else reversed(_SUBJECTS):
                found = bench.measure(name, options.rows)
                if turn:  # the first round warms up
                    seen[name].append(found)
    _show(seen, options.rows)
    return 0


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield *count* records of calls with 8 to 10 chunks of 300 to 800 characters and answers of 4 to 10 sentences."""
    chance = random.Random(5)
    for number in range(count):
        chunks: list[str] = []
        for _ in range(chance.randint(8, 10)):
            text, length = _sentence(chance), chance.randint(300, 800)
            while len(text) < length - 80:
                text += f" {_sentence(chance)}"
            chunks.append(text)
        copied = [sentence for chunk in chunks for sentence in chunk.split(". ")[:2]]
        said = [sentence.rstrip(".") + "." for sentence in chance.sample(copied, chance.randint(4, 10))]
        said[-1] = _sentence(chance)  # which no chunk says
        query = f"What is known of the {chance.choice(_NOUNS)} of {chance.choice(_NAMES)} ({number})?"
        yield {"id": number, "query": query, "contexts": chunks, "answer": " ".join(said)}


def _sentence(chance: random.Random) -> str:
    a, b = chance.sample(_NOUNS, 2)
    filled = chance.choice(_FORMS).format(
        a=a, b=b, name=chance.choice(_NAMES), year=chance.randint(1820, 2020), count=chance.randint(12, 990)
    )
    return filled[0].upper() + filled[1:]


# --- the server ------------------------------------------------------------------------------------------------------


def _serve() -> int:
    """Print the URL; for each line on standard input: requests since, when the first came, when the last reply left."""
    known: dict[tuple[str, str], bytes] = {}

    def answer(request: Request) -> Reply:
        # Behind the key in it, which is random.
        said = (
            request.body["response_format"]["json_schema"]["name"],
            request.body["messages"][-1]["content"].partition(":")[2],
        )
        if said not in known:
            known[said] = json.dumps(completion(request.body, answer_by_rule(request), Reply())).encode()
        return Reply(body=known[said])

    with OpenAIServer(answer, latency=LATENCY_S) as server:
        print(server.url, flush=True)
        for _ in sys.stdin:
            at = [request.at for request in server.chats]
            server.requests.clear()
            print(json.dumps([len(at), at[0], at[-1] + LATENCY_S] if at else [0, 0, 0]), flush=True)
    return 0


@contextmanager
def _server() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-W", "ignore", __file__, "--as", "server"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(20)


# --- the subjects ----------------------------------------------------------------------------------------------------


async def _ask_bare(url: str, source: Iterator[str], written: IO[str]) -> None:
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key="any")

    async def work() -> None:
        for line in source:
            reply = await client.chat.completions.create(**json.loads(line))
            written.write(json.dumps(reply.choices[0].message.content) + "\n")

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    await client.close()


@dataclass(frozen=True)
class _Seen:
    """What one process did."""

    whole: float
    """Share of the ideal rate, start-up and end included."""
    asking: float
    """The same between the first request and the last reply."""
    start_s: float
    cpu_ms: float
    """For a further row."""


class _Bench:
    def __init__(self, folder: Path, server: subprocess.Popen[str], extra: list[str], command: list[str]) -> None:
        self._folder, self._server, self._extra, self._command = folder, server, extra, command
        assert server.stdout
        self._url = server.stdout.readline().strip()
        # As on a user's machine, where modules are compiled once.
        self._environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def write(self, count: int) -> None:
        """Write the calls, and the requests that they come to; of one and of all."""
        for name, number in (("one", 1), ("all", count)):
            lines = [json.dumps(row) + "\n" for row in rows(number)]
            self._path(name, "calls").write_text("".join(lines))
            with OpenAIServer() as server:
                self._run([*self._command, *self._score(name, server.url)])
                bodies = [json.dumps(request.body) + "\n" for request in server.chats]
            self._path(name, "requests").write_text("".join(bodies))

    def measure(self, subject: str, count: int) -> _Seen:
        """Run *subject* with one row, and with all."""
        _, _, _, cpu_of_one = self._measured(subject, "one")
        took, start, asking, cpu = self._measured(subject, "all")
        n_requests = self._path("all", "requests").read_bytes().count(b"\n")
        ideal = n_requests * LATENCY_S / CONCURRENCY
        return _Seen(ideal / took, ideal / asking, start, (cpu - cpu_of_one) / max(1, count - 1) * 1e3)

    def _measured(self, subject: str, name: str) -> tuple[float, float, float, float]:
        argv = [*self._command, *self._score(name, self._url)]
        if subject == "bare":
            places = [str(self._path(name, kind)) for kind in ("requests", "texts")]
            argv = [__file__, "--as", "bare", self._url, *places]
        self._asked()
        began = monotonic()
        cpu = self._run(argv)
        took = monotonic() - began
        n_requests, first, last = self._asked()
        assert n_requests == self._path(name, "requests").read_bytes().count(b"\n"), (subject, n_requests)
        return took, first - began, last - first, cpu

    def _asked(self) -> tuple[int, float, float]:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write("\n")
        self._server.stdin.flush()
        count, first, last = json.loads(self._server.stdout.readline())
        return count, first, last

    def _score(self, name: str, url: str) -> list[str]:
        files = [str(self._path(name, "calls")), "--out", str(self._path(name, "scores"))]
        return ["score", *files, "--restart", "--judge", "openai:judge", "--base-url", url, *self._extra]

    def _run(self, argv: list[str]) -> float:
        """Seconds of CPU that a process took."""
        before = os.times()
        done = subprocess.run([sys.executable, *argv], env=self._environ, capture_output=True, text=True, check=False)
        after = os.times()
        assert done.returncode == 0, done.stderr
        return after.children_user + after.children_system - before.children_user - before.children_system

    def _path(self, name: str, kind: str) -> Path:
        return self._folder / f"{kind}-{name}.jsonl"


def _show(seen: dict[str, list[_Seen]], count: int) -> None:
    def median(name: str, field: str) -> float:
        return statistics.median(getattr(one, field) for one in seen[name])

    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"{count} rows, {CONCURRENCY} at a time, {LATENCY_S * 1e3:.0f} ms; load average {load:.1f}\n")
    print("| of the ideal rate | whole process | first request to last reply | start, s | CPU of a row, ms |")
    print("|---|--:|--:|--:|--:|")
    for name in seen:
        whole, asking = median(name, "whole"), median(name, "asking")
        print(f"| {name} | {whole:.2f} | {asking:.2f} | {median(name, 'start_s'):.2f} | {median(name, 'cpu_ms'):.2f} |")
    ratio = statistics.median(
        ours.whole / bare.whole for ours, bare in zip(seen[_SUBJECTS[1]], seen["bare"], strict=True)
    )
    print(f"\nWhole process, ragtrace score to bare, within a round: {ratio:.2f}")


if __name__ == "__main__":
    sys.exit(main())
