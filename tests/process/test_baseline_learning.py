"""Learning the baseline on live calls: from the first ones, with other processes, across restarts and forks."""

from __future__ import annotations

import json
import logging
import os
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import Claim
from ragtrace.core.types import Judgement, RagCall
from ragtrace.estimates import Baseline, BaselineKey, BaselineLearner, CallTraits, CollectedScores, Distribution
from ragtrace.estimates.baseline import MOST_KEYS, exclusive_lock
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.watched import GOOD, HALF, WAIT_S, ask, watch

ROOT: Final = Path(__file__).parents[2]
KEY: Final = BaselineKey("guide", "consistency", "screen@1")
SUSPICIOUS: Final = "ragtrace.eval.suspicious"


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "baseline.json")


class Varying:
    """A screen that gives one consistency after another, and after the last the last."""

    def __init__(self, values: Sequence[float], *, version: str = "1") -> None:
        self.id, self.version, self.type = "screen", version, "deterministic"
        self._values = list(values)

    computes = True

    def offers(self, metric: ragtrace.metrics.Metric) -> bool:
        return metric.name in ("consistency", "answered")

    async def judge(self, call: RagCall) -> Judgement:
        value = self._values.pop(0) if len(self._values) > 1 else self._values[0]
        claim = Claim("Paris", 0, 5, "supported")
        return Judgement(claims=(claim,), answer_label="answered", consistency=value)


def asked(captured: Captured, number: int = 1) -> dict[str, Any]:
    """Ask that many questions; returns the attributes of the last root."""
    for n in range(number):
        ask(f"question {n}")
    assert ragtrace.flush(10)
    return dict(captured.root().attributes or {}) if number == 1 else {}


def learn(learner: BaselineLearner, scores: Sequence[float], key: BaselineKey = KEY) -> None:
    for n, score in enumerate(scores):
        learner.add(key, score, 1.0, f"question {n}")


def known(learner: BaselineLearner, key: BaselineKey = KEY) -> Distribution:
    found = learner.find(key)
    assert found is not None
    return found


# --- in a configured process -----------------------------------------------------------------------------------------


def test_after_the_first_calls_the_others_are_compared_with_them() -> None:
    """Until then there is no baseline, with how many calls are missing; then 1 is a fail and 0 a pass."""
    captured = watch(screen=Varying([0.8, 0.7, 0.9, 0.1, 0.95]), baseline=ragtrace.BaselineLearning(calls=3))
    seen = []
    for _ in range(5):
        captured.clear()
        seen.append(asked(captured))
    assert [attributes.get(f"{SUSPICIOUS}.reason") for attributes in seen] == ["no_baseline"] * 3 + [None] * 2
    assert [attributes.get(f"{SUSPICIOUS}.score") for attributes in seen[3:]] == [1.0, 0.0]
    assert [attributes.get(f"{SUSPICIOUS}.label") for attributes in seen[3:]] == ["fail", "pass"]


def test_suspicious_goes_out_as_every_metric_does(path: str) -> None:
    """As an event with the baseline it was compared with, and as a metric."""
    baseline = Baseline.of([0.5, 0.9], evaluator="screen@1", workflow="guide")
    captured = watch(screen=FakeJudge(HALF, name="screen"), baseline=baseline)
    asked(captured)
    (event,) = [
        event.log_record.attributes
        for event in captured.events
        if (event.log_record.attributes or {})["gen_ai.evaluation.name"] == "suspicious"
    ]
    assert event is not None
    assert (event["gen_ai.evaluation.score.value"], event["ragtrace.eval.detail.baseline_calls"]) == (1.0, 2)
    assert event["ragtrace.eval.detail.baseline_quantile"] == 0.5
    assert ragtrace.estimate("suspicious").value == 1.0


def test_an_answer_without_consistency_is_not_compared() -> None:
    """Its reason is that of consistency, and nothing is learned from it."""
    captured = watch(screen=FakeJudge(Judgement(answer_label="abstained"), name="screen"))
    attributes = asked(captured)
    assert attributes[f"{SUSPICIOUS}.reason"] == attributes["ragtrace.eval.consistency.reason"] == "abstained"
    runtime = current()
    assert runtime is not None
    assert runtime.parts.get(BaselineLearner).missing(KEY) == 500


