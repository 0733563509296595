"""Broker of a fleet: the Celery application, the queues of RAG calls and of dead letters, and publishing to the
queues.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from ragtrace.core.errors import RagtraceError, SettingsError
from ragtrace.fleet.call_message import CallMessage, write_message
from ragtrace.fleet.transports import Outgoing, RabbitTransport, RedisTransport, Transport

TASK: Final = "ragtrace.judge"
CALLS: Final = "ragtrace.calls"
"""Name of the queue of calls that are to be judged."""
DEAD_LETTERS: Final = "ragtrace.dead_letters"
"""Name of the queue of calls that could not be judged, each with its reason."""
MOST_TRIES: Final = 3
"""Number of failures after which a call becomes a dead letter: of the judge, or of workers that end while judging.

RabbitMQ also has the number in its queue, as `x-delivery-limit`, which is fixed when the queue is declared: to change
the number, delete the existing queue of calls when it is empty."""
STORE_VARIABLE: Final = "RAGTRACE_FLEET_STORE"
"""Environment variable with the URL of the store that workers share if the broker is not Redis."""
MOST_CALLS: Final = 10_000
"""Most calls in the queue; sampling probabilities fall long before."""
HOLD_SECONDS: Final = 10.0
"""Time after which Redis gives a call to another worker, unless the holder renews the hold on the call."""
REDIS_PREFIX: Final = "ragtrace:"
"""Prefix of all keys in Redis."""
WORKER_NAME: Final = "ragtrace-worker"
"""Client name of workers' connections to Redis, by which living workers are counted."""
_BATCH_BYTES: Final = 1 << 20
"""Total size of the messages that are sent before confirmations are awaited."""
_SCHEMES: Final = ("amqp", "amqps", "redis", "rediss")
_TIMEOUT_SECONDS: Final = 5.0
_VERIFIED: Final[Mapping[str, Mapping[str, object]]] = {
    "amqps": {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None},  # None stands for the name in the URL
    "rediss": {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True},
}
"""Options, by URL scheme, with which kombu verifies a broker's certificate and name; by default kombu does not."""
_KEEPING: Final = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")
"""Settings of Redis that decide whether it keeps what is in its queues."""
_CELERY_VARIABLES: Final = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
"""Environment variables that Celery prefers to its settings, although they are meant for the user's application."""


class QueueFullError(RagtraceError):
    """Raised when the queue of a fleet has no room for another call."""


def check_broker_url(url: str, origin: str) -> str:
    """Check that a fleet can use the broker at *url*, and return the URL.

    The error message shows no credentials.

    Args:
        url: the URL.
        origin: where it came from, for the message.

    Raises:
        SettingsError: the scheme is unknown, or Celery is not installed.
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in _SCHEMES:
        raise SettingsError(
            f"expected the URL of a broker (from {origin}): {', '.join(f'{each}://...' for each in _SCHEMES)}; write "
            "for instance amqp://user:password@rabbitmq:5672// or redis://redis:6379/0"
        )
    missing = [name for name in ("celery", "redis")[: 1 + scheme.startswith("redis")] if find_spec(name) is None]
    if missing:
        raise SettingsError(
            f"{' and '.join(missing)} is not installed, for the broker (from {origin}); write: "
            "pip install 'ragtrace-otel[fleet]'"
        )
    return url


def displayed_url(url: str) -> str:
    """Return the URL of a broker without user name and password."""
    with suppress(ValueError):
        parts = urlsplit(url)
        host = parts.hostname or ""
        address = f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{address}{f':{parts.port}' if parts.port else ''}{parts.path}"
    return f"{url.partition('://')[0]}://..."


def is_redis(url: str) -> bool:
    """Return whether the broker at *url* is Redis."""
    return url.startswith("redis")


def redis_risks(settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the Redis settings that can lose queued calls, each with an explanation and advice."""
    risks: list[tuple[str, str]] = []
    if settings.get("appendonly") == "no":
        lost = "calls that wait are lost when Redis restarts, with snapshots those since the last one"
        risks.append(("appendonly no", f"{lost}: set appendonly yes and appendfsync always"))
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory") != "0":  # without a limit nothing is deleted
        keys = "the claims of calls, which are then judged twice," if policy.startswith("volatile") else "the queue"
        lost = f"Redis deletes keys, {keys} among them, when its memory is full"
        risks.append((f"maxmemory-policy {policy}", f"{lost}: set maxmemory-policy noeviction"))
    return risks


