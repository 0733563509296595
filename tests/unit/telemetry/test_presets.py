"""Each preset: where it sends which signals with which headers, what it needs, and what it keeps to itself."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import pytest

import ragtrace
from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace.diagnosis.telemetry_probes import exporter_function
from ragtrace.system.installation import find_exporter
from ragtrace_exporters.preset import Preset
from tests.support.application import QUESTION, ask
from tests.support.backends import Backend
from tests.support.otlp import HttpReceiver, Receiver

SECRET: Final = "s3cr3t-k3y"
TRACES: Final = frozenset({"traces"})
ALL: Final = frozenset({"traces", "metrics", "logs"})


def _basic(pair: str) -> str:
    return f"Basic {b64encode(pair.encode()).decode()}"


@dataclass(frozen=True)
class Expected:
    """A preset as its backend's documentation describes it; `{url}` stands for the server of the test."""

    environ: Mapping[str, str]
    path: str
    headers: Mapping[str, str]
    signals: frozenset[str] = TRACES
    scores: bool = False
    needs: tuple[str, ...] = ()
    resource: Mapping[str, str] = field(default_factory=dict)
    openinference: bool = False


PRESETS: Final[Mapping[str, Expected]] = {
    "phoenix": Expected(
        {"PHOENIX_COLLECTOR_ENDPOINT": "{url}", "PHOENIX_API_KEY": SECRET, "PHOENIX_PROJECT_NAME": "guide"},
        "",
        {"authorization": f"Bearer {SECRET}"},
        scores=True,
        resource={"openinference.project.name": "guide"},
        openinference=True,
    ),
    "mlflow": Expected(
        {"MLFLOW_TRACKING_URI": "{url}", "MLFLOW_EXPERIMENT_ID": "7", "MLFLOW_TRACKING_TOKEN": SECRET},
        "",
        {"authorization": f"Bearer {SECRET}", "x-mlflow-experiment-id": "7"},
        scores=True,
        needs=("MLFLOW_TRACKING_URI",),
        openinference=True,
    ),
    "langfuse": Expected(
        {
            "LANGFUSE_HOST": "{url}/",
            "LANGFUSE_PUBLIC_KEY": "pk-1",
            "LANGFUSE_SECRET_KEY": SECRET,
            "LANGFUSE_TRACING_ENVIRONMENT": "staging",
        },
        "/api/public/otel",
        {"authorization": _basic(f"pk-1:{SECRET}"), "x-langfuse-ingestion-version": "4"},
        scores=True,
        needs=("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),
        resource={"langfuse.environment": "staging"},
        openinference=True,
    ),
    "datadog": Expected(
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{url}/v1/traces", "DD_API_KEY": SECRET, "DD_SITE": "invalid"},
        "",
        {"dd-api-key": SECRET, "dd-otlp-source": "llmobs"},
        scores=True,
        needs=("DD_API_KEY",),
    ),
    "opik": Expected(
        {
            "OPIK_URL_OVERRIDE": "{url}/api",
            "OPIK_API_KEY": SECRET,
            "OPIK_WORKSPACE": "team",
            "OPIK_PROJECT_NAME": "a project, and more",
        },
        "/api/v1/private/otel",
        {"authorization": SECRET, "comet-workspace": "team", "projectname": "a project, and more"},
        scores=True,
        openinference=True,
    ),
    "langsmith": Expected(
        {"LANGSMITH_ENDPOINT": "{url}", "LANGSMITH_API_KEY": SECRET, "LANGSMITH_PROJECT": "guide"},
        "/otel",
        {"x-api-key": SECRET, "langsmith-project": "guide"},
        needs=("LANGSMITH_API_KEY",),
        openinference=True,
    ),
    "logfire": Expected(
        {"LOGFIRE_BASE_URL": "{url}", "LOGFIRE_TOKEN": SECRET},
        "",
        {"authorization": SECRET},
        ALL,
        needs=("LOGFIRE_TOKEN",),
    ),
    "weave": Expected(
        {"WF_TRACE_SERVER_URL": "{url}", "WANDB_API_KEY": SECRET, "WANDB_ENTITY": "team", "WANDB_PROJECT": "guide"},
        "/otel",
        {"wandb-api-key": SECRET},
        needs=("WANDB_API_KEY", "WANDB_ENTITY", "WANDB_PROJECT"),
        resource={"wandb.entity": "team", "wandb.project": "guide"},
        openinference=True,
    ),
    "honeycomb": Expected(
        {"HONEYCOMB_API_ENDPOINT": "{url}", "HONEYCOMB_API_KEY": SECRET},
        "",
        {"x-honeycomb-team": SECRET},
        ALL,
        needs=("HONEYCOMB_API_KEY",),
    ),
    "grafana_cloud": Expected(
        {
            "GRAFANA_CLOUD_OTLP_ENDPOINT": "{url}/otlp",
            "GRAFANA_CLOUD_INSTANCE_ID": "123",
            "GRAFANA_CLOUD_API_KEY": SECRET,
        },
        "/otlp",
        {"authorization": _basic(f"123:{SECRET}")},
        ALL,
        needs=("GRAFANA_CLOUD_OTLP_ENDPOINT", "GRAFANA_CLOUD_INSTANCE_ID", "GRAFANA_CLOUD_API_KEY"),
    ),
    "jaeger": Expected({"JAEGER_OTLP_ENDPOINT": "{url}"}, "", {}),
    "signoz": Expected(
        {"SIGNOZ_ENDPOINT": "{url}", "SIGNOZ_INGESTION_KEY": SECRET}, "", {"signoz-ingestion-key": SECRET}, ALL
    ),
    "newrelic": Expected(
        {"NEW_RELIC_OTLP_ENDPOINT": "{url}", "NEW_RELIC_LICENSE_KEY": SECRET},
        "",
        {"api-key": SECRET},
        ALL,
        needs=("NEW_RELIC_LICENSE_KEY",),
    ),
}
NEEDED: Final = [(name, variable) for name, expected in PRESETS.items() for variable in expected.needs]
CLOUD: Final = {
    "phoenix": ({}, "http://localhost:6006/v1/traces"),
    "langfuse": ({}, "https://cloud.langfuse.com/api/public/otel/v1/traces"),
    "datadog": ({"DD_SITE": "datadoghq.eu"}, "https://otlp.datadoghq.eu/v1/traces"),
    "opik": ({}, "https://www.comet.com/opik/api/v1/private/otel/v1/traces"),
    "langsmith": ({}, "https://api.smith.langchain.com/otel/v1/traces"),
    "logfire": ({"LOGFIRE_TOKEN": "pylf_v1_eu_abc"}, "https://logfire-eu.pydantic.dev/v1/traces"),
    "weave": ({}, "https://trace.wandb.ai/otel/v1/traces"),
    "honeycomb": ({}, "https://api.honeycomb.io/v1/traces"),
    "jaeger": ({}, "http://localhost:4318/v1/traces"),
    "signoz": ({"SIGNOZ_REGION": "in"}, "https://ingest.in.signoz.cloud:443/v1/traces"),
    "newrelic": ({"NEW_RELIC_LICENSE_KEY": "eu01xx"}, "https://otlp.eu01.nr-data.net/v1/traces"),
}


def _environ(expected: Expected, url: str) -> dict[str, str]:
    return {name: value.replace("{url}", url) for name, value in expected.environ.items()}


def _signals(name: str, environ: Mapping[str, str]) -> Signals:
    point = find_exporter(name)
    assert point is not None
    signals: Signals = point.load()(environ)
    return signals


def _endpoints(name: str, environ: Mapping[str, str]) -> list[Endpoint]:
    find = exporter_function(name, "endpoints")
    assert find is not None
    found: list[Endpoint] = find(environ)
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_a_call_goes_where_the_backend_takes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`configure(exporter=name)` sends the signals that the backend takes, to its paths and with its headers."""
    expected = PRESETS[name]
    with Backend() as server:
        for variable, value in _environ(expected, server.url).items():
            monkeypatch.setenv(variable, value)
        ragtrace.configure(service="guide-service", exporter=name)
        ask(QUESTION)
        ragtrace.flush(timeout=5.0)
        ragtrace.shutdown(timeout=2.0)
        exports = [request for request in server.requests if "/v1/" in request.path and isinstance(request.body, bytes)]
        exports = [request for request in exports if request.headers["content-type"] == "application/x-protobuf"]
    assert {request.path for request in exports} == {f"{expected.path}/v1/{signal}" for signal in expected.signals}
    for request in exports:
        assert {key: request.headers.get(key) for key in expected.headers} == expected.headers


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_what_its_backend_is(name: str) -> None:
    """Native scores, attribute conventions and resource attributes."""
    expected = PRESETS[name]
    signals = _signals(name, _environ(expected, "http://localhost:1"))
    assert (signals.scores is not None) == expected.scores
    assert signals.scores is None or signals.scores.name == name
    assert signals.resource == expected.resource
    assert ("openinference" in signals.dialects) == expected.openinference


@pytest.mark.parametrize("name", PRESETS)
def test_doctor_can_ask_where_a_preset_sends(name: str) -> None:
    """The module has `endpoints`, one for each signal, with secrets in no representation."""
    expected = PRESETS[name]
    found = _endpoints(name, _environ(expected, "http://localhost:1"))
    assert {endpoint.signal for endpoint in found} == expected.signals
    assert SECRET not in repr(found)
    preset: Preset = getattr(import_module(f"ragtrace_exporters.{name}"), name)
    assert SECRET not in repr(preset.read(_environ(expected, "http://x")))


@pytest.mark.parametrize("name", CLOUD)
def test_the_hosted_backend_is_the_default(name: str) -> None:
    """Without an address, the one in the documentation."""
    environ = {key: value for key, value in PRESETS[name].environ.items() if "{url}" not in value}
    more, url = CLOUD[name]
    assert _endpoints(name, {**environ, **more})[0].url == url


@pytest.mark.parametrize(("name", "variable"), NEEDED)
def test_a_missing_variable_is_named(name: str, variable: str) -> None:
    """With what to do about it, before anything starts."""
    environ = _environ(PRESETS[name], "http://localhost:1")
    del environ[variable]
    with pytest.raises(SettingsError, match=variable) as caught:
        _signals(name, environ)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_an_address_that_is_none_is_refused_without_being_shown(name: str) -> None:
    """It may hold a password."""
    environ = _environ(PRESETS[name], "http://localhost:1")
    address = next(key for key, value in environ.items() if "localhost" in value)
    if address.startswith("OTEL_"):
        pytest.skip("the exporter's own variable, which has its own message")
    for wrong in (f"http://user:{SECRET}@host", f"ftp://{SECRET}"):
        with pytest.raises(SettingsError, match=address) as caught:
            _signals(name, {**environ, address: wrong})
        assert SECRET not in str(caught.value)


def test_other_backends_keys_stay_with_them() -> None:
    """The common OTLP variables are for another backend: neither its address nor its key is used."""
    common = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere:4317",
        "OTEL_EXPORTER_OTLP_HEADERS": f"other-key={SECRET}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    (traces,) = _endpoints("jaeger", {**common, "JAEGER_OTLP_ENDPOINT": "http://jaeger:4318"})
    assert (traces.url, traces.protocol, traces.headers) == ("http://jaeger:4318/v1/traces", "http/protobuf", {})


def test_a_signal_with_an_address_of_its_own_goes_there() -> None:
    """Traces to Phoenix and metrics to a collector, for instance."""
    collector = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318/v1/metrics"}
    found = _endpoints("phoenix", collector)
    assert {endpoint.signal: endpoint.url for endpoint in found} == {
        "traces": "http://localhost:6006/v1/traces",
        "metrics": "http://collector:4318/v1/metrics",
    }


def test_a_signal_can_be_switched_off() -> None:
    """By the standard variable."""
    environ = {**_environ(PRESETS["honeycomb"], "http://h"), "OTEL_LOGS_EXPORTER": "none"}
    assert {endpoint.signal for endpoint in _endpoints("honeycomb", environ)} == {"traces", "metrics"}


def test_the_standard_switch_turns_a_preset_off() -> None:
    """No exporter and no posting."""
    signals = _signals("phoenix", {"OTEL_SDK_DISABLED": "true"})
    assert signals == Signals()


def test_phoenixs_grpc_port_is_refused() -> None:
    """Scores cannot go there."""
    with pytest.raises(SettingsError, match="4317"):
        _signals("phoenix", {"PHOENIX_COLLECTOR_ENDPOINT": "http://localhost:4317"})


def test_an_experiment_by_name_is_refused() -> None:
    """MLflow wants its number."""
    with pytest.raises(SettingsError, match="MLFLOW_EXPERIMENT_ID"):
        _signals("mlflow", {"MLFLOW_TRACKING_URI": "http://localhost:1", "MLFLOW_EXPERIMENT_NAME": "guide"})


def test_no_secret_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Neither when all goes well nor when the backend refuses everything and repeats the key."""
    from tests.support.backends import Answer

    caplog.set_level(logging.DEBUG)
    with Backend(lambda request: Answer(401, dict(request.headers))) as server:
        for variable, value in _environ(PRESETS["langfuse"], server.url).items():
            monkeypatch.setenv(variable, value)
        ragtrace.configure(service="guide-service", exporter="langfuse")
        ask(QUESTION)
        assert not ragtrace.flush(timeout=20.0)
        assert ragtrace.stats().sinks["langfuse"].failed.keys() == {"unauthorized"}
        ragtrace.shutdown(timeout=1.0)
    assert "unauthorized" in caplog.text
    assert SECRET not in caplog.text
    assert _basic(f"pk-1:{SECRET}").split()[1] not in caplog.text


def test_the_users_dialects_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the backend prefers is only for those who said nothing."""
    with Backend() as server:
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", server.url)
        assert b"openinference.span.kind" in _exported(server)
        monkeypatch.setenv("RAGTRACE_DIALECTS", "otel")
        assert b"openinference.span.kind" not in _exported(server)


def _exported(server: Backend) -> bytes:
    """The spans of one call."""
    before = len(server.requests)
    ragtrace.configure(service="guide-service", exporter="phoenix")
    ask(QUESTION)
    assert ragtrace.flush(timeout=20.0)
    ragtrace.shutdown(timeout=2.0)
    bodies: list[Any] = [r.body for r in server.requests[before:] if r.path == "/v1/traces"]
    return b"".join(bodies)


def test_the_counts_are_a_metric_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ragtrace.sink.scores`, by backend and outcome."""
    from tests.support.otlp import HttpReceiver

    with Backend() as server, HttpReceiver() as receiver:
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.endpoint}/v1/metrics")
        ragtrace.configure(service="guide-service", exporter="phoenix", metrics=["consistency"])
        ask(QUESTION)
        assert ragtrace.flush(timeout=20.0)
        assert ragtrace.flush(timeout=20.0)
        points = receiver.latest_metrics()["ragtrace.sink.scores"].points
        ragtrace.shutdown(timeout=2.0)
    counts = {point.attributes["ragtrace.outcome"]: point.value for point in points}
    assert counts["offered"] == counts["posted"] == 1


