"""Embeddings of a server, and cosines of whatever an embedder returns."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Score, Unscored
from ragtrace.judges.llm.embedder import EmbedderWithCost, OpenAIEmbedder, cosine_similarities, embed
from ragtrace.testing import OpenAIServer


def test_a_server_is_asked_in_base64() -> None:
    """One vector a text, and its tokens counted."""
    with OpenAIServer() as server:

        async def both() -> tuple[object, int]:
            embedder = OpenAIEmbedder("local", base_url=server.url, api_key="none")
            assert isinstance(embedder, EmbedderWithCost)
            try:
                vectors, spent = await embedder.embed(["a depot in Ghent", "a port"])
            finally:
                await embedder.aclose()
            return vectors, spent.n_calls

        vectors, n_calls = asyncio.run(both())
    assert n_calls == 1
    assert len(cosine_similarities(vectors, 2)) == 1
    (request,) = server.requests
    assert request.path.endswith("/embeddings")
    assert request.body["encoding_format"] == "base64"


def test_a_judge_with_an_embedder_gives_similarities() -> None:
    """From end to end, against a model server: one chat call and one embedding call for each of the two."""
    with OpenAIServer() as server:
        embedder = ragtrace.judges.OpenAIEmbedder("local", base_url=server.url, api_key="none")
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none", embedder=embedder)
        found = ragtrace.score(
            query="Where is the depot?",
            contexts=["The depot is in Ghent."],
            answer="The depot is in Ghent.",
            reference="The depot is in Ghent.",
            metrics=["semantic_similarity", "answer_relevancy_similarity"],
            judge=judge,
        )
        assert server.n_chats == 1
    assert isinstance(found["semantic_similarity"], Score)
    assert found["semantic_similarity"].value == pytest.approx(1.0)
    assert isinstance(found["answer_relevancy_similarity"], Score)


def test_a_judge_with_an_embedder_can_be_used_again() -> None:
    """Each `score` closes the connections at its end, the embedder's too; the next one opens others."""
    with OpenAIServer() as server:
        embedder = ragtrace.judges.OpenAIEmbedder("local", base_url=server.url, api_key="none")
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none", embedder=embedder)
        call = {"answer": "It is in Ghent.", "reference": "It lies in Ghent."}
        for answer in ("It is in Ghent.", "It is in Bruges."):
            results = ragtrace.score(**{**call, "answer": answer}, judge=judge, metrics=["semantic_similarity"])
            assert isinstance(results["semantic_similarity"], Score)
        assert server.n_chats == 0


def test_every_family_is_answered_by_an_honest_server() -> None:
    """All metrics with replies of their own, from the reply of a server that knows no more than the schemas."""
    metrics = (
        "nugget_all factual_correctness_f1 noise_sensitivity_relevant noise_sensitivity_irrelevant completeness".split()
    )
    with OpenAIServer() as server:
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        found = ragtrace.score(
            query="Where is the depot?",
            contexts=["The depot is in Ghent.", "The port is in Antwerp."],
            answer="The depot is in Ghent.",
            reference="The depot is in Ghent.",
            metrics=[*metrics, ragtrace.metrics.g_eval("kindness", criteria="Is it kind?")],
            judge=judge,
        )
    assert found["completeness"].status == "not_applicable"  # type: ignore[union-attr]  # without a conversation
    for name in (*metrics[:-1], "kindness"):
        assert isinstance(found[name], Score), (name, found[name])


def test_a_server_that_fails_is_a_reason() -> None:
    """Nothing listens there."""
    embedder = OpenAIEmbedder("local", base_url="http://127.0.0.1:1/v1", api_key="none", timeout=2.0)
    with pytest.raises(JudgeError) as raised:
        asyncio.run(embed(embedder, ["a"]))
    assert raised.value.reason == "unavailable"


def test_a_plain_function_is_called_in_a_thread() -> None:
    """It may block; the event loop goes on."""
    started, go_on = threading.Event(), threading.Event()

    def blocking(texts: Sequence[str]) -> list[list[float]]:
        started.set()
        assert go_on.wait(5)
        return [[1.0]] * len(texts)

    async def both() -> object:
        task = asyncio.create_task(embed(blocking, ["a"]))
        assert await asyncio.to_thread(started.wait, 5)
        go_on.set()
        return (await task)[0]

    assert asyncio.run(both()) == [[1.0]]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([[0.0], [1.0]], "zero_norm"),
        ([[1.0], [0.0]], "zero_norm"),
        ([[math.inf], [1.0]], "non_finite"),
        ([[1.0], [math.nan]], "non_finite"),
        ([[1.0]], "unparsable"),
        ([[], []], "unparsable"),
        ([1.0, 2.0], "unparsable"),
        ([[1.0], [1.0, 2.0]], "unparsable"),
        (None, "unparsable"),
        ("ab", "unparsable"),
        ([["a"], ["b"]], "unparsable"),
    ],
)
def test_what_has_no_direction_has_no_cosine(found: object, expected: str) -> None:
    """Every defect has its reason."""
    with pytest.raises(JudgeError) as raised:
        cosine_similarities(found, 2)
    assert raised.value.reason == expected


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=2, max_size=4))
def test_cosines_lie_between_minus_one_and_one(rows: list[list[float]]) -> None:
    """Also of huge and of tiny numbers."""
    if all(any(row) for row in rows):
        assert all(-1 - 1e-9 <= value <= 1 + 1e-9 for value in cosine_similarities(rows, len(rows)))


def test_cosines_of_known_vectors() -> None:
    """Of the first with each of the others; rows need not be of unit length."""
    vectors = [[0.9, 0.4, 0.1], [0.85, 0.38, 0.09], [0.88, 0.39, 0.11], [0.87, 0.41, 0.10]]
    assert cosine_similarities(vectors, 4) == pytest.approx((0.9999860057, 0.9999200906, 0.9997538713), abs=1e-9)
    assert cosine_similarities([[1e200, 0.0], [-1e200, 0.0]], 2) == (-1.0,)


def test_without_an_embedder_the_reason_says_so() -> None:
    """And nothing is asked."""
    with OpenAIServer() as server:
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        found = ragtrace.score(
            query="q", contexts=["c"], answer="a", metrics=["answer_relevancy_similarity"], judge=judge
        )
        assert server.n_chats == 0
    result = found["answer_relevancy_similarity"]
    assert isinstance(result, Unscored)
    assert result.reason == "no_embedder"
