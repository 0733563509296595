"""Reading of finished spans, of other instrumentations and of ragtrace, back into RAG calls."""
