"""Question answering by an agent of the OpenAI Agents SDK with a retriever tool, over chat completions."""

from __future__ import annotations

from collections.abc import Callable

from agents import OpenAIChatCompletionsModel
from applications.agents_sdk_responses import run_agent
from openai import AsyncOpenAI


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    run_agent(OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI()), mode, log)
