"""Sums of scores by tag: on metrics, in estimates, and bounded whatever values come."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from opentelemetry import baggage, context

import ragtrace
from ragtrace.core.types import Evaluation, RagCall, SamplingDecision, Score
from ragtrace.estimates import MetricAssignment
from ragtrace.tagging.tagged_moments import OTHER, TaggedMoments
from ragtrace.testing import Captured, FakeJudge

ASSIGNMENT = MetricAssignment(screen="screen", screened=frozenset({"consistency"}))


def call(**tags: Any) -> tuple[RagCall, list[Evaluation], SamplingDecision | None]:
    results = {"consistency": Score(0.5, metric="consistency")}
    return RagCall("q", (), "a", tags=tags), [Evaluation("screen", "1", "deterministic", results)], None


def test_whatever_number_of_values_leaves_the_first_and_other() -> None:
    """51 series and no growth of memory; every call that has no series of its own is counted."""
    moments = TaggedMoments(ASSIGNMENT, ["tenant"], 50)
    for n in range(1_000):
        moments(*call(tenant=f"t{n}"))
    given, evaluations, decision = call(tenant="")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n in range(1_000, 100_000):
        given.tags["tenant"] = f"t{n}"  # type: ignore[index]
        moments(given, evaluations, decision)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1_000_000  # 99,000 values that are kept take more than ten times as much
    attributes = {moments.attributes(call(tenant=f"t{n}")[0])["ragtrace.tag.tenant"] for n in range(2_000)}
    assert attributes == {*(f"t{n}" for n in range(50)), OTHER}
    [metric] = moments.observations()
    assert list(metric.read()) == [(99_950, {"ragtrace.tag_name": "tenant"})]


def test_the_bound_holds_for_calls_whose_scores_go_out_before_they_are_counted() -> None:
    """As the screen's scores do, while the judge is asked."""
    moments = TaggedMoments(ASSIGNMENT, ["tenant"], 2)
    seen = [moments.attributes(call(tenant=name)[0])["ragtrace.tag.tenant"] for name in "abcda"]
    assert seen == ["a", "b", OTHER, OTHER, "a"]


def test_of_a_value_that_is_not_told_apart_nothing_is_known() -> None:
    """Its calls count as other, so that "no calls" would be invented; before there are too many, there are none."""
    ragtrace.configure(exporter="none", tags=ragtrace.types.Tags(metrics=["tenant"], most_values=2))
    for number, tenant in enumerate(("acme", "globex", "initech")):
        assert ragtrace.estimate("consistency", tags={"tenant": "hooli"}).reason == "nothing_judged", number
        ask(tenant, "In Paris.")
        assert ragtrace.flush()
    found = ragtrace.estimate("consistency", tags={"tenant": "initech"})
    assert (found.value, found.reason) == (None, "too_many_values")
    assert ragtrace.estimate("consistency", tags={"tenant": "acme"}).n == 1


def test_a_call_without_the_tag_has_no_attribute_and_no_sum() -> None:
    moments = TaggedMoments(ASSIGNMENT, ["tenant"], 2)
    moments(*call(channel="web"))
    assert moments.attributes(call(channel="web")[0]) == {}
    of_web = moments.of_tag("tenant", "web")
    assert of_web is not None
    assert of_web.sum("consistency").n == 0


# --- in a configured process -----------------------------------------------------------------------------------------


def ask(tenant: str, answer: str) -> None:
    """Record a call of *tenant*."""
    with ragtrace.call("Where is the tower?", tags={"tenant": tenant, "session": "s1"}) as block:
        block.retrieved(["The tower is in Paris."])
        block.answered(answer)


def test_metrics_and_estimates_are_by_tag() -> None:
    """Of the tags that are named alone; without any, nothing has changed."""
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, tags=ragtrace.types.Tags(metrics=["tenant"]))
    for tenant, answer in (("acme", "In Paris."), ("acme", "In Paris."), ("globex", "In Berlin.")):
        ask(tenant, answer)
    assert ragtrace.flush()
    points = captured.metrics()["ragtrace.eval.score"].data_points
    found = [dict(point.attributes) for point in points if point.attributes["gen_ai.evaluation.name"] == "consistency"]
    assert sorted(each["ragtrace.tag.tenant"] for each in found) == ["acme", "globex"]
    assert not [name for each in found for name in each if "session" in name]
    estimates = [ragtrace.estimate("consistency", of="traffic", tags={"tenant": each}) for each in ("acme", "globex")]
    assert [(each.n, each.value) for each in estimates] == [(2, 1.0), (1, pytest.approx(0.15, abs=0.1))]
    assert ragtrace.estimate("consistency", tags={"tenant": "initech"}).n == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tags": {"channel": "web"}}, r"no sums are kept of the tag 'channel'.*Kept now: tenant"),
        ({"tags": {"tenant": "a", "channel": "b"}}, "takes one tag"),
        ({"tags": {"tenant": "a"}, "window": 60.0}, "no window="),
    ],
)
def test_an_estimate_that_cannot_be_made_says_why(arguments: dict[str, Any], said: str) -> None:
    ragtrace.configure(exporter="none", tags=ragtrace.types.Tags(metrics=["tenant"]))
    with pytest.raises(ragtrace.SettingsError, match=said):
        ragtrace.estimate("consistency", **arguments)


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({"metrics": ["a b"]}, "the name of a tag"),
        ({"metrics": 3}, "expected a list of names"),
        ({"most_values": 0}, "expected a whole number from 1 to 1000"),
    ],
)
def test_a_wrong_option_stops_configure(tags: dict[str, Any], said: str) -> None:
    with pytest.raises(ragtrace.SettingsError, match=said):
        ragtrace.configure(exporter="none", tags=ragtrace.types.Tags(**tags))


def test_the_options_have_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGTRACE_TAGS_METRICS", "tenant, channel")
    ragtrace.configure(exporter="none", judge=FakeJudge(ragtrace.Judgement(claims=())))
    with pytest.raises(ragtrace.SettingsError, match="Kept now: tenant, channel"):
        ragtrace.estimate("consistency", tags={"version": "2"})


def test_entries_of_baggage_become_tags_of_a_call() -> None:
    """Those that are named; in the metrics, too."""
    judge = FakeJudge(ragtrace.Judgement(consistency=1.0))
    names = ragtrace.types.Tags(baggage=["tenant"], metrics=["tenant"])
    ragtrace.configure(exporter="none", screen=judge, tags=names)
    token = context.attach(baggage.set_baggage("tenant", "acme", baggage.set_baggage("secret", "s")))
    try:
        with ragtrace.call("Where is the tower?") as block:
            block.retrieved(["The tower is in Paris."])
            block.answered("In Paris.")
    finally:
        context.detach(token)
    assert ragtrace.flush()
    assert [each.tags for each in judge.calls] == [{"tenant": "acme"}]
    assert ragtrace.estimate("consistency", tags={"tenant": "acme"}).n == 1