def test_any_screen_that_gives_consistency_gives_suspicious() -> None:
    """A scorer, too; a judge never does, as it sees a sample only."""
    scorer = ragtrace.judges.ScorerJudge(lambda premise, hypothesis: 0.4, name="screen")
    captured = watch(screen=scorer, judge=FakeJudge(GOOD, name="judge"), sampling=ragtrace.Sampling(rate=1.0))
    asked(captured)
    names = {
        (attributes["gen_ai.evaluation.name"], attributes["ragtrace.evaluator.id"])
        for event in captured.events
        if (attributes := event.log_record.attributes or {})
    }
    assert ("suspicious", "screen") in names
    assert ("suspicious", "judge") not in names


def test_suspicious_by_name_brings_consistency_along() -> None:
    """Alone it would have nothing to learn from."""
    captured = watch(screen=FakeJudge(HALF, name="screen"), metrics=["suspicious"])
    assert asked(captured)["ragtrace.eval.consistency.score"] == 0.25


def test_the_embedded_judge_learns_a_baseline_of_its_own(path: str) -> None:
    """The default, with nothing said but the file."""
    captured = watch(baseline=ragtrace.BaselineLearning(path, 2))
    asked(captured, 2)
    (key,) = [key for key in Baseline.load(path).distributions if key.metric == "consistency"]
    assert (key.workflow, key.evaluator.partition("@")[0]) == ("guide", "embedded")


# --- what a restart finds --------------------------------------------------------------------------------------------


def test_a_bad_release_does_not_become_the_new_normal(path: str) -> None:
    """What was learned stays, with the release it was learned from, however many calls the next one answers."""
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "service.version=1.4.0"
    try:
        watch(screen=Varying([0.8]), baseline=ragtrace.BaselineLearning(path, 4))
        for _ in range(6):
            ask("where?")
        assert ragtrace.shutdown()
        os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "service.version=1.5.0"
        captured = watch(screen=Varying([0.3]), baseline=ragtrace.BaselineLearning(path, 4))
        for _ in range(6):
            ask("where?")
        assert ragtrace.flush(10)
    finally:
        del os.environ["OTEL_RESOURCE_ATTRIBUTES"]
    assert [(root.attributes or {})[f"{SUSPICIOUS}.score"] for root in captured.roots()] == [1.0] * 6
    found = Baseline.load(path).find(*KEY)
    assert found is not None
    assert (found.n, found.mean, found.versions) == (4, pytest.approx(0.8), ("1.4.0",))


def test_a_restart_goes_on_learning_where_the_last_process_stopped(path: str) -> None:
    """Also with few calls a process there is a baseline some day."""
    for _ in range(3):
        learner = BaselineLearner(calls=6)
        learner.open_file(path, "baseline=")
        learn(learner, [0.5, 0.7])
        assert learner.save(10)
    assert Baseline.load(path).distributions[KEY].mean == pytest.approx(0.6)


def test_with_a_store_the_baseline_is_beside_it(tmp_path: Path) -> None:
    """By itself, and read-protected."""
    store = tmp_path / "history.db"
    captured = watch(screen=Varying([0.8]), store=store, baseline=ragtrace.BaselineLearning(calls=2))
    asked(captured, 2)
    assert ragtrace.shutdown()
    beside = tmp_path / "history.db.baseline.json"
    assert set(Baseline.load(beside).distributions) >= {KEY}
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600


@pytest.mark.parametrize("baseline", ["", Baseline()])
def test_with_a_store_a_baseline_can_be_kept_in_memory(tmp_path: Path, baseline: Any) -> None:
    """With an empty path, or one that is given."""
    captured = watch(screen=Varying([0.8]), store=tmp_path / "history.db", baseline=baseline)
    asked(captured)
    assert ragtrace.shutdown()
    assert not list(tmp_path.glob("*baseline*"))


@pytest.mark.parametrize("content", ["", "not json", '{"answer": 42}'])
def test_a_file_that_is_no_baseline_stops_at_start_up(path: str, content: str) -> None:
    """With where the path came from; the file is left alone."""
    Path(path).write_text(content)
    with pytest.raises(SettingsError, match=r"the baseline cannot be read.*\(from baseline=\)"):
        ragtrace.configure(exporter="none", baseline=path)
    assert Path(path).read_text() == content


