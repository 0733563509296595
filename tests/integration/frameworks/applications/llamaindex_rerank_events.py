"""Query engine of LlamaIndex with a reranker that reports its work, as those of Cohere, Jina and others do."""

from __future__ import annotations

from collections.abc import Callable

from applications import llamaindex_rerank
from applications.llamaindex_query import make_index, make_model
from corpus import TOP_K
from llama_index.core import get_response_synthesizer
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle

_dispatcher = get_dispatcher(__name__)


class WordRerank(BaseNodePostprocessor):
    """Reranker that keeps the nodes with most words of the question, and of equal ones the shortest first."""

    top_n: int = TOP_K

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        _dispatcher.event(
            ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=self.top_n, model_name="word-overlap")
        )
        words = set(query_bundle.query_str.lower().split()) if query_bundle else set()
        scored = [
            NodeWithScore(node=each.node, score=float(len(words & set(each.node.get_content().lower().split()))))
            for each in nodes
        ]
        chosen = sorted(scored, key=lambda each: (-(each.score or 0.0), len(each.node.get_content())))[: self.top_n]
        _dispatcher.event(ReRankEndEvent(nodes=chosen))
        return chosen


def make_engine(*, streaming: bool) -> RetrieverQueryEngine:
    """Return a query engine that retrieves twice as many nodes as the model gets to see."""
    return RetrieverQueryEngine(
        make_index().as_retriever(similarity_top_k=2 * TOP_K),
        get_response_synthesizer(llm=make_model(), streaming=streaming),
        node_postprocessors=[WordRerank()],
    )


def run(mode: str, log: Callable[..., None]) -> None:
    """Answer the questions, one after the other."""
    llamaindex_rerank.run(mode, log, make_engine)
