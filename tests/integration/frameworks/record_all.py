"""Make the recordings in tests/files again: `record_all.py [WORD...]`, those whose name has every word.

`record_all.py --newest [WORD...]`, which is `make newest ARGS="WORD..."`, records with the newest versions of all
packages into the folder .cache/newest instead. It installs these first, and prints which versions differ from the
pinned ones, and how the recordings, and the verdicts on what ragtrace reads from them, differ from the committed ones.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from environment import (
    CAPTURED,
    FOLDER,
    RECORDED,
    Recorder,
    capture,
    captures,
    cells,
    environment_of,
    environments,
    make,
    newest_versions,
)
from shapes import calls, shape

sys.path.append(str(FOLDER.parents[2]))  # for the folder docs

NEWEST: Final = FOLDER.parents[2] / ".cache" / "newest"
"""Folder of recordings with the newest versions, which git ignores: a difference is understood from its spans."""


def main(words: list[str]) -> None:
    """Record the cells whose name has every word of the command line, or compare them with the newest versions."""
    newest = "--newest" in words
    asked = [word for word in words if word != "--newest"]
    for environment in captures():
        if all(word in environment for word in asked):
            record_captured(environment, newest=newest)
    chosen = [cell for cell in cells() if all(word in "-".join(cell) for word in asked)]
    if newest:
        chosen = [cell for cell in chosen if not environments()[environment_of(*cell[:2])].get("earlier")]
        for environment in dict.fromkeys(environment_of(*cell[:2]) for cell in chosen):
            _make_newest(environment)
    with Recorder(newest=newest) as recorder:
        for cell in chosen:
            lines = differences(recorder, *cell) if newest else []
            if not newest:
                recorder.record(*cell, RECORDED)
            sys.stdout.write("\n".join(["-".join(cell), *lines]) + "\n")
            sys.stdout.flush()


def _make_newest(environment: str) -> None:
    sys.stdout.write(f"{environment}: {make(environment, newest=True)}\n")
    sys.stdout.write("".join(f"  {line}\n" for line in newest_versions(environment)))


def record_captured(environment: str, *, newest: bool) -> None:
    """Record what ragtrace captures of the SDKs in *environment*, or print how it differs with the newest versions."""
    from docs.make_captured import verdict  # decides with the words of the page

    before: dict[str, list[dict[str, Any]]] = json.loads(CAPTURED.read_text("utf-8")) if CAPTURED.exists() else {}
    if newest:
        _make_newest(environment)
    try:
        rows = capture(environment, newest=newest)
    except AssertionError as error:
        sys.stdout.write(f"{environment} fails: {str(error).splitlines()[-1]}\n")
        return
    known = {(row["package"], row["form"]): verdict(row) for row in before.get(environment, [])}
    for row in rows:
        name, now = (row["package"], row["form"]), verdict(row)
        if now != known.get(name):
            before_it = f", not {known[name]}" if name in known else ""
            sys.stdout.write(f"{' '.join(name)} ({row['version']}): {now}{before_it}\n")
    if not newest:
        lines = [  # a row a line, so that a difference shows what changed
            f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, each)) + "\n]"
            for name, each in {**before, environment: rows}.items()
        ]
        CAPTURED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def differences(recorder: Recorder, application: str, instrumentation: str, mode: str) -> list[str]:
    """Record one cell with the newest versions and return, a line each, what differs from its committed recording."""
    name = f"{application}-{instrumentation}-{mode}"
    try:
        recorder.record(application, instrumentation, mode, NEWEST)
    except AssertionError as error:
        return [f"  fails: {str(error).splitlines()[-1]}"]
    # In any order, as requests that overlap are logged when they end.
    logged = [
        sorted(json.dumps(call, sort_keys=True) for call in calls(folder / f"{name}.calls.json"))
        for folder in (RECORDED, NEWEST)
    ]
    read = [_verdict(folder, name) for folder in (RECORDED, NEWEST)]
    before, after = (shape(folder / f"{name}.spans.jsonl.gz") for folder in (RECORDED, NEWEST))
    lines = ["  the application logs other calls"] if logged[0] != logged[1] else []
    lines += [f"  verdict: {read[1]}, not {read[0]}"] if read[0] != read[1] else []
    lines += [f"  - {times} x {kind}" for kind, times in sorted((before - after).items())]
    return lines + [f"  + {times} x {kind}" for kind, times in sorted((after - before).items())]


def _verdict(folder: Path, name: str) -> str:
    """Return what docs/instrumentations.md says of the recording *name* in *folder*."""
    from docs.make_instrumentations import assembled, verdict  # reads with ragtrace, which recording does not need

    logged = json.loads((folder / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    return verdict(assembled(folder / f"{name}.spans.jsonl.gz"), logged)


if __name__ == "__main__":
    main(sys.argv[1:])
