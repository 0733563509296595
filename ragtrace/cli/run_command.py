"""Command `ragtrace run`, which scores the RAG calls of an unchanged Python program."""

from __future__ import annotations

import argparse
import builtins
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from types import ModuleType, TracebackType
from typing import Any, Final
from zipfile import is_zipfile

from ragtrace.cli.command_options import add_command
from ragtrace.system.terminal import OK, USAGE, print_error

NAME: Final = "run"
_STDIN: Final = "-"
_STDIN_PATH: Final = "<stdin>"
_FILES: Final = (".py", ".pyc")
_RUN: Final = """\
Runs a Python program as `python PROGRAM` does, and scores the RAG calls in it.
PROGRAM is a file, a folder or zip file with a __main__.py, or - for standard
input. Options of ragtrace come before it; all that follows is the program's.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace run` to the parser of the command line."""
    usage = "run [options] (PROGRAM | -m MODULE) [arguments of the program]"
    parser = add_command(commands, NAME, run, "run a program, with its RAG calls scored", usage, _RUN)
    parser.add_argument(
        "--instrument",
        action="append",
        default=[],
        metavar="NAME",
        help="start this instrumentation, too",
    )
    parser.add_argument(
        "--no-instrument",
        action="append",
        default=[],
        metavar="NAME",
        help="do not start this one; '*': no other",
    )
    parser.add_argument("--list", action="store_true", help="print what would be instrumented by what")
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as python -m"
    )
    parser.add_argument("program", nargs="?", metavar="PROGRAM", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace run`: start ragtrace and the instrumentations, then run the program.

    The exceptions of the program, SystemExit among them, are raised as they are.
    """
    from ragtrace.cli import instrumentors
    from ragtrace.core.errors import SettingsError

    try:
        chosen = instrumentors.choose(options.instrument, options.no_instrument)
        if options.list:
            for each in chosen:
                sys.stdout.write(f"{each.name}: {each.distribution}\n")
            return OK
        start = _program(options)
        import ragtrace

        # Where RAGTRACE_EVALUATE_SPANS is set, it decides whether spans are evaluated.
        ragtrace.configure(evaluate_spans=None if os.environ.get("RAGTRACE_EVALUATE_SPANS") else True)
        from ragtrace.span_reading.instrument import instrument_from_environment

        listened_to = instrument_from_environment(os.environ)
    except (SettingsError, OSError) as error:
        print_error(str(error))
        return USAGE
    from ragtrace.runtime.current_runtime import current

    if current() is not None:  # None: ragtrace is disabled
        if not (chosen or listened_to):
            print_error(
                "no instrumentation of an installed GenAI library was found; only decorated functions are scored"
            )
        for each in chosen:
            each.start()
    try:
        start()
    except BaseException as error:
        shown = error.__traceback__
        while shown is not None and shown.tb_frame.f_globals is globals():
            shown = shown.tb_next
        _hide_our_frames(error, shown)
        raise
    return OK


def _hide_our_frames(error: BaseException, shown: TracebackType | None) -> None:
    """Make the interpreter print *error* with a traceback that has no frames of ragtrace.

    The interpreter itself ends the process, as it handles SystemExit, signals and the program's own excepthook.
    """
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        hook(kind, value.with_traceback(shown) if value is error else value, shown if value is error else traceback)

    sys.excepthook = show


# --- programs ---------------------------------------------------------------------------------------------------------


def _program(options: argparse.Namespace) -> Callable[[], None]:
    """Return a function that runs the Python program named by *options*.

    Raises:
        SettingsError: no program is named.
        OSError: its file cannot be read.
    """
    from ragtrace.core.errors import SettingsError

    if options.module is not None:
        if not options.module:
            raise SettingsError("-m needs the name of a module; write ragtrace run -m MODULE")
        name, *arguments = options.module
        return lambda: _run_module(name, arguments)
    if options.program is None:
        raise SettingsError("no program is named; write ragtrace run PROGRAM, or ragtrace run -m MODULE")
    program: str = options.program
    arguments = options.arguments
    if program == _STDIN:
        source = sys.stdin.buffer.read()
        return lambda: _run_code(source, _STDIN_PATH, ["-", *arguments], "")
    if os.path.isdir(program) or (not program.endswith(_FILES) and is_zipfile(program)):
        return lambda: _run_archive(program, arguments)
    path = os.path.join(os.getcwd(), program)  # not normalised, like the path that the interpreter sets
    with open(program, "rb") as file:
        source = file.read()
    directory = os.path.dirname(os.path.realpath(program))
    return lambda: _run_code(source, path, [program, *arguments], directory)


def _run_module(name: str, arguments: Sequence[str]) -> None:
    _new_main()
    _set_arguments(["-m", *arguments], os.getcwd())
    _run_module_as_main(name)


def _run_archive(path: str, arguments: Sequence[str]) -> None:
    """Run the `__main__.py` of a directory or of a zip file."""
    _new_main()
    _set_arguments([path, *arguments], os.path.abspath(path), always=True)
    _run_module_as_main("__main__", alter_argv=False)


def _run_module_as_main(name: str, *, alter_argv: bool = True) -> None:
    # The function that `python -m` calls, so that tracebacks and messages for a missing module stay the same.
    main: Callable[[str, bool], object] = getattr(runpy, "_run_module_as_main")  # noqa: B009 - private
    main(name, alter_argv)


def _run_code(source: bytes, path: str, arguments: list[str], directory: str) -> None:
    main = _new_main()
    main.__file__, main.__dict__["__cached__"] = path, None
    _set_arguments(arguments, directory)
    if path.endswith(".pyc"):
        loader = SourcelessFileLoader("__main__", path)
        main.__loader__ = loader
        code: Any = loader.get_code("__main__")
    else:
        main.__loader__ = BuiltinImporter if path == _STDIN_PATH else SourceFileLoader("__main__", path)
        code = compile(source, path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _new_main() -> ModuleType:
    """Replace the module `__main__` of the command `ragtrace` by an empty module for the program."""
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def _set_arguments(arguments: list[str], directory: str, *, always: bool = False) -> None:
    """Set `sys.argv` for the program, and replace the first entry of `sys.path` by *directory*.

    Args:
        always: put *directory* there even if the interpreter was started without such an entry (python -P).
    """
    sys.argv[:] = arguments
    safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
    if not safe:
        del sys.path[0]
    if always or not safe:
        sys.path.insert(0, directory)
