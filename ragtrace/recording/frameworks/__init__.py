"""Listeners in RAG frameworks, which record runs of the framework as the steps of RAG calls, without decorators."""
