"""What a guard adds to an answer and to a stream, and what it does without its judge: ours beside other libraries.

    python tests/benchmarks/guard_peers.py [--peers PYTHON] [--rounds 4] [--calls 40] [--streams 3] [--delay 0.05]
                                           [--only answers,streams,failures]

--peers names an interpreter that has the libraries of `peers_guard.txt`; without it there is only ours. Every subject
has a process of its own (`subjects/guard_peer.py`), and all ask one judge: a local server with OpenAI's chat
completions, which answers after --delay seconds whether a text is supported. The rounds are interleaved: in each, every
subject is measured once, in an order that turns. Nothing is cached: every call has a question of its own.

- answers: time from the moment at which the function has its answer until the caller has it, one call at a time. "judge
  alone" asks the judge once by httpx, without any library.
- streams: a stream of 50 pieces, one every 10 ms, in five sentences; time until its first piece and its end reach the
  reader. The same with an unsupported third sentence: how many of its ten words the reader gets.
- failures: a judge that refuses the connection, and one that never answers. What the caller gets, after how long.

*ragtrace*: `Guard("faithfulness")` with an `OpenAIJudge`; `budget_ms=400`, 1,000 for streams. *NeMo Guardrails*: the
output rail `self check facts` with its prompt, the answer given to `check_async`, the stream to
`stream_async(generator=...)`. *Guardrails AI*: a validator of our own with the `openai` client, as those of its hub
need an account; `AsyncGuard.validate`, and `Guard(function, stream=True)` for streams.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

from ragtrace.testing import OpenAIServer, Reply, Request

SUBJECT: Final = Path(__file__).with_name("subjects") / "guard_peer.py"
NAMES: Final[Mapping[str, str]] = {
    "bare": "no guard",
    "judge": "judge alone",
    "ragtrace": "ragtrace",
    "nemo": "NeMo Guardrails",
    "guardrails": "Guardrails AI",
}
PEERS: Final = ("nemo", "guardrails")
STREAMS: Final[Sequence[tuple[str, str, str]]] = (
    ("bare", "", ""),
    ("ragtrace", "after", "after"),
    ("ragtrace", "sentence", "sentence"),
    ("ragtrace", "all", "all"),
    ("nemo", "the defaults: chunks of 200 tokens, stream first", "{}"),
    ("nemo", "chunks of 200 tokens, check first", '{"stream_first": false}'),
    ("nemo", "chunks of 10 tokens, check first", '{"stream_first": false, "chunk_size": 10, "context_size": 5}'),
    ("guardrails", "on_fail exception", "exception"),
    ("guardrails", "on_fail fix", "fix"),
)
"""Subjects, the name of how their streams are guarded, and the mode that says it to them."""
CAP_S: Final = 20.0
"""Seconds after which a call counts as waiting on."""


@dataclass
class Process:
    """A subject in a process of its own, waiting for orders."""

    name: str
    python: str
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGTRACE_"))}
        self.process = subprocess.Popen(
            [self.python, str(SUBJECT), self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONPATH": str(SUBJECT.parents[3]) if self.python == sys.executable else ""},
            text=True,
        )

    def measure(self, **order: Any) -> dict[str, Any]:
        """Send an order and wait for its result."""
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with {self.process.wait()}; to see why: {self.python} {SUBJECT} {self.name}")
        result: dict[str, Any] = json.loads(line)
        return result

    def close(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait(timeout=60)


@contextmanager
def started(peers: str) -> Iterator[dict[str, Process]]:
    """Start a process for every subject; the libraries of others need an interpreter that has them."""
    names = [name for name in NAMES if peers or name not in PEERS]
    processes = {name: Process(name, peers if name in PEERS else sys.executable) for name in names}
    try:
        yield processes
    finally:
        for process in processes.values():
            process.close()


def judgement(request: Request) -> Reply:
    """Answer ragtrace's prompt by the words of answer and chunks, any other by a word; the bad sentence has a name."""
    if request.data is not None:
        return Reply()
    return Reply(content="no" if "Atlantis" in request.user else "yes")


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