@pytest.mark.parametrize(
    ("service", "environ", "project"),
    [
        ("shop", {}, "shop"),
        (None, {"OTEL_SERVICE_NAME": "till"}, "till"),
        (None, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=store"}, "store"),
        ("shop", {"PHOENIX_PROJECT_NAME": "guide"}, "guide"),
        ("shop", {"OTEL_RESOURCE_ATTRIBUTES": "openinference.project.name=mine"}, "mine"),
        (None, {}, None),
    ],
    ids=["service", "otel-service", "resource", "project", "own-attribute", "nothing"],
)
def test_each_service_is_a_project_of_phoenix(
    service: str | None, environ: Mapping[str, str], project: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of Phoenix and the user's own attribute go first; without any name Phoenix chooses."""
    with HttpReceiver() as receiver:
        for variable, value in {"PHOENIX_COLLECTOR_ENDPOINT": receiver.endpoint, **environ}.items():
            monkeypatch.setenv(variable, value)
        ragtrace.configure(service=service, exporter="phoenix")
        ask(QUESTION)
        ragtrace.flush(timeout=20.0)
        receiver.wait_for(lambda got: got.spans)
        ragtrace.shutdown(timeout=0.0)
        assert {span.resource.get("openinference.project.name") for span in receiver.spans} == {project}


def test_other_backends_get_no_project_of_phoenix(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attribute is for the one backend that reads it."""
    for variable, value in receiver.environ.items():
        monkeypatch.setenv(variable, value)
    ragtrace.configure(service="shop", exporter="otlp")
    ask(QUESTION)
    assert ragtrace.flush(timeout=20.0)
    assert {span.resource.get("openinference.project.name") for span in receiver.spans} == {None}
