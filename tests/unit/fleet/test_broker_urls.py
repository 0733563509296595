"""URLs of brokers and stores that cannot be used: said at start-up and by the doctor, without the password."""

from __future__ import annotations

import pytest

import ragtrace
from ragtrace.cli import main
from ragtrace.diagnosis import diagnose_environment
from ragtrace.fleet.broker import check_broker_url, check_store_url
from ragtrace.system.terminal import USAGE
from ragtrace.system.urls import hide_secrets

BAD = [
    "redis://ann:QUITE@host:port/0",
    "redis://ann:QUITE@host:99999/0",
    "redis://ann:QUITE@host:0/0",
    "redis://ann:QUITE/SECRET@host:6379/0",
    "redis://ann:QUITE@host:6379/0?socket_timeout=soon",
    "redis://ann:QUITE@[::1/0",
    "amqp://ann:QUITE#SECRET@host:5672/",
    "amqps://ann:QUITE@host:port/",
    "amqp://ann:QUITE@host:5672//?heartbeat=QUITE",
    "amqp://ann:QUITE@host:5672//?heartbeat=",
    "amqps://ann:QUITE@host:5672//?name=worker&timeout=soon",
    "http://ann:QUITE@host/",
]


@pytest.mark.parametrize("url", BAD)
def test_a_url_that_cannot_be_read_stops_at_start_up(url: str) -> None:
    """Else calls would wait for a broker that nobody can reach, and a worker would end with a traceback."""
    with pytest.raises(ragtrace.SettingsError, match="broker") as refused:
        ragtrace.configure(service="s", exporter="none", fleet=url)
    assert "QUITE" not in str(refused.value)
    assert "fleet=" in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis:6379/0",
        "rediss://:pass%2Fword@redis/0?socket_timeout=3",
        "redis:///0",
        "redis://[::1]:6379",
        "amqp://user:password@rabbitmq:5672//",
        "amqps://rabbitmq/vhost?heartbeat=10",
    ],
)
def test_other_urls_are_taken(url: str) -> None:
    """What is missing has the library's defaults."""
    assert check_broker_url(url, "fleet=") == url


STORES = [
    ("postgresql+psycopg://ann:QUITE@host/claims", "'postgresql+psycopg://host/...'"),
    ("sqlite:////var/lib/claims.db", "'sqlite://...'"),
    ("mysql://ann:QUITE@host:3306/claims", "'mysql://host:3306/...'"),
    ("amqp://ann:QUITE@rabbitmq:5672//", "'amqp://rabbitmq:5672//'"),
    ("ann:QUITE@host", "'...'"),
    ("redis", "'...'"),
]


@pytest.mark.parametrize(("url", "displayed"), STORES)
def test_a_worker_with_a_store_that_is_no_redis_stops_at_start_up(
    url: str, displayed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says where the URL came from, what was given, without the password, and what to write."""
    worker = ["worker", "--broker", "amqp://127.0.0.1:1//"]
    assert main([*worker, "--store", url]) == USAGE
    of_option = capsys.readouterr().err
    monkeypatch.setenv("RAGTRACE_FLEET_STORE", url)
    assert main(worker) == USAGE
    of_variable = capsys.readouterr().err
    for printed, origin in ((of_option, "--store"), (of_variable, "RAGTRACE_FLEET_STORE")):
        for part in (f"(from {origin})", displayed, "write for instance redis://redis:6379/0"):
            assert part in printed
        assert "QUITE" not in printed


@pytest.mark.parametrize("url", [*(url for url, _ in STORES), *BAD[:6]])
def test_the_doctor_says_of_a_store_what_a_worker_says(url: str) -> None:
    """A store that a worker would refuse is a problem, however it is wrong."""
    with pytest.raises(ragtrace.SettingsError) as refused:
        check_store_url(url, "RAGTRACE_FLEET_STORE")
    found = diagnose_environment({"RAGTRACE_EXPORTER": "none", "RAGTRACE_FLEET_STORE": url})
    [check] = [each for each in found.checks if each.what == "fleet store"]
    assert (check.ok, check.seen) == (False, hide_secrets(str(refused.value)))
    assert "QUITE" not in str(found)


def test_a_redis_is_taken_as_a_store() -> None:
    """With TLS, too."""
    for url in ("redis://redis:6379/0", "rediss://:pass%2Fword@redis/0?socket_timeout=3"):
        assert check_store_url(url, "--store") == url
