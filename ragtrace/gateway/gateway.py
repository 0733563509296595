"""Gateway that receives OTLP export requests with spans, forwards and acknowledges them, and has the spans scored."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.metrics import CallbackOptions, Observation

from ragtrace.core import semconv
from ragtrace.gateway.otlp_requests import (
    ExportRequest,
    ExportResult,
    Payload,
    RefusedError,
    partial_success,
    read_payload,
)
from ragtrace.gateway.upstream import RETRY_AFTER_SECONDS, Upstream

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

    from ragtrace.gateway.span_scoring import SpanScorer

_BEARER: Final = "bearer "


class Gateway:
    """OTLP gateway that forwards each export request to an upstream endpoint, then acknowledges it.

    A request is acknowledged after the upstream has accepted it; without an upstream, after its spans have been queued
    for scoring. Nothing is kept to be forwarded later: if the upstream is away, the sender is asked to try again.
    `received = forwarded + accepted + rejected + refused` holds for the spans of finished requests that could be read.

    Args:
        upstream: takes the received requests; None: they are not forwarded.
        scorer: scores the calls in the spans; None: none is scored.
        token: bearer token that each request must have; empty: none.
        most_body_bytes: size of one request, decompressed.
        most_in_flight_bytes: size of all requests that are not answered yet, as received and decompressed.
    """

    def __init__(
        self,
        upstream: Upstream | None,
        scorer: SpanScorer | None,
        *,
        token: str = "",
        most_body_bytes: int,
        most_in_flight_bytes: int,
    ) -> None:
        self._upstream, self.scorer, self._token = upstream, scorer, token.encode()
        self.most_body_bytes, self._most_in_flight_bytes = most_body_bytes, most_in_flight_bytes
        self.draining = False
        """Whether the gateway is shutting down and asks all senders to try again elsewhere."""
        self._in_flight = 0
        self._requests: Counter[tuple[str, str]] = Counter()
        self._spans: Counter[tuple[str, str]] = Counter()

    def authorize(self, authorization: str) -> ExportResult | None:
        """Check the `Authorization` header of an export request, and return a refusal, or None if it is valid."""
        given = authorization[len(_BEARER) :] if authorization[: len(_BEARER)].lower() == _BEARER else ""
        if not self._token or hmac.compare_digest(given.strip().encode(), self._token):
            return None
        return self.refuse(ExportResult("unauthenticated", "unauthenticated", "a valid bearer token is needed"))

    def refuse(self, result: ExportResult) -> ExportResult:
        """Count an export request that is refused before its spans are read.

        Return *result* unchanged.
        """
        self._requests["refused", result.reason] += 1
        return result

    def reserve(self, size: int) -> None:
        """Add *size* bytes to the total size of unanswered export requests.

        The caller must release them when the request is answered.

        Raises:
            RefusedError: there are too many of them; none is counted.
        """
        if self._in_flight + size > self._most_in_flight_bytes:
            raise RefusedError(
                "unavailable", "overloaded", "too many requests are not answered yet", RETRY_AFTER_SECONDS
            )
        self._in_flight += size

    def release(self, size: int) -> None:
        """Subtract *size* bytes from the total size of unanswered export requests."""
        self._in_flight -= size

    async def export(self, request: ExportRequest) -> ExportResult:
        """Handle an OTLP export request: forward it, queue its spans for scoring, and return the response for the
        sender.

        The sender's server has reserved the bytes of the request.
        """
        if self.draining:
            return self.refuse(_try_again("shutdown", "the gateway is shutting down"))
        decompressed = 0
        try:
            payload = read_payload(request, self.most_body_bytes)
            if payload.body is not request.body:
                self.reserve(len(payload.body))
                decompressed = len(payload.body)
            self._spans["received", ""] += payload.spans
            try:
                result = await self._take(request, payload)
            except RefusedError as refused:
                result = refused.result
            except BaseException:  # the sender has disconnected, and will send the request again
                self._spans["refused", "cancelled"] += payload.spans
                self._requests["refused", "cancelled"] += 1
                raise
            self._count_spans(payload, result)
        except RefusedError as refused:
            result = refused.result
        finally:
            self.release(decompressed)
        if result.status != "accepted":
            return self.refuse(result)
        self._requests["accepted", ""] += 1
        return result

    async def _take(self, request: ExportRequest, payload: Payload) -> ExportResult:
        if self._upstream is not None:
            result = await self._upstream.send(request, payload)
            if result.status == "accepted" and self.scorer is not None and not self.scorer.offer(payload):
                self.scorer.count_dropped(payload.spans)
            return result
        if self.scorer is not None and not self.scorer.offer(payload):
            return _try_again("queue_full", "too many spans wait to be scored")
        if not payload.without_ids:
            return ExportResult("accepted")
        message = "spans without a valid trace id or span id are not accepted"
        response = partial_success(payload.without_ids, message, payload.content)
        return ExportResult("accepted", response=response, rejected=payload.without_ids)

    def _count_spans(self, payload: Payload, result: ExportResult) -> None:
        if result.status != "accepted":
            self._spans["refused", result.reason] += payload.spans
            return
        rejected = min(result.rejected, payload.spans)
        self._spans["accepted" if self._upstream is None else "forwarded", ""] += payload.spans - rejected
        if rejected:
            self._spans["rejected", ""] += rejected

    # --- counts and metrics -------------------------------------------------------------------------------------------

    def request_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of export requests by outcome (`accepted`, `refused`) and reason."""
        return dict(self._requests)

    def span_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of spans in well-formed export requests.

        They are counted by outcome (`received`, `forwarded`, `accepted`, `rejected`, `refused`) and reason.
        """
        return dict(self._spans)

    def add_metrics(self, meter: Meter) -> None:
        """Create the observable instruments of the gateway's own metrics with *meter*."""
        s, scorer = semconv, self.scorer
        counter, gauge = meter.create_observable_counter, meter.create_observable_gauge

        def observed(read: Any) -> Any:
            def observe(_: CallbackOptions) -> Iterable[Observation]:
                return _observations(read())

            return [observe]

        def single(read: Any) -> Any:
            def observe(_: CallbackOptions) -> Iterable[Observation]:
                return [Observation(read())]

            return [observe]

        about = "Export requests that the gateway has received, by outcome: accepted, refused"
        counter(s.METRIC_GATEWAY_REQUESTS, observed(self.request_counts), "{request}", about)
        about = (
            "Spans in readable export requests: received = forwarded + accepted (where nothing is forwarded)"
            " + rejected (by a partial success) + refused"
        )
        counter(s.METRIC_GATEWAY_SPANS, observed(self.span_counts), "{span}", about)
        about = "Size of the export requests that are not answered yet"
        gauge(s.METRIC_GATEWAY_IN_FLIGHT, single(lambda: self._in_flight), "By", about)
        if scorer is not None:
            about = (
                "Received spans by what came of reading them for scoring: read; dropped, with the reason; left_out,"
                " those among the read ones that are in no call"
            )
            counter(s.METRIC_GATEWAY_SCORING_SPANS, observed(scorer.span_counts), "{span}", about)
            about = "Calls in received spans: submitted to be scored, or skipped as evaluated before"
            counter(s.METRIC_GATEWAY_CALLS, observed(scorer.call_counts), "{call}", about)
            about = "Size of the requests that wait to be read for scoring"
            gauge(s.METRIC_GATEWAY_QUEUE, single(lambda: scorer.queued_bytes), "By", about)
            about = "Steps whose call is not complete yet"
            gauge(s.METRIC_GATEWAY_WAITING, single(lambda: scorer.waiting_spans), "{span}", about)


def _try_again(reason: str, message: str) -> ExportResult:
    return ExportResult("unavailable", reason, message, RETRY_AFTER_SECONDS)


def _observations(counts: Mapping[tuple[str, str], int]) -> Iterable[Observation]:
    for (outcome, reason), count in counts.items():
        yield Observation(count, {semconv.OUTCOME: outcome, **({semconv.REASON: reason} if reason else {})})
