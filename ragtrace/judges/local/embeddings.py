"""`Embeddings`: texts to vectors, by any server with OpenAI's embeddings endpoint."""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ragtrace.core.cost import Cost, record_cost
from ragtrace.core.errors import JudgeError
from ragtrace.core.price import Price, cost_of_refusal, cost_of_reply, price_of, read_usage
from ragtrace.judges.llm.completions import check_error, read_json
from ragtrace.judges.llm.openai_client import Wire
from ragtrace.judges.llm.response_format import TEXT, habits_of
from ragtrace.judges.llm.server_errors import ServerError

_AT_A_TIME: Final = 24
"""Texts in one request: vectors of 3,072 numbers, written as JSON text, stay below the longest reply we read."""
_MOST_LESSONS: Final = 4


class Embeddings:
    """An embedding model behind an OpenAI-compatible server.

    Args:
        model: its name, as the server knows it.
        dimensions: length of the vectors, for models that can shorten them; None: as the model makes them.
        base_url, api_key, timeout, price, client: as of `Chat`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        price: Price | None = None,
        client: object | None = None,
        dimensions: int | None = None,
    ) -> None:
        self.model, self._price, self._dimensions = model, price, dimensions
        self._wire = Wire(base_url=base_url, api_key=api_key, timeout=timeout, client=client)

    @property
    def server(self) -> str:
        """Its base URL."""
        return self._wire.server

    @property
    def price(self) -> Price | None:
        """US dollars for a million tokens; None: not known."""
        return self._price or price_of(self.model, self.server)

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], Cost]:
        """A vector for each of *texts*, in order, all of the same length and finite; and what that cost.

        Raises:
            JudgeError: "unavailable", "timeout", "unparsable" or "non_finite"; with what was spent.
        """
        spent, vectors = Cost(), list[list[float]]()
        try:
            for start in range(0, len(texts), _AT_A_TIME):
                some = list(texts[start : start + _AT_A_TIME])
                answer, cost = await self._ask(some)
                spent += cost
                vectors += read_vectors(answer, len(some))
            _check_widths(vectors)
        except JudgeError as error:
            raise (spent + Cost.of(error)).on_error(error) from error.__cause__
        return vectors, spent

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._wire.aclose()

    async def _ask(self, texts: list[str]) -> tuple[dict[str, Any], Cost]:
        known, vain = habits_of(self.server, self.model), Cost()
        for _ in range(_MOST_LESSONS):
            # base64 is a third of the digits, and read in a tenth of the time
            wanted: dict[str, object] = {"model": self.model, "input": texts, "encoding_format": "base64"}
            if self._dimensions is not None:
                wanted["dimensions"] = self._dimensions
            body = {name: value for name, value in wanted.items() if name not in known.dropped}
            record_cost(Cost(1))
            try:
                answer = read_json((await self._wire.post("/embeddings", body)).decode("utf-8", "replace"))
                check_error({"choices": answer.get("data"), **answer})
                spent = cost_of_reply(read_usage(answer), self.price)
                record_cost(replace(spent, n_calls=0))
                return answer, vain + spent
            except ServerError as error:
                vain += cost_of_refusal(self.price)
                if _wanted_dimensions(error, body) or not known.learn(error, body, TEXT):
                    raise vain.on_error(error) from error.__cause__
            except JudgeError as error:
                raise (vain + Cost(1)).on_error(error) from error.__cause__
        raise vain.on_error(JudgeError("unavailable", f"{self.server} rejects every request"))


def _wanted_dimensions(error: ServerError, body: dict[str, object]) -> bool:
    """Vectors of another length than the user wants are no replacement."""
    return "dimensions" in body and "dimension" in error.parts.text


def read_vectors(answer: dict[str, Any], count: int) -> list[list[float]]:
    """The vectors of an answer in the order of their index: exactly *count*, finite and of one length.

    Raises:
        JudgeError: "unparsable" or "non_finite".
    """
    data = answer.get("data")
    found: dict[int, list[float]] = {}
    for place, item in enumerate(cast("list[object]", data) if isinstance(data, list) else []):
        entry = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        index: object = entry.get("index", place)
        found[index if type(index) is int else -1] = _vector(entry.get("embedding"))
    if set(found) != set(range(count)):
        raise JudgeError("unparsable", f"{count} embeddings wanted, got those of {sorted(found)[:10]}")
    vectors = [found[index] for index in range(count)]
    _check_widths(vectors)
    return vectors


def _vector(embedding: object) -> list[float]:
    if isinstance(embedding, str):
        vector = _unpacked(embedding)
    elif isinstance(embedding, list):
        numbers = cast("list[object]", embedding)
        vector = [_number(n) for n in numbers if isinstance(n, (int, float)) and not isinstance(n, bool)]
        if len(vector) != len(numbers):
            raise JudgeError("unparsable", "an embedding with something that is no number")
    else:
        raise JudgeError("unparsable", f"an embedding is {type(embedding).__name__}, neither base64 nor numbers")
    if not vector:
        raise JudgeError("unparsable", "an embedding without numbers")
    if not all(map(math.isfinite, vector)):
        raise JudgeError("non_finite", "an embedding with NaN or infinity")
    return vector


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of 400 digits
        return math.inf


def _unpacked(text: str) -> list[float]:
    """Little-endian floats of 32 bits, in base64."""
    numbers = array("f")
    try:
        numbers.frombytes(b64decode(text, validate=True))
    except ValueError as error:
        raise JudgeError("unparsable", f"an embedding is not valid base64: {error}") from None
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _check_widths(vectors: list[list[float]]) -> None:
    widths = {len(vector) for vector in vectors}
    if len(widths) > 1:
        raise JudgeError("unparsable", f"embeddings of different lengths: {sorted(widths)}")
