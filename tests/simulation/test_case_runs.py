"""The same application passes its cases again though its judge is noisy; a worse application fails."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import pytest

from ragtrace.core.labels import Claim
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.estimates.paired import paired_difference
from ragtrace.offline.case_run import CaseRun
from ragtrace_pytest.application import RecordedApplication

METRICS: Final = 3
CASES: Final = 30
RUNS: Final = 100
_APP: Final = """
worse = False

def ask(question):
    return {"answer": "A bad answer." if worse and "7" in question else "An answer.", "contexts": ["A context."]}
"""


class NoisyJudge:
    """Judge that finds a tenth of the good statements unsupported, and four fifths of the bad ones."""

    id, version = "noisy", "1"
    type: EvaluatorType = "llm_judge"
    random: ClassVar[random.Random] = random.Random(1)

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* is one of three on statements."""
        return metric.name in ("faithfulness", "hallucination", "hallucinated")

    async def judge(self, call: RagCall) -> Judgement:
        """Label two statements."""
        wrong = 0.8 if "bad" in (call.answer or "") else 0.1
        labels = ["not_found" if self.random.random() < wrong else "supported" for _ in range(2)]
        claims = tuple(Claim("An answer.", 0, 10, label) for label in labels)  # type: ignore[arg-type]
        return Judgement(claims=claims, answer_label="answered")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an application and its cases, half of which the worse application answers badly."""
    (tmp_path / "simulated_bot.py").write_text(_APP)
    rows = [{"query": f"Question {number}{'7' * (number % 2)}?", "answer": "x"} for number in range(100, 100 + CASES)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("simulated_bot", None)


def run(folder: Path, *, baseline: bool) -> list[str]:
    """The metrics that failed in a run of the application."""
    NoisyJudge.random = random.Random(NoisyJudge.random.random())
    results = folder / "baseline.jsonl"
    made = CaseRun(
        cases_path=folder / "cases.jsonl",
        application=RecordedApplication("simulated_bot:ask"),
        judge_spec=f"{__name__}:NoisyJudge",
        baseline_path=results if baseline else None,
        out=None if baseline else results,
    )
    return [name for name, found in made.outcome.metrics.items() if found.failed]


def test_the_same_application_passes_and_a_worse_one_fails(folder: Path) -> None:
    """In at least 95 of 100 runs, each against a baseline of its own; bad answers to half of the cases fail."""
    import simulated_bot  # type: ignore[import-not-found]

    NoisyJudge.random = random.Random(15)
    passed = failed = 0
    for number in range(RUNS):
        simulated_bot.worse = False
        run(folder, baseline=False)
        passed += not run(folder, baseline=True)
        if number % 10 == 0:
            simulated_bot.worse = True
            failed += bool(run(folder, baseline=True))
    assert passed >= 95
    assert failed >= 9


@pytest.mark.parametrize("kind", ["normal", "verdicts", "rare", "skewed"])
@pytest.mark.parametrize("cases", [10, 60])
def test_noise_alone_is_rarely_a_failure(kind: str, cases: int) -> None:
    """In at most 5 % of 300 comparisons of a run with a second one is any of three metrics worse: 2.5 % and chance."""
    rng = np.random.default_rng(cases)
    failures = 0
    for _ in range(300):
        level = rng.random(cases)
        worse = False
        for _ in range(METRICS):
            before, after = (_scores(kind, level, rng) for _ in range(2))
            found = paired_difference(before.tolist(), after.tolist(), confidence=1 - 0.05 / METRICS)
            worse = worse or (found.high is not None and found.high < 0.0)
        failures += worse
    assert failures <= 15


def _scores(kind: str, level: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return noisy scores of cases whose true scores are *level*."""
    if kind == "normal":
        return np.clip(level + rng.normal(0.0, 0.15, len(level)), 0.0, 1.0)
    if kind == "verdicts":
        return (rng.random(len(level)) < level).astype(np.float64)
    if kind == "rare":
        return (rng.random(len(level)) < 0.97).astype(np.float64)
    return 1.0 - np.minimum(1.0, rng.exponential(0.05, len(level)) * (1.0 + 20.0 * (rng.random(len(level)) < 0.05)))
