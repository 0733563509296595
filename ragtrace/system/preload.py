"""Imports modules before their first use, because an import in a forked child process may hang.

A fork copies the lock of a module that another thread is importing at that moment, held for ever: an import of that
module in the child hangs. A module that is loaded already is found without its lock. So a module that may be used for
the first time in the background, or while calls are served, is loaded by `configure`.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module


def import_modules(*names: str) -> None:
    """Import the modules *names*, ignoring those that cannot be imported.

    They fail later, where they are used.
    """
    for name in names:
        with suppress(Exception):
            import_module(name)
