"""TLS for the gateway's listeners, with one certificate for OTLP/HTTP and OTLP/gRPC."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ragtrace.core.errors import SettingsError

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """Paths of the PEM files with the certificate and the key for TLS on the gateway's listeners.

    Args:
        certificate: the gateway's certificate, and behind it those of the authorities between it and the root.
        key: the certificate's private key, without a password.
        client_ca: authorities one of which must have signed the certificate of each client; None: clients need none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def http_context(self) -> ssl.SSLContext:
        """Create the TLS context for the OTLP/HTTP server.

        Raises:
            SettingsError: a file cannot be read, or the key does not belong to the certificate.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # The empty password refuses an encrypted key, for which OpenSSL would otherwise ask on the terminal.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"--tls-cert {self.certificate} and --tls-key {self.key} cannot be used: {error}; they must be PEM "
                "files of a certificate and of its key without a password"
            ) from error
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise SettingsError(f"--tls-client-ca {self.client_ca} cannot be used: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Create the TLS credentials for the OTLP/gRPC server, from files that `http_context` has read."""
        import grpc

        authorities = None if self.client_ca is None else self.client_ca.read_bytes()
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=authorities,
            require_client_auth=authorities is not None,
        )
