"""Return of freed memory to the operating system, which the C library may keep for later.

glibc keeps the memory of freed arrays of megabytes, and it keeps a heap for each thread that allocates: after a few
reports on a million calls, a process has several times the memory that one of them takes. Other C libraries have none
of these functions, and are left alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8
"""From malloc.h: the option of `mallopt` that is the largest number of heaps."""


def use_one_heap() -> None:
    """Let all threads of this process allocate from one heap, what one of them has freed for another.

    It is for processes of our own alone, not for those of a watched application.
    """
    with suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Return what this process has freed to the operating system."""
    with suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
