"""Calls for the history: a simulated application whose true rates are known."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.labels import Claim
from ragtrace.core.types import Document, Evaluation, RagCall, Result, Score, Unscored
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, Queued, QueuedCall

GIB: Final = 2**30
SOURCE: Final = CallOrigin(
    "support-bot", "1.4.0", "screen@1", ("faithfulness", "hallucination"), "judge@2", ("faithfulness", "hallucination")
)
QUERY: Final = "How long do I have to return a pair of shoes that I have worn outside?"
GOOD: Final = "Worn shoes can be returned within 14 days. The refund is paid to the card that was used."
BAD: Final = "Worn shoes can be returned within 90 days. The refund includes a voucher of 25 euros."
CHUNKS: Final = (
    Document("Shoes that show traces of wear may be returned within 14 days of delivery.", "policy-7", 0.91),
    Document("Refunds are paid to the card or account that was used for the purchase.", "policy-12", 0.74),
    Document("Vouchers are not refunded in cash and expire after two years.", "faq-3", 0.41),
)


@dataclass(frozen=True)
class Simulated:
    """What a call is drawn from."""

    bad: float = 0.05
    """How probable it is that the answer is hallucinated."""
    probability: float = 0.2
    """With which the judge sees it."""
    workflow: str = "support"
    model: str = "small-1"


def made(at: float, kind: Simulated, rng: random.Random) -> QueuedCall:
    """One call at *at*, screened, and judged if its lot says so."""
    bad = rng.random() < kind.bad
    call = call_of(rng, BAD if bad else GOOD, workflow=kind.workflow, model=kind.model)
    noisy = min(1.0, max(0.0, (0.6 if bad else 0.2) + rng.gauss(0, 0.15)))
    evaluations = [_evaluation("screen", "1", "deterministic", noisy, bad=bad)]
    judged = rng.random() < kind.probability
    if judged:
        value = rng.choice((0.5, 1.0)) if bad else 0.0
        evaluations.append(_evaluation("judge", "2", "llm_judge", value, bad=bad, probability=kind.probability))
    return QueuedCall(call, tuple(evaluations), "sampled" if judged else "not_sampled", at)


def call_of(rng: random.Random, answer: str = GOOD, **more: str) -> RagCall:
    """A call with a span of its own."""
    span = SpanContext(rng.getrandbits(128) or 1, rng.getrandbits(64) or 1, False, TraceFlags(1))
    return RagCall(query=QUERY, contexts=CHUNKS, answer=answer, span=span, **more)  # type: ignore[arg-type]


def _evaluation(name: str, version: str, kind: str, value: float, *, bad: bool, probability: float = 1.0) -> Evaluation:
    claims = _claims(BAD) if bad else ()
    results: dict[str, Result] = {
        "hallucination": Score(
            value, "hallucination", "1", higher_is_better=False, label="fail" if value > 0.5 else "pass", claims=claims
        ),
        "faithfulness": Score(1.0 - value, "faithfulness", "1", label="pass" if value <= 0.5 else "fail"),
        "citation_recall": Unscored("no_citations", "citation_recall", "1"),
    }
    judge = name == "judge"
    return Evaluation(
        name, version, kind, results, probability, 0.8 if judge else 0.001,  # type: ignore[arg-type]
        n_calls=int(judge), input_tokens=900 * judge, output_tokens=120 * judge, cost_usd=0.0002 if judge else None,
    )  # fmt: skip


def _claims(answer: str) -> tuple[Claim, ...]:
    middle = answer.index(".") + 1
    return (
        Claim(
            answer[:middle], 0, middle, "contradicted", evidence=(0,), quote="within 14 days", score=0.2,
            unsupported=((answer.index("90 days"), answer.index("90 days") + 7),),
        ),
        Claim(
            answer[middle + 1 :], middle + 1, len(answer), "not_found", evidence=(2,), score=0.1,
            unsupported=((answer.index("a voucher"), len(answer) - 1),),
        ),
    )  # fmt: skip


def fill(
    path: Path,
    calls: Iterable[Queued],
    source: CallOrigin = SOURCE,
    *,
    texts: bool = True,
) -> None:
    """Write *calls* to the history at *path*."""
    writer = HistoryWriter(str(path), source, most_bytes=4 * GIB, texts=texts)
    batch: list[Queued] = []
    for call in calls:
        batch.append(call)
        if len(batch) == 1000:
            assert writer.write(batch) == 0
            batch.clear()
    assert writer.write(batch) == 0
    while writer.pack_block():
        pass
    writer.close()
