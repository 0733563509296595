"""Eight processes that are killed and started anew while a real Prometheus fetches: its sums are those of their calls.

What a page must say is known from the processes' own journals, a line for every evaluation in the order in which calls
were counted: every sample of a process is what its first calls add up to, in every sum at once.

**What Prometheus's arithmetic does not allow.** `increase` is not what was counted in a window: it takes what lies
between the first and the last sample, and adds for the time from there to the ends of the window, as if the counter
had gone on at that pace: up to an interval of fetching at either end. What a process had counted before it was first
fetched is in no increase, but where the counter has fallen since the sample before. So the estimate of the rules is
compared to a millionth with that of these increases, each page's by its factor.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from exporters.make_kits.rules import Timing, files
from ragtrace.estimates import NAMES, Estimate, Moments, estimate_mean, judged_moments, unjudged_moments
from tests.support.journaled import METRIC
from tests.support.monitoring import Prometheus, prometheus, wait_until
from tests.support.services import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.skipif(os.name != "posix", reason="needs signals")]

SEED: Final = 8
"""Half of the ends are kills, and each order of the two kinds of end occurs."""
SLOTS, LIVES = 8, 3
WINDOW: Final = "10m"
TIMING: Final = Timing(interval="1s", spike=WINDOW, slow="20m", quiet="5s", memory="1h")
OF: Final = f'{{gen_ai_evaluation_name="{METRIC}"}}'
COUNTER: Final = "ragtrace_eval_moment_total"
COUNTED: Final = f'{COUNTER}{{gen_ai_evaluation_name="{METRIC}", ragtrace_moment="n"}}'
START_S: Final = 60.0


# --- the processes ---------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """One process: from when to when, and what it has written down."""

    process: subprocess.Popen[bytes]
    journal: Path
    begun: float
    ended: float = float("inf")
    counted: int = 0
    """Calls of the journal of a process that counts no more."""

    def calls(self) -> list[Moments]:
        """What every call adds to the sums, in order."""
        by_call: dict[int, dict[str, tuple[float, float]]] = {}
        for line in self._lines():
            call, evaluator, score, probability = json.loads(line)
            by_call.setdefault(call, {})[evaluator] = score, probability
        return [_moments(of) for of in by_call.values()]

    def _lines(self) -> list[bytes]:
        return self.journal.read_bytes().splitlines() if self.journal.exists() else []

    def begin(self) -> None:
        """Wait until it has counted a call."""
        wait_until(self._lines, START_S, "a process counts")

    def kill(self) -> None:
        """As the system does for want of memory."""
        self.process.kill()
        self.process.wait(timeout=20)
        self.ended = time.time()

    def terminate(self) -> None:
        """As a server is asked to end: it shuts down."""
        self.process.terminate()
        assert self.process.wait(timeout=240) == 0
        self.ended = time.time()

    def quieten(self) -> None:
        """Let it stay, and count no more."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"quiet\n"
        self.counted = len(self.calls())


def _moments(of: dict[str, tuple[float, float]]) -> Moments:
    screened, _ = of["screen"]
    if "judge" not in of:
        return unjudged_moments(screened)
    score, probability = of["judge"]
    return judged_moments(score, probability, screened, seen=1.0)


class Slots:
    """Starts the processes, and ends them with the test."""

    def __init__(self, work: Path, ports: Sequence[int]) -> None:
        self._work, self._ports = work, ports
        self.lives: list[list[Life]] = [[] for _ in ports]

    def run(self) -> None:
        """All slots at once, each with its own fate; the last process of each stays."""
        with ThreadPoolExecutor(len(self._ports)) as pool:
            list(pool.map(self._run, range(len(self._ports))))

    def _run(self, slot: int) -> None:
        drawn, pause = random.Random(SEED * SLOTS + slot), threading.Event()
        for number in range(LIVES):
            life = self._start(slot)
            life.begin()
            pause.wait(drawn.uniform(0.0, 4.0))
            if number == LIVES - 1:
                life.quieten()
            else:
                drawn.choice((life.kill, life.terminate))()

    def _start(self, slot: int) -> Life:
        lives = self.lives[slot]
        name = f"{slot}-{len(lives)}"
        environ = {"RAGTRACE_PROMETHEUS_PORT": str(self._ports[slot])}
        journal = self._work / f"journal-{name}"
        with (self._work / f"log-{name}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.journaled"],
                env={**os.environ, **environ, "JOURNAL": str(journal)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )
        lives.append(Life(process, journal, time.time()))
        return lives[-1]

    def end(self) -> None:
        """Whatever is left."""
        for life in (life for lives in self.lives for life in lives):
            life.process.kill()
            life.process.wait(timeout=20)
            for pipe in (life.process.stdin, life.process.stdout):
                if pipe is not None:
                    pipe.close()


