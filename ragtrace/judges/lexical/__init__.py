"""The embedded judge: evidence found by words, without a model."""
