"""Brokers that are reached by TLS: applications and workers verify the broker's certificate, and the name in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trustme

from ragtrace.fleet.broker import Broker as Client
from ragtrace.fleet.call_message import write_message
from tests.support.brokers import Broker, ask, rabbitmq_broker, redis_broker
from tests.support.fleet import handed_over, running_worker
from tests.support.judge_server import JudgeServer, labels
from tests.support.otlp import HttpReceiver
from tests.support.services import free_ports

pytestmark = pytest.mark.integration

AUTHORITIES: Final = "SSL_CERT_FILE"
"""Variable of OpenSSL with the certificates of the authorities that a program trusts."""
WAIT_S: Final = 30.0
FAILED: Final = r"(?i)certificate.verify.failed"
RABBITMQ_CONFIG: Final = """
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.cacertfile = {authority}
ssl_options.verify = verify_none
"""


@contextmanager
def broker_with_tls(kind: str, folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Run a broker whose certificate is for *name*; yield its URL with 127.0.0.1, and the file of the authority."""
    authority = trustme.CA()
    issued = authority.issue_cert(name)
    files = {each: folder / f"{each}.pem" for each in ("authority", "certificate", "key")}
    authority.cert_pem.write_to_path(files["authority"])
    issued.cert_chain_pems[0].write_to_path(files["certificate"])
    issued.private_key_pem.write_to_path(files["key"])
    for each in files.values():
        each.chmod(0o644)
    with free_ports(1) as (port,):
        pass
    described = {"redis": redis_broker, "rabbitmq": rabbitmq_broker}[kind]
    with described(folder) as plain, _with_tls(kind, plain, port, files).started():
        scheme, _, rest = plain.url.partition("://")
        yield f"{scheme}s://{rest.replace(str(plain.port), str(port))}", files["authority"]


def _with_tls(kind: str, plain: Broker, port: int, files: dict[str, Path]) -> Broker:
    if kind == "rabbitmq":
        config = plain.folder / "rabbitmq.conf"
        config.write_text(RABBITMQ_CONFIG.format(port=port, **files), encoding="utf-8")
        return replace(plain, environ={**plain.environ, "RABBITMQ_CONFIG_FILE": str(config)})
    options = ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", str(files["authority"])]
    options += ["--tls-cert-file", str(files["certificate"]), "--tls-key-file", str(files["key"])]
    return replace(plain, argv=[*plain.argv, *options])


async def publish(client: Client) -> Exception | None:
    """Publish one call, and return why it was not."""
    (error,) = await client.publish([write_message(handed_over(1))])
    return error


def assert_refused(url: str) -> None:
    """Check that neither a call is published nor the queue looked at."""
    assert re.search(FAILED, str(ask(url, publish)))
    with pytest.raises(Exception, match=FAILED):
        ask(url, lambda client: client.depths())


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_calls_reach_a_worker_by_tls(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent to a broker whose certificate no known authority has signed."""
    with broker_with_tls(kind, tmp_path, "127.0.0.1") as (url, authority):
        assert_refused(url)
        monkeypatch.setenv(AUTHORITIES, str(authority))
        assert ask(url, publish) is None
        assert ask(url, lambda client: client.depths()).calls == 1
        with (
            JudgeServer(labels()) as judge,
            HttpReceiver() as otlp,
            running_worker(tmp_path, url, judge.url, {**otlp.environ, AUTHORITIES: str(authority)}),
        ):
            otlp.wait_for(lambda _: any("gen_ai.evaluation.score.value" in log.attributes for log in otlp.logs), WAIT_S)


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_a_certificate_for_another_name_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known authority has signed it, but the broker has another name than the URL says."""
    with broker_with_tls(kind, tmp_path, "other.example") as (url, authority):
        monkeypatch.setenv(AUTHORITIES, str(authority))
        assert_refused(url)
