"""What every command prints with: never failing for a narrow terminal or a reader that went away."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.util import find_spec
from typing import IO

OK = 0
FAILURE = 1
USAGE = 2
INTERRUPTED = 130
READER_GONE = 141


def has_rich() -> bool:
    """Whether the `cli` extra is installed."""
    try:
        return find_spec("rich") is not None
    except (ImportError, ValueError):
        return False


def never_fail_to_print() -> None:
    """A terminal in a narrow encoding gets replacement characters instead of an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with contextlib.suppress(ValueError, OSError):
                reconfigure(errors="replace")


def complain(message: str) -> None:
    """Print *message* on standard error."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"ragtrace: {message}\n")
        flush(sys.stderr)


def flush(stream: IO[str] | None) -> None:
    """Write out what is buffered."""
    if stream is not None:
        stream.flush()


def discard(stream: IO[str]) -> None:
    """Throw away what is still buffered for *stream*: writing it would fail again when the interpreter exits."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
