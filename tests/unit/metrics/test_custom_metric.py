"""Metrics of users and of other packages: `ragtrace.metric`, and entry points."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import ragtrace
from ragtrace.core.labels import Claim
from ragtrace.core.types import Judgement, Metric, RagCall, Score, Unscored
from ragtrace.metrics import Formula, Registry, registry
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
from tests.support.labelled import asked, outcome, scored, stated, unscored
from tests.support.watched import ask, watch

CALL = asked("a chunk", answer="Paris [1].")


def returning(value: object, **options: Any) -> Formula:
    """A metric of a function that returns *value*."""

    def given(call: RagCall) -> Any:
        return value

    return ragtrace.metric(register=False, **options)(given)


def test_a_function_of_a_call_is_a_metric() -> None:
    """Its name is the function's, and it is called with or without labels."""

    @ragtrace.metric(register=False)
    def cites_a_source(call: RagCall) -> bool:
        """Whether there is a marker."""
        return "[1]" in (call.answer or "")

    assert isinstance(cites_a_source, Metric)
    assert (cites_a_source.name, cites_a_source.version, cites_a_source.needs) == ("cites_a_source", "1", frozenset())
    result = cites_a_source(CALL)
    assert isinstance(result, Score)
    assert (result.value, result.metric) == (1.0, "cites_a_source")
    assert outcome(cites_a_source, asked(), Judgement()) == 0.0
    assert cites_a_source.compute.__doc__ == "Whether there is a marker."


def test_a_function_of_labels_is_a_metric() -> None:
    """It gets the judgement and says what it needs of it."""

    @ragtrace.metric(
        needs=("claims",), name="contradictions", version="2", higher_is_better=False, range=(0, 9), threshold=1,
        register=False,
    )  # fmt: skip
    def count(call: RagCall, judgement: Judgement) -> int:
        return sum(claim.support == "contradicted" for claim in judgement.claims or ())

    result = scored(count, CALL, stated("SCC"))
    assert (result.value, result.label, result.metric, result.metric_version) == (2.0, "fail", "contradictions", "2")
    assert (count.needs, count.range, result.higher_is_better) == (frozenset({"claims"}), (0.0, 9.0), False)
    assert scored(count, CALL, stated("SC")).label == "pass"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (True, 1.0),
        (False, 0.0),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), 1.0),
        (Score(0.25, label="fine"), 0.25),
        (Unscored("no_claims"), "not_applicable/no_claims"),
        (math.nan, "judge_error/non_finite"),
        (math.inf, "judge_error/non_finite"),
        (None, "judge_error/metric_error"),
        ("0.5", "judge_error/metric_error"),
        ([0.5], "judge_error/metric_error"),
    ],
)
def test_what_a_metric_may_return(returned: object, expected: float | str) -> None:
    """Numbers and results; anything else, None included, is no score and never 0."""
    assert outcome(returning(returned), CALL, Judgement()) == expected


def test_a_wrong_return_value_is_named() -> None:
    """Whoever wrote the metric reads what it returned."""
    assert unscored(returning(None), CALL, Judgement()).explanation == (
        "it returned NoneType, not a number, a Score or an Unscored"
    )


def test_out_of_range_is_no_score() -> None:
    """Scored as in production, a number outside the range that the metric has declared is not clamped."""
    metric = returning(2.0, name="twice")
    results = ragtrace.score(query="q", contexts=["c"], answer="a", metrics=[metric])
    result = results["twice"]
    assert isinstance(result, Unscored)
    assert result.reason == "out_of_range"


def test_a_metric_that_raises_is_a_reason() -> None:
    """The others have their scores, and the application sees nothing of it."""

    @ragtrace.metric(register=False, needs=("claims",))
    def broken(call: RagCall, judgement: Judgement) -> float:
        raise ZeroDivisionError

    results = ragtrace.score(
        query="q", contexts=["c"], answer="a", metrics=[broken, "faithfulness"], judge=FakeJudge(stated("S"))
    )
    faults.clear()
    result = results["broken"]
    assert isinstance(result, Unscored)
    assert (result.reason, result.explanation) == ("metric_error", "ZeroDivisionError")
    assert isinstance(results["faithfulness"], Score)


