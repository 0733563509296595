"""Small applications of frameworks for agents whose requirements exclude those of captured_sdks.py."""

from __future__ import annotations

import os
from typing import Any

from captured import form

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="false")


def _prompt(question: str, docs: list[str]) -> str:
    return f"{docs[0]}\n{docs[1]}\n\nQuestion: {question}"


# --- AutoGen ----------------------------------------------------------------------------------------------------------
from autogen_agentchat.agents import AssistantAgent  # noqa: E402
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage  # noqa: E402
from autogen_agentchat.teams import RoundRobinGroupChat  # noqa: E402
from autogen_core import CancellationToken  # noqa: E402
from autogen_core.models import ModelInfo, UserMessage  # noqa: E402
from autogen_ext.models.openai import OpenAIChatCompletionClient  # noqa: E402

_INFO = ModelInfo(vision=False, function_calling=False, json_output=False, family="unknown", structured_output=False)


def _client() -> Any:
    return OpenAIChatCompletionClient(model="m", model_info=_INFO)


def _assistant(**options: Any) -> Any:
    return AssistantAgent("guide", model_client=_client(), **options)


@form("autogen-agentchat", "run")
async def autogen_run(question: str, docs: list[str]) -> Any:
    return await _assistant().run(task=_prompt(question, docs))


@form("autogen-agentchat", "on_messages")
async def autogen_messages(question: str, docs: list[str]) -> Any:
    message = TextMessage(content=_prompt(question, docs), source="user")
    return await _assistant().on_messages([message], CancellationToken())


@form("autogen-agentchat", "run_stream")
async def autogen_stream(question: str, docs: list[str]) -> Any:
    async for event in _assistant().run_stream(task=_prompt(question, docs)):
        yield event


@form("autogen-agentchat", "run_stream, streaming model client")
async def autogen_chunks(question: str, docs: list[str]) -> Any:
    async for event in _assistant(model_client_stream=True).run_stream(task=_prompt(question, docs)):
        yield event


@form("autogen-agentchat", "run_stream, chunks passed on")
async def autogen_only_chunks(question: str, docs: list[str]) -> Any:
    async for event in _assistant(model_client_stream=True).run_stream(task=_prompt(question, docs)):
        if isinstance(event, ModelClientStreamingChunkEvent):
            yield event


@form("autogen-agentchat", "run_stream of two agents")
async def autogen_team(question: str, docs: list[str]) -> Any:
    agents = [AssistantAgent(name, model_client=_client()) for name in ("writer", "editor")]
    async for event in RoundRobinGroupChat(agents, max_turns=2).run_stream(task=_prompt(question, docs)):
        yield event


@form("autogen-core", "ChatCompletionClient.create")
async def autogen_create(question: str, docs: list[str]) -> Any:
    return await _client().create([UserMessage(content=_prompt(question, docs), source="user")])


@form("autogen-core", "ChatCompletionClient.create_stream")
async def autogen_create_stream(question: str, docs: list[str]) -> Any:
    async for piece in _client().create_stream([UserMessage(content=_prompt(question, docs), source="user")]):
        yield piece


# --- CrewAI -----------------------------------------------------------------------------------------------------------
from crewai import LLM, Agent, Crew, Task  # noqa: E402


def _crew(question: str, docs: list[str], **options: Any) -> Any:
    llm = LLM("openai/gpt-4o", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
    agent = Agent(role="Guide", goal="Answer", backstory="A guide.", llm=llm)
    task = Task(description=_prompt(question, docs), expected_output="An answer.", agent=agent)
    return Crew(agents=[agent], tasks=[task], **options)


@form("crewai", "Crew.kickoff")
def crew_kickoff(question: str, docs: list[str]) -> Any:
    return _crew(question, docs).kickoff()


@form("crewai", "Crew.kickoff_async")
async def crew_kickoff_async(question: str, docs: list[str]) -> Any:
    return await _crew(question, docs).kickoff_async()


@form("crewai", "Crew.kickoff, stream=True", read=list)
def crew_stream(question: str, docs: list[str]) -> Any:
    return _crew(question, docs, stream=True).kickoff()


@form("crewai", "Crew.kickoff, stream=True, chunks passed on")
def crew_chunks(question: str, docs: list[str]) -> Any:
    yield from _crew(question, docs, stream=True).kickoff()


@form("crewai", "Crew.kickoff, stream=True, chunks of two tasks passed on")
def crew_two_tasks(question: str, docs: list[str]) -> Any:
    crew = _crew(question, docs, stream=True)
    crew.tasks = [*crew.tasks, Task(description="Shorten it.", expected_output="An answer.", agent=crew.agents[0])]
    yield from crew.kickoff()


# --- smolagents -------------------------------------------------------------------------------------------------------
from smolagents import OpenAIServerModel  # noqa: E402


def _model() -> Any:
    return OpenAIServerModel("m", api_base=os.environ["OPENAI_BASE_URL"], api_key="none")


@form("smolagents", "model.generate")
def smol_generate(question: str, docs: list[str]) -> Any:
    return _model().generate([{"role": "user", "content": _prompt(question, docs)}])


@form("smolagents", "model.generate_stream")
def smol_stream(question: str, docs: list[str]) -> Any:
    return _model().generate_stream([{"role": "user", "content": _prompt(question, docs)}])
