"""`python -m tests.support.version_files`: writes every kind of file that ragtrace keeps, as this version does.

They go to tests/files/versions/VERSION, and stay there: tests/contract/test_version_files.py opens those of every
version. Run it before a release, as docs/releasing.md says, and again if a format changes before that release. The
files of earlier versions are never written again.

The calls are those of an application whose answers are known: every fourth one invents something. What a later version
must read is in `expected.json`: what is known of the calls, and what this version computed of them.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any, Final

from opentelemetry.trace import SpanContext, TraceFlags

import ragtrace
from ragtrace.alerts import Notifier
from ragtrace.cli import command_line_parser
from ragtrace.cli import main as command_line
from ragtrace.core import semconv
from ragtrace.core.labels import Turn
from ragtrace.core.settings import SETTINGS
from ragtrace.core.types import RagCall, Timing, Usage
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.core.unscored_reasons import JUDGE_ERROR, JUDGE_SUSPECT, NOT_APPLICABLE, SKIPPED
from ragtrace.estimates import read_calibrations
from ragtrace.fleet.call_message import CallMessage, write_message
from ragtrace.fleet.spool import Spool
from ragtrace.system.installation import built_in_exporters
from ragtrace.system.terminal import OK
from ragtrace.testing import OpenAIServer

FOLDER: Final = Path(__file__).parents[1] / "files" / "versions"
ROOT: Final = Path(__file__).parents[2]
WORKFLOW: Final = "support"
CALLS: Final = 60
BAD_EVERY: Final = 4
PICKED: Final = 30
PASSAGES: Final = (
    "Worn shoes may be returned within 14 days of delivery.",
    "Refunds are paid to the card that was used for the purchase.",
    "Orders placed before noon are delivered on the next working day.",
)
INVENTED: Final = "Gift vouchers worth 25 euros are included."
SPAN: Final = SpanContext(0xABC, 0xDEF, True, TraceFlags(1))
UNSCORED: Final = RagCall(
    "How tall is it?",
    (ragtrace.Document("It is 330 metres tall.", "d1", 0.5),),
    "330 metres.",
    workflow=WORKFLOW,
    conversation_id="c-1",
    model="small-1",
    timing=Timing(1.0, 0.5),
    usage=Usage(3, 4),
    span=SPAN,
    turns=(Turn("user", "Hello"), Turn("assistant", "Hi")),
)
"""Call that waits in a spool, and in the queue of a fleet."""


def current_version() -> str:
    """Return the version in pyproject.toml."""
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def answer_of(number: int) -> str:
    """Return the answer of the call *number*, counted from 0."""
    passage = PASSAGES[number % len(PASSAGES)]
    return f"{passage} {INVENTED}" if number % BAD_EVERY == 0 else passage


def write_files(folder: Path) -> None:
    """Write the files into the empty *folder*."""
    with tempfile.TemporaryDirectory() as scratch:
        history, baseline = Path(scratch) / "history.db", folder / "baseline.json"
        ids = list(_answer_questions(history, baseline))
        _label(history, folder)
        _command("calibrate", "fit", history, "--metric", "hallucinated", "--out", folder / "calibration.json")
        _command("dataset", history, "--where", "hallucinated = 1", "--out", folder / "cases.jsonl")
        _score(folder)
        keys = sorted(_json_keys(history, folder))
        _dump(history, folder / "history.sql")
        _fill_spool(Path(scratch) / "spool.db", folder / "spool.sql")
    (folder / "fleet_message.json").write_text(
        write_message(CallMessage.of(UnscoredCall(UNSCORED, (), "response-1", 0.25))) + "\n", encoding="utf-8"
    )
    for name, content in {
        "expected.json": _expected(ids, folder),
        "names.json": {**promised_names(), "json_keys": keys},
    }.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def promised_names() -> dict[str, list[str]]:
    """Return the names that a later version keeps, by kind; docs/compatibility.md says what that means."""
    modules = (ragtrace, ragtrace.judges, ragtrace.metrics, ragtrace.testing, ragtrace.types)
    public = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    return {
        "names": sorted(public),
        "arguments": sorted(f"{name}({each}=)" for name, value in public.items() for each in _arguments(value)),
        "protocols": sorted(
            f"{kind.__name__}.{member}"
            for kind in (ragtrace.judges.Judge, ragtrace.metrics.Metric, Notifier)
            for member in {*vars(kind), *kind.__annotations__}
            if not member.startswith("_")
        ),
        "variables": sorted({variable for setting in SETTINGS for variable in setting.all_variables}),
        "attributes": sorted({value for value in vars(semconv).values() if str(value).startswith("ragtrace.")}),
        "metrics": sorted(ragtrace.metrics.registry.names()),
        "reasons": sorted({*NOT_APPLICABLE, *JUDGE_ERROR, *JUDGE_SUSPECT, *SKIPPED}),
        "exporters": sorted(point.name for point in built_in_exporters()),
        "commands": sorted(_options(command_line_parser(), "ragtrace")),
    }


def _arguments(value: object) -> Iterator[str]:
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return
    parameters = inspect.signature(value).parameters.values()
    yield from (each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD))


def _options(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """Yield the command line *name*, each option of its *parser*, and those of its subcommands."""
    yield name
    for action in parser._actions:
        yield from (f"{name} {option}" for option in action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command, of_command in action.choices.items():
                yield from _options(of_command, f"{name} {command}")


def _answer_questions(history: Path, baseline: Path) -> Iterator[str]:
    """Run the application with a judge, a guard, an alert and feedback; yields the id of each call."""
    guard = ragtrace.Guard("consistency", below=0.5)
    alert = ragtrace.Alert("hallucinated", above=0.05, notify=lambda notice: None)

    @ragtrace.trace(name=WORKFLOW, guard=guard)
    def ask(question: str, number: int) -> tuple[str, list[str]]:
        ids.append(ragtrace.call_id() or "")
        return answer_of(number), [PASSAGES[number % len(PASSAGES)]]

    ids: list[str] = []
    with OpenAIServer() as server:
        ragtrace.configure(
            service="shop",
            exporter="none",
            judge=ragtrace.OpenAIJudge("rules", base_url=server.url, api_key="none"),
            sampling=ragtrace.Sampling(rate=1.0),
            alerts=[alert],
            store=str(history),
            baseline=ragtrace.BaselineLearning(str(baseline), calls=CALLS),
        )
        for number in range(CALLS):
            ask(f"Question {number}: what about it?", number)
            assert ragtrace.flush(timeout=60.0)
        ragtrace.feedback(4, scale=(1, 5), name="stars", call=ids[0], comment="nearly right", user="u-17")
        assert ragtrace.shutdown(timeout=60.0)
    yield from ids


def _label(history: Path, folder: Path) -> None:
    """Have a reviewer who is right label calls of the history."""
    labels = folder / "labels.jsonl"
    _command("calibrate", "pick", history, "-n", PICKED, "--metric", "hallucinated", "--seed", 1)
    _command("labels", "export", history, "--out", labels)
    rows = [json.loads(line) for line in labels.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["label"], row["reviewer"] = "bad" if INVENTED in row["answer"] else "good", "ada"
    labels.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    _command("labels", "import", history, labels)


def _score(folder: Path) -> None:
    """Score six recorded calls by the embedded judge."""
    calls = [
        {"id": f"c{number}", "query": "What about it?", "contexts": [PASSAGES[number % 3]], "answer": answer_of(number)}
        for number in range(6)
    ]
    recorded = folder / "calls.jsonl"
    recorded.write_text("".join(f"{json.dumps(call)}\n" for call in calls), encoding="utf-8")
    _command("score", recorded, "--out", folder / "scores.jsonl")


def _json_keys(history: Path, folder: Path) -> Iterator[str]:
    """Yield the keys of the JSON objects that commands print, and those of the objects in them."""
    for command in (
        ("report", history, "--format", "json"),
        ("baseline", "show", folder / "baseline.json", "--json"),
        ("calibrate", "fit", history, "--metric", "hallucinated", "--json"),
        ("calibrate", "guard", history, "--metric", "hallucinated", "--json"),
        ("dataset", history, "--where", "hallucinated = 1", "--out", folder / "cases.jsonl", "--json"),
        ("score", folder / "calls.jsonl", "--json"),
        ("exporters", "list", "--json"),
        ("doctor", "--json"),
    ):
        printed = io.StringIO()
        with redirect_stdout(printed):
            command_line([str(each) for each in command])  # the doctor finds that nothing is sent anywhere
        name = "ragtrace " + " ".join(each for each in command[:2] if isinstance(each, str) and each[0] != "-")
        for key, value in json.loads(printed.getvalue()).items():
            yield f"{name}: {key}"
            items = value if isinstance(value, list) else [value]
            yield from sorted({f"{name}: {key}.{each}" for item in items if isinstance(item, dict) for each in item})


def _fill_spool(path: Path, out: Path) -> None:
    spool = Spool(str(path))
    spool.prepare("the script")
    assert spool.add([UnscoredCall(UNSCORED, ("judge",), "response-1", 0.25)]) == [True]
    spool.close()
    _dump(path, out)


def _dump(path: Path, out: Path) -> None:
    """Write the SQL that makes the database at *path* anew, with its application id and version."""
    with closing(sqlite3.connect(path)) as database:
        head = [
            f"PRAGMA {name} = {database.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        out.write_text("\n".join((*head, *database.iterdump(), "")), encoding="utf-8")


def _expected(ids: list[str], folder: Path) -> dict[str, Any]:
    (calibration,) = read_calibrations(folder / "calibration.json")
    baseline = ragtrace.types.Baseline.load(folder / "baseline.json")
    rows = [json.loads(line) for line in (folder / "labels.jsonl").read_text(encoding="utf-8").splitlines()]
    scores = [json.loads(line) for line in (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "calls": len(ids),
        "bad": len(ids[::BAD_EVERY]),
        "first_call": ids[0],
        "labels": {label: sum(row["label"] == label for row in rows) for label in ("bad", "good")},
        "cases": len((folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()),
        "baseline": {
            key.metric: [each.n, each.mean]
            for key, each in baseline.distributions.items()
            if key.metric in ("consistency", "hallucinated")
        },
        "calibration": {"labels": calibration.labels, "sums": dict(calibration.sums)},
        "consistency": [score["results"]["consistency"].get("score") for score in scores],
    }


def _command(*arguments: object) -> None:
    assert command_line([str(each) for each in arguments]) == OK, arguments


if __name__ == "__main__":
    place = FOLDER / current_version()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_files(place)
    sys.stdout.write(f"{place}: {sum(path.stat().st_size for path in place.iterdir()):,} bytes\n")
