"""The plugin of pytest, in processes of their own: an application on recorded cases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import ragtrace
import ragtrace_exporters
from tests.support.acme import distribution

N: Final = 12
_BOT: Final = """
import os
import ragtrace

DOCS = {
    "shoes": "Worn shoes can be returned within 14 days of delivery.",
    "refund": "Refunds are paid to the card that was used for the purchase.",
    "voucher": "Vouchers expire after two years.",
}

@ragtrace.retrieve
def search(question):
    return [text for name, text in DOCS.items() if name in question]

@ragtrace.trace
def ask(question):
    docs = search(question)
    return "You get 900 euros in Berlin." if os.environ.get("WORSE") else docs[0]

async def ask_async(question):
    return {"answer": ask(question), "contexts": search(question)}

def stream(question):
    for word in ask(question).split(" "):
        yield word + " "

def answer_only(question, contexts):
    return contexts[0]

def failing(question):
    if "shoes" in question:
        raise ValueError("no shoes")
    return ask(question)

def reconfiguring(question):
    ragtrace.configure(exporter="none")
    return ask(question)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an application and twelve cases."""
    (tmp_path / "bot.py").write_text(_BOT)
    names = ("shoes", "refund", "voucher")
    write_cases(tmp_path, [{"query": f"What about {names[n % 3]}, says customer {n}?"} for n in range(N)])
    return tmp_path


def write_cases(folder: Path, cases: list[dict[str, Any]]) -> None:
    base: dict[str, Any] = {"contexts": ["Vouchers expire after two years."], "answer": "After two years."}
    (folder / "cases.jsonl").write_text("".join(json.dumps({**base, **case}) + "\n" for case in cases))


def run_pytest(folder: Path, *options: str, **environ: str) -> tuple[int, str]:
    """Exit status and output of pytest in *folder*."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:langsmith_plugin",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        *options,
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RAGTRACE"))}
    done = subprocess.run(
        argv, cwd=folder, env=kept | environ, capture_output=True, text=True, timeout=400, check=False
    )
    return done.returncode, done.stdout + done.stderr


def run_cases(folder: Path, *options: str, app: str = "ask", **environ: str) -> tuple[int, str]:
    """Exit status and output of a run of an application of the folder on its cases."""
    judge = () if any("judge" in option for option in options) else ("--ragtrace-judge", "embedded:extractive")
    return run_pytest(
        folder, "--ragtrace-cases", "cases.jsonl", "--ragtrace-app", f"bot:{app}", *judge, *options, **environ
    )


