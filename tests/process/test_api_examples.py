"""The examples of the public names run as written, in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

from ragtrace.cli import main
from ragtrace.history.schema import history_file
from ragtrace.labels.label_store import Label, LabelStore
from ragtrace.system.terminal import OK
from tests.support.api_examples import ROOT
from tests.support.history import BAD, Simulated, fill, made

CALLS = 300
PICKED = "120"


def _label(history: Path) -> None:
    """Write a history of calls that were picked and labelled; reviewer and judge disagree about every twelfth."""
    rng, now = Random(8), time.time()
    history_file(str(history)).create()
    calls = [made(now - 8_000 + 20 * number, Simulated(bad=0.3, probability=1.0), rng) for number in range(CALLS)]
    fill(history, calls)
    assert main(["calibrate", "pick", str(history), "-n", PICKED, "--metric", "hallucination", "--seed", "1"]) == OK
    with closing(LabelStore(str(history))) as store:
        identities = [identity for _, identity in sorted(store.identities().items())]
        bad = [(each.call.answer == BAD) != (number % 12 == 0) for number, each in enumerate(calls)]
        labels = zip(identities, bad, strict=True)
        store.add([Label(each, "hallucination", "ada", "bad" if is_bad else "good", at=now) for each, is_bad in labels])


def test_the_examples_of_the_public_names_run_as_written(tmp_path: Path) -> None:
    """In a folder with a labelled history and canaries out of it, and nothing complains."""
    history, canaries = tmp_path / "labelled.db", tmp_path / "canaries.jsonl"
    _label(history)
    assert main(["labels", "export", str(history), "--out", str(canaries)]) == OK
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    argv = [sys.executable, "-W", "error", "-m", "tests.support.api_examples"]
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"examples of (\d+) objects, 0 of them failed", done.stdout)
    assert found
    assert int(found[1]) > 75
