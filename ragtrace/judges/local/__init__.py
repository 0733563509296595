"""Judges and scorers that run a model in this process, and embeddings."""
