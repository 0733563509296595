"""The bounds of guards from human labels, and the guards of an application that is configured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import JUDGE_MODEL, Judgement, RagCall
from ragtrace.estimates import CalibrationKey, JudgeCalibration, write_calibration
from ragtrace.estimates.calibration import label_sums
from ragtrace.estimates.false_blocks import LabelledAnswer, count_false_blocks
from ragtrace.history.reading import HistoryReader
from ragtrace.report.analysis import build_report
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Period
from ragtrace.report.wording import guard_sentence
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from ragtrace.types import GuardBlocked
from ragtrace_exporters.console import console
from tests.support.guards import BAD, guard, outcome, tally, watch
from tests.support.watched import GOOD, WAIT_S, search


def calibration(path: Path, good: int, *, version: str = "1", served_model: str = "") -> str:
    """File with *good* labelled good answers of a faithfulness of 0.8, and ten bad ones of 0.1."""
    answers = [LabelledAnswer(0.2, is_bad=False)] * good + [LabelledAnswer(0.9, is_bad=True)] * 10
    sums = label_sums([(float(not each.is_bad), 1 - each.badness, 1.0) for each in answers])
    metric = ragtrace.metrics.registry.get("faithfulness")
    key = CalibrationKey("faithfulness", metric.version, "fake", version, served_model=served_model)
    entry = JudgeCalibration(key, 0.0, good + 10, True, 0.5, sums, None, count_false_blocks(answers))
    write_calibration(path, entry)
    return str(path)


def limited(action: str = "replace", limit: float = 0.02, on_error: str = "open") -> ragtrace.Guard:
    fallback = "no answer" if action == "replace" else None
    return ragtrace.Guard(
        "faithfulness",
        max_false_block=limit,
        action=action,
        fallback=fallback,
        on_error=on_error,  # type: ignore[arg-type]
        budget_ms=WAIT_S * 1000,
    )


def decorated(guarded: ragtrace.Guard) -> object:
    @ragtrace.trace(name="guarded", guard=guarded)
    def ask(question: str) -> str:
        search(question)
        return "In France."

    return ask


def test_a_discarded_application_does_not_stop_another() -> None:
    """Its guarded function may be in a circle of references, and so not be collected yet."""
    ask = decorated(guard())
    ask.itself = ask  # type: ignore[attr-defined]
    gc.disable()
    try:
        del ask
        ragtrace.configure(exporter="none")
    finally:
        gc.enable()


def test_the_bound_is_the_strictest_that_the_labels_allow(tmp_path: Path) -> None:
    """No good answer has a badness above 0.2, so that one below 0.8 fails."""
    guarded = limited()
    ask = decorated(guarded)
    watch(FakeJudge(BAD), calibration=calibration(tmp_path / "calibration.json", 200))
    assert (guarded.below, guarded.above) == (0.8, None)
    assert ask("Where is Paris?") == "no answer"  # type: ignore[operator]
    assert tally().verdicts == {"fail": 1}


@pytest.mark.parametrize(("good", "said"), [(100, "49 labels of good answers are missing"), (149, "")])
def test_too_few_labels_stop_configure(good: int, said: str, tmp_path: Path) -> None:
    """The message says how many are missing."""
    ask = decorated(limited("shadow"))
    file = calibration(tmp_path / "calibration.json", good)
    if not said:
        watch(FakeJudge(GOOD), calibration=file)
        return
    with pytest.raises(ragtrace.SettingsError, match=said):
        watch(FakeJudge(GOOD), calibration=file)
    assert ask


@pytest.mark.parametrize("refused", ["labels", "exporter"])
def test_a_refused_configure_leaves_the_bounds_that_are_in_force(refused: str, tmp_path: Path) -> None:
    """The application goes on with the configuration before."""
    guarded = limited()
    functions = [decorated(guarded)]
    watch(FakeJudge(BAD), calibration=calibration(tmp_path / "calibration.json", 200))
    guarded.set_bound(0.5, higher_is_better=True)
    more: dict[str, str] = {"exporter": "no such exporter"}
    if refused == "labels":  # a second guard, of a function decorated meanwhile, allows less than the labels can show
        ragtrace.shutdown()
        functions.append(ragtrace.trace(name="later", guard=limited("shadow", 0.001))(search))
        more = {"exporter": "none"}
    with pytest.raises(ragtrace.SettingsError):
        ragtrace.configure(judge=FakeJudge(BAD), calibration=str(tmp_path / "calibration.json"), **more)  # type: ignore[arg-type]
    assert guarded.below == 0.5
    assert functions


def test_without_a_calibration_all_labels_are_missing() -> None:
    """Also where the function is decorated after configure."""
    watch(FakeJudge(GOOD))
    with pytest.raises(ragtrace.SettingsError, match="149 labels of good answers are missing"):
        decorated(limited("shadow"))


def test_labels_of_another_judge_are_none(tmp_path: Path) -> None:
    """They say nothing about this one."""
    ask = decorated(limited())
    with pytest.raises(ragtrace.SettingsError, match="its calibration is stale"):
        watch(FakeJudge(GOOD), calibration=calibration(tmp_path / "calibration.json", 500, version="0"))
    assert ask


@pytest.mark.parametrize("action", ["shadow", "annotate", "replace", "retry", "raise"])
@pytest.mark.parametrize("labelled", [False, True])
def test_a_guard_that_acts_without_labels_is_told_of_at_the_start(
    action: str, labelled: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The shadow needs none, nor does one that blocks nothing."""
    ask = decorated(guard(action, budget_ms=1_000 + labelled))
    file = calibration(tmp_path / "calibration.json", 200) if labelled else None
    watch(FakeJudge(GOOD), calibration=file)
    told = "no labels say how many good answers it blocks" in caplog.text
    assert told == (action in ("replace", "retry", "raise") and not labelled)
    assert ask


