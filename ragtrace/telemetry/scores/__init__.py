"""Scores of calls as span attributes, evaluation events and metrics, and on extra spans if they come too late."""
