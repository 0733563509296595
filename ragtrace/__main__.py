"""Entry point of `python -m ragtrace`."""

from __future__ import annotations

import sys

from ragtrace.cli import main

if __name__ == "__main__":
    sys.exit(main())
