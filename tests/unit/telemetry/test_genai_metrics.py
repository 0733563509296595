"""Metrics of inferences, retrievals and workflows, under the names of the released and the unreleased conventions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import ragtrace
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S, watch

VARIABLE: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
WORKFLOW_SECONDS: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
TOKENS: Final = tuple(4**power for power in range(14))
CHAT: Final = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "example",
    "gen_ai.request.model": "tiny",
    "gen_ai.response.model": "tiny-1",
}
RELEASED: Final = {
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.client.token.usage",
}
LATEST: Final = {
    "gen_ai.client.inference.duration",
    "gen_ai.client.inference.time_to_first_chunk",
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.operation.input_tokens",
    "gen_ai.client.inference.operation.output_tokens",
}


@ragtrace.retrieve(source="places")
def search(query: str) -> list[str]:
    return ["Paris is a big city."]


@ragtrace.generate(model="tiny", provider="example")
def write(question: str, docs: list[str], fails: bool) -> Iterator[str]:
    ragtrace.usage(input_tokens=30, output_tokens=7, model="tiny-1")
    yield "Paris is "
    if fails:
        raise TimeoutError("too slow")
    yield "big."


@ragtrace.trace(name="guide")
def guide(question: str, fails: bool = False) -> str:
    return "".join(write(question, search(question), fails))


@pytest.fixture(params=["fast", "sdk"])
def captured(request: pytest.FixtureRequest) -> Captured | InMemoryMetricReader:
    """Telemetry in memory, with fast instruments and with those of the SDK."""
    return Captured() if request.param == "fast" else InMemoryMetricReader()


def metrics(captured: Captured | InMemoryMetricReader, fails: bool = False) -> dict[str, Any]:
    """Return the data of all `gen_ai.` metrics after one call, by name of the metric."""
    provider = None
    if isinstance(captured, Captured):
        ragtrace.configure(exporter=captured.signals, screen=None)
    else:
        provider = MeterProvider([captured], shutdown_on_exit=False)
        ragtrace.configure(
            exporter=Captured().signals, telemetry=ragtrace.TelemetryOptions(meter_provider=provider), screen=None
        )
    if fails:
        with pytest.raises(TimeoutError):
            guide("where?", True)
    else:
        guide("where?")
    assert ragtrace.flush(WAIT_S)
    if isinstance(captured, Captured):
        found = captured.metrics()
    else:
        data: Any = captured.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        found = {metric.name: metric.data for scope in scopes for metric in scope.metrics}
    if provider is not None:
        provider.shutdown()
    return {name: data for name, data in found.items() if name.startswith("gen_ai.") and data.data_points}


def one(data: Any) -> Any:
    """Return the only point of *data*."""
    [point] = data.data_points
    return point


def of_chat(data: Any) -> list[Any]:
    """Return the points of *data* that are about inferences."""
    return [point for point in data.data_points if point.attributes["gen_ai.operation.name"] == "chat"]


def test_the_released_names_are_the_default(captured: Any) -> None:
    """As in OpenTelemetry's own instrumentations; a workflow has the one name that was ever emitted by others."""
    found = metrics(captured)
    assert set(found) == RELEASED | {"gen_ai.invoke_workflow.duration"}
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in of_chat(found["gen_ai.client.token.usage"])}
    assert tokens == {"input": 30, "output": 7}


def test_a_workflow_has_the_bounds_of_the_conventions(captured: Any) -> None:
    """From a second to two hours, with the name of the workflow."""
    point = one(metrics(captured)["gen_ai.invoke_workflow.duration"])
    assert (point.count, tuple(point.explicit_bounds)) == (1, WORKFLOW_SECONDS)
    assert dict(point.attributes) == {"gen_ai.workflow.name": "guide"}


def test_the_unreleased_names_take_the_place_of_the_released_ones(
    captured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inferences have metrics of their own; a retrieval stays a client operation."""
    monkeypatch.setenv(VARIABLE, "http,gen_ai_latest_experimental")
    found = metrics(captured)
    assert set(found) == LATEST | {"gen_ai.client.operation.duration", "gen_ai.invoke_workflow.duration"}
    retrieval = one(found["gen_ai.client.operation.duration"])
    assert retrieval.attributes["gen_ai.operation.name"] == "retrieval"
    for name in ("duration", "time_to_first_chunk"):
        point = one(found[f"gen_ai.client.inference.{name}"])
        assert (point.count, tuple(point.explicit_bounds), dict(point.attributes)) == (1, SECONDS, CHAT)


def test_tokens_are_counters_and_histograms_of_one_inference(captured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters say that the modality is not known; the histograms have no modality."""
    monkeypatch.setenv(VARIABLE, "gen_ai_latest_experimental")
    found = metrics(captured)
    for kind, count in (("input", 30), ("output", 7)):
        used = found[f"gen_ai.client.inference.usage.{kind}_tokens"]
        assert used.is_monotonic
        assert (one(used).value, dict(one(used).attributes)) == (count, {**CHAT, "gen_ai.token.modality": "unknown"})
        of_one = one(found[f"gen_ai.client.inference.operation.{kind}_tokens"])
        assert (of_one.count, of_one.sum, dict(of_one.attributes)) == (1, count, CHAT)
        assert tuple(of_one.explicit_bounds) == TOKENS


def test_a_failed_inference_has_its_error_type(captured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the duration and the histograms of tokens; the counters, from which costs are computed, have none."""
    monkeypatch.setenv(VARIABLE, "gen_ai_latest_experimental")
    found = metrics(captured, fails=True)
    failed = {**CHAT, "error.type": "TimeoutError"}
    assert dict(one(found["gen_ai.client.inference.duration"]).attributes) == failed
    assert dict(one(found["gen_ai.client.inference.operation.input_tokens"]).attributes) == failed
    assert "error.type" not in one(found["gen_ai.client.inference.usage.input_tokens"]).attributes


def test_both_names_have_the_same_values(captured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a dashboard can be moved before the old names go."""
    monkeypatch.setenv(VARIABLE, "gen_ai_latest_experimental/dup")
    found = metrics(captured)
    assert set(found) == RELEASED | LATEST | {"gen_ai.invoke_workflow.duration"}
    for name in ("duration", "time_to_first_chunk"):
        [old] = of_chat(found[f"gen_ai.client.operation.{name}"])
        new = one(found[f"gen_ai.client.inference.{name}"])
        assert (old.sum, old.bucket_counts, old.attributes) == (new.sum, new.bucket_counts, new.attributes)


def test_an_inference_without_token_counts_records_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a provider did not say is no 0."""
    monkeypatch.setenv(VARIABLE, "gen_ai_latest_experimental")

    @ragtrace.generate(model="tiny")
    def answer(question: str) -> str:
        return "In Paris."

    captured = watch(screen=None)
    answer("where?")
    assert ragtrace.flush(WAIT_S)
    assert not [name for name in captured.metrics() if "tokens" in name and name.startswith("gen_ai.")]


def test_the_variable_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `configure`: a later change of the environment changes nothing."""
    captured = watch(screen=None)
    monkeypatch.setenv(VARIABLE, "gen_ai_latest_experimental")
    guide("where?")
    assert ragtrace.flush(WAIT_S)
    assert not LATEST & set(captured.metrics())
