"""RAG calls from finished spans, from ragtrace or other instrumentations, and from listeners of frameworks."""
