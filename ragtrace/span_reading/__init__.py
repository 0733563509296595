"""Reading of finished spans, from ragtrace or other instrumentations, back into RAG calls."""
