"""Modules that are loaded before anybody needs them.

A fork copies the lock of a module that another thread is importing at that moment, held for ever: whoever imports that
module in the child hangs there. A module that is loaded already is found without its lock. So whatever imports on use,
and may be used for the first time in the background or while calls are served, loads that when it is made.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module


def load(*names: str) -> None:
    """Import the modules of these names, if they can be: what is missing is said by whoever needs it."""
    for name in names:
        with suppress(Exception):
            import_module(name)
