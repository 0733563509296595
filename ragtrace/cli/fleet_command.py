"""Command `ragtrace fleet`, which shows the state of a fleet of judging workers, and queues its dead letters again."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ragtrace.cli.command_options import add_command, add_json_option, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from ragtrace.fleet.broker import Broker

_FLEET = """\
Looks at the queues of a fleet of judges (`ragtrace worker`). Needs the extra
`fleet`. The broker is that of --broker, or of RAGTRACE_FLEET.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace fleet` to the parser of the command line."""
    summary, usage = "look at a fleet of judges, retry its dead letters", "fleet (status|retry) [options]"
    parser = add_command(commands, "fleet", run, summary, usage, _FLEET)
    actions = parser.add_subparsers(dest="action", title="actions", metavar="ACTION [options]", required=True)
    status = add_command(
        actions, "status", run, "print queue, workers and dead letters", "fleet status [options]", _FLEET
    )
    add_json_option(status)
    retry = add_command(actions, "retry", run, "put dead letters back into the queue", "fleet retry [options]", _FLEET)
    retry.add_argument(
        "--limit", type=whole_number(1, 10_000_000), default=10_000_000, metavar="N", help="at most N of them"
    )
    for action in (status, retry):
        action.add_argument("--broker", metavar="URL", help="amqp://, amqps://, redis:// or rediss://")


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace fleet` and return the exit status."""
    import asyncio

    from ragtrace.core.errors import SettingsError
    from ragtrace.fleet.broker import check_broker_url
    from ragtrace.system.urls import displayed_url

    url = options.broker or os.environ.get("RAGTRACE_FLEET", "")
    try:
        check_broker_url(url, "--broker" if options.broker else "RAGTRACE_FLEET")
    except SettingsError as error:
        print_error(str(error))
        return USAGE
    try:
        asyncio.run(_act(url, options))
    except Exception as error:  # the brokers' libraries raise many types; a message may contain the broker's URL
        print_error(f"the broker {displayed_url(url)} cannot be used: {type(error).__name__}")
        return FAILURE
    return OK


async def _act(url: str, options: argparse.Namespace) -> None:
    from ragtrace.fleet.broker import open_broker

    broker = open_broker(url)
    try:
        act = {"status": _print_status, "retry": _retry}[options.action]
        await act(broker, options)
    finally:
        await broker.aclose()


async def _print_status(broker: Broker, options: argparse.Namespace) -> None:
    from ragtrace.fleet.dead_letters import read_state

    state = await read_state(broker)
    if options.json:
        sys.stdout.write(json.dumps(asdict(state)) + "\n")
        return
    oldest = "" if state.oldest_seconds is None else f", the oldest for {state.oldest_seconds:.0f} s"
    sys.stdout.write(f"calls that wait: {state.calls}{oldest}\n")
    sys.stdout.write(f"workers: {state.consumers}\ndead letters: {state.dead_letters}\n")


async def _retry(broker: Broker, options: argparse.Namespace) -> None:
    from ragtrace.fleet.dead_letters import retry_dead_letters

    done = await retry_dead_letters(broker, options.limit)
    kept = done.pop("kept", 0)
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(done.items()))
    sys.stdout.write(f"put back into the queue: {done.total()}{f' ({reasons})' if reasons else ''}; left: {kept}\n")
