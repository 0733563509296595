"""Command `ragtrace worker`, which takes RAG calls from a message queue and judges them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from ragtrace.cli.command_options import add_command, positive_seconds, whole_number
from ragtrace.system.terminal import FAILURE, OK, USAGE, flush, print_error

_WORKER = """\
Takes calls from the queue of a broker (RabbitMQ or Redis), has the judge of the
configuration score them, and sends the scores. Needs the extra `fleet`.
"""


def register(commands: Any) -> None:
    """Add the command `ragtrace worker` to the parser of the command line."""
    parser = add_command(
        commands, "worker", run, "judge the calls in the queue of a fleet", "worker [options]", _WORKER
    )
    parser.add_argument("--broker", metavar="URL", help="amqp://, amqps://, redis:// or rediss://")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="arguments of ragtrace.configure")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1, 4_096),
        metavar="N",
        help="calls judged at a time (default: the judge's, 16)",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="Redis that workers share (default: broker, if Redis)",
    )
    parser.add_argument(
        "--tokens-per-day",
        type=whole_number(1, 1_000_000_000_000),
        metavar="N",
        help="budget of all workers for 24 hours",
    )
    parser.add_argument(
        "--drain-seconds",
        type=positive_seconds,
        default=10.0,
        metavar="S",
        help="time to finish at the end (default 10)",
    )


def _limit_concurrency(judge: Any, concurrency: int) -> None:
    """Let *judge*, if there is one, see at most *concurrency* calls at a time.

    Raises:
        SettingsError: the judge does not let its attribute `limits` be set.
    """
    from dataclasses import replace

    from ragtrace.core.errors import SettingsError
    from ragtrace.core.settings import limits_of

    if judge is None:
        return
    try:
        judge.limits = replace(limits_of(judge), concurrency=concurrency)
    except AttributeError as error:
        raise SettingsError(
            f"--concurrency needs a judge whose attribute `limits` can be set, got {type(judge).__name__}: {error}; "
            "leave the option out, and give the judge limits = ragtrace.JudgeLimits(concurrency=...)"
        ) from error


def run(options: argparse.Namespace) -> int:
    """Run the command `ragtrace worker` until a signal ends it, and return the exit status."""
    import ragtrace
    from ragtrace.core.errors import SettingsError
    from ragtrace.fleet.broker import check_broker_url
    from ragtrace.gateway.config_file import read_config
    from ragtrace.runtime.current_runtime import current

    try:
        arguments = {} if options.config is None else read_config(options.config)
        url, origin = _broker(options, arguments)
        check_broker_url(url, origin)
        store = _store(options)
        if options.concurrency is not None:
            _limit_concurrency(arguments.get("judge"), options.concurrency)
        ragtrace.configure(**arguments)
    except SettingsError as error:
        print_error(str(error))
        return USAGE
    runtime = current()
    if runtime is None or runtime.evaluators.judge is None:
        print_error('a worker needs a judge: write judge = "openai:MODEL" into the file of --config')
        ragtrace.shutdown(timeout=options.drain_seconds)
        return USAGE
    from ragtrace.fleet.shared_state import share_state
    from ragtrace.fleet.worker import longest_hold, run_worker

    try:
        shared = share_state(
            runtime.evaluators.judge,
            runtime.sampling,
            broker=url,
            store=store,
            tokens_per_day=options.tokens_per_day,
            claim_seconds=longest_hold(runtime.settings.judge_timeout),
        )
    except SettingsError as error:
        print_error(str(error))
        ragtrace.shutdown(timeout=options.drain_seconds)
        return USAGE
    concurrency = runtime.settings.judge_concurrency
    ended = run_worker(runtime, url, shared, concurrency=concurrency, started=lambda: _announce(url, concurrency))
    delivered = ragtrace.shutdown(timeout=options.drain_seconds)
    return OK if ended and delivered else FAILURE


def _broker(options: argparse.Namespace, arguments: dict[str, Any]) -> tuple[str, str]:
    """Return the URL of the broker and the setting from which the URL was read."""

    from ragtrace.core.errors import SettingsError

    given = (
        (options.broker, "--broker"),
        (arguments.pop("fleet", None), str(options.config)),
        (os.environ.pop("RAGTRACE_FLEET", None), "RAGTRACE_FLEET"),
    )
    for url, origin in given:
        if url:
            return str(url), origin
    raise SettingsError("no broker is given; write --broker amqp://... or --broker redis://...")


def _store(options: argparse.Namespace) -> str | None:
    """Return the URL of the Redis that workers share, or None if no URL is given."""
    from ragtrace.fleet.broker import STORE_VARIABLE, check_store_url

    for url, origin in ((options.store, "--store"), (os.environ.get(STORE_VARIABLE), STORE_VARIABLE)):
        if url:
            return check_store_url(url, origin)
    return None


def _announce(url: str, concurrency: int) -> None:
    from ragtrace.system.urls import displayed_url

    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"ragtrace: worker takes calls from {displayed_url(url)}, {concurrency} at a time\n")
        flush(sys.stdout)
