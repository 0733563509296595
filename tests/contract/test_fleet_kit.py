"""The kit of gateway and workers is valid by the schemas of Compose and Kubernetes; its commands and settings exist."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

import ragtrace
from ragtrace.cli import serve_command, worker_command
from ragtrace.core import semconv
from ragtrace.gateway.config_file import read_config
from tests.support.kits import KITS
from tests.support.prometheus_names import Instrument, received_names

KIT: Final = KITS / "fleet"
KUBERNETES: Final = "1.33"
SECRET: Final = re.compile(r"TOKEN|KEY|HEADERS|FLEET|PASS")
COLLECTOR_KEYS: Final = {
    "receivers/otlp": {"protocols.grpc.endpoint", "protocols.http.endpoint"},
    "receivers/kafka": {
        "brokers", "group_id", "initial_offset", "traces.topics", "traces.encoding", "message_marking.after",
        "message_marking.on_error", "error_backoff.enabled", "error_backoff.initial_interval",
        "error_backoff.max_interval", "error_backoff.max_elapsed_time",
    },
    "processors/memory_limiter": {"check_interval", "limit_percentage", "spike_limit_percentage"},
    "exporters/loadbalancing": {
        "routing_key", "protocol.otlp.timeout", "protocol.otlp.headers.authorization", "protocol.otlp.tls.insecure",
        "protocol.otlp.sending_queue.enabled", "protocol.otlp.retry_on_failure.enabled",
        "protocol.otlp.retry_on_failure.max_elapsed_time", "resolver.dns.hostname", "resolver.dns.port",
        "resolver.dns.interval",
    },
    "exporters/otlphttp": {"endpoint"},
}  # fmt: skip
"""Documented settings of the Collector's components.

