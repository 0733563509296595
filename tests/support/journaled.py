"""An application that writes down what it has scored, call by call, so that a test knows what the counters must say.

A line of the journal is one evaluation, in the order in which calls were counted: trace id, evaluator, score and
inclusion probability. It is in the system's hands before the next call is counted, so it outlives SIGKILL.
The environment says where the page and the journal are. A line on standard input ends the calls, but not the process;
SIGTERM ends both, as a server does: it shuts down.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.labels import Claim
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from tests.support.application import QUESTION, ask

METRIC = "hallucination"
_FIELDS = semconv.EVALUATOR_ID, semconv.EVALUATION_SCORE, semconv.EVAL_PROBABILITY
_PAUSE_S = 0.04
_CLAIMS = 8


class Journal(LogRecordExporter):
    """Writes evaluation events to a file, one system call each."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        for each in batch:
            of = each.log_record.attributes or {}
            if of.get(semconv.EVALUATION_NAME) == METRIC:
                line = json.dumps([each.log_record.trace_id, *map(of.get, _FIELDS)])
                os.write(self._file, f"{line}\n".encode())
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True

    def shutdown(self) -> None:
        os.close(self._file)


class Reading:
    """Finds in the answer how many of its claims are invented: at *place*, of eight."""

    version = "1"
    type: EvaluatorType = "llm_judge"
    computes = True
    """No other call is looked at between the screen and the judge, so that the journal has the order of the counts."""

    def __init__(self, name: str, place: int) -> None:
        self.id, self._place = name, place

    def offers(self, metric: Metric) -> bool:
        return metric.name in (METRIC, "consistency")

    async def judge(self, call: RagCall) -> Judgement:
        answer = call.answer or ""
        bad = int(answer.split()[self._place])
        claims = (
            Claim(answer, 0, len(answer), "not_found" if each < bad else "supported", evidence=())
            for each in range(_CLAIMS)
        )
        return Judgement(tuple(claims), "answered", consistency=1 - bad / _CLAIMS, cost_usd=0.0001)


def _answer(drawn: random.Random) -> str:
    """What the screen will see, what the judge will see, and something of its own."""
    screened = drawn.choice((0, 0, 0, 1, 2, 5, 8))
    judged = screened if drawn.random() < 0.6 else drawn.choice((0, 0, 3, 8))
    return f"{screened} {judged} {drawn.random()}"


def _await_a_line(then: threading.Event) -> None:
    sys.stdin.readline()
    then.set()


def main() -> None:
    """Answer about twenty questions a second."""
    quiet = threading.Event()
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(Journal(os.environ["JOURNAL"])))
    ragtrace.configure(
        service="guide-service",
        exporter="prometheus",
        screen=Reading("screen", 0),
        judge=Reading("judge", 1),
        metrics=[METRIC],
        sampling=ragtrace.Sampling(rate=0.3, suspicious_rate=0.8, per_minute=1_000_000, usd_per_day=1_000_000.0),
        telemetry=ragtrace.TelemetryOptions(logger_provider=logs),
    )

    def end(number: int, frame: FrameType | None) -> None:
        ragtrace.shutdown(timeout=10.0)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_await_a_line, args=(quiet,), daemon=True).start()
    drawn = random.Random(os.getpid())
    while not quiet.wait(_PAUSE_S):
        ask(QUESTION, _answer(drawn))
    ragtrace.flush(10.0)
    sys.stdout.write("quiet\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
