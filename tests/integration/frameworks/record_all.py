"""Make the recordings in tests/files/recorded again: `record_all.py [WORD...]`, those whose name has every word."""

from __future__ import annotations

import sys

from environment import RECORDED, cells, record


def main(words: list[str]) -> None:
    """Record the cells whose name has every word of the command line."""
    for cell in cells():
        name = "-".join(cell)
        if all(word in name for word in words):
            record(*cell, RECORDED)
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
