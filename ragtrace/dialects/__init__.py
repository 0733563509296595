"""Span attribute conventions, one module for each, in which the steps of RAG calls are written."""
