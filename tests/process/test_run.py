"""`ragtrace run` runs a program as the interpreter does; bad options and settings stop it before the program starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support import acme
from tests.support.otlp import HttpReceiver

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 240.0
PROGRAM: Final = """
import json, os, sys

if __name__ == "__main__":
    names = ("__name__", "__file__", "__package__", "__cached__", "__doc__", "__builtins__")
    print(json.dumps({name: repr(globals().get(name)) for name in names}))
    print(sys.argv, sys.path, type(globals()["__loader__"]).__name__, sys.modules["__main__"].__dict__ is globals())
    print("Größe", sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors, sorted(name for name in globals()))

def fail(how):
    if how == "error":
        raise ValueError("x") from KeyError("cause")
    if how == "status":
        sys.exit(7)
    if how == "message":
        sys.exit("bye")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "pipe":
        raise BrokenPipeError
    if how == "hook":
        sys.excepthook = lambda *found: print("hook", found[0], found[1], found[2].tb_frame.f_code.co_name)
        raise ValueError("x")
    if how == "killed":
        sys.stdout.flush()
        os.kill(os.getpid(), 15)

fail(sys.argv[1])
"""
POOL: Final = """
import multiprocessing

def work(number):
    return number * 2

if __name__ == "__main__":
    for kind in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(kind).Pool(1) as pool:
            print(kind, pool.map(work, range(3)))
"""
LATE: Final = """
import atexit, pickle, threading, time

class Mine:
    pass

def finish():
    threading.main_thread().join()
    print("thread", type(pickle.loads(pickle.dumps(Mine()))) is Mine)

