"""Scores as span attributes, evaluation events and metrics."""
