"""Output of ragtrace's commands to terminals and pipes, and the exit statuses of the commands.

The output survives a terminal in a narrow encoding and a reader that went away.
"""

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
    """Return whether the library rich, which the extra `cli` installs, is available."""
    try:
        return find_spec("rich") is not None
    except (ImportError, ValueError):
        return False


def replace_unencodable_characters() -> None:
    """Make standard output and error replace characters that their encoding lacks, instead of raising an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with contextlib.suppress(ValueError, OSError):
                reconfigure(errors="replace")


def print_error(message: str) -> None:
    """Print the error *message* on standard error."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"ragtrace: {message}\n")
        flush(sys.stderr)


def flush(stream: IO[str] | None) -> None:
    """Flush the output *stream*. Do nothing for None, which stands for a missing console."""
    if stream is not None:
        stream.flush()


def discard(stream: IO[str]) -> None:
    """Discard the buffered output of *stream*, so that the interpreter does not try to write it at exit."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
