"""Engine of `ragtrace calibrate bridge`: scores stored calls with the model that now answers a decision judge."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Final

import numpy as np

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Evaluation, Judge, Metric, Score
from ragtrace.estimates import CalibrationKey, JudgeCalibration
from ragtrace.estimates.bridge import FEWEST, Offset, calls_needed, score_offset
from ragtrace.estimates.calibration import label_sums
from ragtrace.estimates.curve_fitting import fit_scores
from ragtrace.history.reading import HistoryReader
from ragtrace.judges.llm.prompts import prompt_hash_of
from ragtrace.labels.label_store import LabelStore
from ragtrace.offline.backfill import stored_call
from ragtrace.offline.offline_evaluator import OfflineEvaluator, Timeout
from ragtrace.offline.progress import Progress
from ragtrace.report.calibration import judged_calls, labelled_calls, picks_among
from ragtrace.system.sync_bridge import suppress_instrumentation

if TYPE_CHECKING:
    from ragtrace.report.calibration import JudgedCalls, LabelledAt

SEED: Final = 20_261_125


@dataclass(frozen=True, slots=True)
class Bridge:
    """What the calls that both models scored say about the model that now answers."""

    metric: str
    evaluator: str
    """Judge of the stored scores, as `id@version`."""
    before: tuple[str, ...]
    """Models that gave the stored scores, as far as they are known."""
    after: str
    """Model that gave the new scores; empty: the server did not say."""
    offset: Offset | None
    """Shift of the judge's own mean badness; None: fewer than two calls have both scores."""
    needed: int
    """Number of calls that make the offset known to one point on either side."""
    unscored: Mapping[str, int]
    """Number of calls without a new score, by reason."""
    without_texts: int
    """Number of calls that could not be scored, as their texts are not stored."""
    labelled: int
    """Number of labelled calls that were scored anew."""
    lost_labels: int
    """Number of labelled calls without a new score, which do not count in the new calibration."""
    cost_usd: float
    unpriced: int
    """Number of scored calls of unknown price, which `cost_usd` leaves out."""
    calibration: JudgeCalibration | None
    """Calibration of the model that now answers; None: no labelled call was scored anew."""


def bridge(
    path: str | os.PathLike[str],
    metric: Metric,
    judge: Judge,
    *,
    evaluator: str | None = None,
    most: int,
    timeout: Timeout = "judge",
    concurrency: int | None = None,
    progress: Progress | None = None,
) -> Bridge:
    """Have *judge* score stored calls that it scored before, and the labelled ones, and compare the scores.

    Calls are drawn at random: 300 first, then as many as the differences of these ask for.

    Args:
        path: the history.
        metric: metric whose scores are compared.
        judge: judge with the model that now answers.
        evaluator: id@version of the judge of the stored scores; None: that of the picked calls, or of most calls.
        most: most calls to compare, without the labelled ones.
        timeout: seconds the judge has for a call; None: no limit; "judge": as the judge's own `JudgeLimits` say,
            or 120.
        concurrency: calls the judge sees at a time; None: as the judge's own `JudgeLimits` say, or 16.
        progress: counts the calls that the judge has seen.

    Raises:
        JudgeError: "unavailable": the judge cannot be asked about the first call.
        SettingsError: there are no stored scores, or several models answered meanwhile.
        SQLiteFileError: the file is no history.
        sqlite3.Error: it cannot be read.
    """
    with closing(LabelStore(os.fspath(path))) as store:
        picks, labels = store.picks(metric.name), store.labels(metric.name)
    with closing(HistoryReader(os.fspath(path))) as reader, suppress_instrumentation():
        wanted = evaluator or (picks[0].evaluator if picks else None)
        calls = judged_calls(reader, reader.columns(0.0, float("inf")), metric.name, wanted)
        scoring = _Scoring(calls, reader, metric, judge, timeout, concurrency, progress)
        order = np.random.default_rng(SEED).permutation(np.flatnonzero(calls.judged)).tolist()
        mine = picks_among(calls, picks)
        labelled = labelled_calls(calls, mine, labels) if mine else {}
        asyncio.run(scoring.score_enough(order, list(labelled), most))
        return scoring.result(order, labelled)


