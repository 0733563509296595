"""A judge asks its model by a client that the user's function makes: Azure, headers, proxies, any subclass."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import openai
import pytest

import ragtrace
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import RagCall
from ragtrace.testing import OpenAIServer, Reply
from tests.support.scored import EVERY
from tests.support.watched import WAIT_S, ask, watch

KEY = "sk-secret-1234"


def judged(client: Callable[[], openai.AsyncOpenAI]) -> float:
    """Have a call judged live by a model behind *client*, and return its faithfulness."""
    captured = watch(
        screen=None, judge=ragtrace.OpenAIJudge("ours", client=client), sampling=EVERY, metrics=["faithfulness"]
    )
    ask("where?")
    assert ragtrace.flush(WAIT_S)
    score = (captured.root().attributes or {})["ragtrace.eval.faithfulness.score"]
    assert isinstance(score, float)
    return score


@pytest.mark.parametrize(
    ("secret", "header", "value"),
    [({"api_key": KEY}, "api-key", KEY), ({"azure_ad_token": KEY}, "authorization", f"Bearer {KEY}")],
    ids=["key", "token"],
)
def test_azure_is_asked_at_its_deployment_with_its_own_header(secret: dict[str, str], header: str, value: str) -> None:
    """The version is in the query."""
    with OpenAIServer() as server:
        root = server.url.removesuffix("/v1")
        judged(lambda: openai.AsyncAzureOpenAI(azure_endpoint=root, api_version="2024-10-21", **secret))
        [request] = server.chats
    assert (request.path, request.query) == ("/openai/deployments/ours/chat/completions", "api-version=2024-10-21")
    assert request.headers[header] == value


def test_a_client_keeps_its_headers_and_address() -> None:
    """As a gateway in front of a model wants them."""
    with OpenAIServer() as server:
        judged(
            lambda: openai.AsyncOpenAI(
                base_url=f"{server.url}/gateway",
                api_key=KEY,
                default_headers={"x-team": "search", "user-agent": "shop"},
            )
        )
        [request] = server.chats
    assert request.path == "/v1/gateway/chat/completions"
    sent = [request.headers[name] for name in ("x-team", "user-agent", "authorization")]
    assert sent == ["search", "shop", f"Bearer {KEY}"]


def test_a_client_goes_through_its_proxy() -> None:
    """The proxy sees the whole address of a server that this machine does not know."""
    with OpenAIServer() as proxy:
        address = proxy.url.removesuffix("/v1")
        judged(
            lambda: openai.AsyncOpenAI(
                base_url="http://model.invalid/v1",
                api_key=KEY,
                http_client=openai.DefaultAsyncHttpxClient(proxy=address),
            )
        )
        [request] = proxy.chats
    assert request.path == "http://model.invalid/v1/chat/completions"


def test_a_subclass_may_sign_each_request() -> None:
    """Whatever it adds is sent."""

    class Signing(openai.AsyncOpenAI):
        @property
        def default_headers(self) -> dict[str, Any]:
            return {**super().default_headers, "x-signature": "signed"}

    with OpenAIServer() as server:
        judged(lambda: Signing(base_url=server.url, api_key=KEY))
        assert server.chats[0].headers["x-signature"] == "signed"


def test_each_event_loop_has_a_client_of_its_own() -> None:
    """A judge outlives loops, as those of `ragtrace.score`; the client is closed with the loop."""
    made: list[openai.AsyncOpenAI] = []

    with OpenAIServer() as server:

        def make() -> openai.AsyncOpenAI:
            made.append(openai.AsyncOpenAI(base_url=server.url, api_key=KEY))
            return made[-1]

        judge = ragtrace.OpenAIJudge("ours", client=make)
        assert len(made) == 1  # so that a mistake is seen at the start
        for _ in range(3):
            asyncio.run(_judge_twice(judge))
        assert len(server.chats) == 6
    assert len(made) == 3
    assert [client.is_closed() for client in made] == [True] * 3


async def _judge_twice(judge: ragtrace.OpenAIJudge) -> None:
    for _ in range(2):
        await judge.judge(RagCall("q", (ragtrace.Document("It is."),), "It is."))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_a_client_of_its_own() -> None:
    """It must not use the connections that its parent has."""
    with OpenAIServer() as server:
        judge = ragtrace.OpenAIJudge("ours", client=lambda: openai.AsyncOpenAI(base_url=server.url, api_key=KEY))

        loop = asyncio.new_event_loop()
        loop.run_until_complete(_judge_twice(judge))
        child = os.fork()  # while the loop stands still: two processes that run one loop take each other's wake-ups
        if child == 0:
            try:
                asyncio.run(_judge_twice(judge))
            except BaseException:
                os._exit(1)
            os._exit(0)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (len(server.chats), server.n_connections) == (4, 2)


def test_the_key_of_a_client_does_not_reach_telemetry() -> None:
    """Servers quote the request in their errors."""
    with OpenAIServer(Reply.failing(401, f"Incorrect API key provided: {KEY}")) as server:
        judge = ragtrace.OpenAIJudge("ours", client=lambda: openai.AsyncOpenAI(base_url=server.url, api_key=KEY))
        with pytest.raises(JudgeError, match=r"provided: \*\*\*"):
            asyncio.run(_judge_twice(judge))


def test_an_error_of_a_client_is_read_as_ours() -> None:
    """Status, wait and whether to ask again."""
    with OpenAIServer(Reply.too_many(7)) as server:
        judge = ragtrace.OpenAIJudge("ours", client=lambda: openai.AsyncOpenAI(base_url=server.url, api_key=KEY))
        with pytest.raises(JudgeError) as caught:
            asyncio.run(_judge_twice(judge))
        assert server.n_chats == 1  # its own retries are off: all requests of the process share one gate
    assert (caught.value.reason, caught.value.retry_after, caught.value.retryable) == ("unavailable", 7, True)


def test_an_embedder_has_a_client_too() -> None:
    """Azure's embeddings are deployments as well."""
    with OpenAIServer() as server:
        root = server.url.removesuffix("/v1")
        embedder = ragtrace.judges.OpenAIEmbedder(
            "small", client=lambda: openai.AsyncAzureOpenAI(azure_endpoint=root, api_version="v", api_key=KEY)
        )

        async def embed() -> int:
            vectors, _ = await embedder.embed(["a", "b"])
            await embedder.aclose()
            return len(vectors)

        assert asyncio.run(embed()) == 2
        assert [request.path for request in server.requests] == ["/openai/deployments/small/embeddings"]


def _fails() -> openai.AsyncOpenAI:
    raise RuntimeError("no secret in the vault")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"client": openai.AsyncOpenAI(api_key=KEY)}, r"client=lambda: AsyncOpenAI\(\.\.\.\)"),
        ({"client": 5}, r"a function that makes a client, got int.*client=lambda: openai\.AsyncOpenAI"),
        ({"client": lambda: openai.OpenAI(api_key=KEY)}, r"must make an openai\.AsyncOpenAI.*got OpenAI"),
        ({"client": _fails}, "could not make a client: RuntimeError: no secret in the vault"),
        ({"client": lambda: openai.AsyncOpenAI(api_key=KEY), "base_url": "http://x/v1"}, "both given"),
    ],
    ids=["instance", "number", "synchronous", "fails", "address_twice"],
)
def test_what_makes_no_client_stops_at_the_start(settings: dict[str, Any], said: str) -> None:
    """With what to write instead."""
    with pytest.raises(SettingsError, match=said):
        ragtrace.OpenAIJudge("ours", **settings)
