"""Faithfulness by other libraries with a model of yours, on the labelled file that `ragtrace judges` reads.

    python -m tests.benchmarks.faithfulness_peers CALLS.jsonl --base-url URL --model MODEL \
        [--ragas ENV/bin/python] [--phoenix ENV/bin/python] [--seconds 900] [--out DIR]

Each library has an environment of its own (`peers_faithfulness.txt`). The row of ragtrace's judges on the same calls is
made by `ragtrace judges CALLS.jsonl --judge decision-logprobs:MODEL --base-url URL`. Raw results are kept: the same
command goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from ragtrace.estimates.discrimination import discrimination
from ragtrace.offline.labelled_calls import LabelledFileCall, read_labelled_calls

SUBJECT: Final = Path(__file__).with_name("subjects") / "faithfulness_peer.py"


def given(each: LabelledFileCall) -> str:
    """Return a line of the file that a library is given, without the label."""
    call = each.call
    contexts = [document.text for document in call.contexts or ()]
    return f"{json.dumps({'query': call.query, 'contexts': contexts, 'answer': call.answer})}\n"


def row(name: str, rows: list[dict[str, Any]], calls: tuple[LabelledFileCall, ...]) -> str:
    """Return the row of the table of a library with its raw results."""
    known = [each for each in rows if each["score"] is not None]
    of = [calls[each["line"]] for each in known]
    quality = discrimination(
        [call.bad for call in of], [1.0 - each["score"] for each in known], [call.question for call in of]
    )
    errors = Counter(each["error"].partition(":")[0] or "no statement" for each in rows if each["score"] is None)
    means = " | ".join(
        f"{fmean(each[key] for each in rows):,.{digits}f}"
        for key, digits in (("requests", 1), ("input_tokens", 0), ("output_tokens", 0), ("seconds", 1))
    )
    unscored = f"{len(rows) - len(known)} {dict(errors) or ''}".strip()
    return f"| {name} ({rows[-1]['versions']}) | {len(rows)} | {quality.auroc} | {unscored} | {means} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calls", type=Path)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=900.0, help="time limit of a request, which is not sent again")
    parser.add_argument("--out", type=Path, default=Path("faithfulness_peers"), help="folder of the raw results")
    for name in ("ragas", "phoenix"):
        parser.add_argument(f"--{name}", metavar="PYTHON")
    options = parser.parse_args()
    calls = read_labelled_calls(options.calls, "faithfulness").calls
    options.out.mkdir(parents=True, exist_ok=True)
    shown = options.out / "calls.jsonl"
    shown.write_text("".join(map(given, calls)))
    print("| library | calls | AUROC | unscored | requests a call | tokens in | tokens out | seconds |")
    print("|---|--:|---|--:|--:|--:|--:|--:|")
    for name in ("ragas", "phoenix"):
        if python := getattr(options, name):
            raw = options.out / f"{name}.jsonl"
            command = [python, str(SUBJECT), name, str(shown), str(raw), options.base_url, options.model]
            command.append(str(options.seconds))
            if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
                sys.exit(f"{name} failed")
            print(row(name, [json.loads(line) for line in raw.read_text().splitlines()], calls))


if __name__ == "__main__":
    main()
