"""Embedders, which turn texts into vectors: any OpenAI-compatible server, or a user's function."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import struct
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from ragtrace.core.cost import Cost, record_cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.price import Price, check_price, cost_of_rejection, cost_of_reply, list_price, read_usage
from ragtrace.judges.llm.completions import check_error, read_json
from ragtrace.judges.llm.response_format import TEXT, capabilities_of
from ragtrace.judges.llm.server_connection import ClientMaker, ServerConnection
from ragtrace.judges.llm.server_errors import ServerError
from ragtrace.system.forks import PerProcess
from ragtrace.system.threads import DaemonPool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "Sequence[Sequence[float]] | NDArray[np.floating[Any]]"
"""Embedding vectors of some texts: lists or an array of numbers with the shape (texts, dimensions)."""


@runtime_checkable
class EmbedderWithCost(Protocol):
    """Protocol of an embedder that returns the vectors of texts together with their cost."""

    async def embed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Return one embedding vector for each text, all of the same length, and their cost.

        Raises a `JudgeError` if that fails.
        """
        ...


EmbeddingFunction: TypeAlias = "Callable[[Sequence[str]], Vectors | Awaitable[Vectors]]"
Embedder: TypeAlias = "EmbedderWithCost | EmbeddingFunction"
"""Embedder of texts: an object with the method `embed`, a function, or a coroutine function."""
_TEXTS_AT_A_TIME: Final = 24
"""Most texts in a request: their vectors of 3,072 numbers, as JSON text, stay below the longest reply that is read."""
_threads = PerProcess(lambda: DaemonPool(1_000, "ragtrace-embedder", idle_seconds=10.0))


