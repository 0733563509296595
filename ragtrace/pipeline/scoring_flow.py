"""The flow of scoring one RAG call, which is the same for calls of this process, of the spool file and of a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ragtrace.system.faults import faults, guarded


async def run_scoring(
    evaluate: Callable[[], Awaitable[None]],
    *,
    cancelled: Callable[[], object],
    failed: Callable[[], None],
    send: Callable[[], None],
) -> None:
    """Score a RAG call: have it evaluated, count it whatever happens, and send the scores.

    Args:
        evaluate: has the call evaluated, and counts the outcomes.
        cancelled: says what becomes of a call whose scoring the shutdown cancels.
        failed: counts a call whose scoring raised.
        send: sends the scores; called in any case.
    """
    try:
        await evaluate()
    except asyncio.CancelledError:
        cancelled()
        raise
    except BaseException as error:  # whatever a user's redaction or id generator raises, the call is counted
        faults.record("scoring of a call", error)
        failed()
    finally:
        with guarded("attaching scores"):
            send()
