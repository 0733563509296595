"""Instrumentations by name, each switched on as its own documentation says, with the capture of content on.

A name has parts, joined by "+". A part is a family ("openinference", "genai", "openllmetry"), which instruments the
application's framework, or a family and the provider ("genai-openai"), which instruments the client of OpenAI.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from framework_tracers import keep_telemetry_local
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import SpanLimits, TracerProvider

NONE: Final = "none"

_LANGCHAIN: Final = "langchain"
_LLAMA_INDEX: Final = "llama_index"
_HAYSTACK: Final = "haystack"
_AGENTS: Final = "openai_agents"
_PYDANTIC_AI: Final = "pydantic_ai"
_OPENAI: Final = "openai"

_OPENAI_PARTS: Final = {
    "openinference": "openinference.instrumentation.openai:OpenAIInstrumentor",
    "genai": "opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor",
    "openai-v2": "opentelemetry.instrumentation.openai_v2:OpenAIInstrumentor",
    "openllmetry": "opentelemetry.instrumentation.openai:OpenAIInstrumentor",
}

INSTRUMENTORS: Final[dict[tuple[str, str], str]] = {
    ("openinference", _LANGCHAIN): "openinference.instrumentation.langchain:LangChainInstrumentor",
    ("genai", _LANGCHAIN): "opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor",
    ("openllmetry", _LANGCHAIN): "opentelemetry.instrumentation.langchain:LangchainInstrumentor",
    ("ragtrace", _LANGCHAIN): "framework_tracers:RagtraceLangChain",
    ("openinference", _LLAMA_INDEX): "openinference.instrumentation.llama_index:LlamaIndexInstrumentor",
    ("genai", _LLAMA_INDEX): "opentelemetry.instrumentation.genai.llama_index:LlamaIndexInstrumentor",
    ("openllmetry", _LLAMA_INDEX): "opentelemetry.instrumentation.llamaindex:LlamaIndexInstrumentor",
    ("openinference", _HAYSTACK): "openinference.instrumentation.haystack:HaystackInstrumentor",
    ("openllmetry", _HAYSTACK): "opentelemetry.instrumentation.haystack:HaystackInstrumentor",
    ("native", _HAYSTACK): "framework_tracers:HaystackTracing",
    ("openinference", _AGENTS): "openinference.instrumentation.openai_agents:OpenAIAgentsInstrumentor",
    ("openinference-retriever", _AGENTS): "framework_tracers:OpenInferenceAgentsWithRetriever",
    ("genai", _AGENTS): "opentelemetry.instrumentation.genai.openai_agents:OpenAIAgentsInstrumentor",
    # The same module as OpenLLMetry's: the two cannot be installed together.
    ("agents-v2", _AGENTS): "opentelemetry.instrumentation.openai_agents:OpenAIAgentsInstrumentor",
    ("openllmetry", _AGENTS): "opentelemetry.instrumentation.openai_agents:OpenAIAgentsInstrumentor",
    ("ragtrace", _LLAMA_INDEX): "framework_tracers:RagtraceLlamaIndex",
    ("ragtrace", _HAYSTACK): "framework_tracers:RagtraceHaystack",
    ("ragtrace", _AGENTS): "framework_tracers:RagtraceAgents",
    ("native", _PYDANTIC_AI): "framework_tracers:PydanticAI",
    ("native-format1", _PYDANTIC_AI): "framework_tracers:PydanticAIFormat1",
    ("native-format2", _PYDANTIC_AI): "framework_tracers:PydanticAIFormat2",
    ("native-format6", _PYDANTIC_AI): "framework_tracers:PydanticAIFormat6",
    ("native-textless", _PYDANTIC_AI): "framework_tracers:PydanticAIWithoutContent",
    ("openinference", _PYDANTIC_AI): "framework_tracers:OpenInferencePydanticAI",
    **{(family, _OPENAI): instrumentor for family, instrumentor in _OPENAI_PARTS.items()},
}
"""Class of the instrumentor of (family, framework)."""

# OTEL_SEMCONV_STABILITY_OPT_IN is what the packages of the genai family and openai-v2 ask for before they record
# messages in the form of the current conventions.
_CONTENT: Final = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}
ENVIRONMENT: Final[dict[str, dict[str, str]]] = {
    "openinference": {"OPENINFERENCE_HIDE_EMBEDDINGS_VECTORS": "true", "OPENINFERENCE_HIDE_EMBEDDING_VECTORS": "true"},
    "genai": _CONTENT,
    "genai-default": {},
    "genai-events": {
        **_CONTENT,
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "EVENT_ONLY",
        "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT": "true",
    },
    "openai-v2": _CONTENT,
    "openai-v2-events": {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"},
    "openllmetry": {},
    "openinference-hidden": {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"},
    "openllmetry-hidden": {"TRACELOOP_TRACE_CONTENT": "false"},
    "openinference-truncated": {"OPENINFERENCE_HIDE_EMBEDDINGS_VECTORS": "true"},
    "openinference-evicted": {"OPENINFERENCE_HIDE_EMBEDDINGS_VECTORS": "true"},
    "ragtrace": {"RAGTRACE_EXPORTER": "none"},
    "native": {"HAYSTACK_CONTENT_TRACING_ENABLED": "true"},
    "native-default": {},
    "native-format1": {},
    "native-format2": {},
    "native-format6": {},
    "native-textless": {},
    "openinference-retriever": {},
    "agents-v2": {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
    "agents-v2-default": {},
}
"""Environment variables of a family, with a suffix where content is off ("-default", "-hidden"), is on log events
("-events"), or where the limits of the SDK cut texts off ("-truncated") or evict attributes ("-evicted")."""

_SUFFIXES: Final = ("-default", "-hidden", "-events", "-truncated", "-evicted")


def span_limits(name: str) -> SpanLimits:
    """Return the limits of spans for the instrumentations in *name*: as many attributes as OpenInference's provider."""
    return SpanLimits(
        max_span_attributes=7 if name.endswith("-evicted") else 10_000,
        max_span_attribute_length=60 if name.endswith("-truncated") else None,
    )


def import_instrumentors(framework: str) -> None:
    """Import the modules of all installed instrumentors of *framework*, and instrument nothing."""
    for (_, instrumented), instrumentor in INSTRUMENTORS.items():
        if instrumented == framework:
            with suppress(Exception):  # it is not installed here; where it should be, `instrument` raises
                import_module(instrumentor.partition(":")[0])


def instrument(name: str, framework: str, tracer_provider: TracerProvider, logger_provider: LoggerProvider) -> None:
    """Instrument *framework* by the instrumentations in *name*; call it before the application is imported."""
    keep_telemetry_local(framework)
    if name == NONE:
        return
    for part in name.split("+"):
        family, of_openai = (part[: -len("-openai")], True) if part.endswith("-openai") else (part, False)
        for variable, value in ENVIRONMENT[family].items():
            os.environ.setdefault(variable, value)
        package = next((family.removesuffix(suffix) for suffix in _SUFFIXES if family.endswith(suffix)), family)
        module, _, instrumentor = INSTRUMENTORS[package, _OPENAI if of_openai else framework].partition(":")
        switched_on: Any = getattr(import_module(module), instrumentor)()
        switched_on.instrument(tracer_provider=tracer_provider, logger_provider=logger_provider)
