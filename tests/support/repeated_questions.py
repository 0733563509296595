"""Histories of an application whose questions repeat, each with one cached answer, and what its bad calls share.

A thousand questions are asked as Zipf's law says: the first one in 13 % of the calls.
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
CAUSE: Final = "the chunk behind bad answers"


def grouping(
    path: Path, seed: int, *, rate: float, with_cause: float, calls: int = 1_000, share: float = 0.1
) -> Grouping:
    """What the bad calls share.

    Args:
        path: of the history, which is made.
        seed: of the questions, their answers and the calls.
        rate: share of the questions whose answer is bad.
        with_cause: that share of the questions with the chunk `CAUSE`.
        calls: judged calls.
        share: share of the questions with that chunk.
    """
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(1, QUESTIONS + 1)
    has_cause = rng.random(QUESTIONS) < share
    bad = rng.random(QUESTIONS) < np.where(has_cause, with_cause, rate)
    words = rng.integers(0, 150, (QUESTIONS, 4)).tolist()
    chunks = rng.integers(0, 150, (QUESTIONS, 3)).tolist()
    queries = [f"How is question{at} of {' '.join(f'word{word}' for word in words[at])}?" for at in range(QUESTIONS)]
    offered: list[QueuedCall] = []
    for number, at in enumerate(rng.choice(QUESTIONS, calls, p=chance / chance.sum()).tolist(), 1):
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
