"""The observable metrics of a process for which everything is configured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import ragtrace
from ragtrace.core.part import ObservableMetric
from ragtrace.core.types import Signals
from ragtrace.estimates import CalibrationKey, JudgeCalibration, write_calibration
from ragtrace.estimates.calibration import label_sums
from ragtrace.metrics import registry
from ragtrace.runtime.current_runtime import current
from ragtrace.testing import FakeJudge
from tests.support import canaries
from tests.support.posting import ScriptedSink
from tests.support.watched import GOOD


@cache
def observations() -> tuple[ObservableMetric, ...]:
    """Return the metrics of a runtime with every part that has metrics of its own. ragtrace is shut down afterwards."""
    judge, [metric] = FakeJudge(GOOD), registry.resolve([canaries.METRIC])
    key = CalibrationKey(metric.name, metric.version, judge.id, judge.version)
    with TemporaryDirectory() as folder:
        labels = canaries.write(Path(folder) / "canaries.jsonl", canaries.rows())
        calibration = Path(folder) / "calibration.json"
        write_calibration(calibration, JudgeCalibration(key, 1.0, 2, False, 0.5, label_sums([(1.0, 1.0, 4.0)])))
        ragtrace.configure(
            exporter=Signals(scores=ScriptedSink(), immediate=True),
            judge=judge,
            metrics=[metric],
            alerts=[ragtrace.Alert(metric.name, above=0.5), ragtrace.Canaries(labels)],
            calibration=calibration,
            tags=ragtrace.types.Tags(metrics=["tenant"]),
        )
        runtime = current()
        assert runtime is not None
        found = tuple(runtime.parts.observations())
        ragtrace.shutdown(1.0)
    return found
