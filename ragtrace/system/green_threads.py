"""Which library has replaced threads by greenlets, which share one thread of the operating system: gevent, eventlet."""

from __future__ import annotations

import sys
from typing import Any, Final


def green_library() -> str:
    """Return the name of the library that has replaced threads by greenlets, or an empty text."""
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    eventlet: Any = sys.modules.get("eventlet.patcher")
    return "eventlet" if eventlet is not None and eventlet.is_monkey_patched("thread") else ""


_AT_IMPORT: Final = green_library()
"""The library when `threads` was imported, whose queues are threads' or greenlets' from then on."""


def problem() -> str:
    """Return what is wrong and what to do where threads were replaced after ragtrace's background had been imported.

    A greenlet that waits at a queue of before would stop all others for ever. Where all is well, the text is empty.
    """
    name = green_library()
    if name == _AT_IMPORT:
        return ""
    patch = {"gevent": "gevent.monkey.patch_all()", "eventlet": "eventlet.monkey_patch()"}.get(name, "it")
    return (
        f"{name} has replaced Python's threads after ragtrace had been imported; call {patch} before every other "
        "import, also in a server that imports the application before it forks"
    )
