"""Finds which provider runs a model, from the client objects that a generation function is given or returns.

The values are those of `gen_ai.provider.name`. A client or a result of a provider's own SDK tells the provider. An
OpenAI-compatible client tells it by its host only, since many providers have that interface. Of an object of a known
library only the instance's dictionary is read, and nothing of any other object.
Sources: the list of well-known values in github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai; the hosts
in the providers' own documentation of their interfaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from ragtrace.capture.fields import class_order, label_of, module_of, own_fields, type_name_of
from ragtrace.system.faults import faults

Reader: TypeAlias = Callable[[Any], "str | None"]

_AZURE_OPENAI: Final = "azure.ai.openai"
_BEDROCK: Final = "aws.bedrock"
_VERTEX: Final = "gcp.vertex_ai"
_GEMINI: Final = "gcp.gemini"
_GOOGLE: Final = "gcp.gen_ai"
"""Provider name for Google where the endpoint (Gemini or Vertex AI) is not known."""
_UNKNOWN: Final = ""
"""Value for an object of a known library that does not show its provider."""

_HOSTS: Final = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", _AZURE_OPENAI),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("models.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", _GEMINI),
    ("aiplatform.googleapis.com", _VERTEX),
    ("api.mistral.ai", "mistral_ai"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("api.deepseek.com", "deepseek"),
    ("api.groq.com", "groq"),
    ("api.perplexity.ai", "perplexity"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.moonshot.cn", "moonshot_ai"),
    ("api.x.ai", "x_ai"),
    ("ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("openrouter.ai", "openrouter"),
)
"""Hosts and domains with their providers; `openrouter` is no value of the semantic conventions."""
_NAMES: Final[Mapping[str, str]] = {
    "openai": _UNKNOWN,  # LangChain says so of every OpenAI-compatible server
    "aws": _BEDROCK, "amazon_bedrock": _BEDROCK, "bedrock": _BEDROCK, "bedrock_converse": _BEDROCK,
    "azure_openai": _AZURE_OPENAI, "azure": _AZURE_OPENAI, "azure_ai": "azure.ai.inference",
    "vertexai": _VERTEX, "vertex": _VERTEX, "vertex_ai": _VERTEX, "google_vertexai": _VERTEX, "google_vertex": _VERTEX,
    "gemini": _GEMINI, "google_generativeai": _GEMINI, "google_genai": _GOOGLE,
    "mistralai": "mistral_ai", "mistral": "mistral_ai", "xai": "x_ai", "moonshot": "moonshot_ai",
    "ibm": "ibm.watsonx.ai", "watsonx": "ibm.watsonx.ai", "openai_like": _UNKNOWN,
}  # fmt: skip
"""Names of providers in frameworks that differ from those of the semantic conventions."""
_FRAMEWORK_MODULE: Final = re.compile(
    r"langchain_(anthropic|aws|cohere|deepseek|fireworks|google_genai|google_vertexai|groq|huggingface|ibm|mistralai"
    r"|ollama|perplexity|together|xai)(?:\.|$)|(?:llama_index\.llms|haystack_integrations\.components\.generators)\.(\w+)"
    r"|haystack\.components\.generators\."
)
"""Pattern of modules that hold a framework's class for one provider. The group, if any, is the provider's name."""
_RESULTS: Final = frozenset({"types", "_types", "messages"})
"""Module names, within the libraries, that define the classes of results."""
_URL_LIBRARIES: Final = frozenset({"httpx", "httpx2"})
_MOST_CLASSES: Final = 1_000


def provider_of(value: object) -> str | None:
    """Return the model provider of *value*, a client object or a result of a known library. Never raises.

    Returns:
        A value of `gen_ai.provider.name`; "" if *value* does not tell it; None for any other object.
    """
    try:
        reader = _reader_of(type(value))
        return reader(value) if callable(reader) else reader
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.provider", error)
        return None


def provider_among(values: Iterable[object]) -> str | None:
    """Return the model provider of the clients among *values*.

    The result is "" if the provider is unknown or differs between clients, and None if there is no client.
    """
    clients = (value for value in values if _is_client(value))
    found = {provider for client in clients if (provider := provider_of(client)) is not None}
    return None if not found else found.pop() if len(found) == 1 else _UNKNOWN


# --- Objects ----------------------------------------------------------------------------------------------------------


def _reader_of(cls: type[Any]) -> str | Reader | None:
    known = _readers.get(id(cls))
    if known is None:
        if len(_readers) >= _MOST_CLASSES:
            _readers.clear()
        known = _readers[id(cls)] = (cls, _find_reader(cls))
    return known[1]


def _is_client(value: object) -> bool:
    """Return whether *value* is a client or model object of a known library, and not a result such as a message."""
    return _reader_of(type(value)) is not None and _RESULTS.isdisjoint(module_of(type(value)).split("."))


_readers: dict[int, tuple[type[Any], str | Reader | None]] = {}
"""Provider or reader by identity of the class. The class is kept, too, so that its identity is not reused."""


def _find_reader(cls: type[Any]) -> str | Reader | None:
    for owner in class_order(cls):  # a class of the application may be derived from a client's class
        module = module_of(owner)
        parts = module.split(".")
        for length in range(min(len(parts), 5), 0, -1):
            found = _LIBRARIES.get(".".join(parts[:length]))
            if found is not None:
                return _provider_by_class_name(type_name_of(owner), found)
        if named := _FRAMEWORK_MODULE.match(module):
            if named.lastindex is None:
                return _provider_by_class_name(type_name_of(owner), _provider_of_base_url)
            return _NAMES.get(named[named.lastindex], named[named.lastindex])
    return None


def _provider_by_class_name(name: str, found: str | Reader) -> str | Reader | None:
    """Return the model provider that a client's class name shows, such as `AzureOpenAI`, or else *found*."""
    if "Azure" in name:
        return _AZURE_OPENAI
    if "Bedrock" in name:
        return _BEDROCK
    if "Vertex" in name:
        return _VERTEX
    return None if found == "botocore" else found  # botocore's other clients are of other services of AWS


