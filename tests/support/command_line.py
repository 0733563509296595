"""What tests of the command line share: the arguments of a short demo."""

from __future__ import annotations


def demo_arguments(*options: str) -> list[str]:
    """Return the arguments of a short demo."""
    return ["demo", "--questions", "8", *options]