class _Scoring:
    """State of a bridge in progress: the new scores of stored calls, by position among the judged calls."""

    def __init__(
        self,
        calls: JudgedCalls,
        reader: HistoryReader,
        metric: Metric,
        judge: Judge,
        timeout: Timeout,
        concurrency: int | None,
        progress: Progress | None,
    ) -> None:
        self._calls, self._reader, self._metric, self._judge = calls, reader, metric, judge
        self._timeout: Timeout = timeout
        self._concurrency, self._progress = concurrency, progress
        self._new: dict[int, float] = {}
        """New badness by position."""
        self._asked: set[int] = set()
        self._compared: list[int] = []
        self._models: Counter[str] = Counter()
        self._unscored: Counter[str] = Counter()
        self._without_texts = 0
        self._is_heard = False
        """Whether the judge has been asked about a call, and was there."""
        self._cost, self._unpriced = 0.0, 0

    async def score_enough(self, order: Sequence[int], labelled: Sequence[int], most: int) -> None:
        """Score calls in the given order until the offset is known well enough, and all *labelled* ones."""
        made = OfflineEvaluator(self._judge, [self._metric], timeout=self._timeout, concurrency=self._concurrency)
        async with aclosing(made) as evaluator:
            wanted = min(FEWEST, most)
            while len(self._compared) < wanted and len(self._compared) < len(order):
                batch = list(order[len(self._compared) : wanted])
                self._compared += batch
                # One alone, and without waiting for a judge that is away: for 16 at a time that would take minutes.
                while batch and not self._is_heard:
                    await self._score(evaluator, batch.pop(0))
                await evaluator.for_each(batch, lambda at: self._score(evaluator, at))
                offset = self._offset()
                if offset is not None:
                    wanted = max(wanted, min(most, calls_needed(offset)))
            await evaluator.for_each(
                [at for at in labelled if at not in self._asked], lambda at: self._score(evaluator, at)
            )

    async def _score(self, evaluator: OfflineEvaluator, at: int) -> None:
        self._asked.add(at)
        body = self._reader.body(int(self._calls.columns.number[at]))
        if not body or body.get("without_texts"):
            self._without_texts += 1
            return
        evaluate = evaluator.evaluate_with_retries if self._is_heard else evaluator.evaluate
        evaluation: Evaluation = await evaluate(stored_call(body))
        if evaluation.error == "unavailable" and not self._is_heard:
            raise JudgeError("unavailable", evaluation.results[self._metric.name].explanation or "no answer")
        self._is_heard = True
        if self._progress is not None:
            self._progress.add(Cost.from_report(evaluation))
        self._cost += evaluation.cost_usd or 0.0
        self._unpriced += evaluation.cost_usd is None and evaluation.n_calls > 0
        result = evaluation.results[self._metric.name]
        if not isinstance(result, Score):
            self._unscored[result.reason] += 1
            return
        self._models[evaluation.served_model] += 1
        value = min(1.0, max(0.0, result.value))
        self._new[at] = 1.0 - value if result.higher_is_better else value

    def _offset(self) -> Offset | None:
        both = [at for at in self._compared if at in self._new]
        if len(both) < 2:
            return None
        before = np.clip(self._calls.series.score_by_call()[both], 0.0, 1.0).tolist()
        return score_offset(before, [self._new[at] for at in both])

    def result(self, order: Sequence[int], labelled: Mapping[int, LabelledAt]) -> Bridge:
        """Return what was found, with the calibration of the model that answered."""
        if len(self._models) > 1:
            raise SettingsError(
                f"several models answered meanwhile: {', '.join(sorted(map(repr, self._models)))}; a calibration holds "
                "for one, so name that model's exact version, or try again later"
            )
        after = next(iter(self._models), "")
        numbers = self._calls.columns.number[self._compared].tolist()
        before = set(self._reader.served_models(self._calls.series.evaluator, numbers).values()) - {""}
        offset = self._offset()
        known = {at: each for at, each in labelled.items() if at in self._new}
        return Bridge(
            self._metric.name,
            self._calls.series.evaluator,
            tuple(sorted(before)),
            after,
            offset,
            FEWEST if offset is None else calls_needed(offset),
            dict(self._unscored),
            self._without_texts,
            len(known),
            len(labelled) - len(known),
            self._cost,
            self._unpriced,
            self._calibration(known, after) if known else None,
        )

    def _calibration(self, labelled: Mapping[int, LabelledAt], served: str) -> JudgeCalibration:
        """Return the calibration of the new scores by the labels, which say the same of a call whoever judged it."""
        up, judge = self._calls.series.higher_is_better, self._judge
        asked = self._reader.questions(self._calls.columns.number[list(labelled)].tolist())
        questions: list[Hashable] = [asked.get(int(self._calls.columns.number[at])) or at for at in labelled]
        traffic = [at for at in self._compared if at in self._new] or list(labelled)
        fitted = fit_scores(
            [self._new[at] for at in labelled],
            [each.label for each in labelled.values()],
            [each.weight for each in labelled.values()],
            questions,
            np.array([self._new[at] for at in traffic]),
            np.maximum(self._calls.series.weight_by_call()[traffic], 1e-9),
        )
        key = CalibrationKey(
            self._metric.name, self._metric.version, judge.id, judge.version, prompt_hash_of(judge.version), served
        )
        sums = label_sums(
            (1.0 - each.label, 1.0 - self._new[at], each.weight) if up else (each.label, self._new[at], each.weight)
            for at, each in labelled.items()
        )
        return JudgeCalibration(key, time(), len(labelled), up, None, sums, fitted.calibration)
