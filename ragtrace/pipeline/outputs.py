"""Where a processor puts what it makes of steps and calls."""

from __future__ import annotations

from dataclasses import dataclass

from ragtrace.telemetry.export.telemetry import Telemetry
from ragtrace.telemetry.scores.instruments import Instruments
from ragtrace.telemetry.scores.score_sender import ScoreSender
from ragtrace.telemetry.spans.writer import SpanWriter


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a processor puts what it makes of steps and calls: spans, metrics and scores."""

    telemetry: Telemetry
    """Export queues, for whose room the worker waits."""
    writer: SpanWriter
    instruments: Instruments
    score_sender: ScoreSender