def _field(value: object, *path: str) -> Any:
    """Return the value at the end of *path*, a sequence of field names that starts at *value*, or None."""
    found: Any = value
    for name in path:
        fields: Any = cast("object", found) if type(found) is dict else own_fields(found)
        found = None if fields is None else fields.get(name)
    return found


def _of_host(address: object) -> str:
    if type(address) is not str and module_of(type(address)).partition(".")[0] not in _URL_LIBRARIES:
        return _UNKNOWN  # converting the address to text would run code of the application
    return _of_address(str(address))


@lru_cache(maxsize=256)
def _of_address(address: str) -> str:
    host = urlsplit(address).hostname or ""
    if host.endswith("-aiplatform.googleapis.com"):
        return _VERTEX
    if host.startswith("bedrock-runtime") and host.endswith(".amazonaws.com"):
        return _BEDROCK
    return next((name for known, name in _HOSTS if host == known or host.endswith(f".{known}")), _UNKNOWN)


def _provider_of_base_url(value: Any) -> str | None:
    """Return the provider of an OpenAI-compatible client by the host of the client's URL.

    Parts and streams of a client count as the client.
    """
    for path in (("_base_url",), ("response", "_request", "url"), ("api_base",)):
        if (address := _field(value, *path)) is not None:
            return _of_host(address)
    for path in (("_client",), ("client",), ("root_client",), ("async_client",)):
        inner: object = _field(value, *path)
        if inner is not None and inner is not value and (reader := _reader_of(type(inner))) is not None:
            return _provider_of_base_url(inner) if reader is _provider_of_base_url else provider_of(inner)
    return _UNKNOWN


def _sdk_reader(provider: str) -> Reader:
    """Return a function that finds the provider of a client made by *provider*'s own SDK, by the client's URL."""

    def read(value: Any) -> str:
        address = _field(value, "_base_url")
        return (_of_host(address) if address is not None else _UNKNOWN) or provider

    return read


def _of_google(value: Any) -> str:
    is_vertex = _field(value, "_api_client", "vertexai")
    return _GOOGLE if is_vertex is None else _VERTEX if is_vertex else _GEMINI


def _of_chat_message(value: Any) -> str | None:
    name = label_of(_field(value, "response_metadata", "model_provider"))
    return None if name is None else _NAMES.get(name, name)


def _provider_of_runnable(value: Any) -> str | None:
    """Return the provider of the models in a LangChain runnable: a sequence, or one with bound arguments."""
    inner = [_field(value, name) for name in ("first", "last", "bound")]
    found = {each for step in (*inner, *(_field(value, "middle") or ())) if (each := provider_of(step)) is not None}
    return None if not found else found.pop() if len(found) == 1 else _UNKNOWN


def _of_litellm(value: Any) -> str | None:
    hidden = getattr(value, "_hidden_params", None)
    name = label_of(_field(hidden, "custom_llm_provider"))
    if name is None:
        return None
    address = _field(hidden, "api_base")
    return _of_host(address) if name == "openai" and address is not None else _NAMES.get(name, name)


_LIBRARIES: Final[Mapping[str, str | Reader]] = {
    "openai": _provider_of_base_url,
    "langchain_openai": _provider_of_base_url,
    "llama_index.llms.openai": _provider_of_base_url,
    "llama_index.llms.openai_like": _provider_of_base_url,
    "anthropic": _sdk_reader("anthropic"),
    "groq": _sdk_reader("groq"),
    "mistralai": "mistral_ai",
    "cohere": "cohere",
    "ollama": "ollama",
    "together": "together",
    "xai_sdk": "x_ai",
    "ibm_watsonx_ai": "ibm.watsonx.ai",
    "perplexity": "perplexity",
    "azure.ai.inference": "azure.ai.inference",
    "google.genai": _of_google,
    "google.generativeai": _GEMINI,
    "google.ai.generativelanguage": _GEMINI,
    "google.cloud.aiplatform": _VERTEX,
    "vertexai": _VERTEX,
    "botocore.client": "botocore",
    "litellm.types.utils": _of_litellm,
    "langchain_core.messages": _of_chat_message,
    "langchain_core.runnables": _provider_of_runnable,
}
"""Provider of each package's objects, or function that reads the provider from an object."""
