"""URLs of brokers that cannot be used: said by `configure` and the commands, without a part of the password."""

from __future__ import annotations

import pytest

import ragtrace
from ragtrace.fleet.broker import check_broker_url

BAD = [
    "redis://ann:QUITE@host:port/0",
    "redis://ann:QUITE@host:99999/0",
    "redis://ann:QUITE@host:0/0",
    "redis://ann:QUITE/SECRET@host:6379/0",
    "redis://ann:QUITE@host:6379/0?socket_timeout=soon",
    "redis://ann:QUITE@[::1/0",
    "amqp://ann:QUITE#SECRET@host:5672/",
    "amqps://ann:QUITE@host:port/",
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
