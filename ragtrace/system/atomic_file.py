"""Writing of files in one step: as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, chunks: Iterable[bytes], *, mode: int = 0o666) -> None:
    """Write *chunks* to the file *path* in one step, so that no reader sees half a file.

    A file of that name is replaced. The new file outlives a power failure.

    Args:
        mode: permissions of the file, of which the umask takes some away.

    Raises:
        OSError: it cannot be written; the file that is there is left as it is.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)  # left by a process killed while it wrote, perhaps with other permissions
        with open(new, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # not every system lets a directory be opened
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
