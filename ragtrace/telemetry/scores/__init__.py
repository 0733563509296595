"""Scores as span attributes, evaluation events, carrier spans and metrics."""