class Tally:
    """Results of one line of a table over the rounds."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.outcomes: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.requests = self.calls = 0

    def add(self, result: Mapping[str, Any], requests: int) -> None:
        for name in ("added", "first", "end", "shown"):
            self.times[name] += result.get(name, [])
        self.outcomes.update(result["outcomes"])
        self.told.update(result["told"])
        self.requests += requests
        self.calls += result["calls"]

    @property
    def requests_a_call(self) -> str:
        return f"{self.requests / self.calls:.2g}"

    def ms(self, name: str, share: float) -> str:
        return f"{percentile(self.times[name], share) * 1000:,.0f}" if self.times[name] else "none"


class Run:
    """One run: its processes, its judge, and what the tables say.

    Args:
        processes: the subjects, by name.
        options: the arguments of the command line.
    """

    def __init__(self, processes: Mapping[str, Process], options: argparse.Namespace) -> None:
        self._processes, self._options = processes, options
        self._number = 0

    def measure(self, server: OpenAIServer, name: str, tally: Tally, **order: Any) -> None:
        """Carry out one order and add its result, with the requests that the judge has received meanwhile."""
        self._number += 1
        before = server.n_chats
        wanted = {"url": server.url, "mode": "", "bad": False, "cap": CAP_S, "limited": False, "warm": True, **order}
        result = self._processes[name].measure(number=self._number, **wanted)
        tally.add(result, server.n_chats - before)

    def in_turn(self, server: OpenAIServer, lines: Sequence[tuple[str, str]], **order: Any) -> list[Tally]:
        """Measure every line once a round, in an order that turns; the first round is a warm-up."""
        tallies = [Tally() for _ in lines]
        for turn in range(self._options.rounds + 1):
            for step in range(len(lines)):
                place = (turn + step) % len(lines)
                name, mode = lines[place]
                self.measure(server, name, tallies[place] if turn else Tally(), mode=mode, **order)
        return tallies

    def answers(self) -> None:
        """Print what is added to answers that pass."""
        print("\n| guard | p50 ms | p95 ms | p50 beyond the judge alone | requests a call | it says |")
        print("|---|--:|--:|--:|--:|---|")
        names = list(self._processes)
        with OpenAIServer(judgement, latency=self._options.delay) as server:
            tallies = self.in_turn(server, [(name, "") for name in names], do="answers", calls=self._options.calls)
        alone = median(tallies[names.index("judge")].times["added"])
        for name, tally in zip(names, tallies, strict=True):
            assert set(tally.outcomes) == {"answer"}, (name, tally.outcomes)
            extra = f"{(median(tally.times['added']) - alone) * 1000:,.1f}" if name not in ("bare", "judge") else ""
            figures = f"{tally.ms('added', 0.5)} | {tally.ms('added', 0.95)} | {extra} | {tally.requests_a_call}"
            print(f"| {NAMES[name]} | {figures} | {shares(tally.told)} |", flush=True)

    def streams(self) -> None:
        """Print when pieces of a stream leave, and which ones of a bad sentence do."""
        print("\n| guard | stream | first piece ms | p95 | end ms | p95 | requests | bad words shown of 10 | it says |")
        print("|---|---|--:|--:|--:|--:|--:|---|---|")
        lines = [line for line in STREAMS if line[0] in self._processes]
        with OpenAIServer(judgement, latency=self._options.delay) as server:
            modes = [(name, mode) for name, _, mode in lines]
            tallies = self.in_turn(server, modes, do="streams", calls=self._options.streams)
            for (name, title, mode), tally in zip(lines, tallies, strict=True):
                assert set(tally.outcomes) == {"end"}, (name, mode, tally.outcomes)
                bad = Tally()
                self.measure(server, name, bad, mode=mode, do="streams", calls=self._options.streams, bad=True)
                figures = " | ".join(tally.ms(kind, share) for kind in ("first", "end") for share in (0.5, 0.95))
                shown = f"{median(bad.times['shown']):g}; {shares(bad.outcomes)}"
                figures += f" | {tally.requests_a_call} | {shown} | {shares(tally.told)}"
                print(f"| {NAMES[name]} | {title} | {figures} |", flush=True)

    def failures(self) -> None:
        """Print what the caller gets of a bad answer, and of a good one without a judge."""
        print(
            "\n| judge | guard | caller gets | first call s | p50 | most | calls of over 50 ms | requests | it says |"
        )
        print("|---|---|---|--:|--:|--:|--:|--:|---|")
        with OpenAIServer(judgement, latency=self._options.delay) as server:
            for name in self._guards():
                self._print("says no", server, name, do="answers", bad=True, calls=5)
        with OpenAIServer(Reply(hangs=True)) as hanging, OpenAIServer() as other:
            dead = _Closed(other)
            for judge, server in (("refuses", dead), ("hangs", hanging)):
                for name in self._guards():
                    calls = 1 if server is hanging and name in PEERS else self._many(name)
                    for mode in ("", ", closed") if name == "ragtrace" else ("",):
                        self._print(judge, server, name, mode=mode, do="answers", calls=calls, warm=False)
            for name in filter(PEERS.__contains__, self._guards()):
                order = {"do": "answers", "calls": self._many(name), "limited": True, "warm": False}
                self._print("hangs, client waits 0.4 s", hanging, name, **order)
            for name, title, mode in STREAMS:
                if name in self._guards():
                    self._print("refuses", dead, name, f", {title}", mode=mode, do="streams", calls=1, warm=False)

    def _guards(self) -> list[str]:
        return [name for name in self._processes if name not in ("bare", "judge")]

    def _many(self, name: str) -> int:
        return 30 if name == "ragtrace" else 5

    def _print(self, judge: str, server: Any, name: str, title: str = "", **order: Any) -> None:
        tally = Tally()
        self.measure(server, name, tally, **order)
        times = tally.times["added"] or tally.times["end"]
        shown = f", {tally.times['shown'][0]:g} words of 50 shown" if tally.times["shown"] else ""
        late = sum(each > 0.05 for each in times)
        print(
            f"| {judge} | {NAMES[name]}{title or order.get('mode', '')} | {shares(tally.outcomes)}{shown} "
            f"| {times[0]:.2f} | {median(times):.3f} | {max(times):.2f} | {late} of {len(times)} "
            f"| {tally.requests_a_call} | {shares(tally.told)} |",
            flush=True,
        )


class _Closed:
    """Address at which nothing listens, in the place of a server."""

    n_chats = 0

    def __init__(self, server: OpenAIServer) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = server.url.replace(str(server.port), str(free.getsockname()[1]))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--only", default="answers,streams,failures")
    options = parser.parse_args()
    with started(options.peers) as processes:
        run = Run(processes, options)
        for table in options.only.split(","):
            getattr(run, table)()


if __name__ == "__main__":
    main()
