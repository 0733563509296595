"""OTLP gateway of ragtrace: receives spans of many processes, forwards them and scores the RAG calls in them."""
