"""Claims of workers on RAG calls, so that each call is judged only once.

An application queues a call again when it does not know that the broker has it, and a broker delivers a message again
when its worker is gone. A worker claims a call before it is judged, and confirms the claim when its scores are
delivered. A claim that is not confirmed expires. A message that is delivered again takes over the claim of its earlier
delivery, whose worker may live nevertheless: it asks before it sends scores whether it still has the claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

from ragtrace.core.score_id import score_id
from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

T = TypeVar("T")
Claim: TypeAlias = Literal["claimed", "held", "done"]
"""State of a call for a worker: this worker has the claim, another one holds it, or the scores are delivered."""
KEPT_SECONDS: Final = 90_000
"""Number of seconds for which a confirmed claim is kept: an hour longer than a call may wait in the queue."""
_STORE_SECONDS: Final = 5.0
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


class WorkerClaims:
    """Claims of RAG calls by one worker.

    If the store of claims does not answer, calls are judged without a claim.

    Args:
        store: the store; None: nothing is claimed.
        evaluator: id of the judge.
        evaluator_version: version of the judge.
        seconds: time for which a call may be held by a worker that does not confirm its claim.
    """

    def __init__(self, store: RedisClaims | None, evaluator: str, evaluator_version: str, seconds: float) -> None:
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

    def _ask(self, ask: Callable[[RedisClaims], T]) -> T | None:
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
    """Store in Redis of the workers' claims on RAG calls, shared by all workers of a fleet.

    Each call has one key, which expires. The methods raise the exceptions of the library `redis`.

    Args:
        url: of Redis.
        prefix: start of the names of the keys.
    """

    def __init__(self, url: str, prefix: str = "ragtrace:claim:") -> None:
        from redis import Redis

        self._prefix = prefix
        self._redis: Any = cast("Any", Redis).from_url(
            url, socket_timeout=_STORE_SECONDS, socket_connect_timeout=_STORE_SECONDS
        )

    def claim_all(self, requests: Sequence[ClaimRequest], seconds: float) -> list[Claim]:
        """Claim RAG calls, and return the outcome for each of them.

        Args:
            requests: the calls and their owners.
            seconds: time after which another owner may claim the calls, unless the claims are confirmed.
        """
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
