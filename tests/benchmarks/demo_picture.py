"""Draws docs/demo.svg: what `ragtrace demo` prints as a picture, of a run with the default options.

Run at the top of the sources: python -m tests.benchmarks.demo_picture docs/demo.svg
"""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from ragtrace.demo.demo_run import Options, run
from ragtrace.demo.outcome import Outcome
from ragtrace.report.console import render_terminal

FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
WIDTH: Final = 100


def svg(outcome: Outcome) -> str:
    """Return what is printed as an SVG that loads nothing: rich's own names a font on a server."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print("$ ragtrace demo\n", style="bold", highlight=False)
    report = render_terminal(outcome.shown_report(), width=WIDTH, colour=True)
    for part in (f"{outcome.introduction()}\n", report, outcome.conclusion()):
        console.print(Text.from_ansi(part))
    text = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="ragtrace demo"), flags=re.DOTALL)
    return text.replace("font-family: Fira Code, monospace", f"font-family: {FONT}")


def main(path: str) -> None:
    """Run the demo and write its picture to *path*."""
    outcome = run(Options(), lambda *_: None)
    Path(path).write_text(svg(outcome), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
