"""The demo's application as a service under traffic, with a judge that costs time, tokens and money and may fail.

The judge is calibrated by labels, and judges canaries. A line on the service's standard input says which model answers:
`healthy`, or `release`, the simulated regression.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import ragtrace
from ragtrace.cli import main as main_of_ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.demo.application import build_application
from ragtrace.demo.generator import ExtractiveModel
from ragtrace.demo.library import Passage, standard_library
from ragtrace.demo.library_questions import library_questions
from ragtrace.demo.regression import Release
from ragtrace.demo.search import Index
from ragtrace.testing import Captured

_PAUSE_S = 0.09
_ASKED_AGAIN = 0.15
"""Share of the questions that were asked before: what is judged already costs nothing, as in any application."""
_LABELLED_CALLS = 300
"""Calls of which some are labelled before the traffic begins."""
_LABELS = 150
_CHARS_A_TOKEN = 4
_USD_A_TOKEN = 0.15e-6


class PricedJudge:
    """The embedded judge behind a simulated network: slower, dearer, and not always there."""

    id, version = "small-judge", "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self) -> None:
        self._judge = ragtrace.EmbeddedJudge(extractive=True)
        self._drawn = random.Random(3)

    def offers(self, metric: Metric) -> bool:
        return metric.name in ("hallucinated", "faithfulness", "hallucination")

    async def judge(self, call: RagCall) -> Judgement:
        """Raises `JudgeError` for two calls in a hundred."""
        await asyncio.sleep(self._drawn.lognormvariate(-1.2, 0.5))
        if self._drawn.random() < 0.02:
            raise JudgeError("timeout", retryable=False)
        found = await self._judge.judge(call)
        asked = sum(len(each.text) for each in call.contexts or ()) + len(call.answer or "")
        tokens = 400 + asked // _CHARS_A_TOKEN
        return replace(found, n_calls=1, input_tokens=tokens, output_tokens=60, cost_usd=(tokens + 240) * _USD_A_TOKEN)


class Model:
    """The model in production: the healthy one, or the release."""

    name = "extractive"

    def __init__(self, healthy: ExtractiveModel, release: Release) -> None:
        self._healthy, self._release = healthy, release
        self.released = False
        self.altered: set[str] = set()
        """Questions whose answers the release has altered."""

    def stream(self, question: str, passages: Sequence[Passage]) -> Iterator[str]:
        """The answer, altered where the release does that."""
        answer = "".join(self._healthy.stream(question, passages))
        if self.released and self._release.chooses():
            answer, _ = self._release.alter(question, answer, passages)
            self.altered.add(question)
        yield answer


def _questions(known: list[str]) -> Iterator[str]:
    """Most of them new, some asked before, for about five minutes; from then on all were asked before."""
    drawn, asked = random.Random(11), list[str]()
    for question in itertools.cycle(known):
        while asked and drawn.random() < _ASKED_AGAIN:
            yield drawn.choice(asked)
        asked.append(question)
        yield question


class Labels(NamedTuple):
    """Files of what labels say about the judge."""

    calibration: Path
    canaries: Path


def label(folder: Path, ask: Callable[[str], str], model: Model, questions: Iterable[str]) -> Labels:
    """Have the judge score answers of the release, and label those bad that the release has altered."""
    history, exported, imported = str(folder / "labelled.db"), folder / "to_label.jsonl", folder / "labelled.jsonl"
    found = Labels(folder / "calibration.json", folder / "canaries.jsonl")
    every = ragtrace.Sampling(rate=1.0)
    ragtrace.configure(judge=PricedJudge(), store=history, sampling=every, exporter=Captured().signals)
    model.released = True
    for question in questions:
        ask(question)
    model.released = False
    ragtrace.shutdown(timeout=60.0)
    _run("calibrate", "pick", history, "-n", str(_LABELS), "--seed", "1")
    _run("labels", "export", history, "--metric", "hallucinated", "--out", str(exported))
    rows = [json.loads(line) for line in exported.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["label"] = "bad" if row["query"] in model.altered else "good"
    imported.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    _run("labels", "import", history, str(imported), "--reviewer", "ada")
    _run("calibrate", "fit", history, "--out", str(found.calibration))
    _run("labels", "export", history, "--metric", "hallucinated", "--out", str(found.canaries))
    return found


def _run(*command: str) -> None:
    """Run a command of ragtrace, which must succeed."""
    with redirect_stdout(StringIO()) as said:
        if main_of_ragtrace(list(command)):
            raise SystemExit(f"ragtrace {' '.join(command)} failed: {said.getvalue()}")


def main() -> None:
    """Answer about ten questions a second until the input ends."""
    documents = standard_library()
    index = Index(documents.passages)
    model = Model(ExtractiveModel(index), Release(documents.entries, seed=7))
    ended = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            model.released = line.strip() == "release"
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    ask, questions = build_application(index, model), library_questions(documents, 10_000, 7)
    with tempfile.TemporaryDirectory() as folder:
        labels = label(Path(folder), ask, model, questions[-_LABELLED_CALLS:])
        ragtrace.configure(
            service="docs-assistant",
            exporter="prometheus",
            judge=PricedJudge(),
            sampling=ragtrace.Sampling(rate=0.3, suspicious_rate=0.6, per_minute=1_000_000, usd_per_day=1_000_000.0),
            alerts=[
                ragtrace.Alert("hallucinated", above=0.05),
                ragtrace.Canaries(str(labels.canaries), interval=1.0),
            ],
            calibration=str(labels.calibration),
        )
        for question in _questions(questions):
            if ended.wait(_PAUSE_S):
                break
            ask(question)
        ragtrace.shutdown(timeout=10.0)


if __name__ == "__main__":
    main()
