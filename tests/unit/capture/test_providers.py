"""Which provider a generation has: what the client or the result tells, and nothing where nothing tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import ragtrace
from ragtrace.capture.providers import provider_of
from ragtrace.testing import Captured
from tests.support.watched import WAIT_S, watch

LOCAL = "http://127.0.0.1:9/v1"


def client(base_url: str | None = None) -> openai.OpenAI:
    """Return a client of the real openai package, which sends nothing until it is used."""
    return openai.OpenAI(api_key="none", base_url=base_url)


def of_module(module: str, name: str, **fields: Any) -> Any:
    """Return an object of a class *name* that says it is of *module*, with the given fields."""
    made = type(name, (), {"__module__": module})()
    vars(made).update(fields)
    return made


RESPONSE = of_module(
    "httpx", "Response", _request=of_module("httpx", "Request", url="https://api.groq.com/openai/v1/chat/completions")
)


def chat_provider(captured: Captured) -> object:
    """Return the provider on the only chat span."""
    assert ragtrace.flush(WAIT_S)
    [found] = [span.attributes or {} for span in captured.spans if span.name.startswith("chat")]
    return found["gen_ai.provider.name"]


groq = client("https://api.groq.com/openai/v1")
local = client(LOCAL)


# --- Objects ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://mine.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gcp.gemini"),
        ("https://europe-west1-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws.bedrock"),
        (LOCAL, ""),
        ("https://api.openai.com.example.org/v1", ""),
        ("https://notapi.openai.com.example/v1", ""),
    ],
)
def test_an_openai_compatible_client_tells_its_provider_by_the_host_only(base_url: str, provider: str) -> None:
    """An unknown host is not OpenAI, whatever the client's class is called."""
    assert provider_of(client(base_url)) == provider
    assert provider_of(client(base_url).chat.completions) == provider


def test_an_azure_client_tells_its_provider_by_its_class() -> None:
    """Whatever the endpoint."""
    azure = openai.AzureOpenAI(api_key="none", api_version="2024-10-21", azure_endpoint="https://gateway.example.org")
    assert provider_of(azure) == "azure.ai.openai"


@pytest.mark.parametrize(
    ("value", "provider"),
    [
        (of_module("anthropic.types.message", "Message"), "anthropic"),
        (of_module("anthropic.lib.bedrock._client", "AnthropicBedrock"), "aws.bedrock"),
        (of_module("anthropic", "Anthropic", _base_url="https://api.deepseek.com/anthropic"), "deepseek"),
        (of_module("anthropic", "Anthropic", _base_url="https://proxy.example.org"), "anthropic"),
        (of_module("google.genai.types", "GenerateContentResponse"), "gcp.gen_ai"),
        (of_module("botocore.client", "BedrockRuntime"), "aws.bedrock"),
        (of_module("botocore.client", "S3"), None),
        (of_module("mistralai.client.sdk", "Mistral"), "mistral_ai"),
        (of_module("langchain_mistralai.chat_models", "ChatMistralAI"), "mistral_ai"),
        (of_module("langchain_openai.chat_models.base", "ChatOpenAI", root_client=client(LOCAL)), ""),
        (of_module("langchain_openai.chat_models.base", "ChatOpenAI", root_client=client()), "openai"),
        (of_module("llama_index.llms.openai.base", "OpenAI", api_base="https://api.x.ai/v1"), "x_ai"),
        (of_module("llama_index.llms.bedrock_converse.base", "BedrockConverse"), "aws.bedrock"),
        (of_module("haystack.components.generators.chat.openai", "OpenAIChatGenerator", client=groq), "groq"),
        (of_module("haystack.dataclasses.document", "Document"), None),
        (of_module("haystack_integrations.components.generators.cohere.chat", "CohereChatGenerator"), "cohere"),
        (of_module("openai.types.chat.chat_completion", "ChatCompletion"), ""),
        (of_module("openai", "Stream", response=RESPONSE), "groq"),
        (of_module("my_app.clients", "Anthropic"), None),
        ("anthropic", None),
        (None, None),
        (openai.OpenAI, None),
    ],
)
def test_objects_of_known_libraries_tell_their_provider(value: object, provider: str | None) -> None:
    """Clients, models of frameworks and results; nothing else does."""
    assert provider_of(value) == provider


