"""Embedded judge, which compares the words of an answer with those of the retrieved chunks and needs no model."""
