"""An application whose metrics Prometheus has. A line on its standard input sets the share of invented answers.

`fail` as a share: the judge fails. The environment says where the page is, or where metrics are sent to; at the end of
the input it shuts down. With GUARDED in the environment there is a guard in shadow mode.
"""

from __future__ import annotations

import os
import random
import sys
import threading

import ragtrace
from ragtrace.core.types import Metric
from tests.support.application import QUESTION, ask
from tests.support.offline_judge import WordyJudge

_PAUSE_S = 0.02


class Judge(WordyJudge):
    """The judge of the command line, which also gives the share of hallucinated answers."""

    def offers(self, metric: Metric) -> bool:
        return metric.name == "hallucinated" or super().offers(metric)


def _pace(state: dict[str, str], ended: threading.Event) -> None:
    for line in sys.stdin:
        state["share"] = line.strip()
    ended.set()


def _answer(share: str, drawn: random.Random) -> str:
    if share == "fail":
        return "refused by the judge."
    return "invented by the model." if drawn.random() < float(share) else "answer from the guide."


def main() -> None:
    """Answer about fifty questions a second until the input ends."""
    ragtrace.configure(
        service="guide-service",
        exporter=os.environ.get("EXPORTER", "prometheus"),
        judge=Judge(),
        metrics="all",
        sampling=ragtrace.Sampling(rate=0.5, suspicious_rate=0.5, per_minute=1_000_000, usd_per_day=1_000_000.0),
        alerts=[ragtrace.Alert("hallucination", above=0.05)],
    )
    state, ended = {"share": os.environ.get("SHARE", "0.0")}, threading.Event()
    threading.Thread(target=_pace, args=(state, ended), daemon=True).start()
    answer = ask
    if "GUARDED" in os.environ:
        guard = ragtrace.Guard("consistency", below=0.3)
        answer = ragtrace.trace(name="guide", guard=guard)(ask.__wrapped__)  # type: ignore[attr-defined]
    drawn = random.Random(os.getpid())
    number, most = 0, int(os.environ.get("CALLS", "1000000000"))
    while number < most and not ended.wait(_PAUSE_S):
        number += 1
        answer(f"{QUESTION} ({number})", f"{_answer(state['share'], drawn)} {number}", session_id=str(number))
    if "STAY" in os.environ:
        ended.wait()
    ragtrace.shutdown(timeout=10.0)


if __name__ == "__main__":
    main()