@pytest.mark.parametrize("action", ["shadow", "annotate", "replace", "retry", "raise"])
@pytest.mark.parametrize("later", [False, True], ids=["decorated before", "decorated after configure"])
def test_a_guard_that_acts_without_a_shadow_report_is_told_of(
    action: str, later: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, or at the decoration that comes later, and by the doctor."""
    acting = guard(action, budget_ms=2_000 + later)
    ask = None if later else decorated(acting)
    watch(FakeJudge(GOOD), store=tmp_path / "history.db")
    ask = decorated(acting) if later else ask
    expected = action in ("replace", "retry", "raise")
    said = f"{acting!r}, acts on answers, and the history"
    assert (said in caplog.text) == expected
    assert any(said in problem for problem in ragtrace.doctor().problems) == expected
    assert ask


@pytest.mark.parametrize(
    ("seen", "told"), [("all", False), ("another judge", True), ("another workflow", True), ("no score", True)]
)
def test_verdicts_in_shadow_mode_end_the_warning(
    seen: str, told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the same workflow, metric and judge, with a score, by which the effect of any bound is known."""
    path = tmp_path / "history.db"
    watch(FakeJudge(GOOD, name="other" if seen == "another judge" else "fake"), store=path)
    shadow = ragtrace.trace(name="other" if seen == "another workflow" else "guarded", guard=guard("shadow"))

    @shadow
    def ask(question: str) -> str:
        if seen == "no score":
            raise ValueError(question)
        search(question)
        return "In France."

    with suppress(ValueError):
        ask("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    ragtrace.shutdown()
    acting = guard("replace", budget_ms=3_000 + len(seen))  # which no other test has, as warnings are given once
    guarded = decorated(acting)
    watch(FakeJudge(GOOD), store=path)
    assert (f"{acting!r}, acts on answers, and the history" in caplog.text) == told
    assert guarded


def test_a_history_that_cannot_be_read_is_no_reason_to_warn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted as a fault, and a guard decorated after configure works all the same."""
    faults.clear()
    path = tmp_path / "history.db"
    watch(FakeJudge(GOOD), store=path)
    for file in tmp_path.glob("history.db*"):
        file.unlink()
    path.write_bytes(b"no database at all" * 100)
    acting = guard("replace", budget_ms=4_000)
    guarded = decorated(acting)
    assert f"{acting!r}, acts on answers, and the history" not in caplog.text
    assert faults.counts()["shadow report of a guard"] == 1
    assert guarded("Where is Paris?") == "In France."  # type: ignore[operator]


class RenamedJudge(FakeJudge):
    """Judge whose server has another model answer from one call to the next, as *served* says."""

    served = "model-1"

    async def judge(self, call: RagCall) -> Judgement:
        return replace(await super().judge(call), attributes={JUDGE_MODEL: self.served})


@pytest.mark.parametrize("on_error", ["open", "closed"])
@pytest.mark.parametrize("action", ["shadow", "replace"])
def test_a_bound_is_not_used_once_its_labels_are_those_of_another_model(
    action: str, on_error: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Already the first answer that the other model has judged is unscored, and `on_error` decides about it."""
    guarded = limited(action, on_error=on_error)
    ask: Any = decorated(guarded)
    judge = RenamedJudge(BAD)
    watch(judge, calibration=calibration(tmp_path / "calibration.json", 200, served_model="model-1"))
    ask("Where is Paris?")
    assert ragtrace.flush(WAIT_S)
    judge.served = "model-2"
    blocked = "no answer" if (action, on_error) == ("replace", "closed") else "In France."
    assert [ask(f"Where is {place}?") for place in ("Rome", "Bonn")] == [blocked] * 2
    assert ragtrace.flush(WAIT_S)
    assert tally().verdicts == {"fail": 1, "unscored": 2}
    assert any("takes its bound from labels" in problem for problem in ragtrace.doctor().problems)
    said = [record.getMessage() for record in caplog.records if "takes its bound from labels" in record.getMessage()]
    assert len(said) == 1
    assert "served model model-2 instead of model-1" in said[0]


@pytest.mark.parametrize("on_error", ["open", "closed"])
@pytest.mark.parametrize("stream", ["sentence", "all"])
def test_a_bound_that_is_lost_in_the_middle_of_a_stream_is_not_used_for_the_rest(
    stream: str, on_error: str, tmp_path: Path
) -> None:
    """The sentences that another model has judged are unchecked, and so is the answer."""

    class Renamed(RenamedJudge):
        async def judge(self, call: RagCall) -> Judgement:
            self.served = "model-2" if "Rome" in (call.answer or "") else "model-1"
            return await super().judge(call)

    limited_stream = ragtrace.Guard(
        "faithfulness",
        max_false_block=0.02,
        action="raise",
        stream=stream,  # type: ignore[arg-type]
        on_error=on_error,  # type: ignore[arg-type]
        budget_ms=WAIT_S * 1000,
    )

    @ragtrace.trace(name="guarded", guard=limited_stream)
    def ask(question: str) -> Iterator[str]:
        search(question)
        yield from ("Paris is big. ", "Rome is old. ", "Bonn is small.")

    watch(Renamed(GOOD), calibration=calibration(tmp_path / "calibration.json", 200, served_model="model-1"))
    seen: list[str] = []
    with pytest.raises(GuardBlocked, match="stale_calibration") if on_error == "closed" else nullcontext():
        for piece in ask("Where is Paris?"):
            seen.append(piece)  # noqa: PERF402 - what came before the exception counts
    first = ["Paris is big. "] if stream == "sentence" else []
    assert seen == (first if on_error == "closed" else ["Paris is big. ", "Rome is old. ", "Bonn is small."])
    assert tally().verdicts == {"unscored": 1}


def test_that_a_bound_is_not_used_is_told_on_every_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Span, event, console, report and page of the call have the verdict `unscored` with its reason, and no score."""
    path, console_lines = tmp_path / "history.db", console({}).spans
    ask: Any = decorated(limited(on_error="closed"))
    judge, captured = RenamedJudge(BAD), Captured()
    exporter = replace(captured.signals, spans=console_lines)
    judge.served = "model-2"
    labels = calibration(tmp_path / "calibration.json", 200, served_model="model-1")
    ragtrace.configure(exporter=exporter, screen=None, judge=judge, calibration=labels, store=path)
    assert ask("Where is Paris?") == "no answer"
    assert ragtrace.flush(WAIT_S)
    assert "guard=unscored,stale_calibration,replaced" in capsys.readouterr().out
    [event] = [each.log_record for each in captured.events if each.log_record.event_name == "ragtrace.guard.result"]
    assert outcome(event.attributes) == ("unscored", "replaced", "stale_calibration")
    assert "gen_ai.evaluation.score.value" not in (event.attributes or {})
    ragtrace.shutdown(WAIT_S)
    now = time()
    report = build_report(str(path), Period(now - 3_600, now), made_at=now)
    assert "stale calibration 1" in render_markdown(report)
    with closing(HistoryReader(str(path))) as reader:
        [stored] = reader.guard_verdicts(0, 1)
    assert "not checked (stale calibration), the answer was replaced" in guard_sentence(stored.verdict)
