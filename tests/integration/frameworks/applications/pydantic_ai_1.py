"""The application pydantic_ai, for the environment with Pydantic AI 1."""

from applications.pydantic_ai import run

__all__ = ["run"]
