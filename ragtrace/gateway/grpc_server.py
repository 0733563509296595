"""OTLP/gRPC server of the gateway: the trace service, which hands the received bytes to the gateway unparsed."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
import grpc.aio

from ragtrace.gateway.otlp_requests import ExportRequest, ExportResult, RefusedError
from ragtrace.gateway.upstream import METHOD, SERVICE, retry_metadata

if TYPE_CHECKING:
    from ragtrace.gateway.gateway import Gateway

_CODES: Final = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "unsupported": grpc.StatusCode.INVALID_ARGUMENT,
    "too_large": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
}


def make_grpc_server(gateway: Gateway) -> grpc.aio.Server:
    """Create the gRPC server of the OTLP trace service, not yet started and without a port."""

    async def export(body: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        result = gateway.authorize(str(metadata.get("authorization", "")))
        if result is None:
            result = await _export(gateway, body)
        if result.status == "accepted":
            return result.response
        code, trailing = _CODES[result.status], ()
        if result.retry_after is not None:
            trailing = cast("Any", retry_metadata(code.value[0], result.message, result.retry_after))
        await cast("Awaitable[object]", context.abort(code, result.message, trailing))
        raise AssertionError("abort raises")

    # Largest number of requests in flight on one connection; further ones wait on the sender's side.
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", gateway.most_body_bytes),
            ("grpc.max_concurrent_streams", 64),
            ("grpc.so_reuseport", 0),  # otherwise a second gateway would share the port unnoticed
        ]
    )
    # Without (de)serialisers, gRPC passes messages as the bytes on the wire.
    handlers: dict[str, Any] = {METHOD.rpartition("/")[2]: grpc.unary_unary_rpc_method_handler(cast("Any", export))}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


async def _export(gateway: Gateway, body: bytes) -> ExportResult:
    try:
        gateway.reserve(len(body))
    except RefusedError as refused:
        return gateway.refuse(refused.result)
    try:
        return await gateway.export(ExportRequest(body, "protobuf"))
    finally:
        gateway.release(len(body))
