"""Listeners in RAG frameworks, which record what the frameworks run as steps of RAG calls, without decorators."""