def test_a_worse_application_fails_and_the_same_one_passes(folder: Path) -> None:
    """Compared with the results of an earlier run; the failure shows the statements of the worst cases."""
    status, output = run_cases(folder, "--ragtrace-out", "base.jsonl")
    assert status == 0, output
    assert f"{N} cases, bot:ask is called once for each; judge embedded@" in output
    status, output = run_cases(folder, "--ragtrace-baseline", "base.jsonl")
    assert status == 0, output
    assert re.search(rf"faithfulness +mean 1.000, {N} scored: no clear change, \+0.000 .* over {N} cases", output)
    status, output = run_cases(folder, "--ragtrace-baseline", "base.jsonl", WORSE="1")
    assert status == 1, output
    assert "faithfulness is worse than in the baseline: -1.000" in output
    assert "not found: You get 900 euros in Berlin." in output
    assert "FAILED cases.jsonl::faithfulness" in output
    assert (folder / "base.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("app", ["ask_async", "stream", "answer_only"])
def test_applications_of_every_kind_are_called(folder: Path, app: str) -> None:
    """Coroutines, streams, and a generation that takes the stored contexts; all are judged against contexts."""
    status, output = run_cases(folder, "--ragtrace-metrics", "faithfulness", "--ragtrace-workers", "3", app=app)
    assert status == 0, output
    assert f"mean 1.000, {N} scored" in output
    assert "2 passed" in output


def test_an_exception_of_the_application_fails(folder: Path) -> None:
    """With its traceback; the other cases are judged."""
    status, output = run_cases(folder, "-m", "ragtrace", "-k", "application", app="failing")
    assert status == 1
    assert f"the application raised an exception on {N // 3} of {N} cases" in output
    assert 'raise ValueError("no shoes")' in output
    assert f"{N - N // 3} of {N} cases answered" in output


def test_stored_scores_are_compared_except_of_the_metric_that_selected(folder: Path) -> None:
    """A second score of calls that were selected by the first one differs by the selection alone."""
    stored = {
        name: {"score": 0.0, "evaluator": "embedded@3", "version": "1"} for name in ("consistency", "faithfulness")
    }
    cases = [{"query": f"What about shoes {n}?", "scores": stored, "selected_by": ["faithfulness"]} for n in range(N)]
    write_cases(folder, cases)
    status, output = run_cases(folder, "--ragtrace-metrics", "consistency,faithfulness")
    assert status == 0, output
    assert "selected by this very score" in output
    status, output = run_cases(folder, "--ragtrace-metrics", "consistency,faithfulness", "--collect-only", "-q")
    assert "cases.jsonl::consistency" in output


def test_a_baseline_of_another_judge_fails(folder: Path) -> None:
    """Another judge's scores say nothing about the application."""
    run_cases(folder, "--ragtrace-out", "base.jsonl")
    rows = [json.loads(line) for line in (folder / "base.jsonl").read_text().splitlines()]
    (folder / "base.jsonl").write_text("".join(json.dumps({**row, "judge": "other@1"}) + "\n" for row in rows))
    status, output = run_cases(folder, "--ragtrace-baseline", "base.jsonl", "--ragtrace-metrics", "faithfulness")
    assert status == 1
    assert "the baseline was judged by other@1" in output


def test_a_configuring_application_is_told(folder: Path) -> None:
    """Its calls are recorded by another runtime than the plugin's; the application runs only once."""
    status, output = run_cases(folder, app="reconfiguring")
    assert status == 1
    assert "must not call ragtrace.configure" in output


def test_an_llm_judge_is_announced_with_its_cost(folder: Path) -> None:
    """Before it is asked: nothing is sent while tests are only collected."""
    status, output = run_cases(
        folder, "--ragtrace-judge", "openai:gpt-4o-mini", "--collect-only", OPENAI_API_KEY="none"
    )
    assert status == 0, output
    assert re.search(rf"about {N} requests, [\d,]+ tokens in \(about 0.00 USD", output)


def test_nothing_of_a_test_reaches_the_store_of_the_environment(folder: Path) -> None:
    """The history that RAGTRACE_STORE names is of the application's real calls."""
    status, output = run_cases(folder, RAGTRACE_STORE="history.db", RAGTRACE_SPOOL="spool.db")
    assert status == 0, output
    assert not list(folder.glob("*.db"))


def test_pytest_does_not_rewrite_the_packages_that_are_imported_before_it() -> None:
    """Else it warns, which is an error for users of `-W error`, where a program imports ragtrace and calls pytest."""
    for package in (ragtrace, ragtrace_exporters):
        assert "PYTEST_DONT_REWRITE" in (package.__doc__ or "")


def test_a_program_that_imports_ragtrace_can_call_pytest(folder: Path) -> None:
    """Its warnings are errors, and pytest has none about packages that it can no longer rewrite."""
    # pytest rewrites the files of a distribution with a plugin, and an editable installation lists none of them.
    distribution(folder, "acme", "[pytest11]\nacme = acme_plugin\n")
    (folder / "acme-1.0.dist-info" / "RECORD").write_text("ragtrace/__init__.py,,\nragtrace_exporters/__init__.py,,\n")
    (folder / "acme_plugin.py").write_text("")
    (folder / "test_own.py").write_text("def test_own():\n    pass\n")
    (folder / "sitecustomize.py").write_text("import ragtrace, ragtrace_exporters\n")
    status, output = run_pytest(folder, "-q", PYTHONPATH=os.pathsep.join([str(folder), *sys.path]))
    assert status == 0, output
    assert "1 passed" in output


def test_own_tests_are_untouched_without_cases(folder: Path) -> None:
    """The plugin is loaded, adds no test, and does not import ragtrace."""
    (folder / "test_own.py").write_text(
        "import sys\n\ndef test_own(pytestconfig):\n    assert pytestconfig.pluginmanager.has_plugin('ragtrace')\n"
        "    assert not [name for name in sys.modules if name.split('.')[0] in ('ragtrace', 'opentelemetry')]\n"
    )
    status, output = run_pytest(folder, "-q")
    assert status == 0, output
    assert "1 passed" in output


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--ragtrace-cases", "cases.jsonl"), "--ragtrace-app module:function"),
        (("--ragtrace-cases", "none.jsonl", "--ragtrace-app", "bot:ask"), "cannot be read"),
        (("--ragtrace-cases", "bot.py", "--ragtrace-app", "bot:ask"), "line 2 of bot.py"),
        (("--ragtrace-cases", "cases.jsonl", "--ragtrace-app", "bot:ask", "-n", "2"), "-n 0"),
        (
            ("--ragtrace-cases", "cases.jsonl", "--ragtrace-app", "bot:ask", "--ragtrace-metrics", "fathfulness"),
            "did you mean",
        ),
    ],
)
def test_wrong_options_stop_pytest(folder: Path, options: tuple[str, ...], why: str) -> None:
    """As wrong usage, before any call."""
    status, output = run_pytest(folder, *options)
    assert status == 4, output
    assert why in output