def test_a_registered_metric_is_wanted_by_name() -> None:
    """It is computed for every call and stands on the span like any other."""

    @ragtrace.metric
    def mentions_paris(call: RagCall) -> bool:
        return "Paris" in (call.answer or "")

    assert registry.get("mentions_paris") is mentions_paris
    captured = watch(metrics=["mentions_paris", "consistency"])
    ask("where?")
    assert ragtrace.flush()
    assert (captured.root().attributes or {})["ragtrace.eval.mentions_paris.score"] == 1.0


def test_a_cell_of_a_notebook_can_be_run_again() -> None:
    """The same function defined anew takes the place of its earlier version; another one of that name does not."""

    def define(value: float) -> Formula:
        @ragtrace.metric
        def defined_anew(call: RagCall) -> float:
            return value

        return defined_anew

    define(0.1)
    later = define(0.2)
    assert registry.get("defined_anew") is later
    with pytest.raises(ValueError, match="'defined_anew' is already registered; pass another name="):
        ragtrace.metric(name="defined_anew")(lambda call: 1.0)
    with pytest.raises(ValueError, match="'faithfulness' is already registered"):
        ragtrace.metric(name="faithfulness")(lambda call: 1.0)


async def _asynchronous(call: RagCall) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("options", "function", "message"),
    [
        (
            {"needs": ("claim",)},
            lambda call, judgement: 1.0,
            "needs= names claim, which no judge gives; labels: answer_",
        ),
        (
            {},
            lambda call, judgement: 1.0,
            r"takes a judgement, but needs= is empty; name the labels that it reads, for instance needs=\('claims',\)",
        ),
        ({}, lambda: 1.0, r"takes a call, or a call and a judgement, got a function \(\)"),
        ({"name": "my metric"}, lambda call: 1.0, "a metric's name must be letters, .* got 'my metric'"),
        ({}, lambda call: 1.0, "got '<lambda>'"),
        ({"name": "m", "range": (1, 0)}, lambda call: 1.0, r"range= must be the lowest .* got \(1, 0\)"),
        ({"name": "m", "range": (0,)}, lambda call: 1.0, r"range= must be the lowest .* got \(0,\)"),
        ({}, _asynchronous, "must be a plain function, got a coroutine function"),
    ],
)
def test_what_cannot_be_a_metric_is_said_at_once(options: Any, function: Callable[..., Any], message: str) -> None:
    """When it is defined, not when the first call is scored."""
    if "name" not in options and function.__name__ == "<lambda>" and "lambda" not in message:
        options = {**options, "name": "m"}
    with pytest.raises(ragtrace.SettingsError, match=message):
        ragtrace.metric(register=False, **options)(function)


def test_a_slow_metric_of_a_user_gets_a_thread() -> None:
    """Only ragtrace's own arithmetic is trusted to take no time."""
    assert returning(1.0).computes is False
    assert getattr(registry.get("faithfulness"), "computes", False) is True


def test_metrics_that_cost_calls_are_not_computed_unasked() -> None:
    """An opt-in metric is known by name and is no default."""
    dear = Formula("dear", "1", lambda call, judgement: Score(1.0), frozenset({"nuggets"}), opt_in=True)
    cheap = returning(1.0, name="cheap")
    mine = Registry([dear, cheap])
    assert mine.defaults() == (cheap,)
    assert mine.all() == (dear, cheap)
    assert mine.get("dear") is dear


def test_no_default_costs_a_call_of_its_own() -> None:
    """What is computed unasked lives on the main reply."""
    main_reply = {
        "claims", "answer_label", "consistency", "sentences", "chunks", "citations", "parts", "answer_rating",
        "reference_contexts_contradicted",
    }  # fmt: skip
    assert not [
        metric.name
        for metric in registry.defaults()
        if getattr(metric, "computes", False) and metric.needs - main_reply
    ]


