"""How URLs are shown: enough to find a server, and nothing that may be secret."""

from __future__ import annotations

from base64 import b64encode

import pytest

from ragtrace.system.urls import displayed_url, hide_path, hide_secrets, without_user

PASSWORD = "QUITESECRET"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
        (
            "https://cloud.langfuse.com/api/public/otel/v1/traces",
            "https://cloud.langfuse.com/api/public/otel/v1/traces",
        ),
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        ("amqp://ann:QUITESECRET@[::1]:5672//", "amqp://[::1]:5672//"),
        ("https://ann:QUITESECRET@host/v1?key=QUITESECRET#QUITESECRET", "https://host/v1?..."),
        ("https://host/tenants/QUITESECRET/v1", "https://host/..."),
        ("https://hooks.example.com/services/QUITESECRET", "https://hooks.example.com/..."),
        ("collector:4317", "collector:4317"),
        ("ann:QUITESECRET@collector:4317", "collector:4317"),
        ("redis://ann:QUITESECRET@host:port/0", "redis://..."),
        ("http//ann:QUITESECRET@host", "..."),
        ("ann:QUITESECRET@host", "..."),
        ("http://[ann:QUITESECRET@host", "http://..."),
        ("", "..."),
    ],
)
def test_a_url_is_shown_without_user_password_query_and_unknown_paths(url: str, shown: str) -> None:
    """Whatever is wrong with it."""
    assert displayed_url(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at redis://ann:QUITE@SECRET@host:6379/0 now", "at redis://***@host:6379/0 now"),
        ("Incorrect API key provided: sk-QUITESECRET.", "Incorrect API key provided: ***."),
        ("authorization: Bearer QUITESECRET", "authorization: ***"),
        ("see https://example.com/x?y=a@b", "see https://example.com/x?y=a@b"),
    ],
)
def test_a_text_of_somebody_else_is_shown_without_passwords_and_keys(text: str, shown: str) -> None:
    """Of any URL in it."""
    assert hide_secrets(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host/QUITESECRET/v1/traces", "Max retries exceeded with url: /... (refused)"),
        ("http://host/v1/traces", "Max retries exceeded with url: /v1/traces (refused)"),
        ("http://host", "Max retries exceeded with url:  (refused)"),
    ],
)
def test_the_error_of_an_http_library_is_shown_without_a_path_that_may_be_secret(url: str, shown: str) -> None:
    """Paths of APIs stay."""
    path = url.removeprefix("http://host")
    assert hide_path(f"Max retries exceeded with url: {path} (refused)", url) == shown


@pytest.mark.parametrize("written", ["/v1/QUITE SECRET+ü/x", "/v1/QUITE%20SECRET+%C3%BC/x", "/v1/QUITE%20SECRET+ü/x"])
@pytest.mark.parametrize(
    "named", ["/v1/QUITE SECRET+ü/x", "/v1/QUITE%20SECRET%2B%C3%BC/x", "/v1/QUITE%20SECRET+%C3%BC/x"]
)
def test_a_path_is_hidden_however_it_is_spelled(written: str, named: str) -> None:
    """Libraries name the path with other characters escaped than the user has written."""
    assert "SECRET" not in hide_path(f"failed: {named}", f"https://host{written}")


@pytest.mark.parametrize(
    ("url", "address", "sent"),
    [
        ("https://ann:QUITESECRET@host/v1", "https://host/v1", "ann:QUITESECRET"),
        ("https://ann:a@b:c@[::1]:9/v1?x=y@z", "https://[::1]:9/v1?x=y@z", "ann:a@b:c"),
        ("https://ann:%40%3A%2f@host", "https://host", "ann:@:/"),
        ("https://ann@host", "https://host", "ann:"),
        ("https://:QUITESECRET@host", "https://host", ":QUITESECRET"),
        ("ann:QUITESECRET@collector:4317", "collector:4317", "ann:QUITESECRET"),
        ("https://@host", "https://host", ""),
        ("https://host/a@b", "https://host/a@b", ""),
        ("collector:4317", "collector:4317", ""),
        ("", "", ""),
    ],
)
def test_user_and_password_are_sent_in_a_header(url: str, address: str, sent: str) -> None:
    """As the characters that stand for them in the URL."""
    found, headers = without_user(url)
    assert found == address
    assert headers == ({"Authorization": f"Basic {b64encode(sent.encode()).decode()}"} if sent else {})
