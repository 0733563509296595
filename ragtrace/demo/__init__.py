"""Demo of ragtrace: a real RAG application over real documents, traced and scored by ragtrace."""
