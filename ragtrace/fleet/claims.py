"""Claims of workers on RAG calls, so that each call is judged only once.

An application queues a call again when it does not know that the broker has it, and a broker delivers a message again
when its worker is gone. A worker claims a call before it is judged, and confirms the claim when its scores are
delivered. A claim that is not confirmed expires. A message that is delivered again takes over the claim of its earlier
delivery, whose worker may live nevertheless: it asks before it sends scores whether it still has the claim.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from ragtrace.core.errors import SettingsError
from ragtrace.core.score_id import score_id
from ragtrace.system.faults import faults
from ragtrace.system.threads import DaemonPool

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

T = TypeVar("T")
Claim: TypeAlias = Literal["claimed", "held", "done"]
"""State of a call for a worker: this worker has the claim, another one holds it, or the scores are delivered."""
KEPT_SECONDS: Final = 90_000
"""Number of seconds for which a confirmed claim is kept: an hour longer than a call may wait in the queue."""
_STORE_SECONDS: Final = 5.0
_CONNECTIONS: Final = 5
"""Connections to a database that SQLAlchemy keeps open by default, and so the number of questions at a time."""
_IDLE_SECONDS: Final = 10.0
"""Number of seconds after which a thread that asks a database ends, unless there is another question."""
_DONE: Final = "done"
_CLAIM_SCRIPT: Final = """
local owner = redis.call('GET', KEYS[1])
if owner == 'done' then return 'done' end
if owner and owner ~= ARGV[1] and string.sub(owner, 1, #ARGV[3]) ~= ARGV[3] then return 'held' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 'claimed'
"""
_RELEASE_SCRIPT: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


def claim_id(span: SpanContext, evaluator: str, evaluator_version: str) -> str:
    """Return the id of the claim to score a RAG call with one evaluator.

    It is made from the call's root *span*.
    """
    return score_id(span, "", evaluator, evaluator_version=evaluator_version)


class ClaimRequest(NamedTuple):
    """Request of a worker to claim one RAG call."""

    call: str
    """Id of the RAG call, as `claim_id` returns it."""
    owner: str
    """Id of the delivery of the message with the call."""
    takes_over: str = ""
    """Prefix of the owner ids whose claim passes to this owner; empty: no claim passes."""


class Claims(Protocol):
    """Interface of a store of claims shared by all workers of a fleet.

    Its methods raise the exceptions of the library behind the store.
    """

    def claim_all(self, requests: Sequence[ClaimRequest], seconds: float) -> list[Claim]:
        """Claim RAG calls, and return the outcome for each of them.

        Args:
            requests: the calls and their owners.
            seconds: time after which another owner may claim the calls, unless the claims are confirmed.
        """
        ...

    def holds(self, call: str, owner: str) -> bool:
        """Return True unless another owner has claimed the RAG call meanwhile."""
        ...

    def confirm(self, *calls: str) -> None:
        """Mark RAG calls as done: their scores are delivered, and no worker can claim them again."""

    def release(self, call: str, owner: str) -> None:
        """Release the claim of *owner*, so that the RAG call can be claimed again at once."""


def open_claims(url: str) -> Claims:
    """Open the store of claims at *url*.

    Args:
        url: of Redis (`redis://`, `rediss://`), or of a database as SQLAlchemy writes it, such as
            `postgresql+psycopg://user:password@host/database` or `sqlite:////var/lib/ragtrace/claims.db`.

    Raises:
        SettingsError: the URL cannot be used, or a library is not installed; the message shows no credentials.
    """
    scheme = url.partition("://")[0]
    try:
        return RedisClaims(url) if scheme in ("redis", "rediss") else SqlClaims(url)
    except ImportError as error:
        raise SettingsError(
            f"the store of claims ({scheme}://) needs {error.name}; write: pip install 'ragtrace-otel[fleet]', and "
            "install the driver of the database"
        ) from error


class WorkerClaims:
    """Claims of RAG calls by one worker.

    If the store of claims does not answer, calls are judged without a claim.

    Args:
        store: the store; None: nothing is claimed.
        evaluator: id of the judge.
        evaluator_version: version of the judge.
        seconds: time for which a call may be held by a worker that does not confirm its claim.
    """

    def __init__(self, store: Claims | None, evaluator: str, evaluator_version: str, seconds: float) -> None:
        self._store, self._evaluator, self._seconds = store, (evaluator, evaluator_version), seconds
        self.has_store = store is not None
        self.counts: Counter[str] = Counter()
        """Numbers of calls by the outcome of claiming them; `unknown`: the store did not answer."""

    def claim_all(self, wanted: Sequence[tuple[SpanContext | None, str, str]]) -> Sequence[Claim | Literal["unknown"]]:
        """Claim RAG calls for this worker, so that no other worker judges them, and count the outcomes.

        Args:
            wanted: for each call its root span, the id of its delivery (owner), and the beginning of the ids of owners
                whose claim ends by this one.
        """
        known = [(span, owner, takes_over) for span, owner, takes_over in wanted if span is not None]
        requests = [ClaimRequest(claim_id(span, *self._evaluator), *owners) for span, *owners in known]
        found = self._ask(lambda store: store.claim_all(requests, self._seconds)) if requests else []
        states = iter(found or ())
        outcomes: list[Claim | Literal["unknown"]] = []
        for span, *_ in wanted:
            state = None if span is None else next(states, None)
            outcomes.append(state or "unknown")
        if self.has_store:
            self.counts.update(outcomes)
        return outcomes

    def holds(self, span: SpanContext | None, owner: str) -> bool:
        """Return True unless another delivery of the RAG call is known to have claimed it meanwhile."""
        if span is None:
            return True
        return self._ask(lambda store: store.holds(claim_id(span, *self._evaluator), owner)) is not False

    def confirm(self, *spans: SpanContext | None) -> None:
        """Confirm the claims on RAG calls whose scores are delivered."""
        calls = [claim_id(span, *self._evaluator) for span in spans if span is not None]
        if calls:
            self._ask(lambda store: store.confirm(*calls))

    def release(self, span: SpanContext | None, owner: str) -> None:
        """Release the claim on a RAG call that is put back into the queue.

        *owner* is the delivery that has the claim.
        """
        if span is not None:
            self._ask(lambda store: store.release(claim_id(span, *self._evaluator), owner))

    def _ask(self, ask: Callable[[Claims], T]) -> T | None:
        if self._store is None:
            return None
        try:
            return ask(self._store)
        except Exception as error:
            faults.warn_once(
                "fleet: store of claims",
                "the store of claims does not answer (%s): calls are judged all the same, and one that is queued twice "
                "may be counted twice; every further failure is counted in ragtrace.stats().faults",
                type(error).__name__,
            )
            return None


class RedisClaims:
    """Store in Redis of the workers' claims on RAG calls.

    Each call has one key, which expires.

    Args:
        url: of Redis.
        prefix: start of the names of the keys.
    """

    def __init__(self, url: str, prefix: str = "ragtrace:claim:") -> None:
        redis: Any = import_module("redis")
        self._prefix = prefix
        self._redis: Any = redis.Redis.from_url(
            url, socket_timeout=_STORE_SECONDS, socket_connect_timeout=_STORE_SECONDS
        )

    def claim_all(self, requests: Sequence[ClaimRequest], seconds: float) -> list[Claim]:
        """Claim RAG calls, and return the outcome for each of them."""
        milliseconds = max(1, int(seconds * 1000))
        with self._redis.pipeline(transaction=False) as pipe:
            for call, owner, takes_over in requests:
                pipe.eval(_CLAIM_SCRIPT, 1, self._prefix + call, owner, milliseconds, takes_over or owner)
            found: list[bytes] = pipe.execute()
        return [cast("Claim", state.decode()) for state in found]

    def holds(self, call: str, owner: str) -> bool:
        """Return True unless another owner has claimed the RAG call meanwhile."""
        return self._redis.get(self._prefix + call) in (None, owner.encode())

    def confirm(self, *calls: str) -> None:
        """Mark RAG calls as done: their scores are delivered, and no worker can claim them again."""
        with self._redis.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.set(self._prefix + call, _DONE, ex=KEPT_SECONDS)
            pipe.execute()

    def release(self, call: str, owner: str) -> None:
        """Release the claim of *owner*, so that the RAG call can be claimed again at once."""
        self._redis.eval(_RELEASE_SCRIPT, 1, self._prefix + call, owner)


class SqlClaims:
    """Store of claims in an SQL database table, accessed by SQLAlchemy and created if missing.

    Claims expire by the clocks of the workers, which must agree to a few seconds. Each method raises a `TimeoutError`
    if the database has not answered in time: few drivers know a time limit for a server that is frozen, or gone
    without a word.

    Args:
        url: of the database.
        clock: returns seconds since the epoch.
        cleaning: number of claims after which those in the table that have expired are deleted.
        timeout: seconds within which the database must answer.

    Raises:
        SettingsError: the URL is none that SQLAlchemy knows.
    """

    def __init__(
        self, url: str, clock: Callable[[], float] = time, cleaning: int = 1_000, timeout: float = _STORE_SECONDS
    ) -> None:
        import sqlalchemy
        from sqlalchemy.exc import ArgumentError

        self._sql: Any = sqlalchemy
        self._clock, self._cleaning, self._timeout = clock, cleaning, timeout
        self._threads = DaemonPool(_CONNECTIONS, "ragtrace-claims", _IDLE_SECONDS)
        self._n_claims = 0
        self._exists = False
        column: Any = sqlalchemy.Column
        self._table: Any = sqlalchemy.Table(
            "ragtrace_claims",
            sqlalchemy.MetaData(),
            column("call_id", sqlalchemy.String(32), primary_key=True),
            column("owner", sqlalchemy.String(128), nullable=False),
            column("until", sqlalchemy.Float(53), nullable=False, index=True),
            column("done", sqlalchemy.Boolean, nullable=False),
        )
        try:
            self._engine: Any = sqlalchemy.create_engine(url, pool_pre_ping=True)
        except ArgumentError:
            raise SettingsError(
                "the store of claims must be redis://..., or the URL of a database as SQLAlchemy writes it, such as "
                "postgresql+psycopg://user:password@host/database"
            ) from None
        if self._engine.dialect.name == "sqlite":
            events: Any = import_module("sqlalchemy.event")
            events.listen(self._engine, "connect", _make_sqlite_fast)
        self._insertion: Any = self._table.insert()
        if self._engine.dialect.name == "postgresql":  # its log would have each insertion that fails, as an error
            dialect: Any = import_module("sqlalchemy.dialects.postgresql")
            skipping = dialect.insert(self._table).on_conflict_do_nothing()
            self._insertion = skipping.returning(self._table.c.call_id)

    def claim_all(self, requests: Sequence[ClaimRequest], seconds: float) -> list[Claim]:
        """Claim RAG calls, and return the outcome for each of them."""

        def claim() -> list[Claim]:
            self._create()
            return [self._claim(*request, seconds) for request in requests]

        return self._ask(claim)

    def _claim(self, call: str, owner: str, takes_over: str, seconds: float) -> Claim:
        table, now = self._table, self._clock()
        claimed = {"owner": owner, "until": now + seconds, "done": False}
        self._n_claims += 1
        if self._n_claims % self._cleaning == 0:
            self._execute(table.delete().where(table.c.until < now))
        # An insert first: where two workers claim at the same moment, the primary key lets only one through.
        if self._insert(call_id=call, **claimed):
            return "claimed"
        own = self._sql.and_(table.c.owner.startswith(takes_over or owner, autoescape=True), table.c.done.is_(False))
        mine = self._sql.and_(table.c.call_id == call, self._sql.or_(own, table.c.until < now))
        if self._execute(table.update().where(mine).values(**claimed)).rowcount:
            return "claimed"
        with self._engine.connect() as connection:
            done = connection.execute(self._sql.select(table.c.done).where(table.c.call_id == call)).scalar()
        return "done" if done else "held"

    def holds(self, call: str, owner: str) -> bool:
        """Return True unless another owner has claimed the RAG call meanwhile."""
        table = self._table
        others = self._sql.and_(table.c.call_id == call, self._sql.or_(table.c.owner != owner, table.c.done))
        query = self._sql.select(table.c.call_id).where(others)

        def is_held() -> bool:
            with self._engine.connect() as connection:
                return connection.execute(query).first() is None

        return self._ask(is_held)

    def confirm(self, *calls: str) -> None:
        """Mark RAG calls as done: their scores are delivered, and no worker can claim them again."""
        table = self._table
        done = {"done": True, "until": self._clock() + KEPT_SECONDS}
        self._ask(partial(self._execute, table.update().where(table.c.call_id.in_(calls)).values(**done)))

    def release(self, call: str, owner: str) -> None:
        """Release the claim of *owner*, so that the RAG call can be claimed again at once."""
        table = self._table
        mine = self._sql.and_(table.c.call_id == call, table.c.owner == owner, table.c.done.is_(False))
        self._ask(partial(self._execute, table.delete().where(mine)))

    def close(self) -> None:
        """Close the connections to the database."""
        self._threads.shutdown()
        self._engine.dispose()

    def _ask(self, ask: Callable[[], T]) -> T:
        """Run a database operation on another thread, and return its result.

        Raise a `TimeoutError` if it takes too long.
        """
        answer = self._threads.submit(ask)
        try:
            return answer.result(self._timeout)
        except FutureTimeoutError:  # before Python 3.11 not the built-in one
            answer.cancel()  # one that still waits for a thread
            raise TimeoutError(f"the database has not answered within {self._timeout:g} s") from None

    def _create(self) -> None:
        """Create the table of claims on first use, so that the worker can start before the database."""
        if self._exists:
            return
        try:
            self._table.metadata.create_all(self._engine)
        except self._sql.exc.DatabaseError:  # another worker may have created the table at the same moment
            if not self._sql.inspect(self._engine).has_table(self._table.name):
                raise
        self._exists = True

    def _insert(self, **values: object) -> bool:
        """Insert a claim into the table, and return False if the call has one already."""
        with suppress(self._sql.exc.IntegrityError), self._engine.begin() as connection:
            inserted = connection.execute(self._insertion.values(values))
            return not inserted.returns_rows or inserted.first() is not None
        return False

    def _execute(self, statement: Any) -> Any:
        with self._engine.begin() as connection:
            return connection.execute(statement)


def _make_sqlite_fast(connection: Any, _: object) -> None:
    """Configure SQLite to wait for the disk at checkpoints only, so that a claim takes less than a millisecond."""
    with suppress(sqlite3.OperationalError):  # locked: another worker is setting the mode, which holds for all
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
