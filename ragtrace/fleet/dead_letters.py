"""State and dead letters of a fleet, for the `ragtrace fleet` commands."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any, Final, cast

from ragtrace.fleet.broker import CALLS, DEAD_LETTERS, REDIS_PREFIX, CallBroker, is_redis, make_queues
from ragtrace.fleet.call_message import DEADLINE_SECONDS, CallMessage, MessageError, read_message

_INSPECT_SECONDS: Final = 1.0
_UNKNOWN: Final = "unknown"
_WORKER_LOST: Final = "worker_lost"


@dataclass(frozen=True, slots=True)
class FleetState:
    """Snapshot of a fleet's queues and workers."""

    calls: int
    """Number of calls in the queue that no worker has taken."""
    dead_letters: int
    oldest_seconds: float | None
    """Seconds for which the oldest call of the queue has waited; None: the queue is empty, or RabbitMQ's."""
    consumers: int
    """Number of workers that take calls from the queue."""
    workers: tuple[str, ...]
    """Names of the workers that answered within a second."""


def read_state(broker: CallBroker) -> FleetState:
    """Read the state of the fleet from *broker*.

    Raises:
        Exception: the broker cannot be reached.
    """
    lengths = broker.lengths()
    with broker.connect() as connection:
        inspect: Any = broker.app.control.inspect(timeout=_INSPECT_SECONDS, connection=connection)
        answers: dict[str, object] = inspect.ping() or {}
    waiting, dead = lengths[CALLS], lengths[DEAD_LETTERS]
    return FleetState(waiting, dead, _oldest_seconds(broker), broker.worker_count(), tuple(sorted(answers)))


def _oldest_seconds(broker: CallBroker) -> float | None:
    """Return the age in seconds of the oldest call in a Redis queue, or None for RabbitMQ and for an empty queue."""
    if not is_redis(broker.url):
        return None
    with broker.redis() as client:
        oldest: bytes | None = client.lindex(f"{REDIS_PREFIX}{CALLS}", -1)
    try:
        arguments = json.loads(_body(oldest or b""))
        return max(0.0, time() - read_message(arguments[1]["message"]).published)
    except (ValueError, KeyError, IndexError, TypeError, MessageError):
        return None


def _body(message: bytes) -> bytes:
    """Decode the body of a message that kombu has stored in Redis.

    Return b"" if there is none.
    """
    try:
        envelope: Any = json.loads(message)
        encoded = envelope["properties"].get("body_encoding") == "base64"
        return base64.b64decode(envelope["body"]) if encoded else str(envelope["body"]).encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b""


def retry_dead_letters(broker: CallBroker, most: int) -> Counter[str]:
    """Put dead letters back into the queue of calls to be judged again, oldest first.

    A letter leaves its queue when the broker has confirmed the call, so that none is lost; one that no call can be read
    from stays.

    Args:
        broker: the broker.
        most: most letters to look at.

    Returns:
        The number of calls that were put back, by the reason for which they were dead letters; those that stay are
        counted as `kept`.

    Raises:
        Exception: the broker cannot be reached; the letters that were not put back stay.
    """
    done: Counter[str] = Counter()
    letters = _letters_in_redis if is_redis(broker.url) else _letters
    for letter, delete in letters(broker, min(most, broker.lengths()[DEAD_LETTERS])):
        reason, text = _read_letter(letter)
        try:
            call = read_message(text)
        except MessageError:
            done["kept"] += 1
            continue
        now = time()
        broker.publish(CallMessage(call.unscored, now, now + DEADLINE_SECONDS))
        delete()
        done[reason] += 1
    return done


def _letters(broker: CallBroker, most: int) -> Generator[tuple[Any, Callable[[], object]], None, None]:
    """Yield the dead letters in RabbitMQ, each with a function that deletes it.

    Letters that are not deleted go back into the queue in the end.
    """
    kept: list[Any] = []
    with broker.connect() as connection:
        queue = make_queues()[1](connection.default_channel)
        for _ in range(most):
            message = queue.get(no_ack=False)
            if message is None:
                break
            yield message.body, message.ack
            if not message.acknowledged:
                kept.append(message)
        for message in kept:
            message.requeue()


def _letters_in_redis(broker: CallBroker, most: int) -> Generator[tuple[Any, Callable[[], object]], None, None]:
    """Yield the dead letters in Redis, each with a function that deletes it."""
    key, place = f"{REDIS_PREFIX}{DEAD_LETTERS}", -1
    with broker.redis() as client:
        for _ in range(most):
            letter: bytes | None = client.lindex(key, place)
            if letter is None:
                break
            yield _body(letter), partial(client.lrem, key, -1, letter)
            place -= client.lindex(key, place) == letter


def _read_letter(letter: Any) -> tuple[str, object]:
    """Return the reason and the RAG call of a dead letter.

    The letter comes from a worker, or from RabbitMQ, which moves Celery's message there unchanged.
    """
    try:
        body: object = json.loads(letter)
    except (ValueError, TypeError, RecursionError):
        return _UNKNOWN, None
    if isinstance(body, dict):
        letter = cast("dict[str, object]", body)
        return str(letter.get("reason", _UNKNOWN)), letter.get("message")
    try:
        return _WORKER_LOST, cast("Any", body)[1]["message"]
    except (KeyError, IndexError, TypeError):
        return _UNKNOWN, None
