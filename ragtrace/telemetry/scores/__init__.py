"""Export of a RAG call's scores as span attributes, evaluation events and metrics.

Scores that come too late for their span are exported on an extra span.
"""
