"""Metrics: arithmetic over a judge's labels."""
