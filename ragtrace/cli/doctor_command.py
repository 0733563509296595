"""Command `ragtrace doctor`, which shows the configuration, the source of each value, and which services answer."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ragtrace.cli.command_options import add_command, add_json_option, positive_seconds
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.diagnosis import Diagnosis

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
    parser.add_argument("--gold", action="store_true", help="the judge labels ten calls; what that takes is said first")
    parser.add_argument("--judge", metavar="JUDGE", help="with --gold: this judge alone, and no application")
    parser.add_argument("--base-url", metavar="URL", help="server of that judge")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace doctor`, which prints a diagnosis of the configuration, and return the exit status."""
    from ragtrace.diagnosis import diagnose_environment, doctor

    judges = [options.app, options.judge]
    if (options.gold and judges.count(None) != 1) or (options.judge and not options.gold):
        print_error("--gold asks one judge: add either --app MODULE or --judge JUDGE, which is for --gold alone")
        return USAGE
    if options.judge is not None:
        diagnosis = _diagnose_judge(options.judge, options.base_url)
        if diagnosis is None:
            return USAGE
    elif options.app is None:
        diagnosis = diagnose_environment(os.environ, timeout=options.timeout)
    else:
        status = _import_application(options.app)
        if status != OK:
            return status
        if options.gold:
            _tell_costs()
        diagnosis = doctor(timeout=options.timeout, gold_calls=options.gold)
    sys.stdout.write(f"{json.dumps(diagnosis.as_dict())}\n" if options.json else str(diagnosis))
    return OK if diagnosis.ok else FAILURE


def _diagnose_judge(spec: str, base_url: str | None) -> Diagnosis | None:
    """Diagnose the judge that *spec* describes by the gold calls, or say why that is not possible and return None."""
    from ragtrace.core.errors import SettingsError
    from ragtrace.diagnosis.examination import diagnose_judge
    from ragtrace.diagnosis.gold_calls import expected_cost, is_asked
    from ragtrace.offline.judge_spec import judge_from_spec

    try:
        judge = judge_from_spec(spec, base_url=base_url)
    except SettingsError as error:
        print_error(str(error))
        return None
    if not is_asked(judge):
        print_error(f"gold calls are for judges that ask a model about support, got {spec!r}")
        return None
    sys.stderr.write(f"ragtrace: {expected_cost(judge)}\n")
    return diagnose_judge(judge)


def _tell_costs() -> None:
    """Write to standard error what the gold calls take of the application's judges."""
    from ragtrace.diagnosis.examination import gold_judges
    from ragtrace.diagnosis.gold_calls import expected_cost
    from ragtrace.runtime.current_runtime import current

    runtime = current()
    for judge in () if runtime is None else gold_judges(runtime):
        sys.stderr.write(f"ragtrace: {expected_cost(judge)}\n")


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