def package(folder: Path, points: str, code: str = "") -> None:
    """An installed package `acme` that offers metrics."""
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[test.metrics]\n{points}\n")
    (folder / "acme_metrics.py").write_text(code)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which packages are imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "acme_metrics", raising=False)
    return tmp_path


POLITE = """\
import ragtrace

@ragtrace.metric(register=False)
def polite(call):
    return "please" in (call.answer or "")
"""


def test_a_metric_of_another_package_is_found_by_name(theirs: Path) -> None:
    """By its entry point alone; it is imported when it is asked for, not before."""
    package(theirs, "polite = acme_metrics:polite", POLITE)
    mine = Registry([registry.get("faithfulness")], group="test.metrics")
    assert mine.names() == ("faithfulness", "polite")
    assert "acme_metrics" not in __import__("sys").modules
    assert [metric.name for metric in mine.registered()] == ["faithfulness"]
    found = mine.get("polite")
    assert found is mine.get("polite")
    assert outcome(found, asked(answer="Yes, please."), Judgement()) == 1.0
    assert found in mine.all()


def test_our_own_group_is_looked_at() -> None:
    """The shared registry finds what packages offer under `ragtrace.metrics`, and a typo still has its answer."""
    with pytest.raises(ragtrace.metrics.UnknownMetricError, match="did you mean 'umbrela'"):
        registry.get("umbrella")


@pytest.mark.parametrize(
    ("points", "code", "message"),
    [
        ("polite = acme_metrics:polite", "import no_such_thing", "'polite' .* cannot be loaded: ModuleNotFoundError"),
        ("polite = acme_metrics:rude", POLITE, "cannot be loaded: AttributeError"),
        ("polite = acme_metrics:polite", "polite = 3", "is a int, not a metric; it must name an object with"),
        ("rude = acme_metrics:polite", POLITE, "is a metric called 'polite'; give the entry point that name"),
    ],
)
def test_a_broken_package_is_an_error_of_its_metric_only(
    theirs: Path, points: str, code: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Asking for the metric raises an error that says what is wrong; listing all metrics warns and leaves it out."""
    package(theirs, points, code)
    name = points.split()[0]
    mine = Registry([registry.get("faithfulness")], group="test.metrics")
    with pytest.raises(ragtrace.SettingsError, match=message):
        mine.get(name)
    faults.clear()
    with caplog.at_level(logging.WARNING, "ragtrace"):
        assert [metric.name for metric in mine.all()] == ["faithfulness"]
    assert name in caplog.text
    faults.clear()


def test_a_metric_of_a_user_reads_what_the_judge_said() -> None:
    """Offline, through the same door as all others."""

    @ragtrace.metric(needs=("claims",), register=False)
    def longest(call: RagCall, judgement: Judgement) -> float:
        return max(len(claim.text) for claim in judgement.claims or ()) / 100

    judge = FakeJudge(Judgement((Claim("x" * 50, 0, 50, "supported"),), "answered"))
    results = ragtrace.score(query="q", contexts=["c"], answer="a", metrics=[longest], judge=judge)
    result = results["longest"]
    assert isinstance(result, Score)
    assert result.value == 0.5


@pytest.mark.parametrize(
    ("wanted", "computed"),
    [
        (None, {"faithfulness"}),
        (["nugget_all"], {"nugget_all"}),
        (["faithfulness_noncontradiction"], {"faithfulness_noncontradiction", "faithfulness"}),
    ],
)
def test_what_is_computed_of_what_a_judge_offers(wanted: list[str] | None, computed: set[str]) -> None:
    """By default what costs nothing more; by name anything, and what belongs beside it."""
    offered = ["faithfulness", "nugget_all"] + (wanted or [])
    judge = FakeJudge(stated("SF"), metrics=offered)
    captured = watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0), metrics=wanted)
    ask("where?")
    assert ragtrace.flush()
    names = {key.split(".")[2] for key in captured.root().attributes or {} if key.endswith((".score", ".reason"))}
    assert names == computed
    results = ragtrace.score(query="q", contexts=["c"], answer="a", metrics=wanted, judge=judge)
    assert set(results) == computed
