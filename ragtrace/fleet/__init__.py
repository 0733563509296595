"""OTLP gateway of ragtrace, which receives spans from many processes, forwards the spans and scores the RAG calls in
them.
"""
