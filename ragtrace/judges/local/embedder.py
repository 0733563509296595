"""Embeddings: from any OpenAI-compatible server, or from a function of the user's."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from ragtrace.core.cost import Cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.price import Price, check_price

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ragtrace.judges.local.embeddings import Embeddings

Vectors: TypeAlias = "Sequence[Sequence[float]] | NDArray[np.floating[Any]]"
"""(texts, d) numbers: lists, or an array."""


@runtime_checkable
class Embeds(Protocol):
    """An embedder that says what it cost."""

    async def embed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """One vector a text, all of one width. A failure is a `JudgeError`."""
        ...


EmbeddingFunction: TypeAlias = "Callable[[Sequence[str]], Vectors | Awaitable[Vectors]]"
Embedder: TypeAlias = "Embeds | EmbeddingFunction"
"""What an embedder may be: an object with `embed`, or a function, plain or a coroutine function."""
_DEFAULT_MODEL: Final = "text-embedding-3-small"


class OpenAIEmbedder:
    """Embeddings of an OpenAI-compatible server, asked for in base64, which is a quarter of the bytes.

    Example: `ragtrace.OpenAIEmbedder("nomic-embed-text", base_url="http://localhost:11434/v1", api_key="none")`

    Args:
        model: as the server calls it.
        base_url: of the server, with `/v1`; default: `OPENAI_BASE_URL`, else OpenAI.
        api_key: default: `OPENAI_API_KEY`.
        timeout: seconds for one request.
        price: US dollars for a million tokens; default: that of models we know, else the cost is not known.
    """

    def __init__(
        self,
        model: str = _DEFAULT_MODEL,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        price: Price | None = None,
    ) -> None:
        self.model = model
        check_price(price)
        self._base_url, self._api_key, self._timeout, self._price = base_url, api_key, timeout, price
        self._embeddings: Embeddings | None = None

    async def embed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """One vector a text, and what that cost.

        Raises:
            JudgeError: the server failed.
        """
        return await self._transport().embed(texts)

    async def aclose(self) -> None:
        """Close the connections."""
        transport, self._embeddings = self._embeddings, None
        if transport is not None:
            await transport.aclose()

    def _transport(self) -> Embeddings:
        from ragtrace.judges.local.embeddings import Embeddings

        if self._embeddings is None:
            self._embeddings = Embeddings(
                self.model, base_url=self._base_url, api_key=self._api_key, timeout=self._timeout, price=self._price
            )
        return self._embeddings


async def embed(embedder: Embedder, texts: Sequence[str]) -> tuple[object, Cost]:
    """What *embedder* makes of *texts*, unchecked. A plain function is called in a thread: it may block.

    Raises:
        JudgeError: whatever it raised.
    """
    try:
        if isinstance(embedder, Embeds):
            return await embedder.embed(texts)
        if inspect.iscoroutinefunction(embedder) or inspect.iscoroutinefunction(getattr(embedder, "__call__", None)):
            found: object = embedder(texts)
        else:
            found = await _in_thread(cast("Callable[[Sequence[str]], object]", embedder), texts)
        return (await cast("Awaitable[object]", found) if inspect.isawaitable(found) else found), Cost()
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError("unavailable", f"the embedder raised {type(error).__name__}", retryable=False) from error


async def _in_thread(function: Callable[[Sequence[str]], object], texts: Sequence[str]) -> object:
    """Not in asyncio's executor, whose threads a hung function would keep the process waiting for at exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def settle(value: object, error: Exception | None) -> None:
        if done.done():  # nobody waits for it any more
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = function(texts)
        except Exception as error:
            failure = error
        except BaseException as error:
            failure = RuntimeError(f"{type(error).__name__} in an embedder")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, name="ragtrace embedder", daemon=True).start()
    return await done


def cosines(found: object, texts: int) -> tuple[float, ...]:
    """Cosines of the first vector with each of the others.

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
        raise JudgeError("unparsable", f"the embedder returned {matrix.shape} for {texts} texts")
    if not np.isfinite(matrix).all():
        raise JudgeError("non_finite", "an embedding with NaN or infinity")
    largest = np.abs(matrix).max(axis=1, keepdims=True)  # first, for the squares of huge numbers overflow
    if not largest.all():
        raise JudgeError("zero_norm", "an embedding of zeros")
    scaled = matrix / largest
    unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return tuple(float(value) for value in unit[1:] @ unit[0])
