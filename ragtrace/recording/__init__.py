"""Execution of decorated functions, recorded as the steps of RAG calls."""
