"""How fast the labelling page of a large history is: `ragtrace review` in a process of its own, asked page by page.

    python -m tests.benchmarks.review [--calls 100000] [--pages 30]

The history is made first and not timed: simulated calls as in `tests.benchmarks.report`, each with a question of its
own, 1,000 of them picked, and half of these labelled by two reviewers. Printed for each kind of page: milliseconds
until the client has it, and CPU time of the server.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from ragtrace.cli import main as ragtrace
from ragtrace.labels.label_store import Label, LabelStore
from tests.benchmarks.report import simulated
from tests.support.history import fill

METRIC: Final = "hallucination"
PICKED: Final = 1_000
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
QUEUES: Final = {
    "queue of picked calls": "/label?source=picked&status=all",
    "queue of all calls": "/label?source=all&status=all",
    "queue of unlabelled calls with a score": "/label?source=judged",
    "queue of disputed calls": "/label?source=all&status=disputed",
    "filter by workflow": "/label?source=all&status=all&workflow=%3Dsearch",
    "filter by frequent text": "/label?source=all&status=all&text=shoes",
    "filter by rare text": "/label?source=all&status=all&text=outside%3F+99",
    "filter by text that no call has": "/label?source=all&status=all&text=umbrella",
}


def make(path: Path, calls: int) -> list[bytes]:
    """Fill the history, pick and label calls; return the identities of all calls."""
    offered = simulated(calls, time.time())
    fill(path, (replace(c, call=replace(c.call, query=f"{c.call.query} {n}")) for n, c in enumerate(offered)))
    assert ragtrace(["calibrate", "pick", str(path), "-n", str(PICKED), "--metric", METRIC, "--seed", "1"]) == 0
    rng = random.Random(2)
    with closing(LabelStore(str(path))) as store:
        picks = store.picks(METRIC)[::2]
        for reviewer in ("ada", "bob"):
            store.add(Label(p.identity, METRIC, reviewer, rng.choice(("good", "good", "bad"))) for p in picks)
        return list(store.identities().values())


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def queue_pages(client: httpx.Client, address: str, pages: int) -> Iterator[float]:
    """Yield the seconds for each page of a queue, from the first on and from there again."""
    following = address
    for _ in range(pages):
        began = time.perf_counter()
        text = client.get(following).raise_for_status().text
        yield time.perf_counter() - began
        found = re.search(r'rel="next" [^>]*href="([^"]+)"', text)
        following = unescape(found[1]) if found else address


def fetched(client: httpx.Client, addresses: list[str]) -> Iterator[float]:
    """Yield the seconds for each address."""
    for address in addresses:
        began = time.perf_counter()
        client.get(address).raise_for_status()
        yield time.perf_counter() - began


def main() -> None:
    """Make the history, serve it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--pages", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        identities = make(path, options.calls)
        size = path.stat().st_size / 2**20
        command = [
            sys.executable,
            "-m",
            "ragtrace",
            "review",
            str(path),
            "--reviewer",
            "ada",
            "--metric",
            METRIC,
            "--port",
            "0",
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            address = re.search(r"(http://\S+)/(\?token=\S+)", server.stdout.readline())
            assert address is not None
            with httpx.Client(base_url=address[1], follow_redirects=True, timeout=60.0) as client:
                client.get(f"/{address[2]}").raise_for_status()
                calls = [f"/label/calls/{each.hex()}" for each in random.Random(3).sample(identities, options.pages)]
                print(f"{options.calls:,} calls, {size:.0f} MiB, {options.pages} pages of each kind")
                print(f"{'page':<40}{'median ms':>10}{'max ms':>8}{'CPU ms':>8}")
                kinds = {name: queue_pages(client, of, options.pages) for name, of in QUEUES.items()}
                kinds["call"] = fetched(client, calls)
                kinds["next call without a label"] = fetched(client, ["/next?source=picked"] * options.pages)
                kinds["disagreements"] = fetched(client, ["/label/disagreements"] * options.pages)
                for name, pages in kinds.items():
                    before = cpu_seconds(server.pid)
                    took = [1000 * seconds for seconds in pages]
                    cpu = 1000 * (cpu_seconds(server.pid) - before) / len(took)
                    print(f"{name:<40}{median(took):>10.0f}{max(took):>8.0f}{cpu:>8.0f}", flush=True)
        finally:
            server.terminate()
            server.wait(timeout=30)


if __name__ == "__main__":
    main()
