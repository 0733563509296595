"""A judge as a user would write one: asks a server over HTTP and says in ragtrace's terms what went wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Final

import httpx

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Claim
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from ragtrace.testing import FakeJudge

JUDGE_URL: Final = "FLEET_TEST_JUDGE_URL"
"""Environment variable with the address of the judge's server, for the workers of a fleet."""
_MOST_BYTES: Final = 1_000_000
_SUPPORTS: Final = ("supported", "contradicted", "partial", "not_found")


class HttpJudge:
    """Asks the server at *url*.

    Args:
        timeout: seconds for one request; None: as long as ragtrace gives it.
        keep_alive: keep connections for the next call. Then `close` must be awaited on the loop that asked.
    """

    version = "1"
    type: EvaluatorType = "llm_judge"

    def __init__(
        self,
        url: str,
        *,
        name: str = "http",
        timeout: float | None = None,
        keep_alive: bool = False,
    ) -> None:
        self.id, self._url, self._timeout = name, url, timeout
        self._limits = httpx.Limits(max_keepalive_connections=1 if keep_alive else 0)
        # One client for each request in flight, the one used last first: a pool of httpx looks through all of its
        # connections for each other one at every request, which at 64 connections took 12 ms.
        self._idle: list[httpx.AsyncClient] = []

    def offers(self, metric: Metric) -> bool:
        return metric.name in ("faithfulness", "hallucination")

    async def judge(self, call: RagCall) -> Judgement:
        """Raises `JudgeError` for everything a server and a network can do."""
        asked = {"query": call.query, "contexts": [d.text for d in call.contexts or ()], "answer": call.answer}
        client = self._idle.pop() if self._idle else self._open()
        try:
            async with client.stream("POST", self._url, json=asked) as response:
                _check(response.status_code, response.headers)
                body = await _read(response)
        except httpx.TimeoutException as error:
            raise JudgeError("timeout", type(error).__name__) from error
        except httpx.HTTPError as error:
            raise JudgeError("unavailable", type(error).__name__) from error
        finally:
            self._idle.append(client)
        return _judgement(call, body)

    def _open(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=self._timeout, limits=self._limits, trust_env=False, verify=False)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._idle:
            await client.aclose()


def screen() -> FakeJudge:
    """Return a screen that has the judge's metric."""
    return FakeJudge(Judgement((Claim("The tower is tall.", 0, 18, "supported"),), "answered"), name="screen")


def judge() -> HttpJudge:
    """Return the judge that the configuration of a fleet's worker names: here, as this module imports no pytest."""
    return HttpJudge(os.environ[JUDGE_URL], keep_alive=True)


def _check(status: int, headers: Mapping[str, str]) -> None:
    if status == 429 or status >= 500:
        raise JudgeError("unavailable", f"HTTP {status}", retry_after=_seconds(headers.get("retry-after")))
    if status >= 400:
        raise JudgeError("unavailable", f"HTTP {status}", retryable=False)


def _seconds(value: str | None) -> float | None:
    """A Retry-After header, which is a number of seconds or a date."""
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return None


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > _MOST_BYTES:
            raise JudgeError("unparsable", f"a reply of more than {_MOST_BYTES} bytes")
    return bytes(body)


def _judgement(call: RagCall, body: bytes) -> Judgement:
    try:
        reply = json.loads(body)
        support = reply["support"]
        if support not in _SUPPORTS:
            raise ValueError(support)
    except (ValueError, KeyError, TypeError) as error:
        raise JudgeError("unparsable", f"{type(error).__name__}: {error}"[:200]) from error
    answer = call.answer or ""
    claim = Claim(answer, 0, len(answer), support)
    return Judgement((claim,), "answered", mode="http", n_calls=1, input_tokens=int(reply["tokens"]))
