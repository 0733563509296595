"""Instrumentations that are switched on in another way than by the `instrument()` of an instrumentor.

Each class has the `instrument` of an instrumentor, so that instrumentations.py can name it in an instrumentor's place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider


class HaystackTracing:
    """Haystack's own spans: its OpenTelemetryTracer, which is in a package of its own since Haystack 3."""

    def instrument(self, *, tracer_provider: TracerProvider, **other: object) -> None:
        """Make Haystack trace with *tracer_provider*."""
        from haystack.tracing import enable_tracing

        try:
            from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer
        except ImportError:
            from haystack.tracing.opentelemetry import OpenTelemetryTracer  # Haystack 2
        enable_tracing(OpenTelemetryTracer(tracer_provider.get_tracer("haystack")))


def import_ragtrace() -> Any:
    """Return ragtrace, imported from its source, as the environments do not have it.

    Its version is 0, as a recording names the version of the instrumentation.
    """
    here = Path(__file__)
    sys.path += [str(here.parents[3]), str(here.parent / "installed")]
    return import_module("ragtrace")


class RagtraceListener:
    """ragtrace's own listener in the framework, which records calls as spans of ragtrace; nothing is scored."""

    framework: ClassVar[str]

    def instrument(self, *, tracer_provider: TracerProvider, **other: object) -> None:
        """Instrument the framework."""
        ragtrace = import_ragtrace()
        ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=tracer_provider), screen=None)
        tracer_provider.add_span_processor(_RagtraceFlush())
        ragtrace.instrument(self.framework)


class RagtraceLangChain(RagtraceListener):
    """ragtrace's listener in LangChain and LangGraph."""

    framework = "langchain"


class RagtraceLlamaIndex(RagtraceListener):
    """ragtrace's listener in LlamaIndex."""

    framework = "llama_index"


class RagtraceHaystack(RagtraceListener):
    """ragtrace's listener in Haystack."""

    framework = "haystack"


class RagtraceAgents(RagtraceListener):
    """ragtrace's listener in the OpenAI Agents SDK."""

    framework = "openai_agents"


class _RagtraceFlush(SpanProcessor):
    """Processor that has ragtrace write the spans of its calls when the provider is flushed."""

    def __init__(self) -> None:
        self._flushing = False

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        import ragtrace

        if self._flushing:  # ragtrace flushes the provider, too: they would wait for each other until the time is over
            return True
        self._flushing = True
        try:
            return ragtrace.flush(timeout_millis / 1e3)
        finally:
            self._flushing = False


class OpenInferenceAgentsWithRetriever:
    """OpenInference for the OpenAI Agents SDK, which is told that the tool is a retriever."""

    def instrument(self, *, tracer_provider: TracerProvider, **other: object) -> None:
        """Instrument the SDK."""
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        kinds = {"search_documents": "RETRIEVER"}
        OpenAIAgentsInstrumentor().instrument(tracer_provider=tracer_provider, tool_span_kinds=kinds)


class PydanticAI:
    """Pydantic AI's own spans in its default format."""

    settings: ClassVar[Mapping[str, Any]] = {}

    def instrument(self, *, tracer_provider: TracerProvider, **other: object) -> None:
        """Make every agent trace with *tracer_provider*."""
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=tracer_provider, **self.settings))


class PydanticAIFormat1(PydanticAI):
    """Pydantic AI's own spans in format 1, with messages as events: until Pydantic AI 2."""

    settings: ClassVar[Mapping[str, Any]] = {"version": 1}


class PydanticAIFormat2(PydanticAI):
    """Pydantic AI's own spans in format 2, the oldest that Pydantic AI 2 writes."""

    settings: ClassVar[Mapping[str, Any]] = {"version": 2}


class PydanticAIFormat6(PydanticAI):
    """Pydantic AI's own spans in format 6, in which the results of tools have a role of their own."""

    settings: ClassVar[Mapping[str, Any]] = {"version": 6}


class PydanticAIWithoutContent(PydanticAI):
    """Pydantic AI's own spans without texts."""

    settings: ClassVar[Mapping[str, Any]] = {"include_content": False}


class OpenInferencePydanticAI:
    """OpenInference for Pydantic AI: a span processor that adds attributes to Pydantic AI's own spans."""

    def instrument(self, *, tracer_provider: TracerProvider, **other: object) -> None:
        """Make every agent trace with *tracer_provider* and add OpenInference's attributes."""
        from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor

        tracer_provider.add_span_processor(OpenInferenceSpanProcessor())
        PydanticAI().instrument(tracer_provider=tracer_provider)


def keep_telemetry_local(framework: str) -> None:
    """Stop what *framework* would send to its maker: usage statistics of Haystack, every trace of the Agents SDK."""
    if framework == "haystack":
        os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    elif framework == "openai_agents":
        from agents import set_trace_processors

        set_trace_processors([])