@contextmanager
def restarted(work: Path) -> Iterator[tuple[Prometheus, Slots, list[int]]]:
    """A Prometheus after eight slots have had all their processes, and the ports of the slots."""
    with ExitStack() as stack:
        ports = list(stack.enter_context(free_ports(SLOTS)))
        targets = [f"127.0.0.1:{port}" for port in ports]
        server = stack.enter_context(prometheus(work, targets, files(TIMING)))
        slots = Slots(work, ports)
        stack.callback(slots.end)
        slots.run()
        yield server, slots, ports


# --- what Prometheus makes of it -------------------------------------------------------------------------------------


def factor(samples: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """By how much `increase` goes beyond what lies between the first and the last sample.

    Source: Prometheus, promql/functions.go, `extrapolatedRate`.
    """
    (first, lowest), (last, _) = samples[0], samples[-1]
    between, risen = last - first, raised(samples)
    average = between / (len(samples) - 1)
    before = min(first - start, between * lowest / risen if risen > 0 else first - start)
    ends = (gap if gap < 1.1 * average else average / 2 for gap in (before, end - last))
    return 1.0 + sum(ends) / between


def raised(samples: Sequence[tuple[float, float]]) -> float:
    """What was counted between the first and the last sample: whenever it falls, it began at 0 again."""
    values = [value for _, value in samples]
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def added(calls: Sequence[Moments]) -> Moments:
    """Their sum."""
    return sum(calls, Moments())


def recorded(server: Prometheus, slots: Slots) -> tuple[float, dict[str, float]]:
    """When all processes have ended: time of an evaluation of the rules, and the estimate that it records.

    While something is still fetched, a sample may be older than an evaluation that did not see it.
    """
    slots.end()
    wait_until(lambda: not server.query("up == 1"), 30, "nothing is fetched any more")
    now = time.time()
    wait_until(lambda: _evaluated(server) > now, 30, "the rules are evaluated")
    when = _evaluated(server)
    names = ("value", "low", "high")
    return when, {name: server.at(f"ragtrace:{WINDOW}:{name}{OF}", when)[0][1] for name in names}


def _evaluated(server: Prometheus) -> float:
    # Rules are evaluated one after the other at one time; this is the last of the group.
    found = server.query(f"timestamp(ragtrace:{WINDOW}:high{OF})")
    return found[0][1] if found else 0.0


def agrees(found: dict[str, float], estimate: Estimate, *, within: float) -> None:
    """Value and both ends, relative to themselves."""
    assert found["value"] == pytest.approx(estimate.value, rel=within)
    assert found["low"] == pytest.approx(estimate.low, rel=within)
    assert found["high"] == pytest.approx(estimate.high, rel=within)


def test_processes_killed_at_random_lose_and_invent_nothing(tmp_path: Path) -> None:
    """Every page says what its process's first calls add up to, and the rules make the estimate of the increases."""
    with restarted(tmp_path) as (server, slots, ports):
        for port, lives in zip(ports, slots.lives, strict=True):
            server.wait_for(f'{COUNTED[:-1]}, instance="127.0.0.1:{port}"}} == {lives[-1].counted}')
        when, found = recorded(server, slots)
        fetched: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for of, samples in server.samples(f"{COUNTER}{OF}[{WINDOW}]", when):
            fetched.setdefault(of["instance"], {})[of["ragtrace_moment"]] = samples
        weighted, seen = Moments(), 0
        for port, lives in zip(ports, slots.lives, strict=True):
            series = fetched[f"127.0.0.1:{port}"]
            seen += sum(_is_heard_of(series, life) for life in lives)
            risen = Moments.from_sums(
                {name: factor(each, when - 600, when) * raised(each) for name, each in series.items()}
            )
            weighted += risen
        assert seen > SLOTS
        agrees(found, estimate_mean(weighted), within=1e-6)


def _is_heard_of(series: dict[str, list[tuple[float, float]]], life: Life) -> bool:
    """Whether the page of *life* was fetched; each time it says what its first calls add up to, in every sum."""
    mine = {name: [each for each in samples if life.begun <= each[0] <= life.ended] for name, samples in series.items()}
    for at, samples in enumerate(zip(*mine.values(), strict=True)):
        shown = {name: value for name, (_, value) in zip(mine, samples, strict=True)}
        calls = added(life.calls()[: round(shown["n"])])
        assert shown == pytest.approx(dict(zip(NAMES, calls.values(), strict=True)), rel=1e-9), at
    return bool(mine["n"])
