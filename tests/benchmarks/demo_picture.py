"""Draws docs/demo.svg: the report of `ragtrace demo` as a picture, of a run with the default options.

Run at the top of the sources: python -m tests.benchmarks.demo_picture docs/demo.svg
"""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console

from ragtrace.demo.demo_run import Options, run
from ragtrace.demo.outcome import Outcome
from ragtrace.demo.outcome_report import WIDEST, print_to

FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"


def svg(outcome: Outcome) -> str:
    """Return the report as an SVG that loads nothing: rich's own names a font on a server."""
    console = Console(record=True, width=WIDEST, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print("$ ragtrace demo\n", style="bold", highlight=False)
    print_to(console, outcome, picture=True)
    text = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="ragtrace demo"), flags=re.DOTALL)
    return text.replace("font-family: Fira Code, monospace", f"font-family: {FONT}")


def main(path: str) -> None:
    """Run the demo and write its picture to *path*."""
    outcome = run(Options(), lambda *_: None)
    Path(path).write_text(svg(outcome), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
