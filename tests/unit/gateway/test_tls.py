"""The gateway's listeners speak TLS by both protocols, with a certificate that the test makes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc
import httpx
import pytest
import trustme
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.core.errors import SettingsError
from ragtrace.gateway.serving import GatewaySettings, serve
from ragtrace.gateway.tls import ListenerTls
from ragtrace.gateway.upstream import METHOD
from tests.support.gateway import json_request, json_span, raw_http_upstream, running_gateway, trace_calls

JSON = {"content-type": "application/json"}


class Certificates:
    """An authority, and the files of a certificate for 127.0.0.1 that the authority has signed."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.authority_file = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.authority_file)
        issued = self.authority.issue_cert("127.0.0.1")
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(self.key)

    def client(self, *, shows_certificate: bool = False) -> ssl.SSLContext:
        """Return the context of a client that knows the authority."""
        context = ssl.create_default_context(cafile=str(self.authority_file))
        if shows_certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for all tests of this file."""
    return Certificates(tmp_path_factory.mktemp("tls"))


def test_the_exporters_of_the_sdk_reach_it_by_tls(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both protocols take spans with TLS; without TLS they take none."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they outrank the exporter's own certificate file
        monkeypatch.delenv(name, raising=False)
    tls = ListenerTls(certificates.certificate, certificates.key)
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, tls=tls) as running:
        assert running.url.startswith("https://127.0.0.1:")
        trace_calls(HttpExporter(endpoint=running.url, certificate_file=str(certificates.authority_file)))
        credentials = grpc.ssl_channel_credentials(certificates.authority_file.read_bytes())
        trace_calls(GrpcExporter(endpoint=f"https://{running.addresses.grpc}", credentials=credentials))
        assert running.gateway.span_counts() == {("received", ""): 6, ("forwarded", ""): 6}
        with pytest.raises(httpx.TransportError):
            httpx.post(running.url.replace("https", "http"), content=b"{}", headers=JSON)
        with grpc.insecure_channel(running.addresses.grpc) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(METHOD)(b"", timeout=5)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_gateway_forwards_to_a_backend_with_tls(certificates: Certificates, protocol: str) -> None:
    """By either protocol, with the authority and the client certificate that the environment names."""
    tls = ListenerTls(certificates.certificate, certificates.key, certificates.authority_file)
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, tls=tls) as backend:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://{backend.addresses.grpc}" if protocol == "grpc" else backend.root,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(certificates.authority_file),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(certificates.certificate),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(certificates.key),
        }
        with running_gateway(environ) as running:
            body = ExportTraceServiceRequest().SerializeToString()
            headers = {"content-type": "application/x-protobuf"}
            assert httpx.post(running.url, content=body, headers=headers).status_code == 200
        assert upstream.bodies == [body]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_of_either_version_of_tls_get_forward_secrecy(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    """A client that offers authenticated ciphers alone can connect."""
    client = certificates.client()
    client.minimum_version = client.maximum_version = version
    client.set_ciphers("ECDHE+AESGCM")
    tls = ListenerTls(certificates.certificate, certificates.key)
    with running_gateway({}, tls=tls) as running:
        assert httpx.get(f"{running.root}/healthz", verify=client).status_code == 200


def test_a_client_authority_keeps_clients_without_a_certificate_out(certificates: Certificates) -> None:
    """By both protocols."""
    tls = ListenerTls(certificates.certificate, certificates.key, certificates.authority_file)
    body = json_request(json_span())
    root = certificates.authority_file.read_bytes()
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, tls=tls) as running:
        with pytest.raises(httpx.TransportError):
            httpx.post(running.url, content=body, headers=JSON, verify=certificates.client())
        known = certificates.client(shows_certificate=True)
        assert httpx.post(running.url, content=body, headers=JSON, verify=known).status_code == 200
        own = certificates.key.read_bytes(), certificates.certificate.read_bytes()
        for pair, comes_in in (((None, None), False), (own, True)):
            credentials = grpc.ssl_channel_credentials(root, *pair)
            with grpc.secure_channel(running.addresses.grpc, credentials) as channel:
                export = channel.unary_unary(METHOD)
                if comes_in:
                    assert export(b"", timeout=5) == b""
                else:
                    with pytest.raises(grpc.RpcError):
                        export(b"", timeout=5)


def test_unusable_certificates_are_refused_at_the_start(certificates: Certificates, tmp_path: Path) -> None:
    """A key of another certificate, an encrypted key, a missing file, and authorities that are none."""
    other, encrypted, text = tmp_path / "other.key", tmp_path / "encrypted.key", tmp_path / "ca.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(other)
    encrypted.write_bytes(_encrypted(certificates.key.read_bytes()))
    text.write_text("no certificate")
    for tls, said in (
        (ListenerTls(certificates.certificate, other), "--tls-key"),
        (ListenerTls(certificates.certificate, encrypted), "without a password"),
        (ListenerTls(tmp_path / "none.crt", certificates.key), "none.crt"),
        (ListenerTls(certificates.certificate, certificates.key, text), "--tls-client-ca"),
    ):
        settings = GatewaySettings(http_port=0, grpc_port=0, tls=tls)
        with pytest.raises(SettingsError, match=said):
            asyncio.run(serve(settings, asyncio.Event(), environ={}))


def _encrypted(key: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    loaded = load_pem_private_key(key, password=None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