def test_a_directory_that_is_missing_stops_at_start_up(tmp_path: Path) -> None:
    """Else nothing would be kept."""
    with pytest.raises(SettingsError, match=r"directory is missing.*RAGTRACE_BASELINE"):
        BaselineLearner().open_file(str(tmp_path / "nowhere" / "baseline.json"), "RAGTRACE_BASELINE")


def test_a_file_that_breaks_later_costs_nothing_but_a_fault(path: str) -> None:
    """The process learns alone, and does not overwrite what it cannot read."""
    learner = BaselineLearner(calls=4)
    learner.open_file(path, "baseline=")
    Path(path).write_text("broken")
    learn(learner, [0.5] * 4)
    assert not learner.save(10)
    assert known(learner).n == 4
    assert Path(path).read_text() == "broken"
    assert any(place.startswith("baseline") for place in faults.counts())
    os.unlink(path)
    assert learner.save(10)
    assert Baseline.load(path).find(*KEY) == known(learner)


# --- another version of the evaluator --------------------------------------------------------------------------------


def test_another_version_of_the_evaluator_is_not_compared_and_that_is_said_once(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no baseline yet and learns its own; that of the old version stays in the file."""
    Baseline.of([0.8] * 9, evaluator="screen@1", workflow="guide").save(path)
    with caplog.at_level(logging.WARNING, "ragtrace"):
        captured = watch(screen=Varying([0.1], version="2"), baseline=ragtrace.BaselineLearning(path, 3))
        first = asked(captured)
        asked(captured, 3)
    assert first[f"{SUSPICIOUS}.reason"] == "no_baseline"
    said = [record.getMessage() for record in caplog.records if "learned anew" in record.getMessage()]
    assert len(said) == 1
    assert "screen@1" in said[0]
    assert "screen@2" in said[0]
    kept = Baseline.load(path).distributions
    assert {KEY, KEY._replace(evaluator="screen@2")} <= set(kept)


# --- several processes -----------------------------------------------------------------------------------------------

LEARNING = """
import sys
from ragtrace.estimates import BaselineKey, BaselineLearner
path, number, score = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
learner = BaselineLearner(calls=1000)
learner.open_file(path, "baseline=")
sys.stdin.readline()
for n in range(number):
    learner.add(BaselineKey("guide", "consistency", "screen@1"), score, 1.0, f"{score} {n}")
    if n % 50 == 49:
        learner.save(20)
assert learner.save(20)
"""


def test_processes_that_learn_at_the_same_time_share_their_calls(path: str) -> None:
    """Three with 300 calls each: 900 of 1,000, each once, and in the end one baseline of exactly 1,000."""
    scores = (0.2, 0.5, 0.8)
    running = [
        subprocess.Popen([sys.executable, "-c", LEARNING, path, "300", str(score)], stdin=subprocess.PIPE, cwd=ROOT)
        for score in scores
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(60) for process in running] == [0, 0, 0]
    calls = Baseline.load(path).learning[KEY]
    assert sorted(calls.scores) == sorted(score for score in scores for _ in range(300))
    subprocess.run([sys.executable, "-c", LEARNING, path, "300", "0.9"], input=b"\n", cwd=ROOT, check=True, timeout=240)
    kept = Baseline.load(path)
    assert (kept.distributions[KEY].n, kept.learning) == (1000, {})
    assert os.listdir(Path(path).parent) == ["baseline.json"]


def test_what_another_process_has_learned_is_taken_over(path: str) -> None:
    """The first process with enough calls decides; no process learns another baseline."""
    one, other = BaselineLearner(calls=5), BaselineLearner(calls=5)
    for learner in (one, other):
        learner.open_file(path, "baseline=")
    learn(one, [0.8] * 5)
    assert one.flush(10)
    learn(other, [0.1] * 2)
    assert other.flush(10)
    assert known(other) == known(one)


def test_a_process_killed_while_it_wrote_blocks_no_other(path: str) -> None:
    """What it left is cleared away."""
    for name in (f"{path}.new", f"{path}.lock"):
        Path(name).write_text("half")
    learner = BaselineLearner(calls=3)
    learner.open_file(path, "baseline=")
    learn(learner, [0.5] * 3)
    assert learner.save(10)
    assert os.listdir(Path(path).parent) == ["baseline.json"]


def test_the_lock_keeps_other_processes_waiting(path: str) -> None:
    """Two that read, add and write at the same time would else lose calls."""
    program = (
        "import sys; from ragtrace.estimates.baseline import exclusive_lock\n"
        "with exclusive_lock(sys.argv[1]): print('in', flush=True); sys.stdin.readline(); print('out', flush=True)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    entered = threading.Event()

    def enter() -> None:
        with exclusive_lock(path):
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    assert not entered.wait(0.3)
    holder.stdin.write("\n")
    holder.stdin.close()
    assert entered.wait(10)
    thread.join(10)
    assert holder.wait(10) == 0
    holder.stdout.close()
    assert not os.path.exists(f"{path}.lock")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 on: a fork beside other threads
def test_a_forked_child_learns_its_own_calls_and_none_of_its_parents(path: str) -> None:
    """Each call is in the file once, also those that the parent had seen and not yet written."""
    watch(screen=Varying([0.5]), baseline=ragtrace.BaselineLearning(path, 1000))
    for _ in range(10):
        ask("parent")
    assert ragtrace.flush(10)
    runtime = current()
    assert runtime is not None
    learn(runtime.parts.get(BaselineLearner), [0.2] * 5)  # not in the file yet
    child = os.fork()
    if not child:
        status = 1
        try:
            for _ in range(7):
                ask("child")
            status = 0 if ragtrace.shutdown(20) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert ragtrace.shutdown(10)
    assert sorted(Baseline.load(path).learning[KEY].scores) == [0.2] * 5 + [0.5] * 17


# --- what alerts learn beside it -------------------------------------------------------------------------------------


def learn_topics(learner: BaselineLearner, calls: int, first: int = 0) -> None:
    """Add calls about two documents in turns of 100; answers on the second get 0.4 less."""
    for n in range(first, first + calls):
        document = n // 100 % 2
        learner.add(KEY, 0.9 - 0.4 * document - 0.01 * (n % 3), 1.0, f"question {n}", CallTraits(document, 1_000))


def alerted(path: str) -> BaselineLearner:
    """A learner of a process with an alert that compares consistency with the baseline."""
    learner = BaselineLearner(calls=500, adjusted=["consistency"])
    learner.open_file(path, "baseline=")
    return learner


def test_an_alert_learns_on_until_it_knows_how_scores_depend_on_documents(path: str) -> None:
    """From 500 calls on there is a baseline, which never changes; from 2,000 on, over processes, its effects."""
    first = alerted(path)
    assert first.provisional(KEY) == "provisional: 0 of 2,000 calls so far"
    learn_topics(first, 500)
    assert first.flush(10)
    before = known(first)
    assert first.find_adjustment(KEY) is None
    learn_topics(first, 700, 500)
    assert first.close(10)
    second = alerted(path)
    assert second.provisional(KEY) == "provisional: 1,200 of 2,000 calls so far"
    learn_topics(second, 800, 1_200)
    assert second.flush(10)
    effects = second.find_adjustment(KEY)
    assert effects is not None
    assert effects.distribution.n == 2_000
    assert [effects.document_effects[document] for document in (0, 1)] == pytest.approx([0.2, -0.2], abs=0.01)
    assert second.provisional(KEY) == ""
    assert known(second) == before
    third = alerted(path)
    assert third.find_adjustment(KEY) == effects
    assert Baseline.load(path).learning == {}


def test_without_an_alert_nothing_is_learned_beyond_the_baseline(path: str) -> None:
    """No document, length or time of a call is kept for longer than it is used."""
    learner = BaselineLearner(calls=500)
    learner.open_file(path, "baseline=")
    learn_topics(learner, 600)
    assert learner.save(10)
    found = Baseline.load(path)
    assert (set(found.distributions), found.learning, found.adjustments) == ({KEY}, {}, {})


def test_a_baseline_of_an_earlier_version_is_used_and_says_what_it_lacks(path: str) -> None:
    """Such a file has no effects; its distribution is compared with, and it tells how to learn them."""
    older = json.loads(Baseline({KEY: Distribution.of([0.8, 0.9] * 250)}).encode())
    del older["adjustments"]
    Path(path).write_text(json.dumps(older))
    learner = alerted(path)
    assert known(learner).n == 500
    assert learner.provisional(KEY).startswith("provisional: remove the file to learn it from 2,000 calls")


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_without_a_file_it_learns_in_memory() -> None:
    """Of the first calls alone, and never again."""
    learner = BaselineLearner(calls=4)
    learn(learner, [0.1, 0.2, 0.3, 0.4, 0.9, 0.9])
    assert (known(learner).n, known(learner).mean) == (4, pytest.approx(0.25))


def test_the_number_of_baselines_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A workflow name that is unique to a call must not fill the memory; that is said once."""
    learner = BaselineLearner()
    with caplog.at_level(logging.WARNING, "ragtrace"):
        for n in range(MOST_KEYS + 50):
            learn(learner, [0.5], KEY._replace(workflow=f"call {n}"))
    assert len(learner.progress()) == MOST_KEYS
    assert len([record for record in caplog.records if "a different name in each call" in record.getMessage()]) == 1


def test_a_disk_that_hangs_blocks_no_caller(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning goes on in memory of a bounded size, and a flush comes back in time."""
    learner = BaselineLearner(calls=50)
    learner.open_file(path, "baseline=")
    with _held(path):
        began = time.perf_counter()
        learn(learner, [0.5] * 500)
        assert time.perf_counter() - began < WAIT_S / 2  # the disk hangs for as long as the block lasts
        assert not learner.save(0.1)
        assert learner.progress() == [(KEY, None, 50)]
    assert learner.save(10)
    assert known(learner).n == 50


def _held(path: str) -> Any:
    """Keep the lock of *path* in another process while the block runs."""
    from contextlib import contextmanager

    @contextmanager
    def held() -> Any:
        program = (
            "import sys; from ragtrace.estimates.baseline import exclusive_lock\n"
            "with exclusive_lock(sys.argv[1]): print('in', flush=True); sys.stdin.readline()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        try:
            yield
        finally:
            holder.stdin.close()
            assert holder.wait(10) == 0
            holder.stdout.close()

    return held()


def test_judged_calls_count_by_the_inverse_of_their_probability() -> None:
    """The baseline is that of the traffic, not of the sample."""
    learner = BaselineLearner(calls=2)
    learner.add(KEY, 1.0, 0.1, "a")
    learner.add(KEY, 0.0, 1.0, "b")
    assert known(learner).mean == pytest.approx(10 / 11)


def test_a_score_that_comes_when_the_baseline_is_learned_is_no_other_evaluators(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As from a thread that asked just before the last score came: it is left out, and nothing is said."""
    learner = BaselineLearner(calls=2)
    learn(learner, [0.5, 0.6, 0.7])
    assert (known(learner).n, caplog.messages) == (2, [])
    assert learner.progress() == [(KEY, known(learner), 2)]


@pytest.mark.parametrize("draw", [lambda rng: rng.betavariate(6, 2), lambda rng: rng.choice([0.5, *[1.0] * 19])])
def test_a_configured_process_marks_five_percent_of_unchanged_traffic(draw: Callable[[random.Random], float]) -> None:
    """500 calls to learn from, and of the next 1,500 5 % within 2.5 (continuous scores, and heavily tied ones)."""
    rng = random.Random(11)
    captured = watch(screen=Varying([draw(rng) for _ in range(2000)]), limits=ragtrace.Limits(capacity=4000))
    for n in range(2000):
        ask(f"question {n}")
        if n % 200 == 199:
            assert ragtrace.flush(120)
    found = ragtrace.estimate("suspicious")
    assert found.value == pytest.approx(0.05, abs=0.025)
    assert found.n == 1500
    assert captured.root is not None


def test_calls_add_up() -> None:
    """Times and versions of both."""
    both = CollectedScores.single(0.5, 1.0, "a", 10.0, "1") + CollectedScores.single(0.6, 0.5, "b", 5.0, "2")
    assert (both.since, both.until, both.versions, both.weights) == (5.0, 10.0, ("1", "2"), (1.0, 2.0))


def test_a_log_handler_that_takes_its_time_does_not_hold_up_those_who_read_the_baseline() -> None:
    """The warning that the evaluator has changed is logged without the learner's lock."""
    learner = BaselineLearner(Baseline({KEY: Distribution.of([0.5, 0.6])}), calls=10)
    seen: list[int] = []

    class Asking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reading = threading.Thread(target=lambda: seen.append(len(learner.progress())), daemon=True)
            reading.start()
            reading.join(5.0)

    handler = Asking()
    logging.getLogger("ragtrace").addHandler(handler)
    try:
        learner.add(KEY._replace(evaluator="screen@2"), 0.5, 1.0, "where?")
        assert seen == [2]
    finally:
        logging.getLogger("ragtrace").removeHandler(handler)
