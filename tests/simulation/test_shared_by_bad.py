"""What bad calls share is not chance where questions repeat, and a planted cause is still found.

A thousand questions are asked as Zipf's law says, the first one in 13 % of the calls, and each has one cached answer.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.labels import Claim
from ragtrace.core.types import Document, Evaluation, RagCall, Score
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.report.analysis import build_report
from ragtrace.report.model import Grouping, Period
from tests.support.history import GIB

NOW: Final = 1_800_000_000.0
QUESTIONS: Final = 1_000
CALLS: Final = 1_000
CAUSE: Final = "the chunk behind bad answers"


def grouping(path: Path, seed: int, *, rate: float, with_cause: float) -> Grouping:
    """What the bad of `CALLS` judged calls share: of the questions with the chunk `CAUSE`, 1 in 10, *with_cause*."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, QUESTIONS + 1)
    has_cause = rng.random(QUESTIONS) < 0.1
    bad = rng.random(QUESTIONS) < np.where(has_cause, with_cause, rate)
    words = rng.integers(0, 150, (QUESTIONS, 4)).tolist()
    chunks = rng.integers(0, 150, (QUESTIONS, 3)).tolist()
    queries = [f"How is question{at} of {' '.join(f'word{word}' for word in words[at])}?" for at in range(QUESTIONS)]
    offered: list[QueuedCall] = []
    for number, at in enumerate(rng.choice(QUESTIONS, CALLS, p=chance / chance.sum()).tolist(), 1):
        names = [*(f"chunk {chunk}" for chunk in chunks[at]), *([CAUSE] if has_cause[at] else [])]
        call = RagCall(
            query=queries[at],
            contexts=tuple(Document(f"About {name}.", name) for name in names),
            answer="Yes.",
            model=("small", "large")[int(rng.integers(2))],
            span=SpanContext(number, number, False, TraceFlags(1)),
        )
        claims = (Claim("Yes.", 0, 4, "contradicted" if bad[at] else "supported"),)
        score = Score(float(bad[at]), "hallucinated", "1", higher_is_better=False, claims=claims)
        evaluation = Evaluation("judge", "2", "llm_judge", {"hallucinated": score}, 1.0)
        offered.append(QueuedCall(call, (evaluation,), "sampled", NOW - number))
    history_file(str(path)).create()
    origin = CallOrigin("bot", "1.4.0", "", (), "judge@2", ("hallucinated",))
    with closing(HistoryWriter(str(path), origin, most_bytes=GIB, texts=True)) as writer:
        writer.write(offered)
    found = build_report(str(path), Period(NOW - 86_400.0, NOW), compare="none", made_at=NOW).grouping
    assert found is not None
    return found


def test_repeated_questions_make_no_groups_by_chance(tmp_path: Path) -> None:
    """In six histories without a cause, each with more than a hundred groups, none is called worse."""
    for seed in range(6):
        found = grouping(tmp_path / f"{seed}.db", 7_100 + seed, rate=0.15, with_cause=0.15)
        assert found.examined > 100
        assert found.questions < 0.5 * found.read
        assert found.worse == ()


def test_a_cause_is_found_among_repeated_questions(tmp_path: Path) -> None:
    """A chunk whose answers are bad six times as often is the first group in each of three histories."""
    for seed in range(3):
        found = grouping(tmp_path / f"{seed}.db", 7_200 + seed, rate=0.1, with_cause=0.6)
        assert [(row.kind, row.name) for row in found.worse] == [("chunk", CAUSE)]