class OpenAIEmbedder:
    """Embedder that requests the vectors of texts from an OpenAI-compatible server.

    The server is asked to send the vectors in base64, a quarter of the bytes.

    Examples:
        >>> url = "http://localhost:11434/v1"
        >>> embedder = ragtrace.judges.OpenAIEmbedder("nomic-embed-text", base_url=url, api_key="none")
        >>> judge = ragtrace.OpenAIJudge("qwen2.5", base_url=url, api_key="none", embedder=embedder)
        >>> ragtrace.configure(exporter="none", judge=judge, metrics=["answer_relevancy_similarity"])

    Args:
        model: name of the model at the server.
        base_url: address of the server, with `/v1`; default: `OPENAI_BASE_URL`, else OpenAI.
        api_key: default: `OPENAI_API_KEY`.
        timeout: seconds for one request.
        client: function that makes an `AsyncOpenAI` client in place of the two; see `OpenAIJudge`.
        price: US dollars for a million tokens; default: that of models we know, else the cost is not known.

    Raises:
        SettingsError: *price* is no price, or *timeout* not positive.
    """

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        client: ClientMaker | None = None,
        price: Price | None = None,
    ) -> None:
        check_price(price)
        self.model, self._price = model, price
        self._connection = ServerConnection(base_url=base_url, api_key=api_key, timeout=timeout, client=client)

    async def embed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Return one embedding vector for each text, all finite and of the same length, and their cost.

        Raises:
            JudgeError: "unavailable", "timeout", "unparsable" or "non_finite"; with the cost of all requests.
        """
        cost, vectors = Cost(), list[list[float]]()
        try:
            for start in range(0, len(texts), _TEXTS_AT_A_TIME):
                some = list(texts[start : start + _TEXTS_AT_A_TIME])
                reply, paid = await self._request(some)
                cost += paid
                vectors += read_vectors(reply, len(some))
            _check_widths(vectors)
        except JudgeError as error:
            raise (cost + Cost.from_report(error)).set_on_error(error) from error.__cause__
        return vectors, cost

    async def aclose(self) -> None:
        """Close the connections to the embedding server that the running event loop has opened."""
        await self._connection.aclose()

    async def _request(self, texts: list[str]) -> tuple[dict[str, Any], Cost]:
        """Request the vectors of *texts* from the server. Return the reply and the cost of all attempts."""
        server = self._connection.server
        price = self._price or list_price(self.model, server)
        capabilities, rejected = capabilities_of(self._connection.url, self.model), Cost()
        # Most requests for the same texts, each without the options that the server rejected before.
        for _ in range(4):
            # base64 is a third of the digits, and read in a tenth of the time
            wanted: dict[str, object] = {"model": self.model, "input": texts, "encoding_format": "base64"}
            body = {name: value for name, value in wanted.items() if name not in capabilities.dropped}
            record_cost(Cost(1))
            try:
                reply = read_json((await self._connection.post("/embeddings", body)).decode("utf-8", "replace"))
                check_error({"choices": reply.get("data"), **reply})
                paid = cost_of_reply(read_usage(reply), price)
                record_cost(replace(paid, n_calls=0))
                return reply, rejected + paid
            except JudgeError as error:
                learned = isinstance(error, ServerError) and capabilities.learn_from_error(error, body, TEXT)
                rejected += cost_of_rejection(price) if isinstance(error, ServerError) else Cost(1)
                if not learned:
                    raise rejected.set_on_error(error) from error.__cause__
        raise rejected.set_on_error(JudgeError("unavailable", f"{server} rejects every request"))


def read_vectors(reply: dict[str, Any], count: int) -> list[list[float]]:
    """Return the *count* embedding vectors in a server's *reply*, in the order of their index.

    All must be finite and of one length.

    Raises:
        JudgeError: "unparsable" or "non_finite".
    """
    data = reply.get("data")
    found: dict[int, list[float]] = {}
    for place, item in enumerate(cast("list[object]", data) if isinstance(data, list) else []):
        entry = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        index: object = entry.get("index", place)
        found[index if type(index) is int else -1] = _vector(entry.get("embedding"))
    if set(found) != set(range(count)):
        raise JudgeError(
            "unparsable", f"expected embeddings with the indices 0 to {count - 1}, got {sorted(found)[:10]}"
        )
    vectors = [found[index] for index in range(count)]
    _check_widths(vectors)
    return vectors


def _vector(embedding: object) -> list[float]:
    """Decode one embedding, sent as a list of numbers or as little-endian 32-bit floats in base64."""
    items = cast("list[object]", embedding) if isinstance(embedding, list) else []
    if not all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in items):
        raise JudgeError("unparsable", "an embedding with something that is no number")
    try:
        if isinstance(embedding, str):
            items += [value for (value,) in struct.iter_unpack("<f", b64decode(embedding, validate=True))]
        vector = [float(item) for item in cast("list[float]", items)]
    except (ValueError, struct.error) as error:
        raise JudgeError("unparsable", f"an embedding is not valid base64: {error}") from None
    except OverflowError:  # an integer of 400 digits
        vector = [math.inf]
    if not vector:
        raise JudgeError("unparsable", "an embedding is neither base64 nor a list of numbers, or it is empty")
    if not all(map(math.isfinite, vector)):
        raise JudgeError("non_finite", "an embedding with NaN or infinity")
    return vector


def _check_widths(vectors: list[list[float]]) -> None:
    widths = {len(vector) for vector in vectors}
    if len(widths) > 1:
        raise JudgeError("unparsable", f"embeddings of different lengths: {sorted(widths)}")


async def embed(embedder: Embedder, texts: Sequence[str]) -> tuple[object, Cost]:
    """Return the embedding vectors that *embedder* computes for *texts*, and their cost.

    The vectors are not validated. A plain function may block, so it is called in a daemon thread. (A thread of
    asyncio's executor would keep the process waiting at exit for a function that hangs.)

    Raises:
        JudgeError: *embedder* raised an exception.
    """

    def call() -> object:
        try:
            return cast("EmbeddingFunction", embedder)(texts)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            raise RuntimeError(f"{type(error).__name__} in an embedder") from error  # SystemExit would end the loop

    try:
        if isinstance(embedder, EmbedderWithCost):
            return await embedder.embed(texts)
        if inspect.iscoroutinefunction(embedder) or inspect.iscoroutinefunction(getattr(embedder, "__call__", None)):
            found = call()
        else:
            found = await asyncio.wrap_future(_threads.get().submit(contextvars.copy_context().run, call))
        return (await cast("Awaitable[object]", found) if inspect.isawaitable(found) else found), Cost()
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError("unavailable", f"the embedder raised {type(error).__name__}", retryable=False) from error


def cosine_similarities(found: object, texts: int) -> tuple[float, ...]:
    """Return the cosine similarity of the first vector with each of the others.

    Args:
        found: (texts, d) numbers, not all equal to 0 in any row; rows need not be of unit length.

    Raises:
        JudgeError: "unparsable": not of that shape; "non_finite"; "zero_norm": a vector has no direction.
    """
    import numpy as np

    try:
        matrix = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise JudgeError("unparsable", "the embedder returned no matrix of numbers") from None
    if matrix.ndim != 2 or matrix.shape[0] != texts or not matrix.shape[1]:
        raise JudgeError(
            "unparsable",
            f"the embedder returned the shape {matrix.shape}; expected one row for each of the {texts} texts",
        )
    if not np.isfinite(matrix).all():
        raise JudgeError("non_finite", "an embedding with NaN or infinity")
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # first, for the squares of huge numbers overflow
    if not largest.all():
        raise JudgeError("zero_norm", "an embedding of zeros")
    scaled = matrix / largest
    unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return tuple(float(value) for value in unit[1:] @ unit[0])