def make_celery_app(url: str) -> Any:
    """Create the Celery application of a fleet, with its queues.

    Args:
        url: the broker.
    """
    celery: Any = import_module("celery")
    # Not set as the current application: the user's process may have one. No fix-ups for frameworks.
    app = celery.Celery("ragtrace", broker=url, set_as_current=False, fixups=[])
    options: dict[str, Any] = {}
    if is_redis(url):
        options = {
            "global_keyprefix": REDIS_PREFIX,
            "socket_timeout": _TIMEOUT_SECONDS,
            "socket_connect_timeout": _TIMEOUT_SECONDS,
        }
    calls, dead = make_queues()
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_queues=[calls, dead],
        task_default_queue=CALLS,
        task_default_exchange="",
        task_create_missing_queues=False,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=_TIMEOUT_SECONDS,
        broker_transport_options=options,
        broker_use_ssl=dict(_VERIFIED.get(urlsplit(url).scheme, {})),
        broker_pool_limit=1,
    )
    return app


def make_queues(most_calls: int = MOST_CALLS) -> tuple[Any, Any]:
    """Return the kombu declarations of the queues of RAG calls and of dead letters.

    RabbitMQ moves a call to the dead letters itself if workers were lost with it too often; Redis knows no such rules.
    """
    kombu: Any = import_module("kombu")
    direct = kombu.Exchange("", type="direct")
    rules = {
        "x-queue-type": "quorum",
        "x-delivery-limit": MOST_TRIES - 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": DEAD_LETTERS,
        "x-dead-letter-strategy": "at-least-once",
        "x-max-length": most_calls,
        "x-overflow": "reject-publish",
    }
    calls = kombu.Queue(CALLS, direct, routing_key=CALLS, queue_arguments=rules)
    dead = kombu.Queue(DEAD_LETTERS, direct, routing_key=DEAD_LETTERS, queue_arguments={"x-queue-type": "quorum"})
    return calls, dead


def ignore_celery_variables() -> None:
    """Remove the environment variables that would replace the broker of a Celery worker."""
    for name in _CELERY_VARIABLES:
        os.environ.pop(name, None)