Source: the READMEs of receiver/otlpreceiver, processor/memorylimiterprocessor, exporter/otlphttpexporter, and
exporter/exporterhelper (queue and retries) in opentelemetry-collector; of receiver/kafkareceiver and
exporter/loadbalancingexporter ("all options from the OTLP exporter are supported except the endpoint") in
opentelemetry-collector-contrib, version 0.154.
"""


# --- Compose ----------------------------------------------------------------------------------------------------------


def compose_text() -> str:
    """Return the compose file with the variables of its environment filled in."""
    text = (KIT / "compose.yaml").read_text(encoding="utf-8")
    return re.sub(r"\$\{\w+(?:(:-)|:\?[^}]*)?\}", lambda found: "" if found[1] else "given", text)


def test_the_compose_file_is_of_the_specification() -> None:
    """Its services, volumes and dependencies are declared; a wrong key is seen."""
    from compose_spec import PyCompose

    parsed = PyCompose.from_yaml(_without_anchors(compose_text()))
    parsed.validate()
    assert set(parsed.service_names()) == {"rabbitmq", "serve", "worker", "collector"}
    with pytest.raises(ValueError, match="commands"):
        PyCompose.from_yaml(_without_anchors(compose_text().replace("    command:", "    commands:", 1)))


def _without_anchors(text: str) -> str:
    found = yaml.safe_load(text)
    return str(yaml.safe_dump({name: value for name, value in found.items() if not name.startswith("x-")}))


def test_the_compose_file_mounts_files_of_the_kit() -> None:
    """A path that is not there would become an empty folder."""
    mounted = re.findall(r'"\./([^:"]+):', compose_text())
    assert mounted
    assert all((KIT / path).is_file() for path in mounted)


def test_the_compose_file_names_each_variable_that_it_needs() -> None:
    """A variable without a default stops compose with a message, at one place at least; the readme has it, too."""
    text, readme = (KIT / "compose.yaml").read_text(encoding="utf-8"), (KIT / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)\}", text))
    required = set(re.findall(r"\$\{(\w+):\?", text))
    assert used <= required
    assert all(f"{name}=" in readme for name in required)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def kustomization() -> dict[str, Any]:
    """Return the kustomization of the kit."""
    found: dict[str, Any] = yaml.safe_load((KIT / "kustomization.yaml").read_text(encoding="utf-8"))
    return found


def manifests() -> list[dict[str, Any]]:
    """Return every object of the manifests."""
    return [
        document
        for path in kustomization()["resources"]
        for document in yaml.safe_load_all((KIT / path).read_text(encoding="utf-8"))
    ]


def named(kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of *kind* by name."""
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each container with the specification of its pod."""
    for deployment in named("Deployment").values():
        pod = deployment["spec"]["template"]["spec"]
        yield from ((container, pod) for container in pod["containers"])


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_each_manifest_is_of_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    """Strictly: a key that the schema does not know is an error."""
    import kubernetes_validate

    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_check_of_manifests_sees_a_wrong_one() -> None:
    """A probe that is misspelt would be ignored by the cluster."""
    import kubernetes_validate

    deployment = named("Deployment")["ragtrace-serve"]
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


def test_the_kustomization_names_files_of_the_kit() -> None:
    """Every manifest is in it, and every file that a ConfigMap is made of."""
    found = kustomization()
    assert set(found["resources"]) == {f"kubernetes/{path.name}" for path in (KIT / "kubernetes").iterdir()}
    made_of = [file for each in found["configMapGenerator"] for file in each.get("files", ())]
    assert all((KIT / file).is_file() for file in made_of)


def test_objects_refer_to_objects_that_exist() -> None:
    """Services, budgets and autoscalers have pods; volumes and variables have ConfigMaps."""
    pods = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in named("Deployment").items()}
    for deployment in named("Deployment").values():
        assert deployment["spec"]["selector"]["matchLabels"].items() <= pods[deployment["metadata"]["name"]].items()
    wanted = [each["spec"]["selector"] for each in named("Service").values()]
    wanted += [each["spec"]["selector"]["matchLabels"] for each in named("PodDisruptionBudget").values()]
    assert all(any(selector.items() <= labels.items() for labels in pods.values()) for selector in wanted)
    assert {each["spec"]["scaleTargetRef"]["name"] for each in named("HorizontalPodAutoscaler").values()} <= set(pods)
    config_maps = {each["name"] for each in kustomization()["configMapGenerator"]}
    for container, pod in containers():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        used = [volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume]
        sources = [each["valueFrom"] for each in container["env"] if "valueFrom" in each]
        used += [source["configMapKeyRef"]["name"] for source in sources if "configMapKeyRef" in source]
        assert set(used) <= config_maps


def test_secrets_are_references() -> None:
    """No manifest holds a secret, and the readme says how the keys of the secret are made."""
    readme = (KIT / "README.md").read_text(encoding="utf-8")
    keys = set()
    for container, _ in containers():
        for variable in container["env"]:
            if SECRET.search(variable["name"]):
                reference = variable["valueFrom"]["secretKeyRef"]
                assert reference["name"] == "ragtrace"
                keys.add(reference["key"])
        assert not [argument for argument in container["args"] if "://" in argument]
    assert not named("Secret")
    assert keys == set(re.findall(r"--from-literal=([a-z-]+)=", readme))
    gateway = named("Deployment")["ragtrace-serve"]["spec"]["template"]["spec"]["containers"][0]
    assert "OPENAI_API_KEY" not in {variable["name"] for variable in gateway["env"]}


def test_probes_ask_for_paths_and_ports_that_exist() -> None:
    """The gateway is asked for its health, the Collector for its port."""
    asked = set()
    for container, _ in containers():
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for how in container.get(probe, {}).values():
                if isinstance(how, dict):
                    assert how["port"] in ports
                    asked |= {how["path"]} if "path" in how else set()
    assert asked == {"/healthz", "/readyz"}
    for service in named("Service").values():
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= {"otlp-grpc", "otlp-http"}


def test_the_autoscaler_reads_a_metric_that_is_exported() -> None:
    """The readme's rule of the adapter names the same one."""
    (metric,) = named("HorizontalPodAutoscaler")["ragtrace-worker"]["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    assert name == received_names(Instrument("gauge", semconv.METRIC_FLEET_QUEUE, "{call}"))[0]
    assert f"seriesQuery: {name}\n" in (KIT / "README.md").read_text(encoding="utf-8")


# --- commands and settings --------------------------------------------------------------------------------------------


def commands() -> list[list[str]]:
    """Return the arguments with which the kit starts ragtrace."""
    services = yaml.safe_load(compose_text())["services"]
    composed = [services[name]["command"] for name in ("serve", "worker")]
    return composed + [container["args"] for container, _ in containers() if container["image"] == "ragtrace"]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_commands_are_ragtraces(arguments: list[str]) -> None:
    """Every option exists."""
    parser = ArgumentParser()
    subcommands = parser.add_subparsers()
    for command in (serve_command, worker_command):
        command.register(subcommands)
    options = parser.parse_args(arguments)
    assert str(options.config) == "/etc/ragtrace/ragtrace.toml"


def test_the_settings_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a worker, and by the gateway, which has neither the judge nor its key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = read_config(KIT / "ragtrace.toml")
    assert set(arguments) == {"metrics", "judge", "sampling"}
    del arguments["judge"]
    ragtrace.configure(**arguments, fleet="redis://127.0.0.1:9/0", exporter="none")
    assert ragtrace.shutdown(timeout=5.0)


def test_the_image_has_extras_that_exist() -> None:
    """The image is built of the distribution with the extras of both commands."""
    text = (KIT / "Dockerfile").read_text(encoding="utf-8")
    project = (KITS.parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.search(r"ragtrace-otel\[([a-z,]+)\]", text)
    assert extras
    assert all(f"\n{extra} = [" in project for extra in extras[1].split(","))


# --- the Collector ----------------------------------------------------------------------------------------------------


def collector_configurations() -> list[dict[str, Any]]:
    """Return the configuration without and with Kafka, merged as the Collector does."""
    first, added = (
        yaml.safe_load((KIT / name).read_text(encoding="utf-8")) for name in ("collector.yaml", "kafka.yaml")
    )
    return [first, merged(first, added)]


def merged(first: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Return *first* with the keys of *added*; of two lists the second one is taken."""
    both = {key: merged(first[key], added[key]) for key in first if isinstance(first[key], dict) and key in added}
    return {**first, **added, **both}


def keys(found: object, path: str = "") -> Iterator[str]:
    """Yield the path of every setting."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from keys(value, f"{path}.{key}" if path else key)
    else:
        yield path


@pytest.mark.parametrize("config", collector_configurations(), ids=["otlp", "kafka"])
def test_the_collector_has_documented_settings_alone(config: dict[str, Any]) -> None:
    """Its components and their keys are documented; pipelines are made of components that are configured."""
    used = {kind: set() for kind in ("receivers", "processors", "exporters")}
    for pipeline in config["service"]["pipelines"].values():
        for kind, components in pipeline.items():
            used[kind] |= set(components)
    for kind, components in used.items():
        assert components == set(config[kind])
        for component in components:
            documented = COLLECTOR_KEYS[f"{kind}/{component.partition('/')[0]}"]
            assert set(keys(config[kind][component])) <= documented


def test_the_collector_acknowledges_nothing_before_a_gateway_does() -> None:
    """There is no queue behind the acknowledgement, and Kafka's messages are marked after it."""
    _, config = collector_configurations()
    balancing = config["exporters"]["loadbalancing"]
    assert balancing["routing_key"] == "traceID"
    assert balancing["protocol"]["otlp"]["sending_queue"] == {"enabled": False}
    kafka = config["receivers"]["kafka"]
    assert kafka["message_marking"] == {"after": True, "on_error": False}
    assert kafka["error_backoff"]["enabled"]


def test_the_variables_of_the_collector_are_set() -> None:
    """By the compose file and by the manifests."""
    text = (KIT / "collector.yaml").read_text(encoding="utf-8")
    needed = set(re.findall(r"\$\{env:(\w+)\}", text))
    services = yaml.safe_load(compose_text())["services"]
    (deployed,) = [container for container, _ in containers() if container["name"] == "collector"]
    assert needed == set(services["collector"]["environment"]) == {each["name"] for each in deployed["env"]}
