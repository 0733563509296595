"""Command `ragtrace fleet`, which shows the state of a fleet of judging workers, and queues its dead letters again."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ragtrace.cli.options import add_command, add_json_option, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.fleet.broker import CallBroker

_FLEET = """\
Looks at the queues of a fleet of judges (`ragtrace worker`) in RabbitMQ or Redis. Needs the extra `fleet`.
"""
_STATUS = """\
Prints the calls that wait, the age of the oldest one (on Redis; RabbitMQ shows no message without delivering it), the
number of workers that take calls, the names of those that answer within a second, and the dead letters.
"""
_RETRY = """\
Puts dead letters back into the queue of calls, to be judged again. A dead letter that no call can be read from stays.
"""
_NOTES = """\
environment:
  RAGTRACE_FLEET   the broker, where --broker is not given

exit status: 0 done; 1 the broker cannot be reached; 2 wrong usage
"""


def add(commands: Any) -> None:
    """Add the command `ragtrace fleet` to the parser of the command line."""
    parser = add_command(commands, "fleet", run, "look at a fleet of judges, retry its dead letters", _FLEET, _NOTES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    status = add_command(actions, "status", run, "print queue, workers and dead letters", _STATUS, _NOTES)
    add_json_option(status)
    retry = add_command(actions, "retry", run, "put dead letters back into the queue", _RETRY, _NOTES)
    retry.add_argument(
        "--limit", type=whole_number(1, 10_000_000), default=10_000_000, metavar="N", help="at most N of them"
    )
    for action in (status, retry):
        action.add_argument("--broker", metavar="URL", help="amqp://, amqps://, redis:// or rediss://")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace fleet` and return the exit status."""
    from ragtrace.core.errors import SettingsError
    from ragtrace.fleet.broker import CallBroker, check_broker_url, displayed_url

    url = options.broker or os.environ.get("RAGTRACE_FLEET", "")
    act: Callable[[CallBroker, argparse.Namespace], None] = {"status": _print_status, "retry": _retry}[options.action]
    try:
        broker = CallBroker(check_broker_url(url, "--broker" if options.broker else "RAGTRACE_FLEET"))
    except SettingsError as error:
        print_error(str(error))
        return USAGE
    try:
        act(broker, options)
    except Exception as error:  # kombu's transports raise many types; a message may contain the broker's URL
        print_error(f"the broker {displayed_url(url)} cannot be used: {type(error).__name__}")
        return FAILURE
    finally:
        broker.close()
    return OK


def _print_status(broker: CallBroker, options: argparse.Namespace) -> None:
    from ragtrace.fleet.dead_letters import read_state

    state = read_state(broker)
    if options.json:
        sys.stdout.write(json.dumps(asdict(state)) + "\n")
        return
    oldest = "" if state.oldest_seconds is None else f", the oldest for {state.oldest_seconds:.0f} s"
    sys.stdout.write(f"calls that wait: {state.calls}{oldest}\n")
    workers = "".join(f"  {name}\n" for name in state.workers)
    sys.stdout.write(f"workers: {state.consumers}\n{workers}dead letters: {state.dead_letters}\n")


def _retry(broker: CallBroker, options: argparse.Namespace) -> None:
    from ragtrace.fleet.dead_letters import retry_dead_letters

    done = retry_dead_letters(broker, options.limit)
    kept = done.pop("kept", 0)
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(done.items()))
    sys.stdout.write(f"put back into the queue: {done.total()}{f' ({reasons})' if reasons else ''}; left: {kept}\n")
