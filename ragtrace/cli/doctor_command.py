"""Command `ragtrace doctor`, which shows the configuration, the source of each value, and which services answer."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

from ragtrace.cli.command_options import add_command, add_json_option, positive_seconds
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

_DOCTOR = """\
Shows the configuration and where each value came from, asks every endpoint and
judge, and says what is wrong. Nothing is posted and no alarm is raised.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace doctor` to the parser of the command line."""
    parser = add_command(commands, "doctor", run, "what is configured, answers, is wrong", "doctor [options]", _DOCTOR)
    parser.add_argument(
        "--app",
        metavar="MODULE[:NAME]",
        help="first import it, and call NAME if it can be",
    )
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=5.0,
        metavar="SECONDS",
        help="within which all must answer (default 5)",
    )
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace doctor`, which prints a diagnosis of the configuration, and return the exit status."""
    from ragtrace.diagnosis import diagnose_environment, doctor

    if options.app is None:
        diagnosis = diagnose_environment(os.environ, timeout=options.timeout)
    else:
        status = _import_application(options.app)
        if status != OK:
            return status
        diagnosis = doctor(timeout=options.timeout)
    sys.stdout.write(f"{json.dumps(diagnosis.as_dict())}\n" if options.json else str(diagnosis))
    return OK if diagnosis.ok else FAILURE


def _import_application(target: str) -> int:
    """Import the user's application, redirecting its output to standard error so that --json prints one object only."""
    name, _, attribute = target.partition(":")
    sys.path.insert(0, os.getcwd())
    output, sys.stdout = sys.stdout, sys.stderr
    try:
        module = importlib.import_module(name)
        if attribute:
            found = getattr(module, attribute, None)
            if found is None:
                print_error(f"module {name!r} has no {attribute!r}")
                return USAGE
            if callable(found):
                found()
        return OK
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        # Any other missing module is one that the named module imports.
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            print_error(f"there is no module {name!r}; name it as in `import`, from a directory where that works")
            return USAGE
        print_error(f"{target} could not be loaded: {type(error).__name__}: {error}")
        return FAILURE
    finally:
        sys.stdout = output
