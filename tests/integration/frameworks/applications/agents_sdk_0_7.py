"""The application agents_sdk, for the environment with an earlier version of the SDK."""

from applications.agents_sdk import run

__all__ = ["run"]
