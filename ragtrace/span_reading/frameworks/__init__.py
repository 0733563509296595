"""Listeners that record the operations of RAG frameworks as steps of RAG calls, without decorators."""
