"""OTLP gateway of ragtrace, which receives spans of many processes, forwards them and scores their RAG calls."""