atexit.register(lambda: print("exit", type(pickle.loads(pickle.dumps(Mine()))) is Mine))
threading.Thread(target=finish).start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory of the programs, and the folder in which the library is installed."""
    work = tmp_path / "work"
    (work / "package").mkdir(parents=True)
    (work / "package" / "__init__.py").touch()
    for path in (work / "app.py", work / "package" / "__main__.py"):
        path.write_text(PROGRAM, encoding="utf-8")
    with zipfile.ZipFile(work / "app.zip", "w") as archive:
        archive.writestr("__main__.py", PROGRAM)
    acme.install(tmp_path / "site")
    return work


def _run(
    folder: Path, *command: str, stdin: str = "", environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder.parent / "site"), str(ROOT)])
    own = {"PYTHONPATH": path, "RAGTRACE_EXPORTER": "none", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
        cwd=folder,
        env={**os.environ, **own, **(environ or {})},
    )


def _assert_same(folder: Path, *program: str, stdin: str = "") -> None:
    """Assert that a program has the same output, errors and exit status with the interpreter and with ragtrace."""
    expected, found = _run(folder, *program, stdin=stdin), _run(folder, "-m", "ragtrace", "run", *program, stdin=stdin)
    assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, expected.returncode)
    assert found.stdout


@pytest.mark.parametrize("how", ["", "error", "status", "message", "interrupt", "pipe", "hook", "killed"])
def test_a_script_runs_as_with_the_interpreter(folder: Path, how: str) -> None:
    """Its globals, arguments, path, output, traceback and exit status, however it ends."""
    _assert_same(folder, "app.py", how, "--list", "-m", "--")


@pytest.mark.parametrize("how", ["", "error", "status", "interrupt"])
@pytest.mark.parametrize("program", [("-m", "package"), ("package",), ("app.zip",), ("-",), ("../work/app.py",)])
def test_other_kinds_of_programs_run_as_with_the_interpreter(folder: Path, program: tuple[str, ...], how: str) -> None:
    """Modules, directories, zip files, standard input and paths that are not normal."""
    _assert_same(folder, *program, how, "--flag", stdin=PROGRAM)


def test_compiled_programs_run_as_with_the_interpreter(folder: Path) -> None:
    """A file of byte code."""
    assert _run(folder, "-m", "compileall", "-q", "-b", "app.py").returncode == 0
    _assert_same(folder, "app.pyc", "error")


@pytest.mark.parametrize("program", [POOL, LATE], ids=["processes", "threads"])
def test_what_a_script_starts_finds_its_main_module(folder: Path, program: str) -> None:
    """Forked and spawned processes, threads after the end of the main thread, and exit handlers."""
    (folder / "app.py").write_text(program, encoding="utf-8")
    _assert_same(folder, "app.py")


@pytest.mark.parametrize("program", [("broken.py",), ("-m", "missing"), ("-m", "package.missing"), ("empty",)])
def test_what_cannot_run_fails_as_with_the_interpreter(folder: Path, program: tuple[str, ...]) -> None:
    """With the same message and exit status."""
    (folder / "broken.py").write_text("def (", encoding="utf-8")
    (folder / "empty").mkdir()
    expected, found = _run(folder, *program), _run(folder, "-m", "ragtrace", "run", *program)
    assert (found.stdout, found.stderr, found.returncode) == (expected.stdout, expected.stderr, expected.returncode)


@pytest.mark.skipif(os.name != "posix", reason="no such signals on this system")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_as_with_the_interpreter(folder: Path, number: signal.Signals) -> None:
    """The process dies of the signal itself."""
    (folder / "app.py").write_text("import signal\nprint('ready', flush=True)\nsignal.pause()\n", encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": f"{folder.parent / 'site'}{os.pathsep}{ROOT}", "RAGTRACE_EXPORTER": "none"}
    command = [sys.executable, "-m", "ragtrace", "run", "app.py"]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == -number


@pytest.mark.parametrize(
    ("arguments", "environ", "error"),
    [
        ([], {}, "no program is named"),
        (["-m"], {}, "-m needs the name of a module"),
        (["missing.py"], {}, "No such file or directory: 'missing.py'"),
        (["app.py"], {"RAGTRACE_SAMPLE_RATE": "50"}, "for 50% write 0.5"),
        (["app.py"], {"RAGTRACE_EXPORTER": "nowhere"}, "no exporter named 'nowhere'"),
        (["app.py"], {"RAGTRACE_INSTRUMENT": "langchian"}, "did you mean 'langchain'?"),
        (["--instrument", "openaix", "app.py"], {}, "--instrument openaix: no instrumentation of that name"),
        (["--no-instrument", "openaix", "app.py"], {}, "--no-instrument openaix: no instrumentation of that name"),
    ],
)
def test_wrong_use_stops_before_the_program(
    folder: Path, arguments: list[str], environ: dict[str, str], error: str
) -> None:
    """With the usual message and exit status."""
    (folder / "app.py").write_text("print('started')", encoding="utf-8")
    found = _run(folder, "-m", "ragtrace", "run", *arguments, environ=environ)
    assert (found.stdout, found.returncode) == ("", 2)
    assert found.stderr.startswith("ragtrace: ")
    assert error in found.stderr


def test_an_instrumentation_that_fails_does_not_stop_the_program(folder: Path) -> None:
    """It is logged."""
    acme.install(folder.parent / "faulty", fault="raise LookupError('their fault')")
    (folder / "app.py").write_text("import acme_llm; print(acme_llm.answer('Why?'))", encoding="utf-8")
    faulty = {"PYTHONPATH": os.pathsep.join([str(folder.parent / "faulty"), str(ROOT)])}
    found = _run(folder, "-m", "ragtrace", "run", "app.py", environ=faulty)
    assert (found.stdout, found.returncode) == ("Lake Baikal is 1,642 metres deep. It lies in Siberia.\n", 0)
    assert "could not instrument acme: LookupError: their fault" in found.stderr


def test_without_any_instrumentation_it_says_so(folder: Path) -> None:
    """Else no call would be scored, silently."""
    found = _run(folder, "-m", "ragtrace", "run", "--no-instrument", "*", "app.py", "status")
    assert found.returncode == 7
    assert "no instrumentation of an installed GenAI library was found" in found.stderr


def test_switched_off_it_only_runs_the_program(folder: Path) -> None:
    """Nothing is instrumented and nothing is said."""
    (folder / "app.py").write_text("import acme_llm; print(acme_llm.answer.__module__)", encoding="utf-8")
    found = _run(folder, "-m", "ragtrace", "run", "app.py", environ={"RAGTRACE_ENABLED": "false"})
    assert (found.stdout, found.stderr) == ("acme_llm\n", "")


def test_the_list_names_what_would_be_instrumented(folder: Path) -> None:
    """And runs nothing."""
    found = _run(folder, "-m", "ragtrace", "run", "--list", "app.py", "error")
    assert (found.stdout, found.returncode) == ("acme: opentelemetry-instrumentation-genai-acme\n", 0)


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with HttpReceiver() as receiver:
        yield receiver


@pytest.mark.parametrize("as_module", [False, True])
def test_the_calls_of_an_instrumented_library_are_scored(folder: Path, receiver: HttpReceiver, as_module: bool) -> None:
    """In a program that knows nothing of ragtrace or OpenTelemetry; its output is as before."""
    (folder / "app.py").write_text("import acme_llm; print(acme_llm.answer('How deep is it?'))", encoding="utf-8")
    environ = {**receiver.environ, "RAGTRACE_EXPORTER": "otlp"}
    program = ["-m", "app"] if as_module else ["app.py"]
    found = _run(folder, "-m", "ragtrace", "run", *program, environ=environ)
    assert (found.stdout, found.stderr) == ("Lake Baikal is 1,642 metres deep. It lies in Siberia.\n", "")
    assert {"invoke_workflow acme", "retrieval acme"} <= {span.name for span in receiver.spans}
    scores = [span.attributes.get("ragtrace.eval.consistency.score") for span in receiver.spans]
    assert [score for score in scores if score is not None] == [1.0]


def test_frameworks_are_listened_to_where_the_environment_names_them(folder: Path, receiver: HttpReceiver) -> None:
    """Without any instrumentation, and without a word about a missing one."""
    program = """
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser

chain = FakeListChatModel(responses=["It is deep."]) | StrOutputParser()
print(chain.invoke("How deep is it?", {"run_name": "lakes"}))
"""
    (folder / "app.py").write_text(program, encoding="utf-8")
    environ = {"RAGTRACE_INSTRUMENT": "langchain", "RAGTRACE_EXPORTER": "otlp", **receiver.environ}
    found = _run(folder, "-m", "ragtrace", "run", "--no-instrument", "*", "app.py", environ=environ)
    assert (found.stdout, found.stderr, found.returncode) == ("It is deep.\n", "", 0)
    assert {"invoke_workflow lakes", "chat"} <= {span.name for span in receiver.spans}
