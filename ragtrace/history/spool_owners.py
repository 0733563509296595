"""Whose a claim is, and whether that process is still alive."""

from __future__ import annotations

import os
import platform
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = "/proc/self/ns/pid"


class Owner:
    """A name for one user of the file in one process; a forked child has another."""

    def __init__(self) -> None:
        self._nonce = uuid.uuid4().hex

    @property
    def name(self) -> str:
        """Where process ids mean the same, the process id, and something that was never used before."""
        return f"{_home()}/{os.getpid()}/{self._nonce}"


def is_dead(owner: str) -> bool:
    """Whether the process of that name is certainly gone; False also where nobody can tell from here."""
    home, _, rest = owner.partition("/")
    number = rest.partition("/")[0]
    # On Windows the same call would end the process; its claims simply expire.
    if os.name != "posix" or home != _home() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _home() -> str:
    """Host, boot and namespace of process ids: what two processes must share to know each other by their ids."""
    boot = namespace = ""
    with suppress(OSError):
        boot = _BOOT.read_text(encoding="ascii").strip()
    with suppress(OSError):
        namespace = os.readlink(_NAMESPACE)
    return f"{platform.node()}+{boot}+{namespace}".replace("/", "-")
