"""Field names under which RAG applications keep texts, ids, scores, answers and questions, most likely first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# --- One passage -----------------------------------------------------------------------------------------------------
TEXT: Final = (
    "page_content", "text", "content", "document", "passage", "chunk", "body", "snippet", "excerpt", "chunk_text",
    "chunk_content", "contents",
)  # fmt: skip
INSIDE: Final = (
    "node", "document", "doc", "chunk", "passage", "content", "text_resource", "_source", "payload", "properties",
    "entity", "fields", "metadata", "meta", "highlight",
)  # fmt: skip
"""Fields in which a record without a text of its own keeps the passage: search hits, scored nodes, points."""
METADATA: Final = ("metadata", "meta")
ID: Final = ("id", "chunk_id", "doc_id", "document_id", "id_", "_id", "uuid", "file_id")
METADATA_ID: Final = ("id", "chunk_id", "doc_id", "document_id")
NAME: Final = ("source", "file_name", "url", "title")
"""Fields with the name of the document that a passage is from, used as id where there is no other."""
SCORE: Final = (
    "relevance_score", "score", "similarity", "similarity_score", "_score", "rerank_score", "@search.score",
    "relevance",
)  # fmt: skip
"""Fields with the relevance, where higher is better. A distance points the other way and is therefore left out."""
METADATA_SCORE: Final = ("relevance_score", "score", "similarity")

# --- Several passages ------------------------------------------------------------------------------------------------
SEVERAL: Final = (
    "documents", "source_documents", "source_nodes", "nodes", "context", "contexts", "docs", "passages", "chunks",
    "retrieved_documents", "retrieved_contexts", "results", "retrievalResults", "matches", "hits", "points", "objects",
    "sources", "data", "items", "value", "body", "inner_hits", "children", "root", "result",
)  # fmt: skip
REFERENCES: Final = frozenset({"sources"})
"""Fields in which strings are file names or addresses rather than passages."""
NAMING: Final = ("document", "chunk", "passage")
"""Fields of a record with the text of a passage, or with the id of what it is from."""
JOINED: Final = frozenset({"context", "contexts", "documents", "passages", "chunks", "docs", "retrieved_contexts"})
"""Fields that may hold all passages joined to one string."""
IDS: Final = ("ids",)
SCORES: Final = ("scores", "similarities", "relevance_scores")

# --- Answers ---------------------------------------------------------------------------------------------------------
ANSWER: Final = (
    "answer", "output_text", "response", "result", "output", "content", "text", "message", "reply", "completion",
    "final_answer", "final_output", "generated_text", "generation", "blocks", "answers", "replies", "chat_message",
    "messages", "data",
)  # fmt: skip
ONLY_ANSWER: Final = ("answer", "response", "reply", "completion", "final_answer", "final_output", "generation")
"""Those that no passage has, whatever its class is named."""
ALTERNATIVES: Final = frozenset({"answers", "replies"})
"""Fields with a list of answers, of which the first counts."""
INNER_ANSWER: Final = ("answers", "replies", "answer", "messages")
"""Fields with the answer in the result of one component of a pipeline."""
ANSWER_DOCUMENTS: Final = (
    "source_documents", "source_nodes", "context", "contexts", "documents", "retrieved_documents",
    "retrieved_contexts", "docs", "passages", "chunks", "sources",
)  # fmt: skip
PIECE: Final = ("content", "text", "token", "answer", "output_text", "response", "output", "result")
"""Fields with the text of one piece of a stream; `message` is none of them, as pieces use it for progress notes."""
FACTS: Final = ("response_metadata", "meta", "raw")
"""Fields in which frameworks keep what the provider reports of a generation: model, token counts, finish reason."""
MODEL: Final = ("model", "model_name", "model_version", "modelVersion")
FINISH: Final = ("finish_reason", "stop_reason", "done_reason", "stopReason", "finishReason")
RESPONSE_ID: Final = ("id", "response_id", "responseId")
USAGE: Final = ("usage", "usage_metadata", "token_usage", "usageMetadata")
# Thoughts alone are counted in a reply of Gemini that ends before its first word.
INPUT_TOKENS: Final = (
    "input_tokens", "prompt_tokens", "inputTokens", "prompt_token_count", "promptTokenCount", "prompt_eval_count",
)  # fmt: skip
OUTPUT_TOKENS: Final = (
    "output_tokens", "completion_tokens", "outputTokens", "candidates_token_count", "candidatesTokenCount",
    "eval_count", "thoughts_token_count", "thoughtsTokenCount",
)  # fmt: skip
TOTAL_TOKENS: Final = ("total_tokens", "totalTokens", "total_token_count", "totalTokenCount")
APART: Final[Mapping[str, tuple[str, ...]]] = {
    "input_tokens": ("cache_read_input_tokens", "cache_creation_input_tokens"),
    "inputTokens": ("cacheReadInputTokens", "cacheWriteInputTokens"),
    "prompt_token_count": ("tool_use_prompt_token_count",),
    "promptTokenCount": ("toolUsePromptTokenCount",),
    "candidates_token_count": ("thoughts_token_count",),
    "candidatesTokenCount": ("thoughtsTokenCount",),
}
"""Counts of tokens that providers give beside another count, and not within it: of Anthropic, of Amazon Bedrock's
Converse, and of Gemini. In `gen_ai.usage.input_tokens` are all of a prompt's, cached ones too, and in
`gen_ai.usage.output_tokens` are those of thoughts."""
REFUSAL: Final = "refusal"
"""Field, and type of a part, with what a model of OpenAI says in place of an answer."""
TEXT_PARTS: Final = frozenset({"text", "output_text", "input_text", "text_delta"})
ASSISTANT: Final = frozenset({"assistant", "ai", "AIMessageChunk", "model"})

LIBRARIES: Final = frozenset(
    "langchain langchain_classic langchain_community langchain_core langgraph llama_index llama_cloud haystack"
    " haystack_integrations openai anthropic google vertexai cohere mistralai ollama groq litellm together voyageai"
    " huggingface_hub transformers sentence_transformers pydantic pydantic_ai dspy semantic_kernel agents smolagents"
    " chromadb qdrant_client weaviate pinecone pymilvus lancedb turbopuffer elastic_transport elasticsearch"
    " opensearchpy redisvl azure vespa txtai asyncpg psycopg sqlite3 sqlalchemy autogen_agentchat autogen_core crewai"
    " ragtrace".split()
)
"""Top-level packages whose properties and methods ragtrace may call, as they only show what the object holds."""

# --- Questions -------------------------------------------------------------------------------------------------------
QUESTION: Final = (
    "query", "question", "query_str", "user_query", "user_question", "user_input", "search_query", "prompt", "input",
    "inputs", "q", "messages", "message", "text", "content",
)  # fmt: skip
USER: Final = frozenset({"user", "human"})

VOCABULARY: Final = frozenset(
    (
        *TEXT, *INSIDE, *ID, *SCORE, *SEVERAL, *IDS, *SCORES, *ANSWER, *PIECE, *FACTS, *MODEL, *FINISH, *USAGE,
        *INPUT_TOKENS, *OUTPUT_TOKENS, *TOTAL_TOKENS, *(name for names in APART.values() for name in names), "tokens",
        *QUESTION, "choices", "delta", "role", "_role", "type", "tool_calls", "status_code", "headers", REFUSAL,
    )
)  # fmt: skip
"""Names of the only properties and slots that are ever read; an instance's dictionary is read freely."""
