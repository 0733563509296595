"""Runs the user's function, records its steps and builds the RAG call."""
