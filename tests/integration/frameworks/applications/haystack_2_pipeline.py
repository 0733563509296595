"""The application haystack_pipeline, for the environment with Haystack 2."""

from applications.haystack_pipeline import run

__all__ = ["run"]
