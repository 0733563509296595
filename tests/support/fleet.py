"""Workers of a fleet as child processes, their judge, and the calls that they judge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.types import Document, RagCall
from ragtrace.core.unscored_call import UnscoredCall
from ragtrace.fleet.call_message import CallMessage
from ragtrace.fleet.claims import Claim, ClaimRequest, RedisClaims
from tests.support.http_judge import JUDGE_URL
from tests.support.services import running

ROOT: Final = Path(__file__).parents[2]
_CONFIG: Final = """\
screen = "{screen}"
judge = "tests.support.http_judge:judge"
[sampling]
rate = 1.0
"""


def handed_over(number: int) -> CallMessage:
    """Return the message of a call whose trace id and span id are *number*."""
    span = SpanContext(number, number, True, TraceFlags(1))
    contexts = (Document("The tower is 330 m tall."),)
    call = RagCall(f"How tall is tower {number}?", contexts, "330 m", span=span, workflow="towers")
    return CallMessage.of(UnscoredCall(call, (), None, 0.5))


def claim(store: RedisClaims, call: str, owner: str, seconds: float = 60.0, takes_over: str = "") -> Claim:
    """Claim one call in a store of claims."""
    [state] = store.claim_all([ClaimRequest(call, owner, takes_over)], seconds)
    return state


@contextmanager
def running_worker(
    folder: Path,
    broker: str,
    judge_url: str,
    environ: Mapping[str, str],
    *,
    name: str = "worker",
    concurrency: int = 8,
    judge_timeout: float = 5.0,
    options: Sequence[str] = (),
    screen: str = "none",
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `ragtrace worker` until the block ends; it is ready when the block begins."""
    config = folder / f"{name}.toml"
    config.write_text(_CONFIG.format(screen=screen))
    log = folder / f"{name}.log"
    argv = [sys.executable, "-m", "ragtrace", "worker", "--broker", broker, "--config", str(config)]
    argv += ["--concurrency", str(concurrency), *options]
    variables = {"PYTHONPATH": str(ROOT), "OTEL_METRIC_EXPORT_INTERVAL": "500", JUDGE_URL: judge_url, **environ}
    variables["RAGTRACE_JUDGE_TIMEOUT"] = str(judge_timeout)
    with running(argv, environ=variables, log=log, ready=lambda: "takes calls" in log.read_text()) as process:
        yield process
