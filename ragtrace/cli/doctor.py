"""Command `ragtrace doctor`, which shows the configuration, the source of each value, and which services answer."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

from ragtrace.cli.options import add_command, add_json_option, positive_seconds
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

_DOCTOR = """\
Shows what ragtrace's configuration is and where each value came from; asks every OTLP endpoint with an empty export,
every judge and every backend's API that can be probed, the page for Prometheus and the files that calls are kept in;
and says what is wrong. Nothing is posted and no alarm is raised: for a notifier only the connection is tried.

Without --app it looks at the environment variables only. With --app it imports your module, as your server would, and
looks at the configuration that its ragtrace.configure(...) made. Neither sees into another process: in a running one,
print(ragtrace.doctor()) shows the same, and the outcomes of its last calls.
"""
_NOTES = """\
examples:
  ragtrace doctor
  ragtrace doctor --app shop.main
  ragtrace doctor --app shop.main:create_app --json | jq .problems

keys of the JSON object:
  ok           whether nothing is wrong
  state        environment, running, not configured, switched off or shut down
  version, python, pid
  problems     what is wrong, in sentences
  settings     name, value, origin (a keyword such as service=, an environment variable, or default)
  evaluators   role, id, version, metrics, state (of the circuit breaker), waits_s, in_flight, queued, asked; failures
               (calls by cause), failing (calls in a row), said and advice (of the last failure), served (models that
               have answered)
  alerts       name, rule, states, tells (names of the notifiers)
  baselines    workflow, metric, evaluator, calls, complete, told
  canaries     agreements (metric, evaluator; by label: canaries, judgements, agreement; fallen, usual), cost, postponed
  checks       what, where, ok, seconds, seen, advice
  notes        what else is worth knowing
  queued, held, stats, spool
  seen         of each workflow: workflow, calls, with_contexts, no_contexts, with_answer
  scored_lately  calls with contexts and an answer that were scored in the last five minutes
  notices      what became of what the alerts had to tell, by notifier: offered, posted, failed, dropped, pending
  fates        of the last calls: at (seconds since 1970), trace_id, span_id, workflow, evaluator, outcome, reason,
               probability, detail, why

exit status: 0 all well, 1 something is wrong, 2 wrong usage (no such module), 130 interrupted
"""


def add(commands: Any) -> None:
    """Add the command `ragtrace doctor` to the parser of the command line."""
    parser = add_command(commands, "doctor", run, "what is configured, what answers, what is wrong", _DOCTOR, _NOTES)
    parser.add_argument(
        "--app",
        metavar="MODULE[:NAME]",
        help="first import MODULE, and call NAME in it if it is a function; the working directory is searched",
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
