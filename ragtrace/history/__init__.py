"""History of RAG calls with their scores, in a SQLite file."""
