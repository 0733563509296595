"""The demo: a real RAG application over real documents, watched by ragtrace."""