class CallBroker:
    """Connection to the broker of a fleet, which publishes RAG calls and dead letters with the broker's confirmation.

    Safe from any thread: one batch is published at a time. A failed connection is made anew by the next message.

    Args:
        url: the broker.
        app: the Celery application; None: a new one.
        most_calls: calls that the queue holds at most; RabbitMQ keeps the limit that a queue was first declared with.
    """

    def __init__(self, url: str, app: Any = None, *, most_calls: int = MOST_CALLS) -> None:
        self.url, self._app, self._most_calls = url, app, most_calls
        self._lock = threading.Lock()
        self._transport: Transport | None = None

    @property
    def app(self) -> Any:
        """Celery application of the fleet."""
        if self._app is None:
            self._app = make_celery_app(self.url)
        return self._app

    def publish(self, message: CallMessage, *, again: bool = False) -> None:
        """Put a RAG call into the queue, and wait until the broker has confirmed the message.

        Args:
            message: the call.
            again: whether a worker puts back a call that it has taken out; Redis takes that even if the queue is full.

        Raises:
            MessageError: the call is too large.
            QueueFullError: the queue is full.
            Exception: the broker did not take it; the libraries of the brokers raise many types.
        """
        (error,) = self.publish_all([message], again=again)
        if error is not None:
            raise error

    def publish_all(self, messages: Sequence[CallMessage], *, again: bool = False) -> list[Exception | None]:
        """Put calls into the queue in batches, and wait until the broker has answered for each one.

        Args:
            messages: the calls.
            again: whether a worker puts back calls that it has taken out; Redis takes those even if the queue is full.

        Returns:
            For each call None if the broker has confirmed it, else why it did not: what `publish` raises. If the broker
            went away before it confirmed a call, the call may be in the queue nevertheless.
        """
        errors: list[Exception | None] = []
        batch: list[Outgoing] = []
        placed: dict[str, int] = {}
        """Position in `errors` of each message that is sent, by the message's id."""
        size = 0
        most = None if again else self._most_calls
        for message in messages:
            errors.append(None)
            try:
                batch.append(Outgoing.task(TASK, message=write_message(message)))
            except Exception as error:
                errors[-1] = error
                continue
            placed[batch[-1].id] = len(errors) - 1
            size += len(batch[-1].body)
            if size >= _BATCH_BYTES:
                self._send(CALLS, batch, most, placed, errors)
                batch, size = [], 0
        if batch:
            self._send(CALLS, batch, most, placed, errors)
        return errors

    def publish_dead_letter(self, record: Mapping[str, object]) -> None:
        """Put *record* into the queue of dead letters, and wait until the broker has confirmed the message.

        Raises:
            Exception: the broker did not take it.
        """
        letter = Outgoing(str(record.get("at")), json.dumps(record), {})
        errors: list[Exception | None] = [None]
        self._send(DEAD_LETTERS, [letter], None, {letter.id: 0}, errors)
        if errors[0] is not None:
            raise errors[0]

    def _send(
        self,
        queue: str,
        batch: Sequence[Outgoing],
        most: int | None,
        placed: Mapping[str, int],
        errors: list[Exception | None],
    ) -> None:
        """Send a batch of messages, and note in *errors* those that the broker has not stored."""
        stored: dict[str, bool] = {}
        away: Exception | None = None
        with self._lock:
            try:
                self._open().send(queue, batch, stored, most)
            except Exception as error:
                away = error
                self.close()
            except BaseException:
                self.close()
                raise
        for each in batch:
            if each.id not in stored:
                errors[placed[each.id]] = away
            elif not stored[each.id]:
                errors[placed[each.id]] = QueueFullError(f"the queue {queue} is full")

    def lengths(self) -> dict[str, int]:
        """Return the number of undelivered messages in the queue of calls and in the queue of dead letters.

        Raises:
            Exception: the broker cannot be reached.
        """
        if is_redis(self.url):  # asking kombu whether a queue exists leaves out the prefix of its key (5.7)
            with self.redis() as client:
                return {name: int(client.llen(f"{REDIS_PREFIX}{name}")) for name in (CALLS, DEAD_LETTERS)}
        found = {CALLS: 0, DEAD_LETTERS: 0}
        with self.connect() as connection:
            for name in found:
                # A channel each, as the broker closes the one on which a queue is missing.
                with suppress(*connection.channel_errors), connection.channel() as channel:
                    found[name] = int(channel.queue_declare(name, passive=True).message_count)
        return found

    def worker_count(self) -> int:
        """Return the number of workers that consume calls from the queue.

        Raises:
            Exception: the broker cannot be reached, or does not tell.
        """
        if is_redis(self.url):
            with self.redis() as client:
                clients: list[dict[str, str]] = client.client_list()
                database = str(client.get_connection_kwargs().get("db", 0))
            # Each worker has exactly one subscribed connection, for Celery's remote control.
            kinds = [(each["name"], each["db"]) for each in clients if each["psub"] != "0"]
            return kinds.count((WORKER_NAME, database))
        with self.connect() as connection, suppress(*connection.channel_errors):
            return int(connection.default_channel.queue_declare(CALLS, passive=True).consumer_count)
        return 0

    def redis_settings(self) -> dict[str, str]:
        """Return the settings of the broker's Redis that decide whether it keeps queued calls.

        Those that Redis does not show are missing: managed ones often refuse `CONFIG GET`.

        Raises:
            Exception: Redis cannot be reached.
        """
        errors: Any = import_module("redis.exceptions")
        with self.redis() as client:
            try:
                found: dict[str, str] = {**client.config_get("append*"), **client.config_get("maxmemory*")}
            except errors.ResponseError:
                return {}
        return {name: found[name] for name in _KEEPING if name in found}

    def redis(self) -> Any:
        """Create a client of the broker's Redis, for the caller to close. Its keys begin with `REDIS_PREFIX`."""
        library: Any = import_module("redis")
        return library.Redis.from_url(
            self.url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS
        )

    def connect(self) -> Any:
        """Open a separate connection to the broker, for the caller to close.

        Raises:
            Exception: the broker cannot be reached.
        """
        # The URL is passed again, as Celery would prefer the URL in its environment variables.
        connection = self.app.connection_for_write(url=self.url)
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=_TIMEOUT_SECONDS)
        return connection

    def _open(self) -> Transport:
        if self._transport is None:
            if is_redis(self.url):
                self._transport = RedisTransport(self.redis(), REDIS_PREFIX)
            else:
                connection = self.connect()
                for queue in make_queues(self._most_calls):
                    queue(connection.default_channel).declare()
                self._transport = RabbitTransport(connection, _TIMEOUT_SECONDS)
        return self._transport

    def close(self) -> None:
        """Close the connection to the broker. The next message opens another one."""
        transport, self._transport = self._transport, None
        if transport is not None:
            with suppress(Exception):
                transport.close()

    def detach(self) -> object:
        """Detach the parent process's connection in a forked child, and return it for the caller to keep alive."""
        self._lock = threading.Lock()
        left, self._transport, self._app = self._transport, None, None
        return left