def test_messages_and_sequences_of_langchain_tell_their_provider() -> None:
    """A message by what its metadata say, except "openai", which stands for any compatible server."""
    messages = pytest.importorskip("langchain_core.messages")
    runnables = pytest.importorskip("langchain_core.runnables")
    said = {name: messages.AIMessage("x", response_metadata={"model_provider": name}) for name in ("groq", "openai")}
    assert {name: provider_of(message) for name, message in said.items()} == {"groq": "groq", "openai": ""}
    assert provider_of(messages.AIMessage("x")) is None
    sequence = runnables.RunnableLambda(str) | runnables.RunnableLambda(len)
    assert provider_of(sequence) is None


def test_no_code_of_an_application_runs() -> None:
    """An object whose attributes raise is not asked for any."""

    asked: list[str] = []

    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

        def __str__(self) -> str:
            asked.append("__str__")
            return "https://api.openai.com"

    hostile = Hostile()
    found = [provider_of(hostile), provider_of(of_module("openai", "OpenAI", _base_url=hostile))]
    assert (found, asked) == ([None, ""], [])


# --- Spans -----------------------------------------------------------------------------------------------------------


def test_a_client_among_the_arguments_tells_the_provider() -> None:
    """It is the one that this call uses; a client that the function refers to otherwise is not looked for."""

    @ragtrace.generate(model="tiny")
    def answer(question: str, llm: Any = None) -> str:
        return f"yes {type(groq).__name__}"

    captured = watch(screen=None)
    for given, provider in ((client("https://api.x.ai/v1"), "x_ai"), (None, "unknown")):
        captured.clear()
        answer("really?", given)
        assert chat_provider(captured) == provider


def test_an_earlier_message_among_the_arguments_tells_nothing() -> None:
    """It may come from another model than the one that answers now."""

    @ragtrace.generate(model="tiny")
    def answer(question: str, history: Any) -> str:
        return "yes"

    captured = watch(screen=None)
    answer("really?", of_module("anthropic.types.message", "Message", content="before"))
    assert chat_provider(captured) == "unknown"


@pytest.mark.parametrize("clients", [(groq, local), (local,)], ids=["two", "unknown"])
def test_an_unknown_or_a_second_client_leaves_the_provider_unknown(clients: tuple[openai.OpenAI, ...]) -> None:
    """A guess between two would be an invention, and so would OpenAI for a compatible server."""

    @ragtrace.generate(model="tiny")
    def answer(question: str, *llms: openai.OpenAI) -> str:
        return "yes"

    captured = watch(screen=None)
    answer("really?", *clients)
    assert chat_provider(captured) == "unknown"


def test_the_result_tells_where_no_client_does() -> None:
    """By the type of the returned object, or of a stream's first piece."""

    @ragtrace.generate(model="tiny")
    def answer(question: str) -> Any:
        return of_module("anthropic.types.message", "Message", content="yes")

    @ragtrace.generate(model="tiny")
    def stream(question: str) -> Iterator[Any]:
        yield of_module("cohere.types", "ChatEvent", text="yes")

    captured = watch(screen=None)
    answer("really?")
    assert chat_provider(captured) == "anthropic"
    captured.clear()
    list(stream("really?"))
    assert chat_provider(captured) == "cohere"


def test_what_the_decorator_says_goes_before_all_else() -> None:
    """The application knows best."""

    @ragtrace.generate(model="tiny", provider="mine")
    def answer(question: str, llm: Any) -> Any:
        return of_module("anthropic.types.message", "Message", content="yes")

    captured = watch(screen=None)
    answer("really?", groq)
    assert chat_provider(captured) == "mine"
