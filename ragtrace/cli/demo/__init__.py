"""Demo of ragtrace: a real RAG application over real documents, whose calls ragtrace traces and scores."""
